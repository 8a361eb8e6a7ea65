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

from launching import environment

HERE = Path(__file__).parent
ENVIRONMENT = environment(HERE / "nursery.py")


class Training:
    """A training in a process of its own."""

    def __init__(self, nursery: Nursery, pid: int, log: Path) -> None:
        self._nursery, self.pid, self._log = nursery, pid, log
        self._status: int | None = None

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until the condition holds; a training that never gets there fails the test."""
        for _ in range(6000):
            if condition():
                return
            time.sleep(0.01)
        raise AssertionError(f"waited in vain; the training said: {self.said}")

    def wait_until_it_hangs(self) -> None:
        self.wait_for(Path(f"{self._log}.hangs").exists)

    def signal(self, number: signal.Signals) -> None:
        assert self._status is None
        os.kill(self.pid, number)

    def end(self, number: signal.Signals | None = None) -> int:
        """Send it a signal, or none, and give its exit status."""
        if self._status is None:
            if number is not None:
                self.signal(number)
            self._status = self._nursery.number_after("ended")
        return self._status

    @property
    def said(self) -> str:
        return self._log.read_text()


class Nursery:
    """Starts trainings of the toy GAN, one at a time, that resume what lies in their folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._training: Training | None = None
        command = [sys.executable, str(HERE / "nursery.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert self._answer() == "ready"

    def start(
        self, folder: Path, *, hang: tuple[str, int] | None = None, pause: float = 0.0, **options: Any
    ) -> Training:
        """Train in `folder`; `hang` names a call at which it stops for ever, `pause` is spent at each line logged."""
        self._end_last()
        self._count += 1
        log = self._folder / f"{self._count}.log"
        job = {"folder": str(folder), "log": str(log), "options": options, "pause": pause}
        if hang is not None:
            job["hang"] = hang
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        self._training = Training(self, self.number_after("started"), log)
        return self._training

    def number_after(self, word: str) -> int:
        found, number = self._answer().split()
        assert found == word
        return int(number)

    def close(self) -> None:
        self._end_last()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _end_last(self) -> None:
        """A test that failed may have left its training behind."""
        if self._training is not None:
            self._training.end(signal.SIGKILL)
