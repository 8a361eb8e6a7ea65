"""Trains a SoundStream: the generator's turn, then each discriminator's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.data.source import AudioSource
from madrigal.engine.artifacts import ORIGINAL, Audio, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.schedule import ScheduleName
from madrigal.engine.trainer import Figures, Terms, Trainer
from madrigal.engine.turn import Turn
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.losses import discriminator_terms, generator_terms

GENERATOR = "generator"
DISCRIMINATOR = "discriminator/"


class SoundStreamPlan(Plan):
    """A plan with a schedule of their own for the discriminators."""

    lr: float = Field(2e-4, gt=0, description="peak learning rate")
    grad_accum_every: int = Field(4, ge=1, description="micro-batches in a step")
    warmup_steps: int = Field(1000, ge=0, description="linear warm-up")
    discr_lr: float | None = Field(None, gt=0, description="default: lr")
    discr_warmup_steps: int | None = Field(None, ge=0, description="default: warmup_steps")
    discr_scheduler: ScheduleName | Callable[[int], float] | type | None = Field(None, description="default: scheduler")
    discr_scheduler_kwargs: dict[str, Any] | None = Field(None, description="default: scheduler_kwargs")
    discr_max_grad_norm: float | None = Field(None, gt=0, description="clip norm of each discriminator")
    discr_start_step: int = Field(0, ge=0, description="steps without discriminators at the start")
    discr_every: int = Field(1, ge=1, description="steps between the discriminators' turns")
    discr_share_batch: bool = Field(True, description="judge the generator's own batch, or draw another")
    apply_grad_penalty_every: int = Field(4, ge=0, description="steps between gradient penalties; 0: none")
    dead_codebook_usage: float = Field(0.05, ge=0, le=1, description="an alarm below this share of used codes")


class SoundStreamTrainer(Trainer):
    """Trains `soundstream` on a folder, a dataset or a loader; keywords are the fields of `SoundStreamPlan`.

    A batch holds `audio` and may hold `target`, the clean audio that a denoising codec learns to give.
    """

    system: ClassVar[str] = "soundstream"
    unit: ClassVar[str] = "audio s"
    model: SoundStream
    plan: SoundStreamPlan

    def __init__(
        self,
        soundstream: SoundStream,
        *,
        folder: str | Path | None = None,
        data_max_length: int | None = None,
        data_max_length_seconds: float | None = None,
        plan: SoundStreamPlan | None = None,
        source: AudioSource | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        plan, given = plan_and_keywords(SoundStreamPlan, plan, options, "SoundStreamTrainer")
        self.turns_share_batch = plan.discr_share_batch
        if folder is not None:
            seconds = (
                data_max_length / soundstream.config.target_sample_hz if data_max_length else data_max_length_seconds
            )
            source = AudioSource(path=Path(folder), max_length_seconds=seconds)
        self._dying: set[int] = set()
        super().__init__(
            soundstream,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not given.get("resume")),
            recipe=recipe or recorded(self.system, soundstream.config, plan, source),
            **given,
        )

    def _open(self, source: AudioSource, run: Path, *, anew: bool) -> tuple[Any, Any]:
        config = self.model.config
        return source.datasets(
            config.target_sample_hz,
            multiple_of=config.downsample_factor,
            channels=config.input_channels,
            prepared_in=run / "data",
            # A run that goes on keeps the files that it began with; the other ranks take what the main one found.
            anew=anew and self.is_main,
            say=tell,
        )

    def turns(self) -> list[Turn]:
        plan, codec = self.plan, self.model
        generator = {n: p for n, p in codec.named_parameters() if not n.startswith("discriminators.")}
        turns = [Turn(GENERATOR, generator, max_grad_norm=plan.max_grad_norm)]
        for name, discriminator in codec.discriminators.items():
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

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def units(self, batch: Batch) -> float:
        audio: Tensor = batch["audio"]
        return audio.shape[0] * audio.shape[-1] / self.model.config.target_sample_hz

    def weight(self, turn: str, term: str) -> float:
        return self.model.config.loss_weights[term]

    def loss(self, turn: str, batch: Batch) -> Terms:
        if turn == GENERATOR:
            reconstruction, terms = self._autoencode(batch, collect=True, adversarial=self._is_adversarial)
            # The discriminators that share this batch judge what was made for it.
            batch["reconstruction"] = reconstruction.detach()
            return terms
        if "reconstruction" not in batch:
            with torch.no_grad():
                batch["reconstruction"] = self._autoencode(batch, collect=False, adversarial=False)[0]
        discriminator = self.model.discriminators[turn.removeprefix(DISCRIMINATOR)]
        penalty = self._has_penalty(turn)
        real, fake, lengths = _target(batch), batch["reconstruction"], batch["lengths"]
        return discriminator_terms(discriminator, real, fake, penalty=penalty, lengths=lengths)

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
        if not applied:
            quantizer.discard()
            return {}
        quantizer.commit(reduce=self.ranks.sum_, gather=self.ranks.gather)
        perplexity = quantizer.perplexity()
        self._watch_codebooks(quantizer.usage.flatten(0, 1))
        return {"perplexity_mean": float(perplexity.mean()), "perplexity_min": float(perplexity.min())}

    def _watch_codebooks(self, usage: Tensor) -> None:
        """Say once when a codebook falls under the threshold, and again only after it has recovered."""
        # Until every code could have been used a few times, a rare code is no sign of anything.
        is_known = usage.sum(-1) >= 4 * usage.shape[-1]
        shares = (usage >= 0.01 * usage.mean(-1, keepdim=True)).float().mean(-1)
        dying = set((is_known & (shares < self.plan.dead_codebook_usage)).nonzero().flatten().tolist())
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
