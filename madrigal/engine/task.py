"""What a trainer of a system says of itself: its turns, their loss, and what is worth looking at."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from madrigal.data.collate import collate
from madrigal.engine.artifacts import Sample
from madrigal.engine.feed import Batch, batch_size
from madrigal.engine.plan import Plan
from madrigal.engine.turn import Turn, TurnState

Terms = dict[str, Tensor]
Counted = tuple[Tensor, int]
Figures = dict[str, float]


class Task:
    """The part of a `Trainer` that a system writes: `turns`, `loss`, and what else means something to it."""

    system: ClassVar[str] = "model"
    unit: ClassVar[str] = "items"
    turns_share_batch: bool = True
    model: nn.Module
    plan: Plan
    turn_states: list[TurnState]

    def turns(self) -> list[Turn]:
        """The turns of a step, in order."""
        return [Turn(self.system, dict(self.model.named_parameters()), max_grad_norm=self.plan.max_grad_norm)]

    def loss(self, turn: str, batch: Batch) -> Terms:
        """The named terms of a turn's loss on one micro-batch; the engine weighs and adds them."""
        raise NotImplementedError(f"{type(self).__name__} has to say what its loss is")

    def weight(self, turn: str, term: str) -> float:
        """How much a term counts."""
        return 1.0

    def validate(self, batch: Batch) -> Mapping[str, Tensor | Counted]:
        """Figures of one validation batch; the engine averages them over the whole set.

        A batch weighs as much as it has items, or, where a figure is a mean over something else, such as tokens, as
        much as is given with it.
        """
        return self.loss(self.turn_states[0].name, batch)

    def conclude(self, means: Figures) -> Figures:
        """The figures of the whole validation set, from the means of those of its batches."""
        return means

    def sample(self, batch: Batch) -> list[Sample]:
        """Things to hear, look at or read: one `Sample` for each item of the batch."""
        return []

    def first_step(self, batches: list[Batch]) -> None:
        """Before step 0, on the main rank: set what depends on data, from the step's global micro-batches."""

    def after_turn(self, turn: str, applied: bool) -> Figures:
        """After a turn's optimizer step, or after it was skipped; what it returns is logged."""
        return {}

    def units(self, batch: Batch) -> float:
        """How much of `unit` a micro-batch holds, for the throughput."""
        return float(batch_size(batch))

    def frozen(self) -> list[nn.Module]:
        """Parts that take no gradient, stay in eval mode, and are in no optimizer and no checkpoint."""
        return []

    def averaged(self) -> dict[str, nn.Module]:
        """The modules that the average is kept of, by their prefix in the model."""
        return {"": self.model}

    def kind_of_step(self, turn: str) -> str:
        """A name for what a turn computes at this step, where that changes: a penalty every n-th step, say."""
        return ""

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling, or recomputing in backward."""
        return []

    def model_config(self) -> dict[str, Any]:
        """What rebuilds the model, for `config.json` in a checkpoint."""
        config = getattr(self.model, "config", None)
        return config.model_dump(mode="json") if config is not None else {}

    def collate(self, items: list[Any]) -> Batch:
        """Items of the dataset to a batch."""
        return collate(items)
