"""Conditional flow matching: how the model learns, and what it is asked for.

Speech x1 and noise x0 lie at the ends of a straight way. At time t it passes (1 - t) x0 + t x1, and its flow, the same
all along, is x1 - x0. The model sees a point of the way, the clean speech around a span that it has to make, and an id
for each frame; it is judged by the flow that it finds for the frames of that span.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from madrigal.data.audio import resample
from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.recipe import known_keywords
from madrigal.errors import UserError
from madrigal.voicebox import keywords
from madrigal.voicebox.asking import Asked, asked_for
from madrigal.voicebox.filling import Filled, fill
from madrigal.voicebox.frame_ids import at_frames, tokenised
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.span_masks import chosen_rows, span_masks, spread_times


class Lesson(NamedTuple):
    """What is drawn for a batch of speech: a time [batch], noise of its shape, and which frames are to be made."""

    times: Tensor
    noise: Tensor
    made: Tensor


class Outcome(NamedTuple):
    """The mean square error of the flow, and the number of frames that it is the mean of."""

    loss: Tensor
    frames: int


def mean_over(errors: Tensor, made: Tensor) -> Outcome:
    """The mean of errors [batch, frames] over the frames that were to be made."""
    frames = made.sum()
    return Outcome((errors * made).sum() / frames.clamp(min=1), int(frames))


class ConditionalFlowMatcherWrapper(nn.Module):
    """Trains and samples `voicebox`, which alone is a part of it: features and the makers of ids are frozen tools.

    `features` hears waves as features and says features as waves; without it there are features alone.
    `text_to_semantic` writes semantic tokens for texts; its `wav2vec` hears those of waves that come without ids.
    `torchdiffeq_ode_method`, `ode_rtol`, `ode_atol`: the solver that `sample` takes if it is not told another.
    """

    features: Any
    text_to_semantic: Any
    duration_predictor: Any

    def __init__(
        self,
        voicebox: VoiceBox,
        features: Any = None,
        text_to_semantic: Any = None,
        duration_predictor: Any = None,
        *,
        cond_drop_prob: float | None = None,
        torchdiffeq_ode_method: str = "midpoint",
        ode_rtol: float = 1e-3,
        ode_atol: float = 1e-3,
        **older: Any,
    ) -> None:
        super().__init__()
        rest = keywords.without(older, keywords.FLOW, type(self).__name__)
        if rest:
            raise UserError(f"{type(self).__name__} has no option {next(iter(rest))}.")
        self.voicebox = voicebox
        self.method = keywords.method_of(torchdiffeq_ode_method)
        self.ode_rtol, self.ode_atol = ode_rtol, ode_atol
        features = voicebox.audio_enc_dec if features is None else features
        # Not parts: an optimizer over this module's parameters, and its state, hold what learns and no more.
        self.__dict__ |= {
            "features": features,
            "text_to_semantic": text_to_semantic,
            "duration_predictor": duration_predictor,
        }
        if cond_drop_prob is not None:
            # Kept with the weights: who loads them has to know whether guidance means anything to them.
            voicebox.config = keywords.config_of({"cond_drop_prob": cond_drop_prob}, voicebox.config)
        keywords.check_features(features, voicebox.config)
        self.settle_statistics()

    @property
    def device(self) -> torch.device:
        return self.voicebox.device

    def forward(
        self,
        x1: Tensor,
        *,
        ids: Tensor | None = None,
        phoneme_ids: Tensor | None = None,
        semantic_token_ids: Tensor | None = None,
        durations: Tensor | None = None,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        input_sampling_rate: int | None = None,
    ) -> Tensor:
        """The loss of features [batch, frames, dim_in] or waves [batch, samples].

        `lengths` [batch] in frames (in samples of waves) or `mask` [batch, frames] say what is real. `ids` [batch,
        frames] are at the rate of frames. Other ids are brought to it: `phoneme_ids` by their `durations`,
        `semantic_token_ids` evenly over their row. Waves of another `input_sampling_rate` are resampled.
        """
        if input_sampling_rate is not None and self.features is not None and not self.is_features(x1):
            rate = self.features.sample_rate
            x1 = resample(x1, input_sampling_rate, rate)
            lengths = None if lengths is None else lengths * rate // input_sampling_rate
        sound, (x1, frames) = x1, self.heard(x1, lengths)
        if mask is not None:
            if lengths is not None:
                raise UserError("What is real was given twice, as lengths and as a mask: give one of them.")
            frames = _lengths_of(mask, x1)
        words = {"ids": ids, "symbols": phoneme_ids, "durations": durations, "tokens": semantic_token_ids}
        ids = self.told(sound, lengths, frames, x1.shape[1], **words)
        return self.outcome(x1, frames, ids, training=self.voicebox.training).loss

    def told(
        self, sound: Tensor, lengths: Tensor | None, frames: Tensor, size: int, **words: Tensor | None
    ) -> Tensor | None:
        """Ids [batch, size] of `frames` [batch] of a sound: from the words of `at_frames`, or heard from waves."""
        ids = at_frames(frames, size, **words)
        if ids is not None or not self.voicebox.config.condition_on_text:
            return ids
        wav2vec = getattr(self.text_to_semantic, "wav2vec", None)
        if wav2vec is None or self.is_features(sound):
            raise UserError(
                "The model is conditioned on ids, and there are none: give ids or phoneme_ids, give waves and a "
                "text_to_semantic that has a wav2vec, or build it with condition_on_text=False."
            )
        waves = sound[:, 0] if sound.ndim == 3 else sound
        lengths = torch.full((len(waves),), waves.shape[1]) if lengths is None else lengths.cpu()
        heard = tokenised(waves, lengths, frames, wav2vec=wav2vec, features=self.features)
        return at_frames(frames, size, ids=heard)

    def outcome(self, x1: Tensor, lengths: Tensor, ids: Tensor | None = None, *, training: bool) -> Outcome:
        """The loss of features [batch, frames, dim_in] of which `lengths` frames are real.

        What is hidden for guidance' sake is hidden in `training` alone.
        """
        return self.judged(x1, lengths, ids, self.lesson(x1, lengths), training=training)

    def lesson(self, x1: Tensor, lengths: Tensor) -> Lesson:
        """Draw what the model has to find in features [batch, frames, dim_in], by torch's generator."""
        config = self.voicebox.config
        made = span_masks(lengths, x1.shape[1], fractions=config.frac_lengths_mask, whole_prob=config.p_drop_prob)
        return Lesson(spread_times(len(x1), x1.device), torch.randn_like(x1), made)

    def judged(self, x1: Tensor, lengths: Tensor, ids: Tensor | None, lesson: Lesson, *, training: bool) -> Outcome:
        """How well the model finds the flow of the frames that are to be made; it is given the others, clean."""
        given = self.conditions(x1, lengths, ids, lesson, training=training)
        found = self.voicebox(self.point(x1, lesson), times=lesson.times, **given)
        errors = (found - (x1 - lesson.noise)).square().mean(-1)
        return mean_over(errors, lesson.made & given["mask"])

    def point(self, x1: Tensor, lesson: Lesson) -> Tensor:
        """Where the ways to the speech x1 are at the times of the lesson."""
        return torch.lerp(lesson.noise, x1, lesson.times[:, None, None])

    def conditions(
        self, x1: Tensor, lengths: Tensor, ids: Tensor | None, lesson: Lesson, *, training: bool
    ) -> dict[str, Any]:
        """What the model is told beside the point: clean speech where none is to be made, and ids.

        In training some rows have no ids of what is given (a prompt without a transcript), some none at all beside
        what is given (a hole without a text), and some have neither ids nor speech (for guidance).
        """
        config, rows = self.voicebox.config, len(x1)
        mask = mask_from_lengths(lengths, x1.shape[1])
        context_mask = mask & ~lesson.made
        nothing = chosen_rows(rows, config.cond_drop_prob if training else 0.0, x1.device)
        if ids is not None:
            untold = chosen_rows(rows, config.ids_drop_prob if training else 0.0, x1.device)
            wordless = chosen_rows(rows, config.text_drop_prob if training else 0.0, x1.device) & context_mask.any(1)
            ids = ids.masked_fill((untold[:, None] & ~lesson.made) | wordless[:, None], PAD)
        given = {"context": x1, "context_mask": context_mask, "ids": ids, "mask": mask}
        return {**given, "drop_context": nothing, "drop_ids": nothing}

    @torch.no_grad()
    def heard(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Waves [batch, samples] or features, and their lengths -> features [batch, frames, dim_in], frames [batch]."""
        x = x.to(self.device)
        if self.is_features(x):
            full = torch.full((len(x),), x.shape[1], device=x.device)
            return x, full if lengths is None else lengths.to(x.device)
        if x.ndim == 3 and x.shape[1] == 1:
            x = x[:, 0]
        if x.ndim != 2 or x.shape[1] == self.voicebox.config.dim_in:  # so short a wave is features without their batch
            raise UserError(
                f"A sound of the shape {list(x.shape)} is neither waves [batch, samples] nor features [batch, frames, "
                f"{self.voicebox.config.dim_in}]."
            )
        features = self.tool()
        lengths = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
        lengths = lengths.to(x.device)
        with torch.autocast(x.device.type, enabled=False):
            return features.encode(x, lengths), features.frames(lengths)

    def sample(
        self,
        *,
        cond: Tensor | None = None,
        cond_mask: Tensor | None = None,
        cond_lengths: Tensor | None = None,
        ids: Tensor | None = None,
        texts: Sequence[str] | None = None,
        phoneme_ids: Tensor | None = None,
        semantic_token_ids: Tensor | None = None,
        lengths: Tensor | Sequence[int] | int | None = None,
        seconds: Sequence[float] | float | None = None,
        decode_to_audio: bool = True,
        **options: Any,
    ) -> Tensor:
        """Speech: waves [batch, samples], or features [batch, frames, dim_in] if they are not to be decoded.

        What is asked for is described in `asking.py`; `options` are those of `filling.fill` (steps, method, sway,
        cond_scale, seed, noise). The whole is returned, the prompt included, silent behind a row's end.
        """
        asked = asked_for(
            self,
            cond=cond,
            cond_mask=cond_mask,
            cond_lengths=cond_lengths,
            ids=ids,
            texts=texts,
            phoneme_ids=phoneme_ids,
            semantic_token_ids=semantic_token_ids,
            lengths=lengths,
            seconds=seconds,
        )
        filled = self.filled(asked, **options)
        return self.said(filled) if decode_to_audio and self.features is not None else filled.features

    generate = sample

    def filled(self, asked: Asked, **options: Any) -> Filled:
        """The features of what was asked for."""
        options = keywords.without(options, keywords.SAMPLE, f"{type(self).__name__}.sample")
        if "method" in options:
            options["method"] = keywords.method_of(options["method"])
        if self.voicebox.config.distilled_steps is None:
            options = {"method": self.method, **options}
        given = {"rtol": self.ode_rtol, "atol": self.ode_atol, **options}
        return fill(self.voicebox, asked.lengths, **asked.given(), **known_keywords(fill, given, "sample"))

    @torch.no_grad()
    def said(self, filled: Filled) -> Tensor:
        """Features to waves [batch, samples], each row by itself, so that its padding is not heard."""
        features = self.tool()
        waves = [features.decode(row[None])[0] for row in filled.rows()]
        return nn.utils.rnn.pad_sequence(waves, batch_first=True)

    def is_features(self, x: Tensor) -> bool:
        """Whether x is features [batch, frames, dim_in], and no waves."""
        return x.ndim == 3 and x.shape[2] == self.voicebox.config.dim_in

    def tool(self) -> Any:
        """The features, frozen, where the model is, and normalised as the model knows them."""
        if self.features is None:
            raise UserError("A wave needs features to be heard and said with: give the wrapper features=….")
        if isinstance(self.features, nn.Module):
            self.features.requires_grad_(False).eval().to(self.device)
        self.settle_statistics()
        return self.features

    def settle_statistics(self) -> None:
        """Features that were never fitted take the statistics that the model has learned; others must have the same."""
        keywords.check_statistics(self.features, self.voicebox.mean, self.voicebox.std)
        if not bool(getattr(self.features, "fitted", True)) and bool(self.voicebox.std.any()):
            self.features.take_statistics(self.voicebox.mean, self.voicebox.std)


def _lengths_of(mask: Tensor, x1: Tensor) -> Tensor:
    """The lengths [batch] that a mask [batch, frames] of x1 stands for."""
    lengths = mask.sum(1)
    if mask.shape != x1.shape[:2] or not torch.equal(mask_from_lengths(lengths, mask.shape[1]), mask.bool()):
        raise UserError(
            f"A mask says how many frames of each row are real, the first ones, as [batch, {x1.shape[1]}]: pad rows at "
            "their end."
        )
    return lengths.to(x1.device)
