"""Speech from text, in the voice of a prompt: the text is read out, cut at sentences, made into semantic tokens, and
these are said by AudioLM's acoustic stages. The prompt's tokens stand before, so that its voice goes on."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from madrigal.audiolm.acoustic import AcousticStages, Prompt
from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.draws import Draws, Samplings, by_stage
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.fitting import Claim, acoustic_claims, check_fit, check_levels
from madrigal.audiolm.wrappers import CoarseTransformerWrapper, FineTransformerWrapper
from madrigal.engine.evaluating import eval_mode
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling
from madrigal.speaking.script import Script, script_of
from madrigal.speaking.speech import Piece, Place, Progress, Said, Speaker, Speech
from madrigal.speartts.model import TextToSemantic

PROMPT_SECONDS = 3.0
"""So much of a prompt is heard: enough for its voice, and most of the context stays for what is said."""
SLOWEST = 5.0
"""Characters a second under which nobody speaks: a model that finds no end is stopped."""
GRACE_SECONDS = 2.0
"""So much longer may a text take, however short it is."""
LONGEST_TOKEN = 8
"""Frames of semantic tokens that one token may last where repeats are dropped."""
DRAWING = {
    "semantic": Sampling(temperature=0.5),
    "coarse": Sampling(temperature=0.5),
    "fine": Sampling(temperature=0.5),
}
"""How each stage draws where nothing is said about it: what `madrigal say` and `madrigal evaluate` do as well."""

Voice = Prompt | str | Path | Tensor | None


class TextToSpeech(Speaker):
    """Texts in, `Speech` out. A coarse stage that draws all of a codec's codebooks needs no fine stage."""

    def __init__(
        self,
        text_to_semantic: TextToSemantic,
        *,
        codec: Any,
        coarse_transformer: CoarseTransformer,
        fine_transformer: FineTransformer | None = None,
        wav2vec: Any = None,
    ) -> None:
        super().__init__()
        check_fit(_claims(text_to_semantic, coarse_transformer), "TextToSpeech")
        check_fit(acoustic_claims(wav2vec, codec, coarse_transformer, fine_transformer), "TextToSpeech")
        check_levels(coarse_transformer, fine_transformer, codec, "TextToSpeech")
        self.text_to_semantic, self.codec, self.wav2vec = text_to_semantic, codec, wav2vec
        self.coarse_transformer, self.fine_transformer = coarse_transformer, fine_transformer
        self.eval()

    @property
    def acoustic(self) -> AcousticStages:
        coarse, fine = self.coarse_transformer, self.fine_transformer
        return AcousticStages(
            CoarseTransformerWrapper(transformer=coarse),
            None if fine is None else FineTransformerWrapper(transformer=fine),
            self.codec,
            self.wav2vec,
        )

    @property
    def sample_rate(self) -> int:
        return int(self.codec.target_sample_hz)

    @property
    def channels(self) -> int:
        return int(self.codec.channels)

    @property
    def device(self) -> torch.device:
        return self.coarse_transformer.device

    def voice(self, voice: Voice, rate: int | None = None) -> Prompt:
        """The first three seconds of a file or of a wave [samples] or [channels, samples]; None: whatever comes."""
        if isinstance(voice, Prompt):
            return voice
        if voice is None:
            return self.acoustic.no_prompt(1)
        if isinstance(voice, Tensor):
            return self.acoustic.prompt_of_wave(voice, rate, PROMPT_SECONDS)
        return self.acoustic.prompt_of_file(voice, PROMPT_SECONDS)

    def script(self, text: str) -> Script:
        """How a text will be read, in pieces that are said one by one."""
        tokenizer = self.text_to_semantic.text_tokenizer
        if tokenizer is None:
            raise UserError("This model was trained on ids of text and cannot read a text: train it with model.text.")
        return script_of(text, tokenizer, language=tokenizer.reads)

    @torch.no_grad()
    def forward(
        self,
        texts: Sequence[str],
        *,
        voice: Voice = None,
        voice_rate: int | None = None,
        sampling: Samplings = None,
        seed: Sequence[int] | int = 0,
        batch_size: int = 8,
        progress: Progress | None = None,
    ) -> list[Speech]:
        """All texts in one voice. The pieces of all of them are said in batches; each is said as it would be alone.

        `sampling` is one for all stages, or by the names semantic, coarse and fine; a stage that is not named draws as
        `DRAWING` says. `progress` is called with (pieces done, pieces in all).
        """
        prompt, how = self.voice(voice, voice_rate), drawing(sampling)

        def speak(places: list[Place]) -> list[Said]:
            seeds = [place.seed for place in places]
            pieces, rows = self.semantic([place.words for place in places], seeds, how["semantic"])
            return list(zip(pieces, self.acoustic_of(rows, prompt, Draws(seeds, {**how})), strict=True))

        scripts = [self.script(text) for text in texts]
        return self._together(scripts, speak, seed=seed, batch_size=batch_size, progress=progress)

    @torch.no_grad()
    def stream(
        self,
        text: str,
        *,
        voice: Voice = None,
        voice_rate: int | None = None,
        sampling: Samplings = None,
        seed: int = 0,
        chunk_seconds: float = 0.5,
    ) -> Iterator[Tensor]:
        """The sound of a text as it is made, piece by piece and in each piece `chunk_seconds` at a time.

        Semantic tokens and coarse codes are those of `say` with this seed; fine codes hear less of what comes.
        """
        prompt, how = self.voice(voice, voice_rate), drawing(sampling)

        def speak(place: Place) -> Iterator[Tensor]:
            _, rows = self.semantic([place.words], [place.seed], how["semantic"])
            sound = self.acoustic.stream(
                _after(prompt, rows[0]),
                prompt,
                Draws([place.seed], {**how}),
                chunk_seconds=chunk_seconds,
                limit=self._limit(rows[0]),
            )
            return _without_first(sound, self._samples(len(prompt.codes[0])))

        with eval_mode(self):
            yield from self._in_turn(self.script(text), speak, seed=seed)

    def semantic(
        self, texts: Sequence[str], seeds: Sequence[int], sampling: Sampling | None = None
    ) -> tuple[list[Piece], list[Tensor]]:
        """Texts as they are read to semantic ids [time], each with its seed."""
        rate = self.acoustic.semantic_rate
        made = self.text_to_semantic.generate(
            list(texts),
            source_type="text",
            target_type="speech",
            sampling=sampling or DRAWING["semantic"],
            seed=list(seeds),
            max_length=torch.tensor([round(rate * (GRACE_SECONDS + len(text) / SLOWEST)) for text in texts]),
            spec_decode=self.text_to_semantic.has_early_exit,
        )
        marks = zip(texts, made.confidence.exp().tolist(), made.ended.tolist(), strict=True)
        return [Piece(*mark) for mark in marks], made.rows()

    def acoustic_of(self, rows: Sequence[Tensor], prompt: Prompt, draws: Draws) -> list[Tensor]:
        """Waves [samples] of semantic ids [time], all in the prompt's voice, which is not heard itself."""
        together = Prompt(prompt.ids * len(rows), prompt.codes * len(rows))
        with eval_mode(self):
            codes = self.acoustic.codes(
                [_after(prompt, row) for row in rows], together, draws, limits=[self._limit(row) for row in rows]
            )
            before = len(prompt.codes[0])
            return [self._heard(row, before) if len(row) > before else self.silence(0) for row in codes]

    def _heard(self, codes: Tensor, before: int) -> Tensor:
        """The sound of codes [frames, quantizers] after the first frames."""
        return self.acoustic.heard(codes)[..., self._samples(before) :]

    def _limit(self, row: Tensor) -> int:
        """Frames that a row may last where its tokens have no durations."""
        return max(1, round(LONGEST_TOKEN * len(row) * self.codec.frame_rate / self.acoustic.semantic_rate))

    def _samples(self, frames: int) -> int:
        return round(frames * self.sample_rate / self.codec.frame_rate)


def drawing(sampling: Samplings) -> dict[str, Sampling]:
    """How every stage draws."""
    return {stage: how or DRAWING[stage] for stage, how in by_stage(sampling).items()}


def _after(prompt: Prompt, row: Tensor) -> Tensor:
    """Semantic ids [time, 1]: the prompt's, and then what is to be said."""
    return torch.cat((prompt.ids[0], row.to(prompt.ids[0].device)))[:, None]


def _without_first(pieces: Iterator[Tensor], samples: int) -> Iterator[Tensor]:
    """The pieces of a wave without so many samples at its beginning."""
    for piece in pieces:
        if samples < piece.shape[-1]:
            yield piece[..., samples:]
        samples = max(0, samples - piece.shape[-1])


def _claims(text_to_semantic: TextToSemantic, coarse: CoarseTransformer) -> list[Claim]:
    ours, config = "the text-to-semantic model's", text_to_semantic.config
    tokens, repeats = config.num_semantic_token_ids, config.unique_consecutive
    return [
        ("the coarse stage's num_semantic_tokens", coarse.config.num_semantic_tokens, ours, tokens),
        ("the coarse stage's unique_consecutive", coarse.config.unique_consecutive, ours, repeats),
    ]
