"""A codec's report as a page: the figures, players beside each other, spectrograms, codebooks, curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from madrigal.judge.chart import Series
from madrigal.judge.html import Cell, Mark, Page, Sound
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example, Report, System
from madrigal.judge.table import SHOWN, beats_opus, codebook_rows, figures, remarks, shown_metrics


def add_quality(page: Page, report: Report) -> None:
    """The table of all measures; a codec's figure is coloured where it differs from Opus beyond doubt."""
    names = shown_metrics(report)
    rows = [
        [
            system.label,
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
    heard = {(score.utterance, score.system): score.heard for score in report.scores}
    for example in report.examples[:limit]:
        page.heading(example.name, level=3)
        if example.text:
            page.paragraph(example.text)
        words = any(heard.get((example.name, label)) for label in example.waves)
        rows: list[list[Cell]] = []
        for label, wave in example.waves.items():
            said: list[Cell] = [heard.get((example.name, label)) or ""] if words else []
            rows.append([label, Sound(wave, example.rate), *said])
        page.table(["", "", "heard"] if words else ["", ""], rows)
        page.image(picture_of(report, example), f"Mel spectrograms of {example.name}")


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
    if curves:
        page.heading("Training")
        page.chart(curves)
    return page


def write_report(report: Report, folder: str | os.PathLike[str], curves: Sequence[Series] = ()) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    target = Path(folder)
    written = {"json": report.write(target / "report.json")}
    if report.examples:
        written["picture"] = target / "spectrograms.png"
        picture_of(report, report.examples[0]).save(written["picture"], optimize=True)
    written["page"] = codec_page(report, curves).write(target / "report.html")
    return written
