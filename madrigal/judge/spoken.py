"""Judge speech that was made from text: is it what was written, and is it the voice that was asked for?

Every measure is taken of all ways to say the same sentence: the model's, the ceiling (the recording's own semantic
tokens, said by the same acoustic stages: what a perfect reader of text would get) and the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.estimates import Estimate, of_mean
from madrigal.judge.recognition import HOW_TO as RECOGNISER_HOW_TO
from madrigal.judge.recognition import Transcriber, character_error_rate, word_error_rate
from madrigal.judge.record import Record, SavedReport
from madrigal.judge.report import Example, LeftOut
from madrigal.judge.signals import as_channels
from madrigal.judge.speakers import FILES, Embedding, SpeakerJudge, cosine

Progress = Callable[[int, int, str], None]
SPOKEN, CEILING, RECORDING = "Spoken", "Ceiling", "Recording"


@dataclass(frozen=True)
class Sentence:
    """A text and its waves [channels, samples] by way; `confidence` is the model's own, 0 to 1."""

    name: str
    text: str
    rate: int
    waves: Mapping[str, Any]
    confidence: float | None = None
    unknown: Sequence[str] = field(default_factory=tuple)


class Errors(Record):
    """What one recogniser makes of one way: error rates as fractions of the characters and words of all texts."""

    recogniser: str
    characters: Estimate | None
    words: Estimate | None


class Way(Record):
    """One way to say the sentences: errors by every recogniser, similarity to the prompt's voice by every judge."""

    label: str
    count: int
    seconds: float
    errors: list[Errors] = Field(default_factory=list)
    voices: dict[str, Estimate] = Field(default_factory=dict)
    silent: int = Field(0, description="sentences of which there is no sound at all")


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
    left_out: list[LeftOut] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    packages: dict[str, str] = Field(default_factory=dict)
    examples: list[Example] = Field(default_factory=list, exclude=True, repr=False)

    def way(self, label: str = SPOKEN) -> Way:
        """The way of this label; KeyError where there is none."""
        for way in self.ways:
            if way.label == label:
                return way
        raise KeyError(label)


def evaluate_spoken(
    items: Sequence[Sentence],
    *,
    recognisers: Mapping[str, Transcriber],
    judges: Sequence[SpeakerJudge] = (),
    prompt: Any = None,
    prompt_rate: int | None = None,
    title: str = "Speech from text",
    examples: int = 4,
    progress: Progress | None = None,
) -> SpokenReport:
    """Error rates by `recognisers` (by name), and similarity to the `prompt` wave; every item has the same ways."""
    if not items:
        raise UserError("There is nothing to evaluate: give at least one sentence.")
    labels, rate = list(items[0].waves), items[0].rate
    judges = list(judges) if prompt is not None else []
    steps, done = len(labels) * len(items) * (len(recognisers) + len(judges)), 0

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps, what)

    wanted = {judge.kind: judge.embed(prompt, prompt_rate or rate) for judge in judges}
    ways: list[Way] = []
    heard: dict[str, list[list[str]]] = {}
    for label in labels:
        heard[label] = [_listen(recogniser, items, label, advance) for recogniser in recognisers.values()]
        waves = [as_channels(item.waves[label]) for item in items]
        voices = {judge.kind: _alike(judge, wanted[judge.kind], items, label, advance) for judge in judges}
        ways.append(
            Way(
                label=label,
                count=len(items),
                seconds=sum(wave.shape[1] for wave in waves) / rate,
                errors=[_errors(name, items, texts) for name, texts in zip(recognisers, heard[label])],
                voices={kind: mean for kind, mean in voices.items() if mean is not None},
                silent=sum(wave.shape[1] == 0 for wave in waves),
            )
        )
    features = [*(judge.kind for judge in judges), *(["recogniser", "wer"] if recognisers else [])]
    return SpokenReport(
        title=title,
        sample_rate=rate,
        recognisers=list(recognisers),
        ways=ways,
        confidence=of_mean([item.confidence for item in items if item.confidence is not None]),
        said=[
            Said(
                name=item.name,
                text=item.text,
                confidence=item.confidence,
                heard={label: [texts[index] for texts in rows] for label, rows in heard.items()},
                unknown=list(item.unknown),
            )
            for index, item in enumerate(items)
        ],
        left_out=_left_out(judges, prompt),
        notes=_notes(judges, recognisers),
        packages=packages.versions(features),
        examples=[
            Example(item.name, item.text, rate, {label: as_channels(wave) for label, wave in item.waves.items()})
            for item in items[:examples]
        ],
    )


def _listen(
    recogniser: Transcriber, items: Sequence[Sentence], label: str, advance: Callable[[str], None]
) -> list[str]:
    texts = []
    for item in items:
        wave = as_channels(item.waves[label])
        # A recogniser cannot be asked about no sound at all.
        texts.append(recogniser.transcribe(wave, item.rate) if wave.shape[1] else "")
        advance(f"{label}, words of {item.name}")
    return texts


def _errors(name: str, items: Sequence[Sentence], texts: Sequence[str]) -> Errors:
    pairs = [(item.text, text) for item, text in zip(items, texts)]
    return Errors(recogniser=name, characters=character_error_rate(pairs), words=word_error_rate(pairs))


def _alike(
    judge: SpeakerJudge, wanted: Embedding, items: Sequence[Sentence], label: str, advance: Callable[[str], None]
) -> Estimate | None:
    alike = []
    for item in items:
        alike.append(cosine(wanted, judge.embed(item.waves[label], item.rate)))
        advance(f"{label}, voice of {item.name} by {judge.kind}")
    return of_mean(alike)


def _left_out(judges: Sequence[SpeakerJudge], prompt: Any) -> list[LeftOut]:
    if prompt is None:
        return []
    known = {judge.kind for judge in judges}
    return [
        LeftOut(measure=f"Voices by {kind}", install=packages.PACKAGES[kind].install)
        for kind in FILES
        if kind not in known
    ]


def _notes(judges: Sequence[SpeakerJudge], recognisers: Mapping[str, Transcriber]) -> list[str]:
    notes = [f"Weights of the speaker judge {judge.kind}: {judge.fingerprint}." for judge in judges]
    if not recognisers:
        notes.append(f"No error rates, for want of a recogniser: {RECOGNISER_HOW_TO}.")
    return notes
