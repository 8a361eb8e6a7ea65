"""Keyword arguments that older scripts pass to a trainer, in this engine's words."""

import os
from typing import Any, TypeVar

from madrigal.engine.plan import Plan
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError

TRAINER_KEYWORDS = {
    "dataset",
    "val_dataset",
    "train_dataloader",
    "val_dataloader",
    "accelerator",
    "resume",
    "overwrite",
}
"""What `Trainer` itself takes; all else is the plan's."""

AnyPlan = TypeVar("AnyPlan", bound=Plan)


def plan_and_keywords(
    kind: type[AnyPlan], plan: AnyPlan | None, options: dict[str, Any], trainer: str
) -> tuple[AnyPlan, dict[str, Any]]:
    """The plan that a trainer's keywords make, or the given one, and what remains for `Trainer`."""
    given = {name: options[name] for name in options if name in TRAINER_KEYWORDS}
    more, rest = translated({name: options[name] for name in options if name not in TRAINER_KEYWORDS})
    if plan is not None and rest:
        raise UserError(f"Give {trainer} a plan or its keywords, not both: drop {', '.join(rest)}.")
    return plan or build_config(kind, rest, trainer), {**more, **given}


def renamed(options: dict[str, Any], older: dict[str, str], trainer: str) -> dict[str, Any]:
    """A trainer's keywords, with the plan's names for the `older` ones."""
    options = dict(options)
    for old, name in older.items():
        if old in options:
            if name in options:
                raise UserError(f"{trainer} was given {old} and {name}, which are the same: give one of them.")
            options[name] = options.pop(old)
    return options


def translated(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a trainer's keywords into those of `Trainer` and those of its plan.

    `force_clear_prev_results=True` is `overwrite`; `use_wandb_tracking` is `log_with=("wandb",)`; `valid_dataset` is
    `val_dataset`; with `split_batches` the batch size counts all processes together; a batch is always whole here,
    since the next epoch's first items complete an epoch's last batch, so `drop_last` has nothing to choose; and
    validation always covers the whole set, so neither has `average_valid_loss_over_grad_accum_every`.
    """
    options = dict(options)
    trainer: dict[str, Any] = {}
    for name in ("dataloader_drop_last", "drop_last", "average_valid_loss_over_grad_accum_every"):
        options.pop(name, None)
    if (valid := options.pop("valid_dataset", None)) is not None:
        trainer["val_dataset"] = valid
    if options.pop("force_clear_prev_results", None):
        trainer["overwrite"] = True
    if options.pop("use_wandb_tracking", False):
        options["log_with"] = ("wandb", *options.get("log_with", ()))
    if options.pop("split_batches", False):
        whole = options.get("batch_size", Plan.model_fields["batch_size"].default)
        options["batch_size"] = max(1, whole // int(os.environ.get("WORLD_SIZE", "1")))
    timeout = options.pop("init_process_group_timeout_seconds", None)
    accelerate = dict(options.pop("accelerate_kwargs", None) or {})
    if timeout is not None:
        accelerate["init_process_group_timeout_seconds"] = timeout
    trainer["accelerate_kwargs"] = accelerate
    return trainer, options
