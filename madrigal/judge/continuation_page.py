"""A report on continuations as tables on a terminal and as a page with players, spectrograms and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from madrigal.judge.chart import Series
from madrigal.judge.continuation import CONTINUATION, ORIGINAL, ContinuationReport, Continued, StagePerplexity
from madrigal.judge.estimates import Estimate
from madrigal.judge.examples import add_example, write_files
from madrigal.judge.html import Mark, Page
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example

Rows = list[list[Mark | str]]
SECONDS = 12.0
STYLES = {"good": "bold green", "bad": "red", "plain": "", "faint": "dim"}


def _figure(estimate: Estimate | None, digits: int = 2, scale: float = 1.0) -> Mark:
    if estimate is None:
        return Mark("–", "faint")
    half = estimate.half_width
    return Mark(f"{estimate.mean * scale:.{digits}f}", below="" if half is None else f"±{half * scale:.{digits}f}")


def _share(estimate: Estimate) -> Mark:
    low, high = (round(100 * (edge or 0.0)) for edge in (estimate.low, estimate.high))
    return Mark(f"{round(estimate.mean * estimate.count)} of {estimate.count}", below=f"{low} to {high} %")


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
            _share(verdict.share),
            _figure(verdict.own),
            _figure(verdict.wrong),
            _figure(verdict.beaten, 1, 100.0),
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
        said = [_figure(words.per_second), _figure(words.valid, 1, 100.0), f"{words.wordless} of {system.count}"]
    return [system.label, _figure(system.agreement, 1, 100.0), *said]


SECTIONS = (
    ("Perplexity", stage_rows, "Of held-out tokens; green where the model is better than a baseline beyond doubt."),
    ("Voices", voice_rows, "Cosines of voices; every case meets one prompt of another speaker."),
    ("Words", word_rows, "Two recognisers hear the same words only where there are words."),
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
    parts: list[Table | Text] = []
    for title, rows_of, _ in SECTIONS:
        header, rows = rows_of(report)
        if rows:
            table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            for index, name in enumerate(header):
                table.add_column(name, justify="left" if index == 0 else "right")
            for row in rows:
                table.add_row(*(_terminal(cell) for cell in row))
            parts.append(table)
    parts += [Text(remark, style="dim") for remark in remarks(report)]
    (console or Console()).print(Group(*parts))


def _terminal(cell: Mark | str) -> Text:
    if isinstance(cell, str):
        return Text(cell)
    return Text.assemble((cell.text, STYLES[cell.kind]), (f"\n{cell.below}" if cell.below else "", "dim"))


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


def _said(report: ContinuationReport, name: str) -> dict[str, str | None]:
    found = next((entry for entry in report.heard if entry.name == name), None)
    return {} if found is None else {label: texts[0] if texts else None for label, texts in found.heard.items()}


def continuation_page(report: ContinuationReport, curves: Sequence[Series] = (), lead: str = "") -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    page = Page(report.title, lead)
    facts = {f"perplexity, {stage.name}": f"{stage.model:.1f}" for stage in report.stages}
    facts |= {f"nearer to its own prompt, {v.judge}": _share(v.share).text for v in report.system().voices}
    if facts:
        page.facts(facts)
    for title, rows_of, caption in SECTIONS:
        header, rows = rows_of(report)
        if rows:
            page.heading(title)
            page.table(header, rows, caption)
    for remark in remarks(report):
        page.paragraph(remark, faint=True)
    if report.examples:
        page.heading("Listen")
        for example in report.examples:
            add_example(page, example, picture_of(example), _said(report, example.name))
    if curves:
        page.heading("Training")
        page.chart(curves)
    return page


def write_continuations(
    report: ContinuationReport, folder: str | os.PathLike[str], curves: Sequence[Series] = (), lead: str = ""
) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    picture = picture_of(report.examples[0]) if report.examples else None
    return write_files(report, continuation_page(report, curves, lead), picture, folder)
