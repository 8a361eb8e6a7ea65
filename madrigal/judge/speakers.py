"""Is it the same voice: similarity of a prompt and its continuation, against prompts of other speakers.

Two judges that learned voices from other recordings by other methods: ECAPA-TDNN and Resemblyzer's encoder. Their
weights come from packages on this machine, of which nothing is imported, and nothing is ever downloaded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.estimates import Estimate, of_difference, of_mean, of_share
from madrigal.judge.record import Record
from madrigal.judge.report import LeftOut
from madrigal.judge.signals import mono, resample

Kind = Literal["ecapa", "resemblyzer"]
FILES: dict[Kind, str] = {"ecapa": "model/embedding_model.ckpt", "resemblyzer": "pretrained.pt"}
RATE = 16_000
SHORTEST = 0.1
"""Seconds under which no voice can be told."""

Embedding = npt.NDArray[np.float32]


def find_weights(kind: Kind) -> Path | None:
    """Where the installed package of a judge keeps its weights; None without the package."""
    return packages.file_of(kind, FILES[kind])


class SpeakerCase(Record):
    """One continuation: how alike its voice is to its own prompt and to a prompt of another speaker (cosines).

    `beaten` is the share of all wrong prompts that are less alike than the right one. None where a voice could not be
    told (silence, or nearly no sound): such a case is not won.
    """

    speaker: str
    wrong_speaker: str
    own: float | None
    wrong: float | None
    beaten: float

    @property
    def won(self) -> bool:
        return self.own is not None and self.wrong is not None and self.own > self.wrong


class SpeakerVerdict(Record):
    """All cases of one judge: the share that were won, with its interval, and mean similarities."""

    judge: str
    share: Estimate
    beaten: Estimate | None
    own: Estimate | None
    wrong: Estimate | None
    difference: Estimate | None
    cases: list[SpeakerCase]

    @classmethod
    def of(cls, judge: str, cases: Sequence[SpeakerCase]) -> SpeakerVerdict:
        own, wrong = ([_number(value) for value in row] for row in zip(*((case.own, case.wrong) for case in cases)))
        return cls(
            judge=judge,
            share=of_share(sum(case.won for case in cases), len(cases)),
            beaten=of_mean([case.beaten for case in cases]),
            own=of_mean(own),
            wrong=of_mean(wrong),
            difference=of_difference(own, wrong),
            cases=list(cases),
        )


class Separation(NamedTuple):
    """How well a judge tells speakers apart on real recordings: mean cosines, and the rate where both errors meet."""

    same: float
    different: float
    equal_error_rate: float


class SpeakerJudge:
    """A judge of voices: waves [channels, samples] or [samples] at any rate -> unit embeddings [192 or 256]."""

    def __init__(self, kind: Kind = "ecapa", weights: str | os.PathLike[str] | None = None) -> None:
        if kind not in FILES:
            raise UserError(f"There is no speaker judge {kind!r}: choose from {', '.join(FILES)}.")
        path = find_weights(kind) if weights is None else Path(weights)
        if path is None:
            raise packages.MissingPackage(kind)
        self.kind, self.path = kind, path
        self._encoder = _load(kind, path)

    @property
    def fingerprint(self) -> str:
        """Of the weights, 16 hex digits: figures of other weights are other figures."""
        return packages.fingerprint(self.path)

    def embed(self, wave: Any, rate: int) -> Embedding:
        """The direction of a voice, of length 1; NaN where the wave is silent, broken or shorter than 0.1 s."""
        sound = resample(mono(wave)[None], rate, RATE)[0]
        if len(sound) < SHORTEST * RATE or not np.isfinite(sound).all() or not sound.any():
            return np.full(1, math.nan, dtype=np.float32)
        voice = self._encoder.embed(sound)
        return np.asarray(voice / max(float(np.linalg.norm(voice)), 1e-12), dtype=np.float32)

    def similarity(self, first: Any, second: Any, rate: int) -> float:
        """The cosine of two waves' voices, -1 to 1; NaN where one of them has none."""
        return cosine(self.embed(first, rate), self.embed(second, rate))

    def against_wrong(
        self,
        prompts: Sequence[Any],
        continuations: Sequence[Any],
        speakers: Sequence[str],
        rate: int,
        *,
        impostors: Sequence[tuple[str, Any]] = (),
    ) -> SpeakerVerdict:
        """Is each continuation nearer to its own prompt than to one by another speaker?

        The wrong prompts of a case are those of all other speakers, and `impostors`: (speaker, wave) pairs that make
        the question harder, such as other voices of the same sex. Each case meets one of them, taken in turn, and
        its record also says how many of all it beats.
        """
        if not len(prompts) == len(continuations) == len(speakers) or not prompts:
            raise ValueError(f"{len(prompts)} prompts, {len(continuations)} continuations, {len(speakers)} speakers.")
        pool = [(speaker, self.embed(wave, rate)) for speaker, wave in [*zip(speakers, prompts), *impostors]]
        cases = []
        for index, (speaker, continuation) in enumerate(zip(speakers, continuations)):
            voice = self.embed(continuation, rate)
            wrong = [(other, cosine(embedding, voice)) for other, embedding in pool if other != speaker]
            if not wrong:
                raise UserError("All prompts are by one speaker: give prompts or impostors of at least two.")
            own = cosine(pool[index][1], voice)
            other, met = wrong[index % len(wrong)]
            cases.append(
                SpeakerCase(
                    speaker=speaker,
                    wrong_speaker=other,
                    own=_known(own),
                    wrong=_known(met),
                    beaten=float(np.mean([own > value for _, value in wrong])),
                )
            )
        return SpeakerVerdict.of(self.kind, cases)

    def separation(self, waves: Sequence[Any], speakers: Sequence[str], rate: int) -> Separation:
        """All pairs of recordings: how alike are those of one speaker, and those of two?"""
        voices = np.stack([self.embed(wave, rate) for wave in waves])
        first, second = np.triu_indices(len(voices), 1)
        alike = (voices @ voices.T)[first, second]
        names = np.asarray(speakers)
        together = names[first] == names[second]
        same, different = alike[together], alike[~together]
        return Separation(float(same.mean()), float(different.mean()), equal_error_rate(same, different))


