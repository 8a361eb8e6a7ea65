"""Trains all trainers of MaskGit on the ranks of one launch: test_maskgit_ranks.py runs it."""

import sys
from pathlib import Path

from maskgit_trainers import TRAINERS, whole_state
from safetensors.torch import save_file


def train(out: Path, accumulation: int) -> None:
    for name, build in TRAINERS.items():
        # A warm-up: Adam's first step would make much of a difference in the last bit.
        run = build(out / name, grad_accum_every=accumulation, num_train_steps=3, warmup_steps=3).train()
        save_file(whole_state(run), out / f"{name}-{run.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), 1)
