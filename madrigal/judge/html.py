"""A page in one file: text, tables, players, pictures and charts, which opens without a server or a network."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile
from PIL import Image

from madrigal.judge.chart import Series, line_chart
from madrigal.judge.signals import as_channels
from madrigal.judge.style import STYLE

# Nothing may be loaded from anywhere, and nothing may run: the page is only what is in it.
POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Sound:
    """A player: a wave [channels, samples] or [samples] inside the page, as 16-bit wav or as Ogg Vorbis."""

    wave: Any
    rate: int
    encoding: Literal["wav", "ogg"] = "wav"

    def html(self) -> str:
        return f'<audio controls preload="metadata" src="{self._address()}"></audio>'

    def _address(self) -> str:
        samples = np.clip(np.nan_to_num(as_channels(self.wave)), -1.0, 1.0).T
        kind, subtype = ("WAV", "PCM_16") if self.encoding == "wav" else ("OGG", "VORBIS")
        buffer = io.BytesIO()
        with soundfile.SoundFile(buffer, "w", self.rate, samples.shape[1], subtype, format=kind) as file:
            for start in range(0, len(samples), 1 << 16):  # the Vorbis encoder does not take long waves at once
                file.write(samples[start : start + (1 << 16)])
        return _data_uri(f"audio/{self.encoding}", buffer.getvalue())


@dataclass(frozen=True)
class Mark:
    """Text in a table that stands out: good, bad or faint, with an optional smaller second line."""

    text: str
    kind: Literal["plain", "good", "bad", "faint"] = "plain"
    below: str = ""

    def html(self) -> str:
        below = f"<br><small>{escape(self.below)}</small>" if self.below else ""
        return f'<span class="{self.kind}">{escape(self.text)}</span>{below}'


Cell = str | int | float | None | Sound | Mark


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _cell(content: Cell) -> str:
    if isinstance(content, (Sound, Mark)):
        kind, inner = ("sound" if isinstance(content, Sound) else "number"), content.html()
    elif content is None:
        kind, inner = "number", '<span class="faint">–</span>'
    elif isinstance(content, str):
        kind, inner = "text", escape(content)
    else:
        kind, inner = "number", escape(f"{content:,.4g}" if isinstance(content, float) else f"{content:,}")
    return f'<td class="{kind}">{inner}</td>'


class Page:
    """A self-contained page, put together from top to bottom; every text is escaped."""

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if lead:
            self._parts.append(f'<p class="lead">{escape(lead)}</p>')

    def heading(self, text: str, level: Literal[2, 3] = 2) -> None:
        self._parts.append(f"<h{level}>{escape(text)}</h{level}>")

    def paragraph(self, text: str, *, faint: bool = False) -> None:
        self._parts.append(f'<p class="faint">{escape(text)}</p>' if faint else f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """A command or a snippet, as it is typed."""
        self._parts.append(f"<pre><code>{escape(text)}</code></pre>")

    def bullets(self, items: Iterable[str]) -> None:
        self._parts.append("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>")

    def facts(self, facts: Mapping[str, Any]) -> None:
        """A few figures that a reader should see first, each large over its name."""
        tiles = (f"<div><dd>{escape(str(value))}</dd><dt>{escape(name)}</dt></div>" for name, value in facts.items())
        self._parts.append(f'<dl class="facts">{"".join(tiles)}</dl>')

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> None:
        head = "".join(f"<th>{escape(name)}</th>" for name in header)
        body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
        title = f"<caption>{escape(caption)}</caption>" if caption else ""
        self._parts.append(
            f'<div class="wide"><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def sound(self, label: str, wave: Any, rate: int, encoding: Literal["wav", "ogg"] = "wav") -> None:
        player = Sound(wave, rate, encoding).html()
        self._parts.append(f"<figure><figcaption>{escape(label)}</figcaption>{player}</figure>")

    def image(self, picture: Image.Image | str | os.PathLike[str], caption: str = "") -> None:
        """A picture, or the file of one; it is kept as PNG."""
        buffer = io.BytesIO()
        opened = picture if isinstance(picture, Image.Image) else Image.open(picture)
        opened.save(buffer, format="PNG", optimize=True)
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        address = _data_uri("image/png", buffer.getvalue())
        self._parts.append(f'<figure><img alt="{escape(caption)}" src="{address}">{below}</figure>')

    def chart(
        self,
        series: Sequence[Series],
        caption: str = "",
        *,
        x_label: str = "step",
        y_label: str = "",
        logarithmic: bool | None = None,
    ) -> None:
        """Lines over a common axis, as `line_chart` draws them."""
        drawing = line_chart(series, x_label=x_label, y_label=y_label, logarithmic=logarithmic)
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{drawing}{below}</figure>")

    def render(self) -> str:
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self._parts)
            + "\n</main>\n</body>\n</html>\n"
        )

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, beside first and then renamed, so that a reader never sees half of it."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        beside.write_text(self.render(), encoding="utf-8")
        beside.replace(target)
        return target
