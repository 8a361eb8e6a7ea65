"""Trains the three tasks on the ranks of one launch and leaves each rank's state: test_two_processes.py runs it."""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from spear_trainings import TRAINERS, make, whole_state
from test_alignment import states
from torch import distributed, nn

from madrigal.speartts.alignment import alignment

EVERYTHING: dict[str, Any] = {"target_early_exit_layer": 1, "ff_dropout": 0.1, "ctc_loss_weight": 1.0}
HIDDEN: dict[str, dict[str, Any]] = {"semantic-to-text": {"mask_prob": 0.35, "freeze_encoder": False}}
"""What a task can do besides, by its name."""
EQUAL_ROWS: dict[str, Any] = {"cond_drop_prob": 1.0, "align_reg_loss_weight": 5.0}
SPLIT = 3


class Same(torch.utils.data.Dataset[Any]):
    """Pairs of one length: the mean over a batch is then the mean over its halves."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        steps = torch.randint(1, 20, (5,), generator=torch.Generator().manual_seed(index))
        return steps.cumsum(0) % 20, f"so {'abcdefghij'[index % 10]}"


def train(out: Path, accumulation: int, batch_size: int) -> None:
    """Each task with everything on but the alignment, then the alignment, whose rows have to meet in one batch."""
    for name in TRAINERS:
        plan = {"grad_accum_every": accumulation, "wd": 0.1, "best_metric": "valid/ema/loss"}
        plan |= HIDDEN.get(name, {})
        trainer = make(name, out / name, model=EVERYTHING, **plan).train()
        save_file(whole_state(trainer), out / f"{name}-{trainer.ranks.rank}.safetensors")
        if name == "speech-speech":
            continue
        options = {"dataset": Same(), "batch_size": batch_size, "num_train_steps": 3}
        trainer = make(name, out / f"{name}-aligned", model=EQUAL_ROWS, **options).train()
        save_file(whole_state(trainer), out / f"{name}-aligned-{trainer.ranks.rank}.safetensors")
        uneven = {**EVERYTHING, "cond_drop_prob": 0.4}
        dropped = make(name, out / f"{name}-dropped", model=uneven, num_train_steps=3).train()
        save_file(whole_state(dropped), out / f"{name}-dropped-{dropped.ranks.rank}.safetensors")


def align(out: Path, rank: int, world: int) -> None:
    """The loss and its gradients for rows that are shared out unevenly; only some of them count."""
    source, source_mask, target, target_mask = states(7)
    rows = torch.tensor([True, True, False, False, True, True, True])
    if world == 2:
        part = slice(0, SPLIT) if rank == 0 else slice(SPLIT, None)
        # Ranks pad to lengths of their own.
        time = int(source_mask[part].sum(1).max())
        source, source_mask = source[part, :time], source_mask[part, :time]
        target, target_mask, rows = target[part], target_mask[part], rows[part]
    torch.manual_seed(0)
    left, right = nn.Linear(8, 8), nn.Linear(8, 8)
    loss = alignment(left(source), source_mask, right(target), target_mask, rows, temperature=0.1)
    loss.backward()
    gradients = {name: part.weight.grad for name, part in (("left", left), ("right", right))}
    if world == 2:
        for gradient in gradients.values():
            distributed.all_reduce(gradient)
            gradient.div_(world)
    save_file({"loss": loss.detach().reshape(1), **gradients}, out / f"alignment-{rank}.safetensors")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    train(folder, 1, 2)
    align(folder, distributed.get_rank(), 2)
