"""A turn: one group of parameters that takes its own optimizer step within a training step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.engine.optimizers import build_optimizer, load_optimizer_state, optimizer_state
from madrigal.engine.plan import Plan
from madrigal.engine.precision import Precision
from madrigal.engine.schedule import Curve, ScheduleName, curve_of, learning_rate


@dataclass(frozen=True)
class Turn:
    """What a trainer says of a turn. What it leaves open is taken from the plan, but no clip norm means no clipping.

    The turn is taken at step `start` and at every `every`-th step from there; its schedule starts there too.
    """

    name: str
    parameters: dict[str, nn.Parameter]
    every: int = 1
    start: int = 0
    lr: float | None = None
    warmup_steps: int | None = None
    scheduler: ScheduleName | Curve | type | None = None
    scheduler_kwargs: dict[str, Any] | None = None
    max_grad_norm: float | None = None

    def is_taken(self, step: int) -> bool:
        return step >= self.start and (step - self.start) % self.every == 0

    def times_taken(self, step: int) -> int:
        """How often it was taken before `step`."""
        return max(0, -(-(step - self.start) // self.every))


class TurnState:
    """A turn while it trains: its optimizer, its loss scale, and how many steps it had to skip."""

    def __init__(self, turn: Turn, plan: Plan, total_steps: int | None, device_type: str) -> None:
        self.turn, self.name = turn, turn.name
        self.parameters = turn.parameters
        self.trainable = [p for p in turn.parameters.values() if p.requires_grad]
        self.max_grad_norm = turn.max_grad_norm
        self.peak = turn.lr if turn.lr is not None else plan.lr
        self.optimizer = build_optimizer(
            {name: p for name, p in turn.parameters.items() if p.requires_grad},
            name=plan.optimizer,
            lr=self.peak,
            wd=plan.wd,
            betas=plan.betas,
        )
        # AdamW differs from Adam in its decay alone and takes up the same moments.
        self.moments = plan.optimizer if plan.optimizer in ("lion", "muon") else "adam"
        self.precision = Precision(plan.mixed_precision, device_type)
        self.skipped = self.skipped_in_a_row = 0
        self.flops: dict[str, int] = {}
        self._total_steps = None if total_steps is None else max(1, total_steps - turn.start)
        self._warmup = turn.warmup_steps if turn.warmup_steps is not None else plan.warmup_steps
        self._plan = plan
        schedule = turn.scheduler if turn.scheduler is not None else plan.scheduler
        kwargs = turn.scheduler_kwargs if turn.scheduler_kwargs is not None else plan.scheduler_kwargs
        self._schedule: Any = curve_of(schedule, kwargs, self.peak) if isinstance(schedule, type) else schedule

    def learning_rate(self, step: int) -> float:
        """The closed form of the rate at the run's global `step`."""
        return learning_rate(
            max(0, step - self.turn.start),
            peak=self.peak,
            total_steps=self._total_steps,
            warmup_steps=self._warmup,
            initial=self._plan.initial_lr,
            final=self._plan.final_lr,
            schedule=self._schedule,
        )

    def gradient_norm(self) -> Tensor:
        """The norm of the turn's gradients, after the loss scale is taken out of them."""
        gradients = [p.grad for p in self.trainable if p.grad is not None]
        if self.precision.scale != 1.0:
            torch._foreach_mul_(gradients, 1.0 / self.precision.scale)
        return torch.nn.utils.get_total_norm(gradients)

    @torch.no_grad()
    def apply(self, step: int, finite: bool, norm: Tensor) -> bool:
        """Clip and take the optimizer step; a step that is not finite is skipped and counted."""
        scale_was_to_blame = self.precision.update(finite)
        if finite:
            self.skipped_in_a_row = 0
            # torch would walk over all gradients and multiply them by one where the norm is not too large.
            if self.max_grad_norm is not None and float(norm) + 1e-6 > self.max_grad_norm:
                torch.nn.utils.clip_grads_with_norm_(self.trainable, self.max_grad_norm, norm)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate(step)
            self.optimizer.step()
        else:
            self.skipped += 1
            self.skipped_in_a_row += 0 if scale_was_to_blame else 1
        self.optimizer.zero_grad(set_to_none=True)
        return finite

    def state_tensors(self) -> dict[str, Tensor]:
        return optimizer_state(self.optimizer, self.parameters)

    def state_dict(self) -> dict[str, Any]:
        return {
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
            "moments": self.moments,
            "precision": self.precision.state_dict(),
        }

    def load_state(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        load_optimizer_state(self.optimizer, self.parameters, tensors)
        self.skipped, self.skipped_in_a_row = state["skipped"], state["skipped_in_a_row"]
        self.precision.load_state_dict(state["precision"])


@contextmanager
def only_this_turn(turn: TurnState, turns: list[TurnState]) -> Iterator[None]:
    """Inside, nobody else's parameters ask for gradients: a third of a GAN's backward is not computed."""
    others = [p for other in turns if other is not turn for p in other.trainable]
    own = {id(p) for p in turn.trainable}
    others = [p for p in others if id(p) not in own]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
