"""Judge continuations of speech: does the voice go on, are there words, and how well were the tokens foreseen?

Every measure is also taken of the original, the recording's own rest after the prompt: what a perfect model would get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.estimates import Estimate
from madrigal.judge.language import Perplexity
from madrigal.judge.recognition import HOW_TO as RECOGNISER_HOW_TO
from madrigal.judge.recognition import Transcriber, listen
from madrigal.judge.record import Record, SavedReport
from madrigal.judge.report import Example, LeftOut
from madrigal.judge.signals import Wave, as_channels
from madrigal.judge.speakers import SpeakerJudge, SpeakerVerdict, voices_left_out, weights_told
from madrigal.judge.vosk import VoskRecogniser
from madrigal.judge.words import HOW_TO as WORDS_HOW_TO
from madrigal.judge.words import Validity, WordList, agreement, validity

Progress = Callable[[int, int, str], None]
CONTINUATION, ORIGINAL = "Continuation", "Original"


@dataclass(frozen=True)
class Continuation:
    """A prompt, what a model made of it, and (where known) how it really went on; waves [channels, samples]."""

    name: str
    speaker: str
    rate: int
    prompt: Any
    continuation: Any
    original: Any = None
    text: str | None = None


class StagePerplexity(Record):
    """How well one stage foresees held-out tokens: its perplexity, and that of each baseline on the same symbols.

    `versus` is the difference in nats a symbol, model minus baseline: under zero the model is better.
    """

    name: str
    symbols: int
    model: float
    baselines: dict[str, float]
    versus: dict[str, Estimate]

    @classmethod
    def of(cls, name: str, model: Perplexity, baselines: Mapping[str, Perplexity]) -> StagePerplexity:
        differences = {other: model.versus(baseline) for other, baseline in baselines.items()}
        return cls(
            name=name,
            symbols=model.count,
            model=model.value,
            baselines={other: baseline.value for other, baseline in baselines.items()},
            versus={other: difference for other, difference in differences.items() if difference is not None},
        )


class Continued(Record):
    """One way to go on (the model's, or the original): its voices by every judge, and its words."""

    label: str
    count: int
    seconds: float
    voices: list[SpeakerVerdict] = Field(default_factory=list)
    words: Validity | None = None
    agreement: Estimate | None = None


class Heard(Record):
    """What the recognisers made of one continuation, by system: the first's words, then the second's."""

    name: str
    speaker: str
    heard: dict[str, list[str]]


class ContinuationReport(SavedReport):
    """An evaluation of continuations. All but `examples` is in its JSON."""

    of_what: ClassVar[str] = "continuations"
    format: Literal["madrigal.judge.continuation"] = "madrigal.judge.continuation"
    version: Literal[1] = 1
    title: str
    speakers: list[str]
    prompt_seconds: float
    sample_rates: list[int]
    stages: list[StagePerplexity]
    systems: list[Continued]
    heard: list[Heard] = Field(default_factory=list)
    left_out: list[LeftOut] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    packages: dict[str, str] = Field(default_factory=dict)
    examples: list[Example] = Field(default_factory=list, exclude=True, repr=False)

    def system(self, label: str = CONTINUATION) -> Continued:
        """The system of this label; KeyError where there is none."""
        for system in self.systems:
            if system.label == label:
                return system
        raise KeyError(label)


def evaluate_continuations(
    items: Sequence[Continuation],
    *,
    judges: Sequence[SpeakerJudge] = (),
    recogniser: Transcriber | None = None,
    second_recogniser: Transcriber | None = None,
    words: WordList | None = None,
    impostors: Sequence[tuple[str, Any]] = (),
    stages: Sequence[StagePerplexity] = (),
    title: str = "Continuations",
    notes: Sequence[str] = (),
    examples: int = 4,
    progress: Progress | None = None,
) -> ContinuationReport:
    """Measure voices and words of every continuation, and of its original where there is one.

    `impostors` are further wrong prompts, (speaker, wave) at the rate of the items; see `SpeakerJudge.against_wrong`.
    `notes` are what the report says beside its own remarks.
    """
    if not items:
        raise UserError("There is nothing to evaluate: give at least one continuation.")
    if len(rates := sorted({item.rate for item in items})) > 1:
        raise UserError(f"Continuations come at {' and '.join(map(str, rates))} Hz: bring all to one rate.")
    ways = {CONTINUATION: [item.continuation for item in items]}
    if all(item.original is not None for item in items):
        ways[ORIGINAL] = [item.original for item in items]
    listeners = [one for one in (recogniser, second_recogniser) if one is not None]
    steps, done = len(ways) * len(items) * (len(judges) + len(listeners)), 0

    def advance(what: str, count: int = 1) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, steps, what)

    systems, texts = [], {}
    for label, waves in ways.items():
        verdicts = []
        for judge in judges:
            prompts, speakers = [item.prompt for item in items], [item.speaker for item in items]
            verdicts.append(judge.against_wrong(prompts, waves, speakers, rates[0], impostors=impostors))
            advance(f"{label}, voices by {judge.kind}", len(items))
        texts[label] = [listen(listener, items, waves, label, advance) for listener in listeners]
        seconds = [as_channels(wave).shape[1] / rates[0] for wave in waves]
        systems.append(
            Continued(
                label=label,
                count=len(items),
                seconds=sum(seconds),
                voices=verdicts,
                words=validity(texts[label][0], seconds, words) if listeners and words is not None else None,
                agreement=agreement(*texts[label]) if len(listeners) == 2 else None,
            )
        )
    features = [*(judge.kind for judge in judges), *(["recogniser", "wer"] if listeners else [])]
    features += ["vosk"] if isinstance(second_recogniser, VoskRecogniser) else []
    return ContinuationReport(
        title=title,
        speakers=sorted({item.speaker for item in items}),
        prompt_seconds=float(np.mean([as_channels(item.prompt).shape[1] / item.rate for item in items])),
        sample_rates=rates,
        stages=list(stages),
        systems=systems,
        heard=[
            Heard(
                name=item.name,
                speaker=item.speaker,
                heard={label: [text[index] for text in rows] for label, rows in texts.items()},
            )
            for index, item in enumerate(items)
        ],
        left_out=voices_left_out(judges),
        notes=[*notes, *_notes(judges, impostors, recogniser, second_recogniser, words)],
        packages=packages.versions(features),
        examples=[_example(item) for item in items[:examples]],
    )


def _example(item: Continuation) -> Example:
    waves: dict[str, Wave] = {"Prompt": as_channels(item.prompt), CONTINUATION: as_channels(item.continuation)}
    if item.original is not None:
        waves[ORIGINAL] = as_channels(item.original)
    return Example(item.name, item.text, item.rate, waves)


def _notes(
    judges: Sequence[SpeakerJudge],
    impostors: Sequence[tuple[str, Any]],
    recogniser: Transcriber | None,
    second: Transcriber | None,
    words: WordList | None,
) -> list[str]:
    notes = weights_told(judges)
    if judges and impostors:
        voices = sorted({speaker for speaker, _ in impostors})
        notes.append(f"Wrong prompts are those of the other speakers and of {len(voices)} more: {', '.join(voices)}.")
    if recogniser is None:
        notes.append(f"No words, for want of a recogniser: {RECOGNISER_HOW_TO}.")
    elif words is None:
        notes.append(f"No validity of words, for want of a word list: {WORDS_HOW_TO}.")
    if recogniser is not None and second is None:
        notes.append(
            "Valid words alone say little: a recogniser hears words in any sound. "
            "A second recogniser of another kind would tell whether they agree."
        )
    return notes
