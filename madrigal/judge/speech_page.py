"""A report on speech from text as tables on a terminal and as a page with players, spectrograms and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.examples import add_examples, add_training, write_files
from madrigal.judge.html import Mark, Page
from madrigal.judge.picture import spectrogram_picture
from madrigal.judge.report import Example
from madrigal.judge.sections import Rows, Section, add_sections, figure, share, show_sections
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


def match_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """A row for each way and judge: how often its speaker is known among all, and mean cosines."""
    rows: Rows = [
        [
            way.label,
            match.judge,
            share(match.right),
            str(match.speakers),
            figure(match.own),
            figure(match.nearest_other),
        ]
        for way in report.ways
        for match in way.matches
    ]
    return ["", "judge", "right speaker", "among", "own", "nearest other"], rows


def pace_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """A row for each way: how natural it sounds, seconds of a sentence, time to make them, size of the models.

    What is known of no way has no column.
    """
    columns: dict[str, list[Mark | str | None]] = {
        "seconds a sentence": [f"{way.seconds / way.count:.2f}" for way in report.ways],
        "without sound": [str(way.silent) for way in report.ways],
        "naturalness, 1 to 5": [figure(way.naturalness) if way.naturalness else None for way in report.ways],
        "processor seconds a second": [figure(way.real_time, 3) if way.real_time else None for way in report.ways],
        "MB": [f"{way.megabytes:.1f}" if way.megabytes else None for way in report.ways],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    rows: Rows = [
        [way.label, *(cells[index] or Mark("–", "faint") for cells in shown.values())]
        for index, way in enumerate(report.ways)
    ]
    return ["", *shown], rows


def duration_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """One row: how far the durations are off."""
    found = report.durations
    if found is None:
        return [], []
    header = [
        "symbols",
        "off by, ms a symbol",
        "all alike, ms",
        "off by, % of a sentence",
        "length, % of the recordings",
    ]
    return header, [
        [
            f"{found.symbols:,}",
            figure(found.symbol_ms, 1),
            figure(found.even_ms, 1),
            figure(found.total, 1, 100.0),
            figure(found.length, 1, 100.0),
        ]
    ]


def mending_rows(report: SpokenReport) -> tuple[list[str], Rows]:
    """A row for the mended recordings, those with a hole and the originals: word error rates in percent."""
    found = report.mending
    if found is None:
        return [], []
    header = ["", *(f"words, {name}, %" for name in report.recognisers), "naturalness, 1 to 5"]
    rows: Rows = [
        [way.label, *(figure(way.words.get(name), 1, 100.0) for name in report.recognisers), figure(way.naturalness)]
        for way in found.ways
    ]
    return header, rows


SECTIONS = (
    Section("Errors", error_rows, "Of what a recogniser hears, against what was written."),
    Section("Voice", voice_rows, "Cosine of its voice and the prompt's."),
    Section("Speaker", match_rows, "Whose voice is nearest, among all speakers of the recordings."),
    Section(
        "Sound and pace", pace_rows, "How good it sounds to Distill-MOS, how long sentences are, and what they cost."
    ),
    Section("Durations", duration_rows, "Of the duration model, beside the recordings as the aligner reads them."),
    Section("Mending", mending_rows, "Recordings of which a part was cut out and made anew, their texts being known."),
)


def remarks(report: SpokenReport) -> Sequence[str]:
    """What a reader must know beside the figures."""
    count = len(report.said)
    sure = "" if report.confidence is None else f"; the model's own confidence is {report.confidence.mean:.2f}"
    said = [f"{count} sentences, {report.sample_rate / 1000:g} kHz{sure}; ± is half of the 95 % interval."]
    unknown = sum(bool(item.unknown) for item in report.said)
    calls = report.evaluations
    timings = report.duration_evaluations
    more = "" if timings is None else f", and {timings.mean:g} of the durations'"
    said += [] if calls is None else [f"A sentence takes {calls.mean:g} evaluations of the network{more}."]
    said += [f"{report.mending.count} recordings were mended: {_mended(report)}."] if report.mending is not None else []
    said += [f"In {unknown} of them are characters that could not be said."] if unknown else []
    said += [f"{item.measure} were left out: run `{item.install}`." for item in report.left_out]
    return [*said, *report.notes]


def _mended(report: SpokenReport) -> str:
    found = report.mending
    assert found is not None
    back = [(name, found.repaired(name)) for name in report.recognisers]
    told = [f"{100 * share:.0f} % of the lost words came back by {name}" for name, share in back if share is not None]
    return "; ".join([f"a hole of {found.hole_seconds:.2g} s each", *told])


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
    facts |= {f"right speaker, {match.judge}": share(match.right).text for match in report.way().matches}
    if (natural := report.way().naturalness) is not None:
        facts["naturalness, 1 to 5"] = f"{natural.mean:.2f}"
    if report.evaluations is not None:
        facts["evaluations a sentence"] = f"{report.evaluations.mean:g}"
    if report.duration_evaluations is not None:
        facts["of the durations"] = f"{report.duration_evaluations.mean:g}"
    if (real_time := report.way().real_time) is not None:
        facts["real-time factor, one core"] = f"{real_time.mean:.3f}"
    facts |= {f"likeness of voice, {kind}": f"{alike.mean:.2f}" for kind, alike in report.way().voices.items()}
    if facts:
        page.facts(facts)
    add_sections(page, report, SECTIONS, remarks(report))
    heard = {item.name: item.heard for item in report.said}
    mended = report.mending
    heard |= {} if mended is None else mended.heard
    add_examples(page, [*report.examples, *([] if mended is None else mended.examples)], heard, picture_of)
    add_training(page, curves)
    return page


def write_spoken(
    report: SpokenReport, folder: str | os.PathLike[str], curves: Sequence[Series] = (), lead: str = ""
) -> dict[str, Path]:
    """report.json, report.html and (with examples) spectrograms.png in `folder`; gives their paths by kind."""
    picture = picture_of(report.examples[0]) if report.examples else None
    return write_files(report, spoken_page(report, curves, lead), picture, folder)
