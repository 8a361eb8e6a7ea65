"""Is a hole filled with what was said there: recordings with a hole, mended, and as they were, heard by recognisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from madrigal.errors import UserError
from madrigal.judge.estimates import Estimate, of_mean
from madrigal.judge.naturalness import Listener, scores
from madrigal.judge.recognition import Transcriber, listen, word_error_rate
from madrigal.judge.record import Record
from madrigal.judge.report import Example
from madrigal.judge.signals import Wave, as_channels, mono

ORIGINAL, HOLED, MENDED = "Original", "With a hole", "Mended"
LABELS = (MENDED, HOLED, ORIGINAL)
EDGE = 0.25
"""Seconds of speech that stay on either side of a hole: something has to be gone on from."""
DEPTH = 35.0
"""So many dB under its loud parts a recording is silent."""
FRAME = 0.02


@dataclass(frozen=True)
class MendedRecording:
    """A recording [channels, samples], what is said in it, a hole from `start` to `stop` seconds, and the mend."""

    name: str
    text: str
    rate: int
    original: Any
    mended: Any
    start: float
    stop: float

    @property
    def waves(self) -> dict[str, Wave]:
        return dict(zip(LABELS, (as_channels(self.mended), self.holed, as_channels(self.original))))

    @property
    def holed(self) -> Wave:
        return with_hole(self.original, self.rate, self.start, self.stop)


class MendedWay(Record):
    """One of the three: word error rates by recogniser, and how natural it sounds."""

    label: str
    words: dict[str, Estimate]
    naturalness: Estimate | None = None


class Mending(Record):
    """All recordings of which a part was cut out. Error rates are fractions of the words of the whole recordings.

    `heard` is what every recogniser heard, by recording and way.
    """

    count: int
    hole_seconds: float
    ways: list[MendedWay]
    heard: dict[str, dict[str, list[str]]]
    examples: list[Example] = Field(default_factory=list, exclude=True, repr=False)

    def way(self, label: str = MENDED) -> MendedWay:
        """The way of this label."""
        return next(way for way in self.ways if way.label == label)

    def repaired(self, recogniser: str) -> float | None:
        """The share of the words lost to the holes that came back; None where none was lost."""
        mended, holed, original = (self.way(label).words.get(recogniser) for label in LABELS)
        if mended is None or holed is None or original is None or holed.mean <= original.mean:
            return None
        return (holed.mean - mended.mean) / (holed.mean - original.mean)


def with_hole(wave: Any, rate: int, start: float, stop: float) -> Wave:
    """The recording with silence from `start` to `stop` seconds."""
    holed = as_channels(wave).copy()
    holed[:, round(start * rate) : round(stop * rate)] = 0.0
    return holed


def speech_bounds(wave: Any, rate: int) -> tuple[float, float]:
    """The seconds at which sound begins and ends."""
    sound, frame = mono(wave), round(FRAME * rate)
    count = len(sound) // frame
    if not count or not sound.any():
        return 0.0, 0.0
    levels = np.sqrt((sound[: count * frame].reshape(count, frame).astype(np.float64) ** 2).mean(axis=1))
    loud = np.flatnonzero(levels > np.quantile(levels, 0.95) * 10 ** (-DEPTH / 20))
    return (float(loud[0]) * frame / rate, float(loud[-1] + 1) * frame / rate) if len(loud) else (0.0, 0.0)


def hole_in(wave: Any, rate: int, seconds: float, seed: int) -> tuple[float, float] | None:
    """Where to cut `seconds` out: anywhere inside the speech, fixed by the seed; None where there is too little."""
    first, last = speech_bounds(wave, rate)
    low, high = first + EDGE, last - EDGE - seconds
    if high < low:
        return None
    start = float(np.random.default_rng(seed).uniform(low, high))
    return start, start + seconds


def evaluate_mending(
    items: Sequence[MendedRecording],
    *,
    recognisers: Mapping[str, Transcriber],
    listener: Listener | None = None,
    examples: int = 4,
    progress: Callable[[int, int, str], None] | None = None,
) -> Mending:
    """Word error rates and naturalness of the mended recordings, of those with a hole, and of the originals."""
    if not items:
        raise UserError("There is nothing to mend: give recordings that are long enough for a hole.")
    steps, done = len(LABELS) * len(items) * (len(recognisers) + (listener is not None)), 0

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps, what)

    ways, heard = [], {}
    for label in LABELS:
        waves = [item.waves[label] for item in items]
        heard[label] = {name: listen(one, items, waves, label, advance) for name, one in recognisers.items()}
        rates = {
            name: word_error_rate([(item.text, text) for item, text in zip(items, texts)])
            for name, texts in heard[label].items()
        }
        names = [item.name for item in items]
        natural = None if listener is None else of_mean(scores(listener, names, waves, items[0].rate, label, advance))
        ways.append(
            MendedWay(
                label=label, words={name: rate for name, rate in rates.items() if rate is not None}, naturalness=natural
            )
        )
    return Mending(
        count=len(items),
        hole_seconds=sum(item.stop - item.start for item in items) / len(items),
        ways=ways,
        heard={
            item.name: {label: [texts[index] for texts in by.values()] for label, by in heard.items()}
            for index, item in enumerate(items)
        },
        examples=[Example(item.name, item.text, item.rate, item.waves) for item in items[:examples]],
    )
