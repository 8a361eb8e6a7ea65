"""Judge a codec on held-out utterances, at several rates, with Opus at the same rates beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.codebooks import CodeCounter, bits
from madrigal.judge.metrics import METRICS
from madrigal.judge.opus import opus_available, opus_round_trip
from madrigal.judge.pool import MetricPool
from madrigal.judge.recognition import HOW_TO, Transcriber, word_errors
from madrigal.judge.report import Example, LeftOut, Report
from madrigal.judge.signals import Wave, as_channels, fit
from madrigal.judge.speech import visqol_mapping
from madrigal.judge.ways import Way, system, utterance_scores

RoundTrip = Callable[[Wave, int, float], tuple[Any, Any]]
"""(wave [channels, samples], sample rate, kbps) -> (wave of the same shape, codes [frames, quantizers] or None)."""

Copy = Callable[[Wave, int], Any]
"""(wave [channels, samples], sample rate) -> wave of the same shape."""

Progress = Callable[[int, int, str], None]
"""(steps done, steps in all, what was done)."""


@dataclass(frozen=True)
class Utterance:
    """Something to judge with: a wave [channels, samples] or [samples], and what is said in it, where known."""

    name: str
    wave: Any
    rate: int
    text: str | None = None


@dataclass
class _Plan:
    """What can be measured here, and what the report has to say about the rest."""

    metrics: tuple[str, ...]
    opus: bool
    recogniser: Transcriber | None
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def features(self) -> list[str]:
        """What an optional package may stand behind."""
        words = ["wer", "recogniser"] if self.recogniser is not None else []
        return [*self.metrics, *(["opus"] if self.opus else []), *words]

    def leave_out(self, measure: str, feature: str) -> None:
        self.left_out.append(LeftOut(measure=measure, install=packages.PACKAGES[feature].install))


def evaluate_codec(
    items: Iterable[Utterance],
    round_trip: RoundTrip,
    rates: Sequence[float] = (3, 6, 12),
    *,
    opus: bool = True,
    recogniser: Transcriber | None = None,
    codebook_size: int | None = None,
    metrics: Sequence[str] = tuple(METRICS),
    name: str = "Codec",
    title: str = "Codec evaluation",
    examples: int = 3,
    opus_frame_ms: int = 20,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Send every utterance through the codec (and Opus) at each rate, and measure what comes out.

    `round_trip` runs in this process; metrics run in `workers` others (as many as processors; 0: here as well).
    Codes, where it gives them, need `codebook_size`: perplexity, usage and the measured rate come from them.
    A measure whose package is missing is left out and named in the report.
    """
    if not rates:
        raise UserError("There is nothing to evaluate: give at least one rate.")
    utterances = _checked(items)
    plan = _plan(utterances, metrics, opus, recogniser, opus_frame_ms)
    ways = [Way("original", "Original")]
    for kbps in rates:
        counter = CodeCounter(codebook_size) if codebook_size is not None else None
        ways.append(Way("codec", name, float(kbps), counter))
        if plan.opus:
            ways.append(Way("opus", "Opus", float(kbps)))

    def send(way: Way, item: Utterance, wave: Wave) -> Wave:
        return _send(way, item, wave, round_trip, opus_frame_ms)

    return _judged(utterances, ways, send, plan, title=title, examples=examples, workers=workers, progress=progress)


