"""From a prompt, a text or nothing to sound: semantic tokens first, and then what the acoustic stages make of them."""

import warnings
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.audiolm.acoustic import AcousticStages, Prompt, window_of
from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.decoding import Drawn
from madrigal.audiolm.draws import Context, Draws, Samplings, by_stage
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.fitting import Claim, acoustic_claims, check_fit, check_levels
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.windows import Window, extend
from madrigal.audiolm.wrappers import (
    CoarseTransformerWrapper,
    FineTransformerWrapper,
    SemanticTransformerWrapper,
    StageWrapper,
)
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seeds_of
from madrigal.errors import UserError

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
        check_fit(_claims(wav2vec, semantic_transformer, coarse_transformer, unique_consecutive))
        check_fit(acoustic_claims(wav2vec, codec, coarse_transformer, fine_transformer))
        check_levels(coarse_transformer, fine_transformer, codec)
        self.audio_conditioner = audio_conditioner
        self.semantic = SemanticTransformerWrapper(**self._for_stage(semantic_transformer))
        self.coarse = CoarseTransformerWrapper(**self._for_stage(coarse_transformer))
        self.fine = None if fine_transformer is None else FineTransformerWrapper(**self._for_stage(fine_transformer))
        self.eval()

    @property
    def acoustic(self) -> AcousticStages:
        """What makes sound of the semantic tokens; it follows where the codec and the tokenizer are replaced."""
        return AcousticStages(self.coarse, self.fine, self.codec, self.wav2vec)

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
        text: list[str] | str | None = None,
        text_embeds: Tensor | None = None,
        condition_ids: Tensor | None = None,
        prime_wave: Tensor | Sequence[Tensor] | None = None,
        prime_wave_input_sample_hz: int | None = None,
        prime_wave_path: str | Path | None = None,
        prime_ids: Sequence[Tensor] | None = None,
        prime_codes: Sequence[Tensor] | None = None,
        max_length: int = 2048,
        sampling: Samplings = None,
        seed: Sequence[int] | int = 0,
        return_coarse_generated_wave: bool = False,
        mask_out_generated_fine_tokens: bool = False,
    ) -> Tensor | list[Tensor]:
        """Sound, beginning with the prompt where there is one.

        `seconds` is how much is made after the prompt, to a frame; without it the stages say where the end is, after
        `max_length` semantic tokens at the most. A prompt is a wave [batch, samples] or a list of waves of different
        lengths, a file, or tokens: `prime_ids` [time] and `prime_codes` [frames, quantizers] of each row. `sampling`
        is one for all stages, or by the names semantic, coarse and fine. `condition_ids` [batch, levels] are codes of
        an audio conditioner, in a text's place.
        """
        acoustic = self.acoustic
        text = [text] if isinstance(text, str) else text
        rows = self._prompt(prime_wave, prime_wave_input_sample_hz, prime_wave_path, prime_ids, prime_codes)
        if rows is None:
            given = next((one for one in (text, text_embeds, condition_ids) if one is not None), None)
            rows = acoustic.no_prompt(batch_size if given is None else len(given))
        asked = {"text": text, "text_embeds": text_embeds, "ids": condition_ids}
        if any(one is not None for one in asked.values()) and not self.is_conditioned:
            warnings.warn(NO_CONDITION, stacklevel=5)  # whoever called the module
        draws = self._draws(seeds_of(seed, len(rows.ids)), sampling, asked)
        semantic = self._semantic(rows.ids, seconds, max_length, draws)
        coarse = acoustic.coarse(semantic, rows, draws, seconds=seconds, limits=[MAX_TIME_STEPS] * len(semantic))
        codes = coarse
        if self.fine is not None and not return_coarse_generated_wave:
            fine = acoustic.fine(coarse, acoustic.known_fine(rows), draws)
            if mask_out_generated_fine_tokens:
                fine = [_blanked(f, len(known)) for f, known in zip(fine, rows.codes, strict=True)]
            codes = [torch.cat(pair, 1) for pair in zip(coarse, fine, strict=True)]
        waves = [acoustic.heard(row) for row in codes]
        return torch.stack(waves) if len({wave.shape for wave in waves}) == 1 else waves

    @torch.no_grad()
    def stream(
        self,
        *,
        seconds: float,
        chunk_seconds: float = 0.5,
        text: list[str] | str | None = None,
        text_embeds: Tensor | None = None,
        prime_wave: Tensor | None = None,
        prime_wave_input_sample_hz: int | None = None,
        prime_wave_path: str | Path | None = None,
        sampling: Samplings = None,
        seed: int = 0,
    ) -> Iterator[Tensor]:
        """Sound [samples] piece by piece, as soon as its codes are drawn; pieces after the prompt last `chunk_seconds`.

        The coarse codes are those of one call with this seed. Fine codes are drawn for each piece when its coarse codes
        are there, and so hear less of what comes than in one call.
        """
        rows = self._prompt(prime_wave, prime_wave_input_sample_hz, prime_wave_path, None, None)
        rows = rows or self.acoustic.no_prompt(1)
        text = [text] if isinstance(text, str) else text
        draws = self._draws([seed], sampling, {"text": text, "text_embeds": text_embeds})
        semantic = self._semantic(rows.ids, seconds, 2048, draws)[0]
        with eval_mode(self):
            yield from self.acoustic.stream(
                semantic, rows, draws, chunk_seconds=chunk_seconds, seconds=seconds, limit=MAX_TIME_STEPS
            )

    def _semantic(self, prompts: list[Tensor], seconds: float | None, max_length: int, draws: Draws) -> list[Tensor]:
        """Semantic tokens [time, 1] of every row, its prompt's first."""
        rate = self.acoustic.semantic_rate
        is_timed = seconds is not None and not self.semantic_transformer.config.unique_consecutive
        if seconds is not None:
            if not isfinite(seconds):
                raise UserError(f"seconds is {seconds}; give a finite number, or none for as long as the stages say.")
            # Tokens without repeats last at least as long as others: more than these cannot be needed.
            timed = max(1, round(seconds * rate))
            max_length = timed if is_timed else min(timed, max_length)
        totals = [len(prompt) + max_length for prompt in prompts]

        def draw(window: Window) -> Drawn:
            return self.semantic.decode(
                [window.prompt],
                window.limits,
                **draws.of("semantic", window.number),
                may_end=not is_timed,
                memory=window.memory,
            )

        rows = [prompt[:, None] if prompt.ndim == 1 else prompt for prompt in prompts]
        return extend(rows, totals, window_of(self.semantic_transformer, rate), draw)[0]

    # What the stages need.

    def _for_stage(self, stage: StageTransformer) -> dict[str, Any]:
        """What a stage's wrapper is made of. The conditioner that a stage was trained with is its own."""
        takes_it = stage.config.audio_text_condition and stage.audio_conditioner is None
        conditioner = self.audio_conditioner if takes_it else None
        return {"transformer": stage, "wav2vec": self.wav2vec, "codec": self.codec, "audio_conditioner": conditioner}

    def _stages(self) -> dict[str, StageWrapper[Any]]:
        stages: dict[str, StageWrapper[Any]] = {"semantic": self.semantic, "coarse": self.coarse}
        return stages if self.fine is None else {**stages, "fine": self.fine}

    def _draws(self, seeds: list[int], sampling: Samplings, asked: dict[str, Any]) -> Draws:
        asked = {name: value for name, value in asked.items() if value is not None}
        contexts = {name: _context(stage, asked, len(seeds)) for name, stage in self._stages().items()}
        return Draws(seeds, by_stage(sampling), contexts)

    def _prompt(
        self,
        wave: Tensor | Sequence[Tensor] | None,
        rate: int | None,
        path: str | Path | None,
        ids: Sequence[Tensor] | None,
        codes: Sequence[Tensor] | None,
    ) -> Prompt | None:
        if sum(given is not None for given in (wave, path, ids)) > 1:
            raise UserError("Give one prompt: a wave, a file or token ids.")
        if (ids is None) != (codes is None):
            raise UserError("A prompt of tokens needs both: semantic ids (prime_ids) and codes (prime_codes).")
        if rate is not None and rate < 1:
            raise UserError(f"prime_wave_input_sample_hz is {rate}; give the rate of the wave in Hz.")
        if path is not None:
            return self.acoustic.prompt_of_file(path)
        if wave is not None:
            wave = wave[None] if isinstance(wave, Tensor) and wave.ndim == 1 else wave
            prompts = [self.acoustic.prompt_of_wave(one, rate) for one in wave]
            return Prompt([p.ids[0] for p in prompts], [p.codes[0] for p in prompts])
        if ids is not None and codes is not None:
            return Prompt([row.to(self.device) for row in ids], [row.to(self.device) for row in codes])
        return None


