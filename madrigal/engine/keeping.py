"""What stays of a run: its newest checkpoints and the best one."""

from typing import TYPE_CHECKING

import torch

from madrigal.engine import checkpoint as ckpt
from madrigal.engine.task import Figures
from madrigal.errors import UserError

if TYPE_CHECKING:
    from madrigal.engine.trainer import Trainer


def save_in_run(trainer: "Trainer") -> None:
    """Write this step's checkpoint, and remove those that nobody needs any more."""
    if not bool(torch.stack([p.isfinite().all() for p in trainer.model.parameters()]).all()):
        # It would take the place of a good one.
        raise failure(trainer, "the weights are not finite numbers")
    run = trainer.run
    trainer.save(run.checkpoints / ckpt.checkpoint_name(trainer.step))
    if trainer.is_main:
        best = ckpt.checkpoint_name(trainer.best["step"]) if trainer.best else None
        ckpt.prune(run.checkpoints, trainer.plan.keep_checkpoints, best)
    trainer.progress.restart_clock()


def note_best(trainer: "Trainer", figures: Figures) -> bool:
    """True when these validation figures are the best so far, by the plan's `best_metric`."""
    metric = trainer.plan.best_metric
    if metric is None or not figures:
        return False
    if metric not in figures:
        save_in_run(trainer)
        raise UserError(f"best_metric is {metric!r}, but validation gives {', '.join(sorted(figures))}.")
    if is_skipping(trainer) or not is_finite(figures[metric]):
        return False
    sign = -1.0 if trainer.plan.best_is_highest else 1.0
    if trainer.best is not None and sign * figures[metric] >= sign * trainer.best["value"]:
        return False
    trainer.best = {"metric": metric, "value": figures[metric], "step": trainer.step}
    return True


def failure(trainer: "Trainer", what: str) -> UserError:
    """Why training cannot go on, and what is left of it."""
    newest = ckpt.checkpoints(trainer.run.checkpoints)
    where = f"the last good checkpoint is {newest[-1]}" if newest else "no checkpoint was written yet"
    return UserError(f"Training stopped at step {trainer.step}: {what}; {where}. Lower plan.lr, or look for bad data.")


def is_skipping(trainer: "Trainer") -> bool:
    """Amid skipped steps nobody knows whether the weights are still good."""
    return any(turn.skipped_in_a_row for turn in trainer.turn_states)


def is_finite(*values: float) -> bool:
    return all(abs(value) < float("inf") for value in values)
