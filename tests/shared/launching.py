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
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parent)]),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONFAULTHANDLER": "1",
    }


def on_two_ranks(script: Path, *arguments: object) -> None:
    """Run it under torchrun; what the ranks wrote is the failure's text.

    A rank that the C++ runtime aborted is launched once more, with a warning: a machine that is short of threads or
    sockets does that to gloo. A rank that failed in Python is not.
    """
    for attempt in ("first", "second"):
        command = [*TORCHRUN, str(script), *map(str, arguments)]
        done = subprocess.run(command, env=environment(script), capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            return
        said = done.stderr.partition("====")[0]  # below that line torchrun tells how it ended, not why
        if attempt == "first" and "Signal 6 (SIGABRT)" in done.stderr:
            warnings.warn(f"a rank of {script.name} was aborted and the launch repeated: {said}", stacklevel=2)
            continue
        raise AssertionError(f"{script.name} on two ranks ended with {done.returncode}: {said}")
