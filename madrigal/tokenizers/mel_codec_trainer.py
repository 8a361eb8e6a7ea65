"""Trains a codec of log-mels to give back the frames that it has coded."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.engine.artifacts import ORIGINAL, Audio, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.plan import Plan
from madrigal.engine.recordings import RecordingsTrainer
from madrigal.engine.trainer import Figures, Terms
from madrigal.tokenizers.mel_codec import MelCodec


class MelCodecPlan(Plan):
    """A plan with the weight of the quantizer's own loss."""

    commitment_weight: float = Field(0.25, ge=0, description="of the distance of the latents from their codes")


class MelCodecTrainer(RecordingsTrainer):
    """Trains `codec`; a batch holds `audio` [batch, 1, samples] and `lengths` [batch]."""

    system: ClassVar[str] = "mel-codec"
    model: MelCodec
    plan: MelCodecPlan

    def weight(self, turn: str, term: str) -> float:
        return {"mel": 1.0, "commitment": self.plan.commitment_weight}.get(term, 0.0)

    def loss(self, turn: str, batch: Batch) -> Terms:
        return self._terms(batch, collect=True)

    def validate(self, batch: Batch) -> Terms:
        return self._terms(batch, collect=False)

    def _terms(self, batch: Batch, *, collect: bool) -> Terms:
        frames, mask = self._frames(batch)
        made, quantized = self.model.autoencode(frames, collect=collect, mask=mask)
        distance = (made - frames).abs().mean(-1)
        return {"mel": distance[mask].mean(), "commitment": quantized.commitment}

    def _frames(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Normalised log-mels [batch, frames, n_mels], and which of them are sound."""
        audio = batch["audio"]
        with torch.no_grad():
            audio = nn.functional.pad(audio, (0, -audio.shape[-1] % self.model.downsample_factor))
            frames = self.model.log_mels(audio)
        return frames, mask_from_lengths(self.model.frames(batch["lengths"]), frames.shape[1])

    def first_step(self, batches: list[Batch]) -> None:
        """Statistics of the frames, then codebooks from the latents, of the step's own batches."""
        model = self.model
        if not bool(model.features.fitted):
            model.features.fit_batches(batches)
        if not bool(model.quantizer.initialized):
            heard = map(self._frames, batches)
            model.quantizer.initialize(torch.cat([model.latents(*each)[each[1]].float() for each in heard]))

    def after_turn(self, turn: str, applied: bool) -> Figures:
        return self.model.quantizer.end_step(applied, self.ranks.sum_, self.ranks.gather)

    def sample(self, batch: Batch) -> list[Sample]:
        """Each recording, and the recording through its codes, coded as it would be alone."""
        model, rate = self.model, self.model.target_sample_hz
        waves = [wave[:, :length] for wave, length in zip(batch["audio"], batch["lengths"].tolist(), strict=True)]
        made = [model.decode_from_codebook_indices(model.tokenize(wave[None]))[0] for wave in waves]
        return [
            {ORIGINAL: Audio(wave, rate), "reconstruction": Audio(again[:, : wave.shape[-1]], rate)}
            for wave, again in zip(waves, made, strict=True)
        ]

    def blocks(self) -> list[nn.Module]:
        return [*self.model.encoder.blocks, *self.model.decoder.blocks]
