"""Trains a duration predictor on what an aligner has found."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from madrigal.engine.artifacts import Sample, Text
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.learned import FINGERPRINTS, Fingerprints, check_resumed
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Terms, Trainer
from madrigal.voicebox import keywords
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.plans import FlowPlan
from madrigal.voicebox.source import AlignedSource, collate_aligned

MILLISECONDS = 1000.0


class DurationPredictorTrainer(Trainer):
    """Trains `predictor`. A dataset gives dicts with "symbols" and "durations", int64 [symbols] each.

    A batch holds `symbols` [batch, symbols], `symbols_lengths` [batch] and `durations` [batch, symbols].
    """

    system: ClassVar[str] = "durations"
    unit: ClassVar[str] = "symbols"
    model: DurationPredictor
    plan: FlowPlan

    def __init__(
        self,
        predictor: DurationPredictor,
        *,
        plan: FlowPlan | None = None,
        source: AlignedSource | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        learned: Fingerprints | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        plan, given = plan_and_keywords(FlowPlan, plan, keywords.trainer_words(options, name), name)
        if given.get("resume"):
            check_resumed(Path(results_folder), learned or {})
        recipe = recipe or recorded(self.system, predictor.config, plan, source)
        super().__init__(
            predictor,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not given.get("resume")),
            recipe={**recipe, **({FINGERPRINTS: learned} if learned else {})},
            **given,
        )

    def _open(self, source: AlignedSource, run: Path, *, anew: bool) -> tuple[Any, Any]:
        config = self.model.config
        return source.datasets(
            (config.sample_rate, config.hop),
            audio=False,
            prepared_in=run / "data",
            anew=anew and self.is_main,
            say=tell if self.is_main else None,
        )

    def first_step(self, batches: list[Batch]) -> None:
        """How long symbols last, from the first batches."""
        self.model.fit(torch.cat([batch["durations"][batch["durations"] > 0] for batch in batches]))

    def loss(self, turn: str, batch: Batch) -> Terms:
        return {"durations": self.model.outcome(*_given(batch), training=True).loss}

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """The loss, and what is wrong when nothing but the symbols is known: in milliseconds a symbol, and in all.

        What is hidden and drawn is the same every time, so that the curves show the model alone.
        """
        found = self.model.outcome(*_given(batch), training=False)
        _, durations, lengths = _given(batch)
        predicted = self._predicted(batch)
        wrong = (predicted - durations).abs().sum() / lengths.sum() / self.model.config.frame_rate
        totals = durations.sum(1)
        ratio = predicted.sum(1) / totals
        return {
            "loss": (found.loss, found.symbols),
            "milliseconds": (MILLISECONDS * wrong, int(lengths.sum())),
            "length_error": ((ratio - 1).abs().mean(), len(totals)),
            "length": (ratio.mean(), len(totals)),
        }

    def sample(self, batch: Batch) -> list[Sample]:
        """Every symbol with its duration and what was predicted, in frames."""
        symbols, durations, lengths = _given(batch)
        predicted = self._predicted(batch)
        return [
            {"durations": Text(self._written(*(part[row, :length] for part in (symbols, durations, predicted))))}
            for row, length in enumerate(lengths.tolist())
        ]

    def _predicted(self, batch: Batch) -> Tensor:
        symbols, _, lengths = _given(batch)
        plan = self.plan
        options: dict[str, Any] = {}
        if self.model.config.kind == "flow":
            options = {"steps": plan.sample_steps, "cond_scale": plan.sample_cond_scale, "seed": plan.seed}
        return self.model.predict(symbols, lengths, **options)

    def _written(self, symbols: Tensor, durations: Tensor, predicted: Tensor) -> str:
        known = self.model.symbols
        rows = zip(symbols.tolist(), durations.tolist(), predicted.tolist(), strict=True)
        return "\n".join(f"{symbol if known is None else known.shown(symbol)} {a} {b}" for symbol, a, b in rows)

    def units(self, batch: Batch) -> float:
        return float(batch["symbols_lengths"].sum())

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def collate(self, items: list[Any]) -> Batch:
        return collate_aligned(items)


def _given(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch["symbols"], batch["durations"], batch["symbols_lengths"]
