"""Trains a vocoder to give back the recordings that its log-mels were made of."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.engine.adversarial import AdversarialPlan
from madrigal.engine.artifacts import ORIGINAL, Audio, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.trainer import Terms
from madrigal.soundstream.adversarial import AdversarialTrainer
from madrigal.soundstream.losses import generator_terms
from madrigal.voicebox.vocoder.model import Vocoder


class VocoderPlan(AdversarialPlan):
    """A plan with a schedule of their own for the discriminators; no penalty of their gradients."""

    lr: float = Field(5e-4, gt=0, description="peak learning rate")
    apply_grad_penalty_every: int = Field(0, ge=0, description="steps between gradient penalties; 0: none")


class VocoderTrainer(AdversarialTrainer):
    """Trains `vocoder` on a folder, a dataset or a loader of recordings; keywords are the fields of `VocoderPlan`."""

    system: ClassVar[str] = "vocoder"
    plan_class: ClassVar[type[AdversarialPlan]] = VocoderPlan
    model: Vocoder
    plan: VocoderPlan

    def make(self, batch: Batch, *, learn: bool, adversarial: bool) -> tuple[Tensor, Terms]:
        made = self._vocode(batch, noisy=learn)
        target = self.target(batch)
        return made, generator_terms(self.model, target, made, lengths=batch["lengths"], adversarial=adversarial)

    def _vocode(self, batch: Batch, *, noisy: bool) -> Tensor:
        """The recordings of a batch again, [batch, 1, samples], from their log-mels."""
        vocoder, audio = self.model, self.target(batch)
        with torch.no_grad():
            log_mels = vocoder.statistics.raw(audio[:, 0])
            if noisy and vocoder.config.input_noise:
                # A model's frames are never quite right; a vocoder that has only met right ones makes noise of that.
                noise = torch.randn_like(log_mels) * torch.rand(len(log_mels), 1, 1, device=log_mels.device)
                log_mels = log_mels + vocoder.config.input_noise * vocoder.statistics.std * noise
        wave: Tensor = vocoder(log_mels)
        return nn.functional.pad(wave, (0, audio.shape[-1] - wave.shape[-1]))[:, None]

    def first_step(self, batches: list[Batch]) -> None:
        statistics = self.model.statistics
        if bool(statistics.fitted):
            return  # a vocoder that was trained before keeps its log-mels
        statistics.fit_batches(batches)

    def validate(self, batch: Batch) -> Terms:
        return self.make(batch, learn=False, adversarial=False)[1]

    def sample(self, batch: Batch) -> list[Sample]:
        rate, made = self.model.target_sample_hz, self._vocode(batch, noisy=False)
        return [
            {ORIGINAL: Audio(wave[:, :length], rate), "vocoded": Audio(again[:, :length], rate)}
            for wave, again, length in zip(batch["audio"], made, batch["lengths"].tolist(), strict=True)
        ]

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()
