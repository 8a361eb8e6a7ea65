"""Whose voice is it: a wave beside the voices of all speakers of whom there are recordings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from madrigal.judge.estimates import Estimate, of_mean, of_share
from madrigal.judge.record import Record
from madrigal.judge.speakers import Embedding, SpeakerJudge, cosine


class Recording(NamedTuple):
    """A speaker's recording: a wave [channels, samples], and what is said in it."""

    speaker: str
    text: str
    wave: Any
    rate: int


class SpeakerMatch(Record):
    """How often one judge takes a wave for its own speaker's, among all; mean cosines to that one and the next best.

    `confused` counts the wrong ones as "speaker: taken for".
    """

    judge: str
    speakers: int
    right: Estimate
    own: Estimate | None
    nearest_other: Estimate | None
    confused: dict[str, int] = Field(default_factory=dict)


class Gallery:
    """The mean voice of every speaker, by one judge.

    A recording is left out of its speaker's mean where the wave that is judged says the same: a voice is not
    to be known by its words, nor a recording by itself.
    """

    def __init__(
        self, judge: SpeakerJudge, recordings: Sequence[Recording], advance: Callable[[str], object] | None = None
    ) -> None:
        self.judge = judge.kind
        self._voices: dict[str, list[tuple[str, Embedding]]] = {}
        for recording in recordings:
            voice = judge.embed(recording.wave, recording.rate)
            if np.isfinite(voice).all():
                self._voices.setdefault(recording.speaker, []).append((recording.text, voice))
            if advance is not None:
                advance(f"voice of {recording.speaker} by {judge.kind}")

    def alike(self, voice: Embedding, text: str) -> dict[str, float]:
        """The cosine to every speaker's mean voice, without recordings of this text."""
        found = {}
        for speaker, voices in self._voices.items():
            others = [embedding for said, embedding in voices if said != text]
            if others:
                mean = np.mean(others, axis=0)
                found[speaker] = cosine(voice, np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), np.float32))
        return found

    def match(self, voices: Sequence[Embedding], texts: Sequence[str], speakers: Sequence[str]) -> SpeakerMatch | None:
        """All waves that should be of these speakers; None where there are too few speakers to choose from.

        A wave without a voice (silence) is not right.
        """
        own, nearest, right, confused = [], [], 0, Counter[str]()
        judged = 0
        for voice, text, speaker in zip(voices, texts, speakers, strict=True):
            alike = self.alike(voice, text)
            others = {other: value for other, value in alike.items() if other != speaker}
            if speaker not in alike or not others:
                continue
            judged += 1
            best = max(others, key=lambda other: others[other])
            own.append(alike[speaker])
            nearest.append(others[best])
            if alike[speaker] > others[best]:
                right += 1
            else:
                confused[f"{speaker}: {best if math.isfinite(others[best]) else 'nobody'}"] += 1
        if not judged:
            return None
        return SpeakerMatch(
            judge=self.judge,
            speakers=len(self._voices),
            right=of_share(right, judged),
            own=of_mean(own),
            nearest_other=of_mean(nearest),
            confused=dict(confused.most_common()),
        )
