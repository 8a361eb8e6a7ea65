"""A report on continuations as tables on a terminal and as a page with players, spectrograms and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.continuation import CONTINUATION, ORIGINAL, ContinuationReport, Continued, StagePerplexity
from madrigal.judge.examples import add_examples, add_training, write_files
from madrigal.judge.html import Mark, Page
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example
from madrigal.judge.sections import Rows, Section, add_sections, figure, share, show_sections

SECONDS = 12.0


def stage_rows(report: ContinuationReport) -> tuple[list[str], Rows]:
    """A row for each stage: the model's perplexity, then every baseline's, green where the model is better for sure."""
    names = list(dict.fromkeys(name for stage in report.stages for name in stage.baselines))
    rows: Rows = [
        [stage.name, f"{stage.symbols:,}", Mark(f"{stage.model:.1f}"), *(_against(stage, name) for name in names)]
        for stage in report.stages
    ]
    return ["stage", "symbols", "model", *names], rows


def _against(stage: StagePerplexity, name: str) -> Mark:
    """A baseline's perplexity, coloured by the model: good where the model is better beyond the 95 % interval."""
    if name not in stage.baselines:
        return Mark("–", "faint")
    difference = stage.versus.get(name)
    text = f"{stage.baselines[name]:.1f}"
    if difference is None or difference.low is None or difference.high is None or difference.low * difference.high <= 0:
        return Mark(text)
    return Mark(text, "good" if difference.mean < 0 else "bad")


def voice_rows(report: ContinuationReport) -> tuple[list[str], Rows]:
    """A row for each system and judge: cases won against a wrong speaker's prompt, and mean similarities."""
    rows: Rows = [
        [
            system.label,
            verdict.judge,
            share(verdict.share),
            figure(verdict.own),
            figure(verdict.wrong),
            figure(verdict.beaten, 1, 100.0),
        ]
        for system in report.systems
        for verdict in system.voices
    ]
    return ["", "judge", "nearer to its own prompt", "own", "wrong", "of all wrong prompts, %"], rows


def word_rows(report: ContinuationReport) -> tuple[list[str], Rows]:
    """A row for each system: words a second, share of them in the word list, agreement of two recognisers."""
    rows: Rows = [
        _words(system) for system in report.systems if system.words is not None or system.agreement is not None
    ]
    return ["", "recognisers agree, %", "words a second", "in the word list, %", "without words"], rows


def _words(system: Continued) -> list[Mark | str]:
    words = system.words
    said: list[Mark | str] = [Mark("–", "faint")] * 3
    if words is not None:
        said = [figure(words.per_second), figure(words.valid, 1, 100.0), f"{words.wordless} of {system.count}"]
    return [system.label, figure(system.agreement, 1, 100.0), *said]


SECTIONS = (
    Section(
        "Perplexity", stage_rows, "Of held-out tokens; green where the model is better than a baseline beyond doubt."
    ),
    Section("Voices", voice_rows, "Cosines of voices; every case meets one prompt of another speaker."),
    Section("Words", word_rows, "Two recognisers hear the same words only where there are words."),
)


def remarks(report: ContinuationReport) -> Sequence[str]:
    """What a reader must know beside the figures."""
    system, rates = report.system(), " and ".join(f"{rate / 1000:g} kHz" for rate in report.sample_rates)
    said = [
        f"{system.count} continuations of {system.seconds / system.count:.1f} s after prompts of "
        f"{report.prompt_seconds:.1f} s by {len(report.speakers)} speakers, {rates}; ± is half of the 95 % interval."
    ]
    said += [f"{item.measure} were left out: run `{item.install}`." for item in report.left_out]
    return [*said, *report.notes]


def show_continuations(report: ContinuationReport, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    show_sections(report, SECTIONS, remarks(report), console)


def picture_of(example: Example) -> Image.Image:
    """What came of the prompt above how it really went on, each after the prompt."""
    prompt = example.waves["Prompt"]
    joined = {
        label: np.concatenate([prompt, example.waves[label]], axis=1)
        for label in (CONTINUATION, ORIGINAL)
        if label in example.waves
    }
    caption = f"after {prompt.shape[1] / example.rate:.1f} s of prompt"
    return spectrogram_picture(example._replace(waves=joined), seconds=SECONDS, captions=dict.fromkeys(joined, caption))


def continuation_page(report: ContinuationReport, curves: Sequence[Series] = (), lead: str = "") -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    page = Page(report.title, lead)
    facts = {f"perplexity, {stage.name}": f"{stage.model:.1f}" for stage in report.stages}
    facts |= {f"nearer to its own prompt, {v.judge}": share(v.share).text for v in report.system().voices}
    if facts:
        page.facts(facts)
    add_sections(page, report, SECTIONS, remarks(report))
    add_examples(page, report.examples, {item.name: item.heard for item in report.heard}, picture_of)
    add_training(page, curves)
    return page


def write_continuations(
    report: ContinuationReport, folder: str | os.PathLike[str], curves: Sequence[Series] = (), lead: str = ""
) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    picture = picture_of(report.examples[0]) if report.examples else None
    return write_files(report, continuation_page(report, curves, lead), picture, folder)
