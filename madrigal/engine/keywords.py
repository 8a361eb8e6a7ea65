"""Keyword arguments that older scripts pass to a trainer, in this engine's words."""

import os
from typing import Any

from madrigal.engine.plan import Plan


def translated(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a trainer's keywords into those of `Trainer` and those of its plan.

    `force_clear_prev_results=True` is `overwrite`; `use_wandb_tracking` is `log_with=("wandb",)`; with
    `split_batches` the batch size counts all processes together; a batch is always whole here, since the next
    epoch's first items complete an epoch's last batch, so `drop_last` has nothing to choose.
    """
    options = dict(options)
    trainer: dict[str, Any] = {}
    for name in ("dataloader_drop_last", "drop_last"):
        options.pop(name, None)
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