def equal_error_rate(same: npt.NDArray[Any], different: npt.NDArray[Any]) -> float:
    """The smallest rate that both errors can be kept under by one threshold."""
    thresholds = np.sort(np.concatenate([same, different]))
    missed = np.searchsorted(np.sort(same), thresholds, side="left") / len(same)
    taken = 1.0 - np.searchsorted(np.sort(different), thresholds, side="left") / len(different)
    return float(np.maximum(missed, taken).min())


def cosine(first: Embedding, second: Embedding) -> float:
    """Of two unit embeddings; NaN where one is unknown."""
    return float(first @ second) if first.shape == second.shape else math.nan


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _load(kind: Kind, path: Path) -> Any:
    """The network of a judge. Its file is somebody else's pickle: only tensors are read from it."""
    import torch  # here, so that metrics that need no network start without it

    from madrigal.judge.ecapa import Ecapa
    from madrigal.judge.ge2e import VoiceEncoder

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        return Ecapa(content) if kind == "ecapa" else VoiceEncoder(content["model_state"])
    except Exception as error:  # a damaged file raises whatever the reader stumbled over
        raise UserError(
            f"The weights of the speaker judge in {path} do not load ({type(error).__name__}): install them again "
            f"with `{packages.PACKAGES[kind].install}`."
        ) from error


def find_speaker_judges() -> list[SpeakerJudge]:
    """Every judge whose weights are installed, the sharper one first."""
    return [SpeakerJudge(kind) for kind in FILES if find_weights(kind) is not None]


def voices_left_out(judges: Sequence[SpeakerJudge]) -> list[LeftOut]:
    """The judges that are not among these, and what would bring them."""
    known = {judge.kind for judge in judges}
    return [
        LeftOut(measure=f"Voices by {kind}", install=packages.PACKAGES[kind].install)
        for kind in FILES
        if kind not in known
    ]


def weights_told(judges: Sequence[SpeakerJudge]) -> list[str]:
    """A note on each judge: figures of other weights are other figures."""
    return [f"Weights of the speaker judge {judge.kind}: {judge.fingerprint}." for judge in judges]
