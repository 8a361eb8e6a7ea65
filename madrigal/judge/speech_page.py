"""A report on speech from text as tables on a terminal and as a page with players, spectrograms and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.examples import add_example, write_files
from madrigal.judge.html import Mark, Page
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example
from madrigal.judge.sections import Rows, Section, add_sections, figure, show_sections
from madrigal.judge.spoken import SpokenReport

SECONDS = 8.0


def error_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """A row for each way: character and word error rate in percent by every recogniser."""
    if not report.recognisers:
        return [], []
    header = ["", *(f"{what}, {name}, %" for name in report.recognisers for what in ("characters", "words"))]
    rows: Rows = []
    for way in report.ways:
        cells: list[Mark | str] = [way.label]
        for errors in way.errors:
            cells += [figure(errors.characters, 1, 100.0), figure(errors.words, 1, 100.0)]
        rows.append(cells)
    return header, rows


def voice_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """A row for each way: how alike its voice is to that of the prompt, by every judge."""
    kinds = list(dict.fromkeys(kind for way in report.ways for kind in way.voices))
    rows: Rows = [[way.label, *(figure(way.voices.get(kind)) for kind in kinds)] for way in report.ways]
    return ["", *kinds], rows if kinds else []


def pace_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """A row for each way: seconds of a sentence, and how many have no sound."""
    rows: Rows = [[way.label, f"{way.seconds / way.count:.2f}", str(way.silent)] for way in report.ways]
    return ["", "seconds a sentence", "without sound"], rows


SECTIONS = (
    Section("Errors", error_rows, "Of what a recogniser hears, against what was written."),
    Section("Voice", voice_rows, "Cosine of its voice and the prompt's."),
    Section("Pace", pace_rows, "How long the sentences are."),
)


def remarks(report: SpokenReport) -> Sequence[str]:
    """What a reader must know beside the figures."""
    count = len(report.said)
    sure = "" if report.confidence is None else f"; the model's own confidence is {report.confidence.mean:.2f}"
    said = [f"{count} sentences, {report.sample_rate / 1000:g} kHz{sure}; ± is half of the 95 % interval."]
    unknown = sum(bool(item.unknown) for item in report.said)
    said += [f"In {unknown} of them are characters that could not be said."] if unknown else []
    said += [f"{item.measure} were left out: run `{item.install}`." for item in report.left_out]
    return [*said, *report.notes]


def show_spoken(report: SpokenReport, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    show_sections(report, SECTIONS, remarks(report), console)


def picture_of(example: Example) -> Image.Image:
    """All ways that have a sound, one below the other."""
    return spectrogram_picture(
        example._replace(waves={label: wave for label, wave in example.waves.items() if wave.shape[1]}), seconds=SECONDS
    )


def spoken_page(report: SpokenReport, curves: Sequence[Series] = (), lead: str = "") -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    page = Page(report.title, lead)
    facts = {
        f"characters misheard, {errors.recogniser}": f"{100 * errors.characters.mean:.1f} %"
        for errors in report.way().errors
        if errors.characters is not None
    }
    facts |= {f"likeness of voice, {kind}": f"{alike.mean:.2f}" for kind, alike in report.way().voices.items()}
    if facts:
        page.facts(facts)
    add_sections(page, report, SECTIONS, remarks(report))
    if report.examples:
        page.heading("Listen")
        heard = {item.name: item.heard for item in report.said}
        for example in report.examples:
            texts = {label: rows[0] if rows else None for label, rows in heard[example.name].items()}
            add_example(page, example, picture_of(example), texts)
    if curves:
        page.heading("Training")
        page.chart(curves)
    return page


def write_spoken(
    report: SpokenReport, folder: str | os.PathLike[str], curves: Sequence[Series] = (), lead: str = ""
) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    picture = picture_of(report.examples[0]) if report.examples else None
    return write_files(report, spoken_page(report, curves, lead), picture, folder)
