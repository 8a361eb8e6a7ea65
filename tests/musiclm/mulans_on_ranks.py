"""Trains MuLaNs on the ranks of one launch and leaves each rank's state: test_mulan_training.py runs it."""

import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from small_mulans import mulan, pairs, trainer

PLANS: dict[str, dict[str, Any]] = {
    "decoupled": {},
    "hierarchical-chunks": {"hierarchical_contrastive_loss": True},
    "sigmoid": {"sigmoid_contrastive_loss": True},
}


def train(out: Path, batch_size: int) -> None:
    for name, options in PLANS.items():
        # The same caption on two ranks is no negative there either.
        data = [*pairs(20), *pairs(10, seconds=0.4)]
        more = {"chunk_size": 2} if "chunks" in name else {}
        made = trainer(
            out / name, mulan(**options), data, batch_size=batch_size, num_train_steps=3, save_results_every=3, **more
        ).train()
        state = {key: tensor.clone() for key, tensor in made.model.state_dict().items()}
        save_file(state, out / f"{name}-{made.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), 4)
