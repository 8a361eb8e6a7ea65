"""A report on music from text as tables on a terminal and as a page with players and spectrograms."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.estimates import of_share
from madrigal.judge.examples import add_examples, add_training, write_files
from madrigal.judge.html import Mark, Page
from madrigal.judge.music import MusicReport
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example
from madrigal.judge.sections import Rows, Section, add_sections, figure, share, show_sections

SECONDS = 10.0


def agreement_rows(report: MusicReport) -> tuple[list[str], Rows]:
    """A row for each way and measure: as its caption says, as another clip's caption says, by chance."""
    rows: Rows = [
        [
            way.label,
            one.measure,
            share(one.right),
            share(one.shuffled),
            Mark(f"{100 * one.chance:.0f} %", "faint"),
        ]
        for way in report.ways
        for one in way.agreements
    ]
    return ["", "measure", "as its caption says", "as another's caption says", "chance"], rows


def similarity_rows(report: MusicReport) -> tuple[list[str], Rows]:
    """A row for each way: what the model itself finds, and how far it is from recordings."""
    names = list(dict.fromkeys(name for way in report.ways for name in way.distances))
    rows: Rows = [
        [
            way.label,
            figure(way.similarity),
            figure(way.similarity_shuffled),
            figure(way.centroid_error),
            *(Mark(f"{way.distances[name]:.3f}") for name in names),
        ]
        for way in report.ways
    ]
    header = ["", "MuLaN, own caption", "another's", "brightness, octaves off", *(f"Frechet, {name}" for name in names)]
    return header, rows


def instrument_rows(report: MusicReport) -> tuple[list[str], Rows]:
    """A row for each instrument that was asked for: how often it was heard, and what in its place."""
    heard: dict[str, Counter[str]] = {}
    for clip in report.clips:
        if "instrument" in clip.true:
            said = clip.heard[report.way().label]["instrument"]
            heard.setdefault(clip.true["instrument"], Counter())[said] += 1
    rows: Rows = []
    for asked, counts in sorted(heard.items()):
        others = ", ".join(f"{name or 'silence'} {times}" for name, times in counts.most_common() if name != asked)
        rows.append([asked, share(of_share(counts[asked], counts.total())), Mark(others or "–", "faint")])
    return ["asked for", "heard", "or rather"], rows


SECTIONS = (
    Section(
        "What the caption says",
        agreement_rows,
        "Instruments by a classifier, tempo and register by descriptors, all trained on recordings alone.",
    ),
    Section("Instrument by instrument", instrument_rows, "What was generated, by the same classifier."),
    Section(
        "Similarity",
        similarity_rows,
        "Cosines by the model's own MuLaN, which also ranks its samples; distances to recordings.",
    ),
)


def remarks(report: MusicReport) -> Sequence[str]:
    """What a reader must know beside the figures."""
    way = report.way()
    said = (
        f"{way.count} captions, clips of {way.seconds / way.count:.1f} s at {report.sample_rate / 1000:g} kHz; the "
        f"judges know {report.trained_on} recordings; ± is half of the 95 % interval."
    )
    if report.reference is None:
        compared = (
            "This report was written by an older version: distances of recordings are to those that the judges know, "
            "the others are to the captions' own recordings, and the two do not compare."
        )
    else:
        compared = f"All distances are to the same {report.reference} of the recordings that the judges know."
    return [said, compared, *report.notes]


def show_music(report: MusicReport, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    show_sections(report, SECTIONS, remarks(report), console)


def picture_of(example: Example) -> Image.Image:
    return spectrogram_picture(example, seconds=SECONDS, captions={})


def music_page(report: MusicReport, curves: Sequence[Series] = (), lead: str = "") -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    page = Page(report.title, lead)
    facts = {f"{one.measure} as the caption says": share(one.right).text for one in report.way().agreements}
    if facts:
        page.facts(facts)
    add_sections(page, report, SECTIONS, remarks(report))
    heard = {
        clip.name: {label: [", ".join(filter(None, said.values()))] for label, said in clip.heard.items()}
        for clip in report.clips
    }
    add_examples(page, report.examples, heard, picture_of)
    add_training(page, curves)
    return page


def write_music(
    report: MusicReport, folder: str | os.PathLike[str], curves: Sequence[Series] = (), lead: str = ""
) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    picture = picture_of(report.examples[0]) if report.examples else None
    return write_files(report, music_page(report, curves, lead), picture, folder)
