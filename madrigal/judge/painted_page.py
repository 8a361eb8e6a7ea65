"""The report on pictures from captions as a page and as a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from madrigal.judge.chart import Series
from madrigal.judge.estimates import Estimate
from madrigal.judge.examples import add_training, write_files
from madrigal.judge.html import Cell, Page
from madrigal.judge.painted import TOP, PaintedReport, painted_picture

GRID = "pictures.png"


def rows_of(report: PaintedReport) -> list[tuple[str, str, str, str]]:
    """Which pictures, how many, and how often their label is found in the made and in the real ones."""
    whole = [("all", str(report.pictures), _share(report.made), _share(report.real))]
    return whole + [(g.name, str(g.pictures), _share(g.made), _share(g.real)) for g in report.groups]


def facts_of(report: PaintedReport) -> dict[str, str]:
    """What else there is to know."""
    facts = {
        "labels": f"{report.labels}, learned from {report.learned_from} real pictures by {report.features}",
        "chance": f"{report.chance:.2%} (always the commonest label: {report.commonest:.1%})",
        "found, in multiples of chance": f"{report.made.mean / report.chance:.1f}",
        f"among the {TOP} likeliest": _share(report.made_top),
        "seconds a picture": f"{report.seconds:.2f}",
    }
    if report.frechet is not None:
        name = f"Frechet distance, {report.features}, {report.components} components"
        other = "–" if report.frechet_real is None else f"{report.frechet_real:.3f}"
        facts[name] = f"{report.frechet:.3f} (real pictures of the training: {other})"
    return facts | {name: f"{value:g}" for name, value in report.how.items()}


def painted_page(report: PaintedReport, curves: Sequence[Series] = ()) -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    height, width = report.size
    page = Page(report.title, f"{report.pictures} captions that were not trained on, pictures of {width} x {height}.")
    page.heading("What an independent eye takes them for")
    cells: list[list[Cell]] = [list(row) for row in rows_of(report)]
    page.table(["", "pictures", "label found: made", "real"], cells)
    page.facts(facts_of(report))
    page.paragraph("A Frechet distance compares only with one of as many pictures, by the same features.", faint=True)
    picture = painted_picture(report)
    if picture is not None:
        page.heading("Look")
        page.image(picture, "Real pictures, and below each the one that was made of its caption")
    page.heading("Caption by caption")
    page.table(["caption", "label", "taken for"], [[one.text, one.label, one.guess] for one in report.seen])
    add_training(page, curves)
    return page


def show_painted(report: PaintedReport, console: Console) -> None:
    """The report on a terminal."""
    table = Table(title=report.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("", "pictures", "label found: made", "real"):
        table.add_column(title, justify="right" if title else "left")
    for row in rows_of(report):
        table.add_row(*row)
    console.print(table)
    for name, value in facts_of(report).items():
        console.print(f"{name}: {value}")


def write_painted(
    report: PaintedReport, folder: str | os.PathLike[str], curves: Sequence[Series] = ()
) -> dict[str, Path]:
    """report.json, report.html and pictures.png in `folder`; gives their paths by kind."""
    return write_files(report, painted_page(report, curves), painted_picture(report), folder, name=GRID)


def _share(estimate: Estimate) -> str:
    half = "" if estimate.half_width is None else f" ±{estimate.half_width:.1%}"
    return f"{estimate.mean:.1%}{half}"
