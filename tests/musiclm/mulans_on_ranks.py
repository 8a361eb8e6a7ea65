"""Trains MuLaNs on the ranks of one launch and leaves each rank's state: test_mulan_training.py runs it."""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from small_mulans import mulan, pairs, trainer

HELD_OUT = {"decoupled": 0.25, "hierarchical-chunks": 0.1, "sigmoid": 0.35}
"""Of 30 pairs: a batch on each rank, one on the first alone, and one more on the first."""
PLANS: dict[str, dict[str, Any]] = {
    "decoupled": {},
    "hierarchical-chunks": {"hierarchical_contrastive_loss": True},
    "sigmoid": {"sigmoid_contrastive_loss": True},
}


def train(out: Path, batch_size: int) -> None:
    for name, options in PLANS.items():
        # The same caption on two ranks is no negative there either.
        data = [*pairs(20, seconds=0.25), *pairs(10, seconds=0.2)]
        more: dict[str, Any] = {"chunk_size": 2} if "chunks" in name else {}
        more["valid_frac"] = HELD_OUT[name]
        made = trainer(
            out / name, mulan(**options), data, batch_size=batch_size, num_train_steps=2, save_results_every=2, **more
        ).train()
        state = {key: tensor.clone() for key, tensor in made.model.state_dict().items()}
        save_file(state, out / f"{name}-{made.ranks.rank}.safetensors")


def gather(out: Path) -> None:
    """Rank 0 has one row and rank 1 has two; each follows the sum of the rows times its rank plus one."""
    ranks = trainer(out / "gathered").ranks
    rows = torch.arange(ranks.rank + 1.0)[:, None] + 10 * ranks.rank
    rows.requires_grad_()
    found, first, world = ranks.gather_rows(rows)
    (found * torch.arange(1.0, 4)[:, None] * (ranks.rank + 1)).sum().backward()
    assert rows.grad is not None
    figures = {"rows": found.detach(), "grad": rows.grad, "place": torch.tensor([first, world])}
    save_file(figures, out / f"gathered-{ranks.rank}.safetensors")


def clear(out: Path) -> None:
    """A second trainer in the folder of a finished run, on all ranks at once; it clears, and trains anew."""
    steps = {"batch_size": 4, "save_model_every": 1}
    trainer(out / "cleared", num_train_steps=2, **steps).train()
    made = trainer(out / "cleared", num_train_steps=1, force_clear_prev_results=True, **steps)
    told = torch.tensor([made.is_distributed, made.is_main])
    made.train()
    save_file({"told": told}, out / f"cleared-{made.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), 4)
    gather(Path(sys.argv[1]))
    clear(Path(sys.argv[1]))
