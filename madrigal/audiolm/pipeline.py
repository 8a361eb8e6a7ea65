"""From a prompt, a text or nothing to sound: semantic tokens, coarse codes, fine codes, the codec."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.decoding import Drawn, decode_in_chunks
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.tokens import heard_at
from madrigal.audiolm.windows import Window, extend, first_of, streamed
from madrigal.audiolm.wrappers import (
    CoarseTransformerWrapper,
    FineTransformerWrapper,
    SemanticTransformerWrapper,
    StageWrapper,
    seeds_of,
)
from madrigal.data.audio import read
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seed_for
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling
from madrigal.tokenizers.repeats import unique_consecutive

Context = tuple[Tensor, Tensor]

MAX_TIME_STEPS = 512
"""Frames that the coarse stage may draw where no length is asked for."""

NO_CONDITION = "None of the stages was trained with a condition, so a text changes nothing"


class AudioLM(nn.Module):
    """Three stages and what makes their tokens. Called, it gives waves [batch, samples], or a list of several lengths.

    A coarse stage that draws all of a codec's codebooks needs no fine stage.
    """

    def __init__(
        self,
        *,
        codec: Any,
        semantic_transformer: SemanticTransformer,
        coarse_transformer: CoarseTransformer,
        fine_transformer: FineTransformer | None = None,
        wav2vec: Any = None,
        audio_conditioner: Any = None,
        unique_consecutive: bool | None = None,
    ) -> None:
        super().__init__()
        self.wav2vec, self.codec = wav2vec, codec
        self.semantic_transformer, self.coarse_transformer = semantic_transformer, coarse_transformer
        self.fine_transformer = fine_transformer
        _check(wav2vec, codec, semantic_transformer, coarse_transformer, fine_transformer, unique_consecutive)
        self.audio_conditioner = audio_conditioner
        self.semantic = SemanticTransformerWrapper(**self._for_stage(semantic_transformer))
        self.coarse = CoarseTransformerWrapper(**self._for_stage(coarse_transformer))
        self.fine = None if fine_transformer is None else FineTransformerWrapper(**self._for_stage(fine_transformer))
        self.eval()

    @property
    def device(self) -> torch.device:
        return self.coarse_transformer.device

    @property
    def is_conditioned(self) -> bool:
        """Whether a text has an effect on any stage."""
        return any(stage.transformer.config.is_conditioned for stage in self._stages().values())

    @torch.no_grad()
    def forward(
        self,
        *,
        batch_size: int = 1,
        seconds: float | None = None,
        text: list[str] | None = None,
        text_embeds: Tensor | None = None,
        prime_wave: Tensor | Sequence[Tensor] | None = None,
        prime_wave_input_sample_hz: int | None = None,
        prime_wave_path: str | Path | None = None,
        prime_ids: Sequence[Tensor] | None = None,
        prime_codes: Sequence[Tensor] | None = None,
        max_length: int = 2048,
        sampling: Sampling | dict[str, Sampling] | None = None,
        seed: Sequence[int] | int = 0,
        return_coarse_generated_wave: bool = False,
        mask_out_generated_fine_tokens: bool = False,
    ) -> Tensor | list[Tensor]:
        """Sound, beginning with the prompt where there is one.

        `seconds` is how much is made after the prompt, to a frame; without it the stages say where the end is, after
        `max_length` semantic tokens at the most. A prompt is a wave [batch, samples] or a list of waves of different
        lengths, a file, or tokens: `prime_ids` [time] and `prime_codes` [frames, quantizers] of each row. `sampling`
        is one for all stages, or by the names semantic, coarse and fine.
        """
        rows = self._prompt(
            batch_size,
            text,
            text_embeds,
            prime_wave,
            prime_wave_input_sample_hz,
            prime_wave_path,
            prime_ids,
            prime_codes,
        )
        if (text is not None or text_embeds is not None) and not self.is_conditioned:
            warnings.warn(NO_CONDITION, stacklevel=5)  # whoever called the module
        seeds = seeds_of(seed, len(rows.ids))
        contexts = {name: self._context(stage, text, text_embeds, len(seeds)) for name, stage in self._stages().items()}
        semantic = self._semantic(rows.ids, seconds, max_length, _of(sampling, "semantic"), seeds, contexts["semantic"])
        coarse = self._coarse(semantic, rows.coarse(self), seconds, _of(sampling, "coarse"), seeds, contexts["coarse"])
        codes = coarse
        if self.fine is not None and not return_coarse_generated_wave:
            fine = self._fine(coarse, rows.fine(self), _of(sampling, "fine"), seeds, contexts["fine"])
            if mask_out_generated_fine_tokens:
                fine = [_blanked(f, len(known)) for f, known in zip(fine, rows.codes, strict=True)]
            codes = [torch.cat(pair, 1) for pair in zip(coarse, fine, strict=True)]
        waves = [self._heard(row) for row in codes]
        return torch.stack(waves) if len({wave.shape for wave in waves}) == 1 else waves

    @torch.no_grad()
    def stream(
        self,
        *,
        seconds: float,
        chunk_seconds: float = 0.5,
        text: list[str] | None = None,
        text_embeds: Tensor | None = None,
        prime_wave: Tensor | None = None,
        prime_wave_input_sample_hz: int | None = None,
        prime_wave_path: str | Path | None = None,
        sampling: Sampling | dict[str, Sampling] | None = None,
        seed: int = 0,
    ) -> Iterator[Tensor]:
        """Sound [samples] piece by piece, as soon as its codes are drawn; pieces after the prompt last `chunk_seconds`.

        The coarse codes are those of one call with this seed. Fine codes are drawn for each piece when its coarse codes
        are there, and so hear less of what comes than in one call.
        """
        rows = self._prompt(1, text, text_embeds, prime_wave, prime_wave_input_sample_hz, prime_wave_path, None, None)
        contexts = {name: self._context(stage, text, text_embeds, 1) for name, stage in self._stages().items()}
        semantic = self._semantic(rows.ids, seconds, 2048, _of(sampling, "semantic"), [seed], contexts["semantic"])
        decoder = self.codec.stream_decoder()
        if decoder is None:
            raise UserError("This codec cannot decode piece by piece: generate the whole at once.")
        with eval_mode(self):
            yield from _pieces(decoder.push(rows.codes[0][None]))
            fine = rows.fine(self)[0]
            coarse = rows.coarse(self)[0]
            chunk = max(1, round(chunk_seconds * self.codec.frame_rate))
            for new in self._coarse_pieces(
                semantic, coarse, seconds, chunk, _of(sampling, "coarse"), seed, contexts["coarse"]
            ):
                coarse, codes = torch.cat((coarse, new)), new
                if self.fine is not None:
                    known = len(fine)
                    seeds = seeds_for("fine, in pieces", [seed], known)
                    fine = self._fine([coarse], [fine], _of(sampling, "fine"), seeds, contexts["fine"])[0]
                    codes = torch.cat((new, fine[known:]), 1)
                yield from _pieces(decoder.push(codes[None]))
            yield from _pieces(decoder.flush())

    def _coarse_pieces(
        self,
        semantic: list[Tensor],
        prompt: Tensor,
        seconds: float,
        chunk: int,
        sampling: Sampling | None,
        seed: int,
        context: Context | None,
    ) -> Iterator[Tensor]:
        """What `_coarse` draws for one row, [up to `chunk` frames, quantizers] at a time."""
        coarse, total, number = prompt, self._frames(len(prompt), seconds), 0
        while len(coarse) < total:
            window = self._coarse_window()
            start = first_of(len(coarse), total, window)
            stop = total if window is None else min(total, start + window)
            decoding = self.coarse.decoding(
                [streamed(self._semantic_of(semantic, [start], [stop])), streamed([coarse[start:]])],
                torch.tensor([stop - start]),
                sampling,
                seeds_for("coarse", [seed], number),
                context,
                may_end=False,
            )
            for new in decode_in_chunks(decoding, chunk):
                coarse = torch.cat((coarse, new[0]))
                yield new[0]
            number += 1

    # The stages.

    def _semantic(
        self,
        prompts: list[Tensor],
        seconds: float | None,
        max_length: int,
        sampling: Sampling | None,
        seeds: list[int],
        context: Context | None,
    ) -> list[Tensor]:
        config = self.semantic_transformer.config
        is_timed = seconds is not None and not config.unique_consecutive
        if seconds is not None:
            # Tokens without repeats last at least as long as others: more than these cannot be needed.
            timed = max(1, round(seconds * self._semantic_rate()))
            max_length = timed if is_timed else min(timed, max_length)
        totals = [len(prompt) + max_length for prompt in prompts]

        def draw(window: Window) -> Drawn:
            return self.semantic.decode(
                [window.prompt],
                window.limits,
                sampling=sampling,
                seeds=seeds_for("semantic", seeds, window.number),
                context=context,
                may_end=not is_timed,
            )

        rows = [prompt[:, None] if prompt.ndim == 1 else prompt for prompt in prompts]
        return extend(rows, totals, self._window(self.semantic_transformer, self._semantic_rate()), draw)

    def _coarse(
        self,
        semantic: list[Tensor],
        prompts: list[Tensor],
        seconds: float | None,
        sampling: Sampling | None,
        seeds: list[int],
        context: Context | None,
    ) -> list[Tensor]:
        per_token = self.coarse_transformer.config.frames_per_semantic
        if seconds is not None:
            totals = [self._frames(len(prompt), seconds) for prompt in prompts]
        elif per_token is not None:
            totals = [max(len(p), round(len(s) * per_token)) for p, s in zip(prompts, semantic, strict=True)]
        else:
            totals = [len(prompt) + MAX_TIME_STEPS for prompt in prompts]

        def draw(window: Window) -> Drawn:
            return self.coarse.decode(
                [streamed(self._semantic_of(semantic, window.starts, window.stops)), window.prompt],
                window.limits,
                sampling=sampling,
                seeds=seeds_for("coarse", seeds, window.number),
                context=context,
                may_end=seconds is None and per_token is None,
            )

        return extend(prompts, totals, self._coarse_window(), draw)

    def _coarse_window(self) -> int | None:
        """Without durations nobody knows which semantic tokens belong to a window: all goes in one."""
        timed = self.coarse_transformer.config.frames_per_semantic is not None
        return self._window(self.coarse_transformer, self.codec.frame_rate) if timed else None

    def _semantic_of(self, semantic: list[Tensor], starts: list[int], stops: list[int]) -> list[Tensor]:
        """The semantic tokens of a span of frames of each row."""
        per_token = self.coarse_transformer.config.frames_per_semantic
        if per_token is None:
            return semantic
        spans = zip(semantic, starts, stops, strict=True)
        return [row[round(start / per_token) : round(stop / per_token)] for row, start, stop in spans]

    def _fine(
        self,
        coarse: list[Tensor],
        prompts: list[Tensor],
        sampling: Sampling | None,
        seeds: list[int],
        context: Context | None,
    ) -> list[Tensor]:
        stage = self.fine
        assert stage is not None

        def draw(window: Window) -> Drawn:
            spans = zip(coarse, window.starts, window.stops, strict=True)
            return stage.decode(
                [streamed([row[a:b] for row, a, b in spans]), window.prompt],
                window.limits,
                sampling=sampling,
                seeds=seeds_for("fine", seeds, window.number),
                context=context,
                may_end=False,
            )

        window = self._window(stage.transformer, self.codec.frame_rate)
        return extend(prompts, [len(row) for row in coarse], window, draw)

    # What they need.

    def _for_stage(self, stage: StageTransformer) -> dict[str, Any]:
        """What a stage's wrapper is made of. The conditioner that a stage was trained with is its own."""
        takes_it = stage.config.audio_text_condition and stage.audio_conditioner is None
        conditioner = self.audio_conditioner if takes_it else None
        return {"transformer": stage, "wav2vec": self.wav2vec, "codec": self.codec, "audio_conditioner": conditioner}

    def _stages(self) -> dict[str, StageWrapper[Any]]:
        stages: dict[str, StageWrapper[Any]] = {"semantic": self.semantic, "coarse": self.coarse}
        return stages if self.fine is None else {**stages, "fine": self.fine}

    def _frames(self, known: int, seconds: float) -> int:
        if not seconds > 0:
            raise UserError(f"seconds is {seconds}; ask for more than 0 of them.")
        return known + max(1, round(seconds * self.codec.frame_rate))

    def _semantic_rate(self) -> float:
        per_token = self.coarse_transformer.config.frames_per_semantic
        if self.wav2vec is not None:
            return float(self.wav2vec.frame_rate)
        return float(self.codec.frame_rate / (per_token or 2.0))

    @staticmethod
    def _window(stage: StageTransformer, rate: float) -> int | None:
        seconds = stage.config.window_seconds
        return None if seconds is None else max(2, round(seconds * rate))

    def _context(
        self, stage: StageWrapper[Any], text: list[str] | None, embeds: Tensor | None, rows: int
    ) -> Context | None:
        if not stage.transformer.config.is_conditioned or (text is None and embeds is None):
            return None
        context = stage.condition(text=text if embeds is None else None, text_embeds=embeds)
        if context is not None and len(context[0]) != rows:
            raise UserError(f"{len(context[0])} texts were given for {rows} rows of sound; give one for each.")
        return context

    def _prompt(
        self,
        batch_size: int,
        text: list[str] | None,
        text_embeds: Tensor | None,
        wave: Tensor | Sequence[Tensor] | None,
        rate: int | None,
        path: str | Path | None,
        ids: Sequence[Tensor] | None,
        codes: Sequence[Tensor] | None,
    ) -> "Prompt":
        if sum(given is not None for given in (wave, path, ids)) > 1:
            raise UserError("Give one prompt: a wave, a file or token ids.")
        if (ids is None) != (codes is None):
            raise UserError("A prompt of tokens needs both: semantic ids (prime_ids) and codes (prime_codes).")
        if rate is not None and rate < 1:
            raise UserError(f"prime_wave_input_sample_hz is {rate}; give the rate of the wave in Hz.")
        if path is not None:
            return self._heard_prompt([read(path, sample_rate=hz, channels=c) for hz, c in self._rates()])
        if wave is not None:
            wave = wave[None] if isinstance(wave, Tensor) and wave.ndim == 1 else wave
            prompts = [self._heard_prompt([heard_at(one, rate, hz, c) for hz, c in self._rates()]) for one in wave]
            return Prompt([p.ids[0] for p in prompts], [p.codes[0] for p in prompts])
        if ids is not None and codes is not None:
            return Prompt([row.to(self.device) for row in ids], [row.to(self.device) for row in codes])
        rows = len(text) if text is not None else len(text_embeds) if text_embeds is not None else batch_size
        nothing = torch.empty(0, self._quantizers(), dtype=torch.long, device=self.device)
        return Prompt([torch.empty(0, dtype=torch.long, device=self.device)] * rows, [nothing] * rows)

    def _rates(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rate and channels that the tokenizer hears, and the codec."""
        if self.wav2vec is None:
            raise UserError("A prompt of sound needs the semantic tokenizer: give AudioLM its wav2vec.")
        return (self.wav2vec.target_sample_hz, 1), (self.codec.target_sample_hz, self.codec.channels)

    def _heard_prompt(self, waves: list[Tensor]) -> "Prompt":
        """One row's prompt from its wave [channels, samples] at both rates, cut to whole frames of both."""
        for_semantic, for_codec = (wave.to(self.device) for wave in waves)
        step = max(self.wav2vec.downsample_factor / self.wav2vec.target_sample_hz, 1 / self.codec.frame_rate)
        count = int(for_codec.shape[-1] / self.codec.target_sample_hz / step + 1e-6)
        if count == 0:
            raise UserError(f"The prompt is shorter than {step:g} seconds, one token; give a longer one.")
        for_semantic = for_semantic[..., : round(count * step * self.wav2vec.target_sample_hz)]
        for_codec = for_codec[..., : round(count * step * self.codec.target_sample_hz)]
        ids, lengths = self.wav2vec.tokenize(for_semantic)
        if self.semantic_transformer.config.unique_consecutive:
            ids, lengths = unique_consecutive(ids, lengths)
        codes = self.codec.tokenize(for_codec[None])
        return Prompt([ids[0, : lengths[0]]], [codes[0, :, : self._quantizers()]])

    def _quantizers(self) -> int:
        fine = 0 if self.fine_transformer is None else self.fine_transformer.num_quantizers
        return self.coarse_transformer.num_quantizers + fine

    def _heard(self, codes: Tensor) -> Tensor:
        """[samples], or [channels, samples] of a codec that has several."""
        wave: Tensor = self.codec.decode_from_codebook_indices(codes[None].to(self.device))[0]
        return wave[0] if wave.shape[0] == 1 else wave


class Prompt:
    """The rows' semantic ids [time] and codes [frames, quantizers]; empty where there is no prompt."""

    def __init__(self, ids: list[Tensor], codes: list[Tensor]) -> None:
        self.ids, self.codes = ids, codes

    def coarse(self, model: AudioLM) -> list[Tensor]:
        return [codes[:, : model.coarse_transformer.num_quantizers] for codes in self.codes]

    def fine(self, model: AudioLM) -> list[Tensor]:
        first = model.coarse_transformer.num_quantizers
        return [codes[:, first : model._quantizers()] for codes in self.codes]


def seeds_for(stage: str, seeds: list[int], number: int) -> list[int]:
    """Each row's seed for one window of one stage: the same noise in two of them would tie what they draw."""
    return [seed_for(seed, stage, number) for seed in seeds]


def _of(sampling: Sampling | dict[str, Sampling] | None, stage: str) -> Sampling | None:
    unknown = set(sampling) - {"semantic", "coarse", "fine"} if isinstance(sampling, dict) else set()
    if unknown:
        raise UserError(f"There is no stage {min(unknown)!r} to sample from; they are semantic, coarse and fine.")
    return sampling.get(stage) if isinstance(sampling, dict) else sampling


def _blanked(fine: Tensor, known: int) -> Tensor:
    """Only the prompt's own fine codes; the codec takes -1 for a codebook that is left out."""
    return torch.cat((fine[:known], torch.full_like(fine[known:], -1)))


def _pieces(wave: Tensor) -> Iterator[Tensor]:
    if wave.shape[-1]:
        yield wave[0, 0] if wave.shape[1] == 1 else wave[0]


def _check(
    tokenizer: Any,
    codec: Any,
    semantic: SemanticTransformer,
    coarse: CoarseTransformer,
    fine: FineTransformer | None,
    unique: bool | None,
) -> None:
    """Parts that were not trained on the same tokens would give noise: say which of them differ."""
    said: list[tuple[str, Any, str, Any]] = [
        (
            "the coarse stage's num_semantic_tokens",
            coarse.config.num_semantic_tokens,
            "the semantic stage's",
            semantic.config.num_semantic_tokens,
        ),
        (
            "the coarse stage's unique_consecutive",
            coarse.config.unique_consecutive,
            "the semantic stage's",
            semantic.config.unique_consecutive,
        ),
        ("the coarse stage's codebook_size", coarse.config.codebook_size, "the codec's", codec.codebook_size),
        ("the coarse stage's rq_groups", coarse.config.rq_groups, "the codec's", codec.rq_groups),
    ]
    if tokenizer is not None:
        said.append(
            (
                "the semantic stage's num_semantic_tokens",
                semantic.config.num_semantic_tokens,
                "the tokenizer's codebook_size",
                tokenizer.codebook_size,
            )
        )
        if coarse.config.frames_per_semantic is not None:
            frames, ratio = coarse.config.frames_per_semantic, codec.frame_rate / tokenizer.frame_rate
            said.append(("the coarse stage's frames_per_semantic", frames, "the codec and the tokenizer's", ratio))
    if unique is not None:
        said.append(("unique_consecutive", unique, "the semantic stage's", semantic.config.unique_consecutive))
    if fine is not None:
        said += [
            ("the fine stage's codebook_size", fine.config.codebook_size, "the codec's", codec.codebook_size),
            (
                "the fine stage's num_coarse_quantizers",
                fine.config.num_coarse_quantizers,
                "the coarse stage's",
                coarse.config.num_coarse_quantizers,
            ),
            ("the fine stage's rq_groups", fine.config.rq_groups, "the codec's", codec.rq_groups),
        ]
    for what, value, other, wanted in said:
        if value != wanted:
            raise UserError(f"The parts of AudioLM do not fit: {what} is {value}, and {other} is {wanted}.")
    drawn = coarse.num_quantizers + (0 if fine is None else fine.num_quantizers)
    if drawn > codec.num_quantizers * codec.rq_groups:
        there = codec.num_quantizers * codec.rq_groups
        raise UserError(
            f"The parts of AudioLM do not fit: the stages draw {drawn} codebooks, and the codec has {there}."
        )
