"""Judge speech that was made from text: is it what was written, is it the voice that was asked for, is it natural?

Every measure is taken of all ways to say the same sentence: the model's, the ceiling (the recording's own tokens or
features, made to sound as the model's are: what the best of readers would get by it) and the recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.estimates import Estimate, of_mean, of_ratio
from madrigal.judge.gallery import Gallery, Recording, SpeakerMatch
from madrigal.judge.mending import Mending
from madrigal.judge.naturalness import FEATURE as NATURALNESS
from madrigal.judge.naturalness import Listener, naturalness_left_out, scores
from madrigal.judge.recognition import HOW_TO as RECOGNISER_HOW_TO
from madrigal.judge.recognition import Transcriber, character_error_rate, listen, word_error_rate
from madrigal.judge.record import Record, SavedReport
from madrigal.judge.report import Example, LeftOut
from madrigal.judge.signals import as_channels
from madrigal.judge.speakers import Embedding, SpeakerJudge, cosine, voices_left_out, weights_told
from madrigal.judge.timing import DurationErrors

Progress = Callable[[int, int, str], None]
SPOKEN, CEILING, RECORDING = "Spoken", "Ceiling", "Recording"
NO_VOICE: Embedding = np.full(1, math.nan, dtype=np.float32)
NO_RECOGNISER = f"No error rates, for want of a recogniser: {RECOGNISER_HOW_TO}."


@dataclass(frozen=True)
class Sentence:
    """A text and its waves [channels, samples] by way; `confidence` is the model's own, 0 to 1.

    `speaker` is who should be heard, and `prompt` a wave of that voice; `spent` are processor seconds by way.
    """

    name: str
    text: str
    rate: int
    waves: Mapping[str, Any]
    confidence: float | None = None
    unknown: Sequence[str] = field(default_factory=tuple)
    speaker: str | None = None
    prompt: Any = None
    spent: Mapping[str, float] = field(default_factory=dict)


class Errors(Record):
    """What one recogniser makes of one way: error rates as fractions of the characters and words of all texts."""

    recogniser: str
    characters: Estimate | None
    words: Estimate | None


class Way(Record):
    """One way to say the sentences: errors by every recogniser, similarity to the prompt's voice by every judge.

    `naturalness` is a mean opinion score, `real_time` processor seconds for a second of speech.
    """

    label: str
    count: int
    seconds: float
    errors: list[Errors] = Field(default_factory=list)
    voices: dict[str, Estimate] = Field(default_factory=dict)
    silent: int = Field(0, description="sentences of which there is no sound at all")
    matches: list[SpeakerMatch] = Field(default_factory=list)
    naturalness: Estimate | None = None
    real_time: Estimate | None = None
    megabytes: float | None = None


class Said(Record):
    """One sentence: what every recogniser heard, by way."""

    name: str
    text: str
    confidence: float | None
    heard: dict[str, list[str]]
    unknown: list[str] = Field(default_factory=list)


class SpokenReport(SavedReport):
    """An evaluation of speech from text. All but `examples` is in its JSON."""

    of_what: ClassVar[str] = "speech from text"
    format: Literal["madrigal.judge.spoken"] = "madrigal.judge.spoken"
    version: Literal[1] = 1
    title: str
    sample_rate: int
    recognisers: list[str]
    ways: list[Way]
    confidence: Estimate | None
    said: list[Said]
    evaluations: Estimate | None = Field(None, description="calls of the network that makes the sound, for a sentence")
    duration_evaluations: Estimate | None = Field(None, description="calls of the network that says how long, for one")
    durations: DurationErrors | None = None
    mending: Mending | None = None
    left_out: list[LeftOut] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    packages: dict[str, str] = Field(default_factory=dict)
    examples: list[Example] = Field(default_factory=list, exclude=True, repr=False)

    def way(self, label: str | None = None) -> Way:
        """The way of this label, or the first, which is the one in question; KeyError where there is none."""
        for way in self.ways:
            if label is None or way.label == label:
                return way
        raise KeyError(label)


def evaluate_spoken(
    items: Sequence[Sentence],
    *,
    recognisers: Mapping[str, Transcriber],
    judges: Sequence[SpeakerJudge] = (),
    prompt: Any = None,
    prompt_rate: int | None = None,
    gallery: Sequence[Recording] = (),
    listener: Listener | None = None,
    megabytes: Mapping[str, float] | None = None,
    title: str = "Speech from text",
    notes: Sequence[str] = (),
    examples: int = 4,
    progress: Progress | None = None,
) -> SpokenReport:
    """Error rates by `recognisers` (by name), and similarity to the `prompt` wave; every item has the same ways.

    Items with a speaker are also held against all speakers of `gallery`. `prompt` is for items that have none of their
    own. `megabytes` says how large the models of each way are, `notes` are told beside the report's own remarks.
    """
    if not items:
        raise UserError("There is nothing to evaluate: give at least one sentence.")
    labels, rate = list(items[0].waves), items[0].rate
    names = _told_apart([item.name for item in items])
    prompts = [prompt if item.prompt is None else item.prompt for item in items]
    is_voiced = bool(gallery) or any(each is not None for each in prompts)
    judges = list(judges) if is_voiced else []
    each = len(recognisers) + len(judges) + (listener is not None)
    steps, done = len(labels) * len(items) * each + len(judges) * len(gallery), 0

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps, what)

    galleries = [Gallery(judge, gallery, advance) for judge in judges]
    wanted = [_voices(judge, prompts, prompt_rate or rate) for judge in judges]
    ways: list[Way] = []
    heard: dict[str, list[list[str]]] = {}
    for label in labels:
        waves = [as_channels(item.waves[label]) for item in items]
        heard[label] = [listen(one, items, waves, label, advance) for one in recognisers.values()]
        voices = [_embedded(judge, items, waves, label, advance) for judge in judges]
        alike = [of_mean(list(map(cosine, *both))) for both in zip(wanted, voices)]
        matches = [_matched(one, items, own) for one, own in zip(galleries, voices)]
        natural = (
            None
            if listener is None
            else of_mean(scores(listener, [item.name for item in items], waves, rate, label, advance))
        )
        seconds = [wave.shape[1] / rate for wave in waves]
        spent = [item.spent[label] for item in items if label in item.spent]
        ways.append(
            Way(
                label=label,
                count=len(items),
                seconds=sum(seconds),
                errors=[_errors(name, items, texts) for name, texts in zip(recognisers, heard[label])],
                voices={judge.kind: mean for judge, mean in zip(judges, alike) if mean is not None},
                silent=seconds.count(0),
                matches=[match for match in matches if match is not None],
                naturalness=natural,
                real_time=of_ratio(spent, seconds) if len(spent) == len(seconds) else None,
                megabytes=(megabytes or {}).get(label),
            )
        )
    features = [*(judge.kind for judge in judges), *(["recogniser", "wer"] if recognisers else [])]
    told = [] if listener is None else [listener.told]
    features += [NATURALNESS] if listener is not None else []
    return SpokenReport(
        title=title,
        sample_rate=rate,
        recognisers=list(recognisers),
        ways=ways,
        confidence=of_mean([item.confidence for item in items if item.confidence is not None]),
        said=[
            Said(
                name=names[index],
                text=item.text,
                confidence=item.confidence,
                heard={label: [texts[index] for texts in rows] for label, rows in heard.items()},
                unknown=list(item.unknown),
            )
            for index, item in enumerate(items)
        ],
        left_out=[*(voices_left_out(judges) if is_voiced else []), *naturalness_left_out(listener)],
        notes=[*notes, *weights_told(judges), *told, *([] if recognisers else [NO_RECOGNISER])],
        packages=packages.versions(features),
        examples=[
            Example(name, item.text, rate, {label: as_channels(wave) for label, wave in item.waves.items()})
            for name, item in list(zip(names, items))[:examples]
        ],
    )


def _told_apart(names: Sequence[str]) -> list[str]:
    """The names, with a number behind each that was there before: a page looks up by them what was heard."""
    made: list[str] = []
    for name in names:
        number, told = 1, name
        while told in made:
            number += 1
            told = f"{name} ({number})"
        made.append(told)
    return made


def _errors(name: str, items: Sequence[Sentence], texts: Sequence[str]) -> Errors:
    pairs = [(item.text, text) for item, text in zip(items, texts)]
    return Errors(recogniser=name, characters=character_error_rate(pairs), words=word_error_rate(pairs))


def _voices(judge: SpeakerJudge, waves: Sequence[Any], rate: int) -> list[Embedding]:
    """The voice of every wave, each wave heard once; of None there is none."""
    known: dict[int, Embedding] = {}
    for wave in waves:
        if id(wave) not in known:
            known[id(wave)] = NO_VOICE if wave is None else judge.embed(wave, rate)
    return [known[id(wave)] for wave in waves]


def _embedded(
    judge: SpeakerJudge, items: Sequence[Sentence], waves: Sequence[Any], label: str, advance: Callable[[str], None]
) -> list[Embedding]:
    found = []
    for item, wave in zip(items, waves):
        found.append(judge.embed(wave, item.rate))
        advance(f"{label}, voice of {item.name} by {judge.kind}")
    return found


def _matched(gallery: Gallery, items: Sequence[Sentence], voices: Sequence[Embedding]) -> SpeakerMatch | None:
    known = [(voice, item.text, item.speaker) for item, voice in zip(items, voices) if item.speaker is not None]
    return gallery.match(*zip(*known)) if known else None
