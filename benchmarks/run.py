"""Runs all benchmarks, one process each, and prints their lines."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = [
    ["soundstream.py", "step"],
    ["soundstream.py", "codec"],
    ["soundstream.py", "growth"],
    ["compress_memory.py"],
    *(["audiolm.py", stage] for stage in ("semantic", "coarse", "fine", "length")),
    *(["voicebox.py", part] for part in ("train", "text", "sample")),
    ["mulan.py", "mulan"],
    ["studio.py", "first"],
    ["studio_load.py"],
    *(["muse.py", part] for part in ("vae", "vae-vgg", "maskgit", "maskgit-gen")),
]


def main() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for script, *arguments in PARTS:
        subprocess.run([sys.executable, str(HERE / script), *arguments], env=environment, check=True)


if __name__ == "__main__":
    main()
