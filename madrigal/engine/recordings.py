"""A trainer of a model that hears recordings: what codecs, tokenizers and aligners need to say no more."""

from pathlib import Path
from typing import Any, ClassVar

from madrigal.data.source import Source
from madrigal.engine.feed import Batch
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.trainer import Trainer


class RecordingsTrainer(Trainer):
    """Trains a model on the recordings of a `source`, a dataset or a loader.

    A batch holds `audio` [batch, channels, samples] and `lengths` [batch]. The model says its `target_sample_hz`, its
    `downsample_factor` and its `config`.
    """

    unit: ClassVar[str] = "audio s"

    def __init__(
        self,
        model: Any,
        *,
        plan: Plan,
        source: Source | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not options.get("resume")),
            recipe=recipe or recorded(self.system, model.config, plan, source),
            **options,
        )

    @property
    def channels(self) -> int:
        """Of the recordings, as the model hears them."""
        return 1

    def _open(self, source: Any, run: Path, *, anew: bool) -> tuple[Any, Any]:
        model: Any = self.model
        return source.datasets(
            model.target_sample_hz,
            multiple_of=model.downsample_factor,
            channels=self.channels,
            prepared_in=run / "data",
            # A run that goes on keeps the files that it began with; the other ranks take what the main one found.
            anew=anew and self.is_main,
            say=tell if self.is_main else None,
        )

    def units(self, batch: Batch) -> float:
        rate: Any = self.model.target_sample_hz
        return float(batch["lengths"].sum()) / float(rate)
