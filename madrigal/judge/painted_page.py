"""The report on pictures from captions as a page and as a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.examples import add_training, write_files
from madrigal.judge.html import Page
from madrigal.judge.painted import TOP, PaintedReport, painted_picture
from madrigal.judge.picture_page import COMPARES, GRID
from madrigal.judge.sections import Rows, Section, add_sections, share, show_sections


def recognised_rows(report: PaintedReport) -> tuple[list[str], Rows]:
    """How often the label of a caption is found in what was made of it, and in real pictures of it."""
    rows: Rows = [["all", share(report.made), share(report.real)]]
    return ["", "made", "real"], rows + [[one.name, share(one.made), share(one.real)] for one in report.groups]


def fact_rows(report: PaintedReport) -> tuple[list[str], Rows]:
    """What else there is to know."""
    facts: Rows = [
        ["labels", f"{report.labels}, learned from {report.learned_from} real pictures by {report.features}"],
        ["chance", f"{report.chance:.2%} (always the commonest label: {report.commonest:.1%})"],
        ["found, in multiples of chance", f"{report.made.mean / report.chance:.1f}"],
        [f"among the {TOP} likeliest", share(report.made_top)],
        ["seconds a picture", f"{report.seconds:.2f}"],
    ]
    if report.frechet is not None:
        name = f"Frechet distance, {report.features}, {report.components} components"
        other = "–" if report.frechet_real is None else f"{report.frechet_real:.3f}"
        facts.append([name, f"{report.frechet:.3f} (real pictures of the training: {other})"])
    return ["", ""], facts + [[name, f"{value:g}"] for name, value in report.how.items()]


SECTIONS = (
    Section("Label found by an independent eye", recognised_rows, "It has learned from real pictures alone"),
    Section("How", fact_rows, COMPARES),
)


def show_painted(report: PaintedReport, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    show_sections(report, SECTIONS, [report.title], console)


def painted_page(report: PaintedReport, curves: Sequence[Series] = ()) -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    height, width = report.size
    page = Page(report.title, f"{report.pictures} captions that were not trained on, pictures of {width} x {height}.")
    add_sections(page, report, SECTIONS, [])
    picture = painted_picture(report)
    if picture is not None:
        page.heading("Look")
        page.image(picture, "Real pictures, and below each the one that was made of its caption")
    page.heading("Caption by caption")
    page.table(["caption", "label", "taken for"], [[one.text, one.label, one.guess] for one in report.seen])
    add_training(page, curves)
    return page


def write_painted(
    report: PaintedReport, folder: str | os.PathLike[str], curves: Sequence[Series] = ()
) -> dict[str, Path]:
    """report.json, report.html and pictures.png in `folder`; gives their paths by kind."""
    return write_files(report, painted_page(report, curves), painted_picture(report), folder, name=GRID)
