"""What a report lets a reader hear and see: players below each other with what was heard in them, and spectrograms."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PIL import Image

from madrigal.judge.chart import Series
from madrigal.judge.html import Cell, Page, Sound
from madrigal.judge.record import SavedReport
from madrigal.judge.report import Example


def add_example(
    page: Page,
    example: Example,
    picture: Image.Image,
    heard: Mapping[str, str | None],
    told: Mapping[str, str] | None = None,
) -> None:
    """One utterance: its text, a player for each wave, its spectrograms.

    `heard` is what a recogniser made of the wave of each label; `told` are labels as people see them.
    """
    page.heading(example.name, level=3)
    if example.text:
        page.paragraph(example.text)
    words = any(heard.get(label) for label in example.waves)
    rows: list[list[Cell]] = []
    for label, wave in example.waves.items():
        said: list[Cell] = [heard.get(label) or ""] if words else []
        rows.append([(told or {}).get(label, label), Sound(wave, example.rate), *said])
    page.table(["", "", "heard"] if words else ["", ""], rows)
    page.image(picture, f"Mel spectrograms of {example.name}")


def add_examples(
    page: Page,
    examples: Sequence[Example],
    heard: Mapping[str, Mapping[str, Sequence[str]]],
    picture_of: Callable[[Example], Image.Image],
) -> None:
    """All that can be listened to; `heard` is what every recogniser made of it, by example and label."""
    if examples:
        page.heading("Listen")
    for example in examples:
        first = {label: texts[0] if texts else None for label, texts in heard.get(example.name, {}).items()}
        add_example(page, example, picture_of(example), first)


def add_training(page: Page, curves: Sequence[Series]) -> None:
    """The losses of a run, where they are known."""
    if curves:
        page.heading("Training")
        page.chart(curves)


def write_files(
    report: SavedReport,
    page: Page,
    picture: Image.Image | None,
    folder: str | os.PathLike[str],
    name: str = "spectrograms.png",
) -> dict[str, Path]:
    """report.json, report.html and (with a picture) a PNG of this name in `folder`; gives their paths by kind."""
    target = Path(folder)
    written = {"json": report.write(target / "report.json")}
    if picture is not None:
        written["picture"] = target / name
        picture.save(written["picture"], optimize=True)
    written["page"] = page.write(target / "report.html")
    return written
