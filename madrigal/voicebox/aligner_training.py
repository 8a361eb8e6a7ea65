"""Trains an aligner on recordings and their texts."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.source import Source
from madrigal.engine.artifacts import Picture, Sample, Text
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recordings import RecordingsTrainer
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Terms
from madrigal.voicebox.aligner import Aligner, silent_behind
from madrigal.voicebox.expand import expand
from madrigal.voicebox.monotonic import best_path
from madrigal.voicebox.source import collate_aligned
from madrigal.voicebox.spoken import spoken_datasets


class AlignerPlan(Plan):
    """A plan with what helps a beginner."""

    prior_steps: int = Field(
        600, ge=0, description="steps with a prior near the diagonal; over the second half of them it fades"
    )
    means_steps: int = Field(
        100, ge=0, description="steps in which the means decide alone; over as many again the classifier gains its say"
    )


class AlignerTrainer(RecordingsTrainer):
    """Trains `aligner`. A dataset gives dicts with "audio" [1, samples] or [samples] and "symbols" int64 [symbols].

    A batch holds `audio` [batch, 1, samples], `lengths` [batch], `symbols` [batch, symbols], `symbols_lengths` [batch].
    """

    system: ClassVar[str] = "aligner"
    model: Aligner
    plan: AlignerPlan

    def __init__(
        self,
        aligner: Aligner,
        *,
        plan: AlignerPlan | None = None,
        source: Source | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        plan, given = plan_and_keywords(AlignerPlan, plan, options, type(self).__name__)
        super().__init__(aligner, plan=plan, source=source, results_folder=results_folder, recipe=recipe, **given)

    def _open(self, source: Source, run: Path, *, anew: bool) -> tuple[Any, Any]:
        say = tell if self.is_main else None
        return spoken_datasets(source, self.model, run / "data", anew=anew and self.is_main, say=say)

    def first_step(self, batches: list[Batch]) -> None:
        """How loud each band is and how silence sounds, from the first batches."""
        rows = [
            mels[:count]
            for batch in batches
            for mels, count in zip(self._mels(batch), self._frames(batch).tolist(), strict=True)
        ]
        counts = torch.tensor([len(row) for row in rows], device=self.device)
        self.model.fit(pad_sequence(rows, batch_first=True), counts)

    def loss(self, turn: str, batch: Batch) -> Terms:
        prior, means = self.plan.prior_steps, self.plan.means_steps
        return self.model.losses(
            self._mels(batch),
            batch["symbols"],
            frames=self._frames(batch),
            lengths=batch["symbols_lengths"],
            prior=_between(2 * (1 - self.step / prior)) if prior else 0.0,
            trust=_between(self.step / means - 1) if means else 1.0,
        )

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """What is wrong where nothing but what is heard decides."""
        frames = self._frames(batch)
        sizes = {"frames": frames, "lengths": batch["symbols_lengths"]}
        terms = self.model.losses(self._mels(batch), batch["symbols"], **sizes)
        return {name: (term, int(frames.sum())) for name, term in terms.items()}

    def sample(self, batch: Batch) -> list[Sample]:
        """The soft alignment, symbols from bottom to top, with its best path; and the seconds of each symbol."""
        frames, lengths = self._frames(batch), batch["symbols_lengths"]
        soft = self.model(self._mels(batch), batch["symbols"], frames=frames, lengths=lengths)
        durations = best_path(soft, lengths, frames)
        return [
            {
                "alignment": Picture(_picture(row[:time, :size].exp(), lasting[:size])),
                "symbols": Text(self._written(symbols[:size], lasting[:size])),
            }
            for row, symbols, lasting, time, size in zip(
                soft, batch["symbols"], durations, frames.tolist(), lengths.tolist(), strict=True
            )
        ]

    def units(self, batch: Batch) -> float:
        return float(batch["lengths"].sum()) / self.model.config.sample_rate

    def collate(self, items: list[Any]) -> Batch:
        return collate_aligned(items)

    def _mels(self, batch: Batch) -> Tensor:
        return self.model.mels(silent_behind(batch["audio"][:, 0], batch["lengths"]))

    def _frames(self, batch: Batch) -> Tensor:
        return self.model.frames(batch["lengths"])

    def _written(self, symbols: Tensor, durations: Tensor) -> str:
        ends = (durations.cumsum(0) / self.model.config.frame_rate).tolist()
        shown = map(self.model.symbols.shown, symbols.tolist())
        return "\n".join(f"{end:.3f} {symbol}" for end, symbol in zip(ends, shown, strict=True))


def _between(value: float) -> float:
    return min(1.0, max(0.0, value))


def _picture(soft: Tensor, durations: Tensor) -> Tensor:
    """[frames, symbols] -> [3, symbols, frames]: the shares in grey and the path in red."""
    grey = 1 - soft.sqrt().T.expand(3, -1, -1).clone()
    path = expand(torch.arange(len(durations), device=soft.device)[None], durations[None])[0]
    grey[:, path, torch.arange(len(path), device=soft.device)] *= torch.tensor([1.0, 0.3, 0.3], device=soft.device)[
        :, None
    ]
    return grey.flip(1)
