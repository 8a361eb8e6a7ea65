"""Training against discriminators: the generator's turn, then each discriminator's, on what the generator made."""

from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.engine.feed import Batch
from madrigal.engine.plan import Plan
from madrigal.engine.schedule import ScheduleName
from madrigal.engine.task import Task, Terms
from madrigal.engine.turn import Turn

GENERATOR = "generator"
DISCRIMINATOR = "discriminator/"


class AdversarialPlan(Plan):
    """A plan with a schedule of their own for the discriminators."""

    discr_lr: float | None = Field(None, gt=0, description="default: lr")
    discr_warmup_steps: int | None = Field(None, ge=0, description="default: warmup_steps")
    discr_scheduler: ScheduleName | Callable[[int], float] | type | None = Field(None, description="default: scheduler")
    discr_scheduler_kwargs: dict[str, Any] | None = Field(None, description="default: scheduler_kwargs")
    discr_max_grad_norm: float | None = Field(None, gt=0, description="clip norm of each discriminator")
    discr_start_step: int = Field(0, ge=0, description="steps without discriminators at the start")
    discr_every: int = Field(1, ge=1, description="steps between the discriminators' turns")
    discr_share_batch: bool = Field(True, description="judge the generator's own batch, or draw another")
    apply_grad_penalty_every: int = Field(4, ge=0, description="steps between gradient penalties; 0: none")


class Adversarial(Task):
    """A task whose model has `discriminators` and a `config` with `loss_weights`.

    A subclass says what the model makes of a batch (`make`), towards what (`target`), and what a discriminator's loss
    is (`judge`).
    """

    model: Any
    plan: AdversarialPlan
    step: int

    def make(self, batch: Batch, *, learn: bool, adversarial: bool) -> tuple[Tensor, Terms]:
        """What the model makes of a batch, and the terms of its loss.

        With `learn` it is the generator's own turn, and with `adversarial` its discriminators are asked too.
        """
        raise NotImplementedError

    def target(self, batch: Batch) -> Tensor:
        """What the model should have made."""
        raise NotImplementedError

    def judge(self, discriminator: nn.Module, batch: Batch, *, penalty: bool) -> Terms:
        """The loss of a discriminator that tells the batch's target from `batch["made"]`."""
        raise NotImplementedError

    def turns(self) -> list[Turn]:
        plan, model = self.plan, self.model
        generator = {n: p for n, p in model.named_parameters() if not n.startswith("discriminators.")}
        turns = [Turn(GENERATOR, generator, max_grad_norm=plan.max_grad_norm)]
        for name, discriminator in model.discriminators.items():
            turns.append(
                Turn(
                    DISCRIMINATOR + name,
                    dict(discriminator.named_parameters(f"discriminators.{name}")),
                    start=plan.discr_start_step,
                    every=plan.discr_every,
                    lr=plan.discr_lr,
                    warmup_steps=plan.discr_warmup_steps,
                    scheduler=plan.discr_scheduler,
                    scheduler_kwargs=plan.discr_scheduler_kwargs,
                    max_grad_norm=plan.discr_max_grad_norm,
                )
            )
        return turns

    def averaged(self) -> dict[str, nn.Module]:
        return {name: part for name, part in self.model.named_children() if name != "discriminators"}

    def weight(self, turn: str, term: str) -> float:
        return float(self.model.config.loss_weights[term])

    def loss(self, turn: str, batch: Batch) -> Terms:
        if turn == GENERATOR:
            made, terms = self.make(batch, learn=True, adversarial=self._is_adversarial)
            # The discriminators that share this batch judge what was made for it.
            batch["made"] = made.detach()
            return terms
        if "made" not in batch:
            with torch.no_grad():
                batch["made"] = self.make(batch, learn=False, adversarial=False)[0]
        discriminator = self.model.discriminators[turn.removeprefix(DISCRIMINATOR)]
        return self.judge(discriminator, batch, penalty=self._has_penalty(turn))

    def _has_penalty(self, turn: str) -> bool:
        """Every n-th time that the turn is taken, whatever its own cadence."""
        every = self.plan.apply_grad_penalty_every
        taken = next(state.turn.times_taken(self.step) for state in self.turn_states if state.name == turn)
        return every > 0 and taken % every == 0

    def kind_of_step(self, turn: str) -> str:
        special = self._is_adversarial if turn == GENERATOR else self._has_penalty(turn)
        return "special" if special else "plain"

    @property
    def _is_adversarial(self) -> bool:
        return self.step >= self.plan.discr_start_step
