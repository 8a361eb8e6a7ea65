"""Music from text: codes of the text condition AudioLM's stages, and of several draws the best is kept."""

from collections.abc import Sequence
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from madrigal.audiolm.pipeline import AudioLM
from madrigal.data.audio import resample
from madrigal.engine.evaluating import eval_mode
from madrigal.errors import UserError
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer
from madrigal.musiclm.windows import window_starts


class Drawn(NamedTuple):
    """The samples of one prompt, the most similar first: waves [samples], and their similarities."""

    waves: list[Tensor]
    scores: list[float]


class MusicLM(nn.Module):
    """An AudioLM whose stages take the codes of a joint embedding, and the quantizer that makes these codes."""

    def __init__(self, audio_lm: AudioLM, mulan_embed_quantizer: MuLaNEmbedQuantizer) -> None:
        super().__init__()
        self.audio_lm, self.mulan_embed_quantizer = audio_lm, mulan_embed_quantizer
        stages = [stage for stage in (audio_lm.semantic, audio_lm.coarse, audio_lm.fine) if stage is not None]
        without = [stage.namespace for stage in stages if not stage.transformer.config.audio_text_condition]
        if without:
            raise UserError(
                f"The {' and the '.join(without)} stage was trained without a conditioner, and a text would change "
                "nothing: train it with conditioner=RUN of a mulan-quantizer."
            )
        made_by = mulan_embed_quantizer.fingerprint()
        for stage in stages:
            known = stage.audio_conditioner
            if known is None:
                stage.audio_conditioner = mulan_embed_quantizer
            elif isinstance(known, MuLaNEmbedQuantizer) and known.fingerprint() != made_by:
                raise UserError(
                    f"The {stage.namespace} stage was trained with another quantizer, and would take these codes for "
                    "others: name the quantizer that its recipe names."
                )
        self.eval()

    @property
    def sample_rate(self) -> int:
        """Of the music."""
        return int(self.audio_lm.codec.target_sample_hz)

    def forward(self, text: str | Sequence[str] | None = None, num_samples: int = 1, **options: Any) -> Any:
        """The best of `num_samples` draws: [samples] for one prompt, [prompts, samples] for several.

        Several of different lengths, and so without `seconds`, are a list of waves. The options are those of `draw`.
        """
        best = [drawn.waves[0] for drawn in self.draw(text, num_samples, **options)]
        if len(best) == 1 and (text is None or isinstance(text, str)):
            return best[0]
        return torch.stack(best) if len({wave.shape for wave in best}) == 1 else best

    @torch.no_grad()
    def draw(
        self,
        text: str | Sequence[str] | None = None,
        num_samples: int = 1,
        *,
        audio: Tensor | None = None,
        audio_sample_hz: int | None = None,
        prime_wave: Tensor | None = None,
        prime_wave_input_sample_hz: int | None = None,
        seed: int | Sequence[int] = 0,
        **options: Any,
    ) -> list[Drawn]:
        """`num_samples` draws for each prompt, ranked by how similar the MuLaN finds them to it.

        A prompt is a text, or in its place the sound of `audio` [prompts, samples]. Of a sound the stages get one place
        in MuLaN's space: the music has what that place tells, such as instruments and mood, and a melody of its own.
        `prime_wave` [samples], or one for each prompt [prompts, samples], is gone on from with its melody; where there
        is no other prompt, it is the prompt, too. Sample i is drawn with seed + i, whatever other prompts there are;
        each may have a seed of its own. Other options are AudioLM's, such as `seconds` and `sampling`.
        """
        if num_samples < 1:
            raise UserError(f"num_samples is {num_samples}; give 1 or more.")
        audio, prime_wave = _rows("audio", audio), _rows("prime_wave", prime_wave)
        _check_rate("audio_sample_hz", audio_sample_hz)
        _check_rate("prime_wave_input_sample_hz", prime_wave_input_sample_hz)
        firsts = _seeds(seed)
        with eval_mode(self):
            latents, is_text = self._prompts(
                text, audio, audio_sample_hz, prime_wave, prime_wave_input_sample_hz or self.sample_rate
            )
            ids = self.mulan_embed_quantizer.codes_of(latents, text=is_text)
            firsts = [firsts] * len(latents) if isinstance(firsts, int) else firsts
            if len(firsts) != len(latents):
                raise UserError(f"{len(firsts)} seeds are given for {len(latents)} prompts; give one, or one for each.")
            seeds = [first + sample for first in firsts for sample in range(num_samples)]
            if prime_wave is not None:
                if len(prime_wave) not in (1, len(latents)):
                    raise UserError(
                        f"prime_wave has {len(prime_wave)} rows for {len(latents)} prompts; give one for all or one "
                        "for each, and of a stereo sound the mean of its channels."
                    )
                primes = prime_wave.expand(len(latents), -1).repeat_interleave(num_samples, 0)
                options |= {"prime_wave": primes, "prime_wave_input_sample_hz": prime_wave_input_sample_hz}
            waves = self.audio_lm(condition_ids=ids.repeat_interleave(num_samples, 0), seed=seeds, **options)
            mono = [wave if wave.ndim == 1 else wave.mean(0) for wave in waves]
            groups = [mono[at : at + num_samples] for at in range(0, len(mono), num_samples)]
            return [self._ranked(group, latent) for group, latent in zip(groups, latents, strict=True)]

    def _prompts(
        self,
        text: str | Sequence[str] | None,
        audio: Tensor | None,
        audio_rate: int | None,
        prime: Tensor | None,
        prime_rate: int,
    ) -> tuple[Tensor, bool]:
        """Joint embeddings [prompts, dim] of what is asked for, and whether they are of texts."""
        if text is not None and audio is not None:
            raise UserError("Both a text and a sound in its place are given (text and like): leave one out.")
        if text is not None:
            texts = [text] if isinstance(text, str) else list(text)
            if not all(isinstance(one, str) for one in texts):
                raise UserError("A text is no string; say what the music should be in words.")
            if not texts or not all(one.strip() for one in texts):
                raise UserError("A text is empty; say what the music should be.")
            return self.mulan_embed_quantizer.mulan.get_text_latents(texts).to(self.audio_lm.device), True
        sound, rate = (audio, audio_rate or self.sample_rate) if audio is not None else (prime, prime_rate)
        if sound is None:
            raise UserError("Give a text, or sound in its place.")
        return torch.cat([self.heard(wave, rate) for wave in sound]), False

    def heard(self, wave: Tensor, rate: int) -> Tensor:
        """The joint embedding [1, dim] of a wave [samples] at `rate`: of its window, or the mean over its windows."""
        quantizer = self.mulan_embed_quantizer
        wave = resample(wave.reshape(1, -1).to(quantizer.device), rate, quantizer.target_sample_hz)
        starts, size = window_starts(wave.shape[-1], quantizer.target_sample_hz, quantizer.config.window_seconds)
        parts = [quantizer.mulan.get_audio_latents(wave[:, at : at + size]) for at in dict.fromkeys(starts)]
        return torch.nn.functional.normalize(torch.cat(parts).mean(0, keepdim=True), dim=-1)

    def similarity(self, wave: Tensor, latent: Tensor, rate: int | None = None) -> float:
        """The cosine of a wave [samples], at the music's rate unless told, with a joint embedding [dim]."""
        return float(self.heard(wave, rate or self.sample_rate)[0] @ latent.to(self.audio_lm.device))

    def _ranked(self, waves: list[Tensor], latent: Tensor) -> Drawn:
        scores = [self.similarity(wave, latent) for wave in waves]
        order = sorted(range(len(waves)), key=lambda i: -scores[i])
        return Drawn([waves[i] for i in order], [scores[i] for i in order])


def _rows(name: str, sound: Tensor | None) -> Tensor | None:
    """Waves [rows, samples]; one alone is a row."""
    if sound is not None and sound.ndim > 2:
        raise UserError(
            f"{name} has {sound.ndim} dimensions; give [samples], or [prompts, samples] with the mean of the channels."
        )
    if sound is not None and not sound.numel():
        raise UserError(f"{name} has no samples; give a sound of some length.")
    if sound is not None and not bool(torch.isfinite(sound).all()):
        raise UserError(f"{name} has samples that are not finite numbers; give another sound.")
    return sound if sound is None or sound.ndim == 2 else sound.reshape(1, -1)


def _check_rate(name: str, rate: int | None) -> None:
    if rate is not None and not rate > 0:
        raise UserError(f"{name} is {rate}; give the sound's samples in a second.")


def _seeds(seed: Any) -> int | list[int]:
    """Whole numbers of any kind, such as numpy's."""
    with suppress(TypeError):
        return index(seed)
    try:
        return [index(one) for one in seed]
    except TypeError as error:
        raise UserError(f"seed is {seed!r}; give a whole number, or one for each prompt.") from error
