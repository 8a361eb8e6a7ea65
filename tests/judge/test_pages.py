from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from madrigal.judge.chart import Series
from madrigal.judge.html import Mark, Page, Sound

EVIL = """<script>alert("1")</script>&'"""
VOID = {"meta", "br", "img"}


class Balance(HTMLParser):
    """Checks that every element is closed in order, and gathers the names and addresses that occur."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: Page) -> Balance:
    balance = Balance()
    balance.feed(page.render())
    assert balance.open == []
    return balance


def full_page(text: str, voice: np.ndarray) -> Page:
    page = Page(text, lead=text)
    page.heading(text)
    page.heading(text, level=3)
    page.paragraph(text)
    page.paragraph(text, faint=True)
    page.code(text)
    page.bullets([text, text])
    page.facts({text: text})
    page.table([text], [[text], [Mark(text, "good", text)], [Sound(voice, 16_000)], [None], [3], [2.5]], text)
    page.sound(text, voice, 16_000)
    page.image(Image.new("RGB", (4, 4)), text)
    page.chart([Series(text, [0, 1], [1.0, 2.0])], text, x_label=text, y_label=text)
    return page


def test_every_text_is_escaped_and_every_element_closed(voice: np.ndarray) -> None:
    balance = parsed(full_page(EVIL, voice))
    assert "script" not in balance.seen
    assert {"audio", "img", "svg", "table", "h1", "h3"} <= balance.seen


def test_the_page_needs_nothing_from_outside(voice: np.ndarray) -> None:
    page = full_page("plain", voice)
    assert all(address.startswith("data:") for address in parsed(page).addresses)
    assert "http" not in page.render().replace("http-equiv", "")
    assert "default-src 'none'" in page.render()


@pytest.mark.parametrize("encoding", ["wav", "ogg"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_player_holds_the_wave(voice: np.ndarray, encoding: str, channels: int) -> None:
    sound = Sound(np.stack([voice] * channels), 16_000, encoding)  # type: ignore[arg-type]
    found = re.search(r'src="data:audio/(\w+);base64,([^"]+)"', sound.html())
    assert found is not None
    assert found[1] == encoding
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(found[2])), always_2d=True)
    assert rate == 16_000
    assert samples.shape == (len(voice), channels)
    assert np.corrcoef(samples[:, 0], voice)[0, 1] > 0.98


def test_a_player_survives_nan_and_clipping() -> None:
    assert "base64" in Sound(np.array([np.nan, np.inf, 3.0]), 8_000).html()


def test_pictures_come_from_memory_or_file(tmp_path: Path) -> None:
    Image.new("P", (3, 2)).save(tmp_path / "picture.png")
    page = Page("pictures")
    page.image(tmp_path / "picture.png")
    found = re.search(r'src="data:image/png;base64,([^"]+)"', page.render())
    assert found is not None
    assert Image.open(io.BytesIO(base64.b64decode(found[1]))).size == (3, 2)


def test_numbers_are_written_for_people() -> None:
    page = Page("numbers")
    page.table(["n"], [[1234567], [0.123456], [None]])
    assert "1,234,567" in page.render()
    assert "0.1235" in page.render()
    assert "–" in page.render()


def test_writing_leaves_only_the_page(tmp_path: Path) -> None:
    path = Page("Überschrift").write(tmp_path / "deep" / "page.html")
    assert "Überschrift" in path.read_text(encoding="utf-8")
    assert list(path.parent.iterdir()) == [path]


def test_light_and_dark_are_both_there() -> None:
    assert "prefers-color-scheme: dark" in Page("x").render()
