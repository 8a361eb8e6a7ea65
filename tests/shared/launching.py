"""A script on two gloo ranks, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def environment(script: Path) -> dict[str, str]:
    """For a script that imports its neighbours; a rank that is killed says where it was."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, script.parent, Path(__file__).parent))),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONFAULTHANDLER": "1",
    }


def on_two_ranks(script: Path, *arguments: object) -> str:
    """Run it under torchrun and give what the ranks wrote, which is a failure's text too.

    A rank that the C++ runtime aborted is launched once more, with a warning: a machine that is short of threads or
    sockets does that to gloo. A rank that failed in Python is not.
    """
    for last in (False, True):
        command = [*TORCHRUN, str(script), *map(str, arguments)]
        done = subprocess.run(command, env=environment(script), capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            return done.stdout + done.stderr
        said = done.stderr.partition("====")[0]  # below that line torchrun tells how it ended, not why
        if last or "Signal 6 (SIGABRT)" not in done.stderr:
            break
        warnings.warn(f"a rank of {script.name} was aborted and the launch repeated: {said}", stacklevel=2)
    raise AssertionError(f"{script.name} on two ranks ended with {done.returncode}: {said}")
