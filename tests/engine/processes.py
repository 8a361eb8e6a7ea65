"""Trainings in processes of their own, to be killed, stopped and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


class Training:
    """A training in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], pid: int, log: Path) -> None:
        self._process, self.pid, self._log = process, pid, log

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until the condition holds; a training that never gets there fails the test."""
        for _ in range(6000):
            if condition():
                return
            time.sleep(0.01)
        self.end(signal.SIGKILL)
        raise AssertionError(f"waited in vain; the training said: {self.said}")

    def wait_until_it_hangs(self) -> None:
        self.wait_for(Path(f"{self._log}.hangs").exists)

    def end(self, number: signal.Signals | None = None) -> int:
        """Send it a signal, or none, and give its exit status."""
        if number is not None:
            os.kill(self.pid, number)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    @property
    def said(self) -> str:
        return self._log.read_text()


class Nursery:
    """Starts trainings of the toy GAN that resume what lies in their folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self._answer() == "ready"

    def start(
        self, folder: Path, *, hang: tuple[str, int] | None = None, pause: float = 0.0, **options: Any
    ) -> Training:
        self._count += 1
        log = self._folder / f"{self._count}.log"
        job = {"folder": str(folder), "log": str(log), "options": options, "pause": pause}
        if hang is not None:
            job["hang"] = hang
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Training(self._process, int(self._answer()), log)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
