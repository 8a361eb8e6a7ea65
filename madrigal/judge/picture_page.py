"""The report on a tokenizer of pictures as a page and as a table: figures, groups, originals beside what came back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.examples import add_training, write_files
from madrigal.judge.html import Page
from madrigal.judge.pictures import PictureReport, pairs_picture
from madrigal.judge.sections import Rows, Section, add_sections, figure, show_sections

GRID = "pictures.png"
COMPARES = "A Frechet distance compares only with one of as many pictures, by the same features."


def likeness_rows(report: PictureReport) -> tuple[list[str], Rows]:
    """All pictures, then each kind of them."""
    whole = [("all", report.psnr, report.ssim), *((g.name, g.psnr, g.ssim) for g in report.groups)]
    rows: Rows = [[name, figure(first), figure(second, 3)] for name, first, second in whole]
    return ["", "PSNR in dB", "SSIM"], rows


def code_rows(report: PictureReport) -> tuple[list[str], Rows]:
    """The figures that are not of single pictures."""
    rows, columns = report.grid
    facts: Rows = [
        ["tokens a picture", f"{rows} x {columns}"],
        ["perplexity", f"{report.perplexity:.0f} of {report.codebook_size}"],
        ["codes in use", f"{report.codes_used}"],
    ]
    if report.frechet is not None:
        name = f"Frechet distance, {report.features}, {report.components} components"
        facts.append([name, f"{report.frechet:.3f}"])
    return ["", ""], facts


SECTIONS = (
    Section("Likeness", likeness_rows, "What came back beside the originals"),
    Section("Codes", code_rows, COMPARES),
)


def show_pictures(report: PictureReport, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    show_sections(report, SECTIONS, [report.title], console)


def picture_page(report: PictureReport, curves: Sequence[Series] = ()) -> Page:
    """The whole report as one page; `curves` are the losses of the run, where they are known."""
    height, width = report.size
    page = Page(report.title, f"{report.pictures} pictures of {width} x {height} that were not trained on.")
    add_sections(page, report, SECTIONS, [])
    if report.examples:
        page.heading("Look")
        page.image(pairs_picture(report.examples), "Originals, and below each what came back of its tokens")
    add_training(page, curves)
    return page


def write_pictures(
    report: PictureReport, folder: str | os.PathLike[str], curves: Sequence[Series] = ()
) -> dict[str, Path]:
    """report.json, report.html and pictures.png in `folder`; gives their paths by kind."""
    picture = pairs_picture(report.examples) if report.examples else None
    return write_files(report, picture_page(report, curves), picture, folder, name=GRID)
