"""The verdict on a codec: a versioned record that is printed, written as JSON and read again."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from madrigal.judge.codebooks import Codebook
from madrigal.judge.estimates import Estimate
from madrigal.judge.record import Record, SavedReport
from madrigal.judge.signals import Wave

FORMAT: Final = "madrigal.judge.codec"
VERSION: Final = 1


class System(Record):
    """One way through: the original, the codec at a rate, or Opus at a rate.

    `metrics` are means over utterances; `versus_opus` are paired differences, this minus Opus at the same rate;
    `codebooks` has one entry for each quantizer, the coarsest first. Word error rates are fractions.
    """

    kind: Literal["original", "codec", "opus"]
    name: str
    kbps: float | None = None
    measured_kbps: float | None = None
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    versus_opus: dict[str, Estimate] = Field(default_factory=dict)
    codebooks: list[Codebook] = Field(default_factory=list)

    @property
    def label(self) -> str:
        return self.name if self.kbps is None else f"{self.name} {self.kbps:g} kbps"

    @property
    def told(self) -> str:
        """The label as people see it: Opus cannot go under some 5 kbps, whatever it is asked for."""
        if self.kind != "opus" or self.kbps is None or (self.measured_kbps or 0.0) < 1.15 * self.kbps:
            return self.label
        return f"{self.name} {self.measured_kbps:.1f} kbps (asked for {self.kbps:g})"


class Score(Record):
    """One utterance through one system: its metrics (None where undefined) and what a recogniser heard."""

    utterance: str
    system: str
    metrics: dict[str, float | None]
    heard: str | None = None


class LeftOut(Record):
    """A measure that could not be taken, and what would bring it."""

    measure: str
    install: str


class Example(NamedTuple):
    """Waves to look at and to listen to, [channels, samples] each, by the label of the system."""

    name: str
    text: str | None
    rate: int
    waves: dict[str, Wave]


class Report(SavedReport):
    """An evaluation. All but `examples` (waves for the picture and the page) is in its JSON."""

    of_what: ClassVar[str] = "a codec"
    format: Literal["madrigal.judge.codec"] = FORMAT
    version: Literal[1] = VERSION
    title: str
    utterances: int
    seconds: float
    sample_rates: list[int]
    systems: list[System]
    scores: list[Score]
    left_out: list[LeftOut] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    packages: dict[str, str] = Field(default_factory=dict)
    examples: list[Example] = Field(default_factory=list, exclude=True, repr=False)

    def system(self, kind: str, kbps: float | None = None) -> System:
        """The system of this kind at this rate; KeyError where there is none."""
        for system in self.systems:
            if system.kind == kind and system.kbps == kbps:
                return system
        raise KeyError(f"{kind} at {kbps} kbps")

    @property
    def metric_names(self) -> list[str]:
        """Every measure that some system has, in the order in which they were taken."""
        return list(dict.fromkeys(name for system in self.systems for name in system.metrics))

    def weak_codebooks(self) -> dict[str, list[int]]:
        """Label of a system -> the quantizers (from 0) whose perplexity is under half of their size."""
        weak = {
            system.label: [index for index, codebook in enumerate(system.codebooks) if not codebook.healthy]
            for system in self.systems
        }
        return {label: indices for label, indices in weak.items() if indices}
