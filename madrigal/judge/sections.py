"""Tables of a report, the same on a terminal and on a page: figures with their intervals, section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from madrigal.judge.estimates import Estimate
from madrigal.judge.html import Mark, Page

Rows = list[list[Mark | str]]
STYLES = {"good": "bold green", "bad": "red", "plain": "", "faint": "dim"}


class Section(NamedTuple):
    """A table: its title, what makes header and rows of a report (no rows: no table), and its caption."""

    title: str
    rows_of: Callable[[Any], tuple[list[str], Rows]]
    caption: str


def figure(estimate: Estimate | None, digits: int = 2, scale: float = 1.0) -> Mark:
    """A mean with half of its 95 % interval below."""
    if estimate is None:
        return Mark("–", "faint")
    half = estimate.half_width
    return Mark(f"{estimate.mean * scale:.{digits}f}", below="" if half is None else f"±{half * scale:.{digits}f}")


def share(estimate: Estimate) -> Mark:
    """So many of so many, with the interval in percent below."""
    low, high = (round(100 * (edge or 0.0)) for edge in (estimate.low, estimate.high))
    return Mark(f"{round(estimate.mean * estimate.count)} of {estimate.count}", below=f"{low} to {high} %")


def show_sections(
    report: Any, sections: Sequence[Section], remarks: Sequence[str], console: Console | None = None
) -> None:
    """Print a report on a terminal."""
    parts: list[Table | Text] = []
    for section in sections:
        header, rows = section.rows_of(report)
        if rows:
            table = Table(
                title=section.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
            )
            for index, name in enumerate(header):
                table.add_column(name, justify="left" if index == 0 else "right")
            for row in rows:
                table.add_row(*(_terminal(cell) for cell in row))
            parts.append(table)
    parts += [Text(remark, style="dim") for remark in remarks]
    (console or Console()).print(Group(*parts))


def add_sections(page: Page, report: Any, sections: Sequence[Section], remarks: Sequence[str]) -> None:
    """Put a report on a page."""
    for section in sections:
        header, rows = section.rows_of(report)
        if rows:
            page.heading(section.title)
            page.table(header, rows, section.caption)
    for remark in remarks:
        page.paragraph(remark, faint=True)


def _terminal(cell: Mark | str) -> Text:
    if isinstance(cell, str):
        return Text(cell)
    return Text.assemble((cell.text, STYLES[cell.kind]), (f"\n{cell.below}" if cell.below else "", "dim"))
