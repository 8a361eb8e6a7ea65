"""Judge music that was made from captions: is it the instrument, the tempo and the height that the caption says?

Every measure is taken of all ways to come by a clip: the model's, the ceiling (the recording through the model's codec)
and the recording. Each is held against chance and against the caption of another clip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from madrigal.errors import UserError
from madrigal.judge.estimates import Estimate, of_mean, of_share
from madrigal.judge.music_classifier import features_of
from madrigal.judge.music_descriptors import Described, describe
from madrigal.judge.music_features import Vector
from madrigal.judge.music_judges import MEASURES, Judges, Known, check_numbers
from madrigal.judge.record import Record, SavedReport
from madrigal.judge.report import Example
from madrigal.judge.signals import as_channels

Progress = Callable[[int, int, str], None]
GENERATED, CEILING, RECORDING = "Generated", "Ceiling", "Recording"


@dataclass(frozen=True)
class Clip:
    """A caption, what is true of its recording, and waves [samples] by way; `scores` are the model's own, by way.

    A score is how similar the model finds the clip to its own caption, and to that of another clip.
    """

    name: str
    text: str
    rate: int
    attributes: Mapping[str, str]
    waves: Mapping[str, Any]
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Agreement(Record):
    """How often a clip is what its caption says, and what the caption of another clip says, and by chance."""

    measure: str
    right: Estimate
    shuffled: Estimate
    chance: float


class Way(Record):
    """One way to come by the clips. Similarities are the model's own, `distances` are Frechet's."""

    label: str
    count: int
    seconds: float
    agreements: list[Agreement] = Field(default_factory=list)
    similarity: Estimate | None = None
    similarity_shuffled: Estimate | None = None
    centroid_error: Estimate | None = Field(None, description="octaves between its spectrum's centre and the true one")
    distances: dict[str, float] = Field(default_factory=dict)

    def agreement(self, measure: str) -> Agreement:
        return next(one for one in self.agreements if one.measure == measure)


class Judged(Record):
    """One clip: its caption, what is true of its recording, and what each way was taken for."""

    name: str
    text: str
    true: dict[str, str] = Field(default_factory=dict)
    heard: dict[str, dict[str, str]]


class MusicReport(SavedReport):
    """An evaluation of music from captions. All but `examples` is in its JSON."""

    of_what: ClassVar[str] = "music from text"
    format: Literal["madrigal.judge.music"] = "madrigal.judge.music"
    version: Literal[1] = 1
    title: str
    sample_rate: int
    trained_on: int = Field(description="recordings that the judges know")
    reference: int | None = Field(
        None, description="of these, those that distances of all ways are to; none: an older report, see `music_page`"
    )
    ways: list[Way]
    clips: list[Judged]
    notes: list[str] = Field(default_factory=list)
    examples: list[Example] = Field(default_factory=list, exclude=True, repr=False)

    def way(self, label: str | None = None) -> Way:
        """The way of this label, or the first, which is the one in question."""
        return next(way for way in self.ways if label is None or way.label == label)


def evaluate_music(
    clips: Sequence[Clip],
    known: Known,
    *,
    title: str = "Music from text",
    notes: Sequence[str] = (),
    examples: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> MusicReport:
    """Judge clips, which all have the same ways, by judges that were trained on `known` recordings."""
    if len(clips) < 2:
        raise UserError("There is too little to evaluate: give two captions at least.")
    for clip in clips:
        for label, wave in clip.waves.items():
            check_numbers(wave, f"The clip {clip.name} ({label})")
    judges, rate, labels = Judges(known, seed=seed), clips[0].rate, list(clips[0].waves)
    shuffled = derangement(len(clips), seed)
    features = {label: features_of([clip.waves[label] for clip in clips], rate) for label in labels}
    described = {label: [describe(clip.waves[label], rate) for clip in clips] for label in labels}
    heard = {label: judges.hear(features[label], described[label]) for label in labels}
    # One reference for all ways, or their distances would not compare: recordings of which none is judged.
    reference = evenly(known.features, len(clips))
    ways = []
    for number, label in enumerate(labels):
        ways.append(
            Way(
                label=label,
                count=len(clips),
                seconds=sum(as_channels(clip.waves[label]).shape[1] for clip in clips) / rate,
                agreements=_agreements(heard[label], clips, judges, shuffled),
                similarity=of_mean([clip.scores[label][0] for clip in clips if label in clip.scores]),
                similarity_shuffled=of_mean([clip.scores[label][1] for clip in clips if label in clip.scores]),
                centroid_error=_centroid_error(described, label),
                distances=judges.distances(features[label], reference),
            )
        )
        if progress is not None:
            progress(number + 1, len(labels), "judging")
    return MusicReport(
        title=title,
        sample_rate=rate,
        trained_on=len(known.features),
        reference=len(reference),
        ways=ways,
        clips=[_judged(clip, index, heard) for index, clip in enumerate(clips)],
        notes=[*notes, *_not_judged(clips, judges)],
        examples=[_example(clip) for clip in clips[:examples]],
    )


def evenly(rows: Vector, count: int) -> Vector:
    """So many of the rows, from the first to the last, or all where there are fewer."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]


def derangement(count: int, seed: int) -> list[int]:
    """Another clip for each: a shuffled round, in which everybody gets the next one."""
    order = np.random.default_rng(seed).permutation(count)
    following = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    return [following[index] for index in range(count)]


def _agreements(
    heard: Mapping[str, Sequence[str]], clips: Sequence[Clip], judges: Judges, shuffled: Sequence[int]
) -> list[Agreement]:
    found = []
    for measure in MEASURES:
        true = [clip.attributes.get(measure, "") for clip in clips]
        names = judges.names(measure)
        if not all(true) or len(names) < 2:
            continue
        right = sum(said == name for said, name in zip(heard[measure], true, strict=True))
        wrong = sum(said == true[other] for said, other in zip(heard[measure], shuffled, strict=True))
        right_share, wrong_share = (of_share(hits, len(clips)) for hits in (right, wrong))
        found.append(Agreement(measure=measure, right=right_share, shuffled=wrong_share, chance=1 / len(names)))
    return found


def _not_judged(clips: Sequence[Clip], judges: Judges) -> list[str]:
    """A sentence for each measure that the clips tell the truth of, and the judges could not learn."""
    return [
        f"The {measure} is not judged: the recordings that the judges know show fewer than two kinds of it."
        for measure in MEASURES
        if len(judges.names(measure)) < 2 and all(clip.attributes.get(measure) for clip in clips)
    ]


def _centroid_error(described: Mapping[str, Sequence[Described]], label: str) -> Estimate | None:
    if RECORDING not in described or label == RECORDING:
        return None
    pairs = zip(described[label], described[RECORDING], strict=True)
    return of_mean([abs(float(np.log2(one.centroid / other.centroid))) for one, other in pairs])


def _judged(clip: Clip, index: int, heard: Mapping[str, Mapping[str, Sequence[str]]]) -> Judged:
    said = {label: {measure: names[index] for measure, names in found.items()} for label, found in heard.items()}
    return Judged(name=clip.name, text=clip.text, true=dict(clip.attributes), heard=said)


def _example(clip: Clip) -> Example:
    waves = {label: as_channels(wave) for label, wave in clip.waves.items()}
    return Example(name=clip.name, text=clip.text, rate=clip.rate, waves=waves)
