"""Trackers by name through Accelerate: TensorBoard, Weights & Biases, trackio and the rest.

None is ever required: `metrics.jsonl` in the run folder is written whatever is tracked elsewhere.
"""

import atexit
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import DistributedType

from madrigal.engine.plan import Plan
from madrigal.engine.precision import chosen_precision
from madrigal.errors import UserError


def make_accelerator(plan: Plan, folder: str | Path, options: dict[str, Any]) -> Accelerator:
    """An Accelerator for this run; `options` are its own keyword arguments and are not changed.

    `init_process_group_timeout_seconds` among them sets how long ranks wait for each other.
    """
    options = dict(options)
    handlers = list(options.pop("kwargs_handlers", None) or [])
    timeout = options.pop("init_process_group_timeout_seconds", None)
    if timeout is not None:
        handlers.append(InitProcessGroupKwargs(timeout=timedelta(seconds=timeout)))
    if plan.log_with:
        options.setdefault("log_with", list(plan.log_with))
    options.setdefault("project_dir", str(folder))
    if not torch.accelerator.is_available():
        options.setdefault("cpu", True)  # or ranks that torchrun started without a GPU would not find each other
    try:
        accelerator = Accelerator(kwargs_handlers=handlers, **options)
    except (ImportError, ValueError) as error:
        raise UserError(f"Accelerate could not start ({error}); check log_with and accelerate_kwargs.") from error
    if dist.is_initialized():
        # Left to the interpreter's end, the group's own threads may still run when what they call is gone.
        atexit.unregister(_leave_the_group)
        atexit.register(_leave_the_group)
    missing = set(plan.log_with) - {str(tracker) for tracker in accelerator.log_with} - {"all"}
    if missing:
        # Accelerate would go on without them and say nothing.
        raise UserError(f"log_with names {', '.join(sorted(missing))}, not installed here: pip install it, or drop it.")
    if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        raise UserError(
            f"Madrigal trains with one whole model per process, not with {accelerator.distributed_type.value}: "
            "launch with plain torchrun or accelerate launch --multi_gpu."
        )
    return accelerator


def _leave_the_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def with_precision_of(accelerator: Accelerator, plan: Plan) -> Plan:
    """The plan in the precision that Accelerate was launched with, where the plan itself names none."""
    launched = str(accelerator.mixed_precision)
    if launched not in ("bf16", "fp16") or launched == plan.mixed_precision:
        return plan.model_copy(
            update={"mixed_precision": chosen_precision(plan.mixed_precision, accelerator.device.type)}
        )
    if plan.mixed_precision not in ("fp32", "auto"):
        raise UserError(
            f"The plan says {plan.mixed_precision} and Accelerate {launched}: name one mixed_precision for both."
        )
    return plan.model_copy(update={"mixed_precision": launched})


def unused_settings(accelerator: Accelerator, plan: Plan, *, given: bool, options: dict[str, Any] | None) -> list[str]:
    """A line for each setting that does nothing: `given` says that the user brought the Accelerator himself."""
    lines = []
    accumulation = accelerator.gradient_accumulation_steps
    if accumulation not in (1, plan.grad_accum_every):
        lines.append(
            f"Accelerate's gradient_accumulation_steps {accumulation} is not used: "
            f"plan.grad_accum_every {plan.grad_accum_every} counts"
        )
    if dist.is_initialized():
        # Left to the interpreter's end, the group's own threads may still run when what they call is gone.
        atexit.unregister(_leave_the_group)
        atexit.register(_leave_the_group)
    missing = set(plan.log_with) - {str(tracker) for tracker in accelerator.log_with} - {"all"}
    if given and missing:
        names = ", ".join(sorted(missing))
        lines.append(f"plan.log_with {names} is not used: the given Accelerator has trackers of its own")
    if given and options:
        lines.append(f"accelerate_kwargs {', '.join(options)} are not used: the given Accelerator is made already")
    return lines


class Tracking:
    """Starts the Accelerator's trackers once, feeds them, and closes them."""

    def __init__(self, accelerator: Accelerator, project: str) -> None:
        self._accelerator, self._project = accelerator, project
        self._started = False

    def start(self, config: dict[str, Any], project: str | None = None, **init: Any) -> None:
        """`init` holds keyword arguments for a tracker under its name, as Accelerate takes them."""
        if self._accelerator.log_with and not self._started:
            self._started = True
            flat = {
                key: value if isinstance(value, (int, float, str, bool)) else str(value)
                for key, value in _flattened(config).items()
            }
            self._accelerator.init_trackers(project or self._project, config=flat, init_kwargs=init)

    def log(self, values: dict[str, float], step: int) -> None:
        if self._started:
            self._accelerator.log(values, step=step)

    def finish(self) -> None:
        if self._started:
            # Not `end_training`: it would also part the processes, and a script may train another model next.
            for tracker in self._accelerator.trackers:
                tracker.finish()
            self._started = False


def _flattened(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
