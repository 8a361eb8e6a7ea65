"""Trains the three stages on the ranks of one launch and leaves each rank's weights: test_stage_ranks.py runs it."""

import sys
from pathlib import Path

from safetensors.torch import save_file
from token_sets import TRAINERS, make


def train(out: Path, accumulation: int) -> None:
    for name in TRAINERS:
        plan = {"grad_accum_every": accumulation, "wd": 0.1, "scheduler": "cosine", "best_metric": f"valid/ema/{name}"}
        trainer = make(name, out / name, overwrite=True, **plan).train()
        assert trainer.ema is not None
        state = {key: tensor.clone() for key, tensor in trainer.model.state_dict().items()}
        state |= {f"ema/{key}": tensor.clone() for key, tensor in trainer.ema.state_dict().items()}
        save_file(state, out / f"{name}-{trainer.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
