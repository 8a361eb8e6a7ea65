"""Trains a quantizer on the ranks of one launch and leaves each rank's weights: test_quantizer_training.py runs it."""

import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from madrigal.musiclm.quantizer_training import MuLaNEmbedQuantizerTrainer
from madrigal.verbs.systems import load_recipe


def trainer(place: Path, run: Path, *changes: str, **how: Any) -> MuLaNEmbedQuantizerTrainer:
    """On the recordings and with the MuLaN of `place`."""
    options = [f"data={place / 'recordings'}", f"mulan={place / 'mulan'}", *changes]
    made: MuLaNEmbedQuantizerTrainer = load_recipe("mulan-quantizer/tiny", options).trainer(run, **how)
    return made


def train(place: Path, out: Path, accumulation: int) -> None:
    made = trainer(place, out / "run", f"plan.grad_accum_every={accumulation}").train()
    assert made.ema is not None
    state = {key: tensor.clone() for key, tensor in made.model.state_dict().items()}
    state |= {f"ema/{key}": tensor.clone() for key, tensor in made.ema.state_dict().items()}
    save_file(state, out / f"rank-{made.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
