"""How well sounds and texts find each other, and how well sounds are tagged by prompts that name their class."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from rich.console import Console

from madrigal.judge.chart import Series
from madrigal.judge.estimates import Estimate, of_share
from madrigal.judge.examples import add_training, write_files
from madrigal.judge.html import Mark, Page, Sound
from madrigal.judge.record import Record, SavedReport
from madrigal.judge.sections import Rows, Section, add_sections, figure, share, show_sections
from madrigal.judge.signals import Wave

RECALLS = (1, 5, 10)


class Way(Record):
    """One way, from sounds to texts or back: recall at 1, 5 and 10 beside chance, and the median rank (1 = first)."""

    name: str
    recall: dict[int, Estimate]
    chance: dict[int, float]
    median_rank: float


class Tagging(Record):
    """Sounds told by the prompt that is nearest: how many rightly, beside chance and the most frequent class."""

    what: str
    classes: list[str]
    right: Estimate
    chance: float
    majority: float
    by_class: dict[str, Estimate]


class Hit(Record):
    """A text that was asked for, and the sounds that came first, the right one among them or not."""

    text: str
    found: list[str]
    rank: float


class RetrievalReport(SavedReport):
    """The verdict on a model of sound and text."""

    of_what: ClassVar[str] = "a mulan"
    format: Literal["madrigal.judge.retrieval"] = "madrigal.judge.retrieval"
    version: Literal[1] = 1
    title: str
    pairs: int
    texts: int
    ways: list[Way]
    alignment: float
    spread: dict[str, float]
    taggings: list[Tagging] = Field(default_factory=list)
    hits: list[Hit] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    sounds: dict[str, tuple[Wave, int]] = Field(default_factory=dict, exclude=True, repr=False)


def judge_ranks(name: str, places: Sequence[float] | np.ndarray, rights: Sequence[int] | np.ndarray) -> Way:
    """From the places of the best right answers (0 = first) of `n` queries among `n` answers.

    `rights` says how many answers are right for each: chance is that one of them is among so many drawn blindly.
    """
    found, right = np.asarray(places, dtype=float), np.asarray(rights)
    count = len(found)
    return Way(
        name=name,
        recall={k: of_share(int((found < k).sum()), count) for k in RECALLS},
        chance={k: float(np.mean([_blind(count, int(r), k) for r in right])) for k in RECALLS},
        median_rank=float(np.median(found) + 1),
    )


def _blind(count: int, right: int, drawn: int) -> float:
    """The chance that `drawn` of `count`, of which some are right, hold a right one."""
    if drawn >= count or count - right < drawn:
        return 1.0
    return 1.0 - math.comb(count - right, drawn) / math.comb(count, drawn)


def judge_tags(what: str, classes: Sequence[str], true: Sequence[str], told: Sequence[str]) -> Tagging:
    """From the class of each sound and the one that it was told to have."""
    pairs = list(zip(true, told, strict=True))
    by_class = {
        name: of_share(sum(t == p for t, p in pairs if t == name), sum(t == name for t in true))
        for name in classes
        if name in true
    }
    return Tagging(
        what=what,
        classes=list(classes),
        right=of_share(sum(t == p for t, p in pairs), len(pairs)),
        chance=1 / len(classes),
        majority=max(sum(t == name for t in true) for name in classes) / len(pairs),
        by_class=by_class,
    )


def recall_rows(report: RetrievalReport) -> tuple[list[str], Rows]:
    """A row for each way: recalls in percent with chance below, and the median rank."""
    header = ["", *(f"recall@{k}, %" for k in RECALLS), *(f"by chance @{k}, %" for k in RECALLS), "median rank"]
    rows: Rows = [
        [
            way.name,
            *(figure(way.recall[k], 1, 100.0) for k in RECALLS),
            *(Mark(f"{100 * way.chance[k]:.1f}", "faint") for k in RECALLS),
            f"{way.median_rank:g}",
        ]
        for way in report.ways
    ]
    return header, rows


def tag_rows(report: RetrievalReport) -> tuple[list[str], Rows]:
    """A row for each set of classes."""
    rows: Rows = [
        [
            tagging.what,
            share(tagging.right),
            f"{100 * tagging.right.mean:.1f} %",
            f"{100 * tagging.chance:.1f} %",
            f"{100 * tagging.majority:.1f} %",
            str(len(tagging.classes)),
        ]
        for tagging in report.taggings
    ]
    return ["", "right", "share", "by chance", "most frequent", "classes"], rows


def class_rows(report: RetrievalReport) -> tuple[list[str], Rows]:
    """A row for each class of each set."""
    rows: Rows = [
        [f"{tagging.what}: {name}", share(right)]
        for tagging in report.taggings
        for name, right in tagging.by_class.items()
    ]
    return ["", "right"], rows


SECTIONS = (
    Section("Retrieval", recall_rows, "How often the right one is among the first, both ways, with its 95 % interval."),
    Section("Zero-shot tagging", tag_rows, "The class whose prompt is nearest, without any training on classes."),
    Section("Class by class", class_rows, ""),
)


def remarks(report: RetrievalReport) -> list[str]:
    """What a reader must know beside the figures."""
    spread = ", ".join(f"{name} {value:.2f}" for name, value in report.spread.items())
    return [
        f"{report.pairs} pairs with {report.texts} different texts; a sound is right for every pair of the same text.",
        f"Mean cosine of pairs {report.alignment:.2f}; of two that are no pair: {spread}.",
        *report.notes,
    ]


def show_retrieval(report: RetrievalReport, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    show_sections(report, SECTIONS[:2], remarks(report), console)


def retrieval_page(report: RetrievalReport, curves: Sequence[Series] = ()) -> Page:
    """The whole report as one page, with players of what was found."""
    page = Page(report.title)
    facts: dict[str, str] = {f"{way.name}, recall@10": f"{100 * way.recall[10].mean:.0f} %" for way in report.ways}
    page.facts(facts | {f"{t.what}, zero-shot": f"{100 * t.right.mean:.0f} %" for t in report.taggings})
    add_sections(page, report, SECTIONS, remarks(report))
    if report.hits and report.sounds:
        page.heading("Listen")
    for hit in report.hits if report.sounds else []:
        page.heading(hit.text, level=3)
        page.paragraph(f"The right one came at place {hit.rank:g}.", faint=True)
        page.table(["", ""], [[name, Sound(*report.sounds[name])] for name in hit.found if name in report.sounds])
    add_training(page, curves)
    return page


def write_retrieval(
    report: RetrievalReport, folder: str | os.PathLike[str], curves: Sequence[Series] = ()
) -> Mapping[str, Path]:
    """report.json and report.html in `folder`; gives their paths by kind."""
    return write_files(report, retrieval_page(report, curves), None, folder)
