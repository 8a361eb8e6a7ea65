"""The report on a tokenizer of pictures as a page and as a table: figures, groups, originals beside what came back."""

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
from madrigal.judge.pictures import PictureReport, pairs_picture

GRID = "pictures.png"


def rows_of(report: PictureReport) -> list[tuple[str, str, str]]:
    """Whose, PSNR in dB and SSIM: all pictures, then each kind of them."""
    whole = [("all", report.psnr, report.ssim), *((g.name, g.psnr, g.ssim) for g in report.groups)]
    return [(name, _told(first, 2), _told(second, 3)) for name, first, second in whole]


def facts_of(report: PictureReport) -> dict[str, str]:
    """The figures that are not of single pictures."""
    rows, columns = report.grid
    facts = {
        "tokens a picture": f"{rows} x {columns}",
        "codebook perplexity": f"{report.perplexity:.0f} of {report.codebook_size}",
        "codes in use": f"{report.codes_used}",
    }
    if report.frechet is not None:
        facts[f"Frechet distance, {report.features}, {report.components} components"] = f"{report.frechet:.3f}"
    return facts


def picture_page(report: PictureReport, curves: Sequence[Series] = ()) -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    height, width = report.size
    page = Page(report.title, f"{report.pictures} pictures of {width} x {height} that were not trained on.")
    page.heading("Likeness")
    cells: list[list[Cell]] = [list(row) for row in rows_of(report)]
    page.table(["", "PSNR in dB", "SSIM"], cells)
    page.facts(facts_of(report))
    page.paragraph("A Frechet distance compares only with one of as many pictures, by the same features.", faint=True)
    if report.examples:
        page.heading("Look")
        page.image(pairs_picture(report.examples), "Originals, and below each what came back of its tokens")
    add_training(page, curves)
    return page


def show_pictures(report: PictureReport, console: Console) -> None:
    """The report on a terminal."""
    table = Table(title=report.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("", "PSNR dB", "SSIM"):
        table.add_column(title, justify="right" if title else "left")
    for row in rows_of(report):
        table.add_row(*row)
    console.print(table)
    for name, value in facts_of(report).items():
        console.print(f"{name}: {value}")


def write_pictures(
    report: PictureReport, folder: str | os.PathLike[str], curves: Sequence[Series] = ()
) -> dict[str, Path]:
    """report.json, report.html and pictures.png in `folder`; gives their paths by kind."""
    picture = pairs_picture(report.examples) if report.examples else None
    return write_files(report, picture_page(report, curves), picture, folder, name=GRID)


def _told(estimate: Estimate | None, digits: int) -> str:
    if estimate is None:
        return "–"
    half = "" if estimate.half_width is None else f" ±{estimate.half_width:.{digits}f}"
    return f"{estimate.mean:.{digits}f}{half}"
