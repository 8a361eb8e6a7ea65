"""Trains a SoundStream: the generator's turn, then each discriminator's."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.engine.adversarial import GENERATOR, AdversarialPlan
from madrigal.engine.artifacts import ORIGINAL, Audio, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.trainer import Figures, Terms
from madrigal.soundstream.adversarial import AdversarialTrainer
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.losses import generator_terms


class SoundStreamPlan(AdversarialPlan):
    """A plan with a schedule of their own for the discriminators, and an eye on the codebooks."""

    lr: float = Field(2e-4, gt=0, description="peak learning rate")
    grad_accum_every: int = Field(4, ge=1, description="micro-batches in a step")
    warmup_steps: int = Field(1000, ge=0, description="linear warm-up")
    dead_codebook_usage: float = Field(0.05, ge=0, le=1, description="an alarm below this share of used codes")


class SoundStreamTrainer(AdversarialTrainer):
    """Trains `soundstream` on a folder, a dataset or a loader; keywords are the fields of `SoundStreamPlan`.

    A batch holds `audio` and may hold `target`, the clean audio that a denoising codec learns to give.
    """

    system: ClassVar[str] = "soundstream"
    model: SoundStream
    plan: SoundStreamPlan

    plan_class: ClassVar[type[AdversarialPlan]] = SoundStreamPlan
    _dying: frozenset[int] = frozenset()

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def make(self, batch: Batch, *, learn: bool, adversarial: bool) -> tuple[Tensor, Terms]:
        return self._autoencode(batch, collect=learn, adversarial=adversarial)

    def target(self, batch: Batch) -> Tensor:
        return _target(batch)

    def _autoencode(self, batch: Batch, *, collect: bool, adversarial: bool) -> tuple[Tensor, Terms]:
        reconstruction, quantized = self.model.autoencode(
            batch["audio"], collect=collect, is_denoising=_is_denoising(batch), lengths=batch["lengths"]
        )
        terms = generator_terms(
            self.model,
            _target(batch),
            reconstruction,
            quantized.commitment,
            lengths=batch["lengths"],
            adversarial=adversarial,
        )
        return reconstruction, terms

    def validate(self, batch: Batch) -> Terms:
        return self._autoencode(batch, collect=False, adversarial=False)[1]

    def sample(self, batch: Batch) -> list[Sample]:
        rate = self.model.config.target_sample_hz
        made = self.model(batch["audio"], return_recons_only=True, is_denoising=_is_denoising(batch))
        lengths = batch["lengths"].tolist()
        return [
            {ORIGINAL: Audio(wave[:, :length], rate), "reconstruction": Audio(again[:, :length], rate)}
            for wave, again, length in zip(batch["audio"], made, lengths, strict=True)
        ]

    def first_step(self, batches: list[Batch]) -> None:
        if bool(self.model.quantizer.initialized):
            return  # a codec that was trained before keeps its codebooks
        latents = []
        for batch in batches:
            x = self.model.latents(batch["audio"], is_denoising=_is_denoising(batch))
            frames = -(-batch["lengths"] // self.model.downsample_factor)
            latents.append(x[mask_from_lengths(frames, x.shape[1])])
        self.model.quantizer.initialize(torch.cat(latents))

    def after_turn(self, turn: str, applied: bool) -> Figures:
        if turn != GENERATOR:
            return {}
        quantizer = self.model.quantizer
        figures = quantizer.end_step(applied, self.ranks.sum_, self.ranks.gather)
        if applied:
            self._watch_codebooks(quantizer.usage.flatten(0, 1))
        return figures

    def _watch_codebooks(self, usage: Tensor) -> None:
        """Say once when a codebook falls under the threshold, and again only after it has recovered."""
        # Until every code could have been used a few times, a rare code is no sign of anything.
        is_known = usage.sum(-1) >= 4 * usage.shape[-1]
        shares = (usage >= 0.01 * usage.mean(-1, keepdim=True)).float().mean(-1)
        dying = frozenset((is_known & (shares < self.plan.dead_codebook_usage)).nonzero().flatten().tolist())
        for level in sorted(dying - self._dying):
            share = 100 * float(shares[level])
            self.print(f"Codebook {level} is dying: {share:.1f} % of its codes are in use at step {self.step}")
        self._dying = dying

    # Names that scripts of older libraries call.

    @property
    def ema_tokenizer(self) -> SoundStream:
        """A copy of the codec with the averaged weights."""
        codec = SoundStream(self.model.config, discriminators=False).to(self.device).eval()
        weights = self.model.exported()
        if self.ema is not None:
            weights |= self.ema.state_dict()
        codec.load_state_dict(weights)
        return codec

    def tokenize(self, audio: Tensor) -> Tensor:
        """Codes [batch, frames, quantizers] by the averaged weights."""
        return self.ema_tokenizer.tokenize(audio)

    def set_model_as_ema_model_(self) -> None:
        """Give the codec the averaged weights."""
        if self.ema is not None:
            self.model.load_state_dict(self.ema.state_dict(), strict=False)


def _target(batch: Batch) -> Tensor:
    clean: Tensor = batch["target" if "target" in batch else "audio"]
    return clean


def _is_denoising(batch: Batch) -> bool | None:
    return True if "target" in batch else None