def evaluate_copies(
    items: Iterable[Utterance],
    copies: Mapping[str, Copy],
    *,
    recogniser: Transcriber | None = None,
    metrics: Sequence[str] = tuple(METRICS),
    title: str = "Copy synthesis",
    examples: int = 3,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Send every utterance through each of `copies`, by name, which have no rate; else as `evaluate_codec`."""
    utterances = _checked(items)
    plan = _plan(utterances, metrics, False, recogniser, opus_frame_ms=20)
    ways = [Way("original", "Original"), *(Way("codec", name) for name in copies)]

    def send(way: Way, item: Utterance, wave: Wave) -> Wave:
        return _same_shape(copies[way.name](wave, item.rate), wave, way.label, item.name)

    return _judged(utterances, ways, send, plan, title=title, examples=examples, workers=workers, progress=progress)


def _checked(items: Iterable[Utterance]) -> list[Utterance]:
    utterances = list(items)
    if not utterances:
        raise UserError("There is nothing to evaluate: give at least one utterance.")
    if empty := [item.name for item in utterances if as_channels(item.wave).shape[1] == 0]:
        raise UserError(f"The utterance {empty[0]} has no samples: leave it out of the evaluation.")
    return utterances


def _judged(
    utterances: Sequence[Utterance],
    ways: Sequence[Way],
    send: Callable[[Way, Utterance, Wave], Wave],
    plan: _Plan,
    *,
    title: str,
    examples: int,
    workers: int | None,
    progress: Progress | None,
) -> Report:
    """What comes out of every way, measured against what went in."""
    kept: list[Example] = []
    with MetricPool(plan.metrics, workers) as pool:
        for index, item in enumerate(utterances):
            wave = as_channels(item.wave)
            waves: dict[str, Wave] = {}
            for way in ways:
                heard = wave if way.kind == "original" else send(way, item, wave)
                if way.kind != "original":
                    pool.add((index, way.label), wave, heard, item.rate)
                if plan.recogniser is not None and item.text:
                    way.heard[index] = plan.recogniser.transcribe(heard, item.rate)
                    way.word_errors[index] = word_errors(item.text, way.heard[index])
                waves[way.label] = heard
                if progress is not None:
                    progress(index * len(ways) + len(waves), len(utterances) * len(ways), f"{item.name}, {way.label}")
            if index < examples:
                kept.append(Example(item.name, item.text, item.rate, waves))
        scores = pool.finish()
    return Report(
        title=title,
        utterances=len(utterances),
        seconds=sum(as_channels(item.wave).shape[1] / item.rate for item in utterances),
        sample_rates=sorted({item.rate for item in utterances}),
        systems=[system(way, ways, scores, plan.metrics, len(utterances)) for way in ways],
        scores=utterance_scores([item.name for item in utterances], ways, scores),
        left_out=plan.left_out,
        notes=plan.notes,
        packages=packages.versions(plan.features),
        examples=kept,
    )


def _plan(
    utterances: Sequence[Utterance],
    metrics: Sequence[str],
    opus: bool,
    recogniser: Transcriber | None,
    opus_frame_ms: int,
) -> _Plan:
    if unknown := [metric for metric in metrics if metric not in METRICS]:
        raise UserError(f"There is no metric {unknown[0]!r}: choose from {', '.join(METRICS)}.")
    plan = _Plan(tuple(metric for metric in metrics if packages.available(metric)), opus, recogniser)
    for metric in metrics:
        if metric not in plan.metrics:
            plan.leave_out(METRICS[metric].title, metric)
    if opus and not opus_available():
        plan.leave_out("Opus", "opus")
        plan.opus = False
    if plan.opus:
        plan.notes.append(
            f"Opus is libopus tuned for voice, variable bit rate, frames of {opus_frame_ms} ms; "
            "its rate is that of its packets, without a container."
        )
    if "visqol" in plan.metrics:
        plan.notes.append(_VISQOL_NOTES[visqol_mapping()])
    transcribed = any(item.text for item in utterances)
    if transcribed and not packages.available("wer"):
        plan.leave_out("WER", "wer")
        plan.recogniser = None
    elif transcribed and recogniser is None:
        plan.notes.append(f"No word error rate, for want of a recogniser: {HOW_TO}.")
    return plan


_VISQOL_NOTES = {
    "lattice": "ViSQOL maps similarity to a score by the lattice network, as the original program does.",
    "polynomial": "ViSQOL maps similarity to a score by its polynomial, which gives higher scores than the original "
    "program: `pip install 'visqol-python[lattice]'` for comparable ones.",
}


def _send(way: Way, item: Utterance, wave: Wave, round_trip: RoundTrip, opus_frame_ms: int) -> Wave:
    """The wave after the codec or Opus, of the same shape; its bits and codes go on the way's account."""
    assert way.kbps is not None
    seconds = wave.shape[1] / item.rate
    if way.kind == "opus":
        heard, measured = opus_round_trip(wave, item.rate, way.kbps, frame_ms=opus_frame_ms)
        way.bits.append(measured * 1000 * seconds)
        way.seconds.append(seconds)
        return heard
    output, codes = round_trip(wave, item.rate, way.kbps)
    if codes is not None:
        if way.counter is None:
            raise ValueError("round_trip gives codes, so evaluate_codec needs codebook_size.")
        way.counter.add(codes)
        way.bits.append(bits(codes, way.counter.codebook_size))
        way.seconds.append(seconds)
    return _same_shape(output, wave, way.label, item.name)


def _same_shape(output: Any, wave: Wave, label: str, utterance: str) -> Wave:
    """What came out, with as many channels and samples as went in."""
    heard = as_channels(output)
    if len(heard) != len(wave):
        raise ValueError(f"round_trip gives {len(heard)} channels for {len(wave)}.")
    if not np.isfinite(heard).all():
        raise UserError(f"{label} gives NaN or infinite samples for {utterance}: its weights are broken.")
    return fit(heard, wave.shape[1])