def _context(stage: StageWrapper[Any], asked: dict[str, Any], rows: int) -> Context | None:
    """What a text, embeddings or codes are to a stage; embeddings come before the text that they are of."""
    if not stage.transformer.config.is_conditioned or not asked:
        return None
    context = stage.condition(**{name: one for name, one in asked.items() if name != "text" or len(asked) == 1})
    if context is not None and len(context[0]) != rows:
        raise UserError(f"{len(context[0])} texts were given for {rows} rows of sound; give one for each.")
    return context


def _blanked(fine: Tensor, known: int) -> Tensor:
    """Only the prompt's own fine codes; the codec takes -1 for a codebook that is left out."""
    return torch.cat((fine[:known], torch.full_like(fine[known:], -1)))


def _claims(
    tokenizer: Any, semantic: SemanticTransformer, coarse: CoarseTransformer, unique: bool | None
) -> list[Claim]:
    """What must hold between the first stage and the rest."""
    tokens, repeats = semantic.config.num_semantic_tokens, semantic.config.unique_consecutive
    ours = "the semantic stage's"
    claims: list[Claim] = [
        ("the coarse stage's num_semantic_tokens", coarse.config.num_semantic_tokens, ours, tokens),
        ("the coarse stage's unique_consecutive", coarse.config.unique_consecutive, ours, repeats),
    ]
    if tokenizer is not None:
        size = tokenizer.codebook_size
        claims.append(("the semantic stage's num_semantic_tokens", tokens, "the tokenizer's codebook_size", size))
    if unique is not None:
        claims.append(("unique_consecutive", unique, ours, repeats))
    return claims
