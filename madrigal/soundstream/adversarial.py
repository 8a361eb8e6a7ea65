"""Training a maker of waves against discriminators that hear its waves."""

from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from madrigal.data.source import AudioSource
from madrigal.engine.adversarial import Adversarial, AdversarialPlan
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.recordings import RecordingsTrainer
from madrigal.engine.trainer import Terms
from madrigal.layers.gan_losses import discriminator_terms
from madrigal.soundstream.losses import WaveMaker


class AdversarialTrainer(Adversarial, RecordingsTrainer):
    """Trains a `WaveMaker`; a subclass says what waves [batch, channels, samples] it makes of a batch (`make`)."""

    plan_class: ClassVar[type[AdversarialPlan]] = AdversarialPlan
    model: Any
    plan: AdversarialPlan

    def __init__(
        self,
        model: WaveMaker,
        *,
        folder: str | Path | None = None,
        data_max_length: int | None = None,
        data_max_length_seconds: float | None = None,
        plan: AdversarialPlan | None = None,
        source: AudioSource | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        plan, given = plan_and_keywords(self.plan_class, plan, options, type(self).__name__)
        self.turns_share_batch = plan.discr_share_batch
        if folder is not None:
            seconds = data_max_length / model.target_sample_hz if data_max_length else data_max_length_seconds
            source = AudioSource(path=Path(folder), max_length_seconds=seconds)
        super().__init__(model, plan=plan, source=source, results_folder=results_folder, recipe=recipe, **given)

    @property
    def channels(self) -> int:
        return int(self.model.channels)

    def units(self, batch: Batch) -> float:
        audio: Tensor = batch["audio"]
        return float(audio.shape[0] * audio.shape[-1] / self.model.target_sample_hz)

    def target(self, batch: Batch) -> Tensor:
        """The waves [batch, channels, samples] that the model should have made."""
        clean: Tensor = batch["audio"]
        return clean

    def judge(self, discriminator: nn.Module, batch: Batch, *, penalty: bool) -> Terms:
        return discriminator_terms(
            discriminator, self.target(batch), batch["made"], penalty=penalty, lengths=batch["lengths"]
        )
