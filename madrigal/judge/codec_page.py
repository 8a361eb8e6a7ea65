"""A codec's report as a page: the figures, players beside each other, spectrograms, codebooks, curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from madrigal.judge.chart import Series
from madrigal.judge.examples import add_example, add_training, write_files
from madrigal.judge.html import Cell, Mark, Page
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example, Report, System
from madrigal.judge.table import SHOWN, beats_opus, codebook_rows, figures, remarks, shown_metrics


def add_quality(page: Page, report: Report) -> None:
    """The table of all measures; a codec's figure is coloured where it differs from Opus beyond doubt."""
    names = shown_metrics(report)
    rows = [
        [
            system.told,
            system.measured_kbps and Mark(f"{system.measured_kbps:.2f}"),
            *(_cell(system, name) for name in names),
        ]
        for system in report.systems
    ]
    page.table(["", "kbps", *(SHOWN[name].title for name in names)], rows)
    for remark in remarks(report):
        page.paragraph(remark, faint=True)


def _cell(system: System, name: str) -> Cell:
    if name not in system.metrics:
        return None
    mean, spread = figures(name, system.metrics[name])
    verdict = beats_opus(system, name)
    return Mark(mean, "plain" if verdict is None else "good" if verdict else "bad", spread)


def add_examples(page: Page, report: Report, limit: int | None = None) -> None:
    """Every kept utterance: its text, a player for each system with what a recogniser heard, its spectrograms."""
    told = {system.label: system.told for system in report.systems}
    for example in report.examples[:limit]:
        heard = {score.system: score.heard for score in report.scores if score.utterance == example.name}
        add_example(page, example, picture_of(report, example), heard, told)


def picture_of(report: Report, example: Example) -> Image.Image:
    """The spectrograms of one example, with each system's measured rate under its label."""
    captions = {
        system.label: f"measured {system.measured_kbps:.1f} kbps"
        for system in report.systems
        if system.measured_kbps is not None
    }
    return spectrogram_picture(example, captions=captions)


def add_codebooks(page: Page, report: Report) -> None:
    """Perplexity and usage of each quantizer, where the codec gave its codes."""
    rows: list[Sequence[Cell]] = [
        [number, perplexity, share, used, Mark("") if healthy else Mark("under half", "bad")]
        for number, perplexity, share, used, healthy in codebook_rows(report)
    ]
    if rows:
        page.heading("Codebooks")
        page.table(["quantizer", "perplexity", "of its size", "entries used", ""], rows)


def codec_page(report: Report, curves: Sequence[Series] = (), lead: str = "") -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    page = Page(report.title, lead)
    page.heading("Quality")
    add_quality(page, report)
    if report.examples:
        page.heading("Listen")
        add_examples(page, report)
    add_codebooks(page, report)
    add_training(page, curves)
    return page


def write_report(report: Report, folder: str | os.PathLike[str], curves: Sequence[Series] = ()) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    picture = picture_of(report, report.examples[0]) if report.examples else None
    return write_files(report, codec_page(report, curves), picture, folder)
