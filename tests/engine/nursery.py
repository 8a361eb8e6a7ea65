"""Forks a training for every line it reads, so that trainings which are to be killed cost no start-up.

A line is JSON: `folder`, `log` (where output goes), `options` for `toys.make`, and optionally `hang`, the
name and number of a call at which the training stops for ever, having made the file `log` + ".hangs".
It answers `started PID`, and later `ended STATUS` (minus the signal's number if a signal ended it). The number of a
process stays taken until the next line is read, so a signal to it can never reach another.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toys import GanTrainer, make

from madrigal.engine.machine import matmul_rate


def hang_at(owner: Any, name: str, number: int, marker: Path) -> None:
    """The `number`-th call of a function never returns."""
    real, calls = getattr(owner, name), 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            marker.touch()
            time.sleep(600)
        return real(*args, **kwargs)

    setattr(owner, name, counted)


def train(job: dict[str, Any]) -> None:
    if "hang" in job:
        function, number = job["hang"]
        owner = {"fsync": os, "rmtree": shutil, "rename": Path}[function]
        hang_at(owner, function, number, Path(job["log"] + ".hangs"))
    trainer = make(GanTrainer, job["folder"], resume=True, **job["options"])
    pause = job.get("pause", 0.0)
    trainer.train(lambda _: time.sleep(pause))


def main() -> None:
    matmul_rate("cpu", 32)  # measured once for all children
    with TemporaryDirectory() as folder:  # torch imports much of itself at the first step
        make(GanTrainer, folder).train_step()
    print("ready", flush=True)
    child = None
    for line in sys.stdin:
        if child is not None:
            os.waitpid(child, 0)
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            with open(job["log"], "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            try:
                train(job)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            sys.stderr.flush()
            os._exit(0)
        print(f"started {child}", flush=True)
        end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert end is not None
        print(f"ended {end.si_status if end.si_code == os.CLD_EXITED else -end.si_status}", flush=True)
    os._exit(0)  # taking torch apart in good order would cost a second


if __name__ == "__main__":
    main()
