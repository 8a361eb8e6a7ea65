"""The verdict on a codec: a versioned record that is printed, written as JSON and read again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.errors import UserError
from madrigal.judge.codebooks import Codebook
from madrigal.judge.estimates import Estimate
from madrigal.judge.signals import Wave

FORMAT: Final = "madrigal.judge.codec"
VERSION: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class System(_Record):
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


class Score(_Record):
    """One utterance through one system: its metrics (None where undefined) and what a recogniser heard."""

    utterance: str
    system: str
    metrics: dict[str, float | None]
    heard: str | None = None


class LeftOut(_Record):
    """A measure that could not be taken, and what would bring it."""

    measure: str
    install: str


class Example(NamedTuple):
    """Waves to look at and to listen to, [channels, samples] each, by the label of the system."""

    name: str
    text: str | None
    rate: int
    waves: dict[str, Wave]


class Report(_Record):
    """An evaluation. All but `examples` (waves for the picture and the page) is in its JSON."""

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

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON, beside first and then renamed, so that a reader never sees half of it."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        beside.write_text(self.to_json() + "\n", encoding="utf-8")
        beside.replace(target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read what `write` wrote."""
        try:
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"The report {path} cannot be read ({error}): evaluate again.") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise UserError(f"{path} is not the report of a codec: give the JSON that `madrigal evaluate` wrote.")
        if content.get("version") != VERSION:
            raise UserError(
                f"The report {path} has version {content.get('version')}, this program reads {VERSION}: evaluate again."
            )
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise UserError(f"The report {path} is damaged ({error.error_count()} fields): evaluate again.") from error
