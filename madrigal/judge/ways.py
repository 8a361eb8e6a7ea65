"""What is gathered about one way through (the original, a codec, Opus) and the means that come of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from madrigal.judge.codebooks import CodeCounter
from madrigal.judge.estimates import Estimate, of_difference, of_mean, of_ratio
from madrigal.judge.report import Score, System

Scores = dict[tuple[int, str], dict[str, float]]
"""(number of the utterance, label of the way) -> metric -> value, NaN where undefined."""


@dataclass
class Way:
    """One system under judgement; lists and dicts grow by one entry for each utterance."""

    kind: Literal["original", "codec", "opus"]
    name: str
    kbps: float | None = None
    counter: CodeCounter | None = None
    bits: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    heard: dict[int, str] = field(default_factory=dict)
    word_errors: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name if self.kbps is None else f"{self.name} {self.kbps:g} kbps"

    def values(self, scores: Scores, metric: str, count: int) -> list[float]:
        """One value for each utterance, NaN where the metric is undefined."""
        return [scores[index, self.label][metric] for index in range(count)]

    def word_error_rates(self, original: Way) -> dict[str, Estimate]:
        """Pooled word error rate, and for a codec how much of it the original did not have."""
        words = [count for _, count in self.word_errors.values()]
        errors = [wrong for wrong, _ in self.word_errors.values()]
        rates = {"wer": of_ratio(errors, words)}
        if self is not original:
            before = [original.word_errors[index][0] for index in self.word_errors]
            rates["wer_excess"] = of_ratio([after - start for after, start in zip(errors, before)], words)
        return {name: rate for name, rate in rates.items() if rate is not None}


def system(way: Way, ways: Sequence[Way], scores: Scores, metrics: Sequence[str], count: int) -> System:
    """The means of one way over `count` utterances, with its differences to Opus at the same rate."""
    original = ways[0]
    rival = next((other for other in ways if other.kind == "opus" and other.kbps == way.kbps), None)
    means: dict[str, Estimate | None] = {}
    differences: dict[str, Estimate | None] = {}
    if way is not original:
        for metric in metrics:
            values = way.values(scores, metric, count)
            means[metric] = of_mean(values)
            if way.kind == "codec" and rival is not None:
                differences[metric] = of_difference(values, rival.values(scores, metric, count))
    return System(
        kind=way.kind,
        name=way.name,
        kbps=way.kbps,
        measured_kbps=sum(way.bits) / sum(way.seconds) / 1000 if way.bits else None,
        metrics=_known(means) | way.word_error_rates(original),
        versus_opus=_known(differences),
        codebooks=way.counter.codebooks() if way.counter is not None else [],
    )


def _known(estimates: dict[str, Estimate | None]) -> dict[str, Estimate]:
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def utterance_scores(names: Sequence[str], ways: Sequence[Way], scores: Scores) -> list[Score]:
    """Every utterance through every way, as the report keeps them."""
    return [
        Score(
            utterance=name,
            system=way.label,
            metrics={
                metric: value if math.isfinite(value) else None
                for metric, value in scores.get((index, way.label), {}).items()
            },
            heard=way.heard.get(index),
        )
        for index, name in enumerate(names)
        for way in ways
    ]
