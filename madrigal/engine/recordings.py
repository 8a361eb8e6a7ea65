"""A trainer of a model that hears recordings: what codecs, tokenizers and aligners need to say no more."""

from typing import Any, ClassVar

from madrigal.engine.feed import Batch
from madrigal.engine.sourced import SourceTrainer


class RecordingsTrainer(SourceTrainer):
    """Trains a model on the recordings of a `source`, a dataset or a loader.

    A batch holds `audio` [batch, channels, samples] and `lengths` [batch]. The model says its `target_sample_hz`, its
    `downsample_factor` and its `config`.
    """

    unit: ClassVar[str] = "audio s"

    @property
    def channels(self) -> int:
        """Of the recordings, as the model hears them."""
        return 1

    def opened(self, source: Any, **how: Any) -> tuple[Any, Any]:
        model: Any = self.model
        return source.datasets(
            model.target_sample_hz, multiple_of=model.downsample_factor, channels=self.channels, **how
        )

    def units(self, batch: Batch) -> float:
        rate: Any = self.model.target_sample_hz
        return float(batch["lengths"].sum()) / float(rate)
