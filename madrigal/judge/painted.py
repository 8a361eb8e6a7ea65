"""The verdict on pictures that were made from captions: what an independent eye takes them for, and how real they look.

The eye is a linear classifier on features of others, and learns from real pictures alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np
from PIL import Image
from pydantic import Field
from torch import Tensor

from madrigal.judge.estimates import Estimate, of_share
from madrigal.judge.frechet import Features, frechet_on_components
from madrigal.judge.picture_features import FeatureMaker
from madrigal.judge.pictures import Pair, pairs_picture
from madrigal.judge.probe import Probe, fit_probe
from madrigal.judge.record import Record, SavedReport

FORMAT: Final = "madrigal.judge.painted"
VERSION: Final = 1
SHOWN, TOP = 48, 5


class Seen(Record):
    """One picture: its caption, its label, and what the eye takes it for."""

    text: str
    label: str
    guess: str


class Recognised(Record):
    """How often the eye finds the caption's label in pictures of one kind, made and real."""

    name: str
    pictures: int
    made: Estimate
    real: Estimate


class PaintedReport(SavedReport):
    """An evaluation. All but `examples` is in its JSON.

    `chance` is that of guessing among all labels of the eye, `commonest` the share of the most frequent one among
    those asked for.
    `frechet_real` is the distance of other real pictures, as many, from the same real ones.
    """

    of_what: ClassVar[str] = "pictures from captions"
    format: Literal["madrigal.judge.painted"] = FORMAT
    version: Literal[1] = VERSION
    title: str
    pictures: int
    size: tuple[int, int]
    learned_from: int
    labels: int
    chance: float
    commonest: float
    made: Estimate
    made_top: Estimate
    real: Estimate
    frechet: float | None
    frechet_real: float | None
    features: str
    components: int
    seconds: float
    how: dict[str, float]
    groups: list[Recognised] = Field(default_factory=list)
    seen: list[Seen] = Field(default_factory=list)
    examples: list[Pair] = Field(default_factory=list, exclude=True, repr=False)


class Asked(NamedTuple):
    """Captions that pictures were made of, the label of each, and its kind; real pictures and made, [n, 3, h, w]."""

    texts: Sequence[str]
    labels: Sequence[str]
    kinds: Sequence[str] | None
    real: Tensor
    made: Tensor


class Learned(NamedTuple):
    """Real pictures [n, 3, height, width] that the eye learns from, and their labels."""

    pictures: Tensor
    labels: Sequence[str]


def evaluate_painted(
    asked: Asked,
    learned: Learned,
    *,
    features: FeatureMaker,
    title: str,
    seconds: float,
    how: dict[str, float],
    components: int = 64,
) -> PaintedReport:
    """Judge pictures that were made from captions beside real ones of the same captions."""
    known = features.features(learned.pictures)
    eye = fit_probe(known, learned.labels)
    made, real = features.features(asked.made), features.features(asked.real)
    guesses = eye.guesses(made)
    rows = len(asked.texts)
    return PaintedReport(
        title=title,
        pictures=rows,
        size=(int(asked.made.shape[-2]), int(asked.made.shape[-1])),
        learned_from=len(learned.labels),
        labels=len(eye.labels),
        chance=eye.chance,
        commonest=Counter(asked.labels).most_common(1)[0][1] / rows,
        made=_right(eye, made, asked.labels),
        made_top=_right(eye, made, asked.labels, TOP),
        real=_right(eye, real, asked.labels),
        frechet=_distance(real, made, components),
        frechet_real=_distance(real, _others(known, rows), components),
        features=features.name,
        components=min(components, rows - 1),
        seconds=seconds,
        how=how,
        groups=_groups(eye, asked, made, real),
        seen=[Seen(text=t, label=n, guess=g) for t, n, g in zip(asked.texts, asked.labels, guesses, strict=True)],
        examples=[Pair(asked.texts[n], asked.real[n], asked.made[n]) for n in range(0, rows, max(1, rows // SHOWN))],
    )


def _right(eye: Probe, features: Features, labels: Sequence[str], top: int = 1) -> Estimate:
    return of_share(round(eye.accuracy(features, labels, top) * len(labels)), len(labels))


def _others(features: Features, count: int) -> Features:
    """So many of them, from all over."""
    return features[np.linspace(0, len(features) - 1, min(count, len(features))).astype(int)]


def _distance(real: Features, other: Features, components: int) -> float | None:
    return frechet_on_components(real, other, components) if min(len(real), len(other)) > 2 else None


def _groups(eye: Probe, asked: Asked, made: Features, real: Features) -> list[Recognised]:
    if asked.kinds is None or len(set(asked.kinds)) < 2:
        return []
    found = []
    for kind in sorted(set(asked.kinds)):
        here = [number for number, other in enumerate(asked.kinds) if other == kind]
        labels = [asked.labels[number] for number in here]
        both = {"made": _right(eye, made[here], labels), "real": _right(eye, real[here], labels)}
        found.append(Recognised(name=kind, pictures=len(here), **both))
    return found


def painted_picture(report: PaintedReport) -> Image.Image | None:
    """A page of real pictures, each with the one that was made of its caption below it."""
    return pairs_picture(report.examples) if report.examples else None
