"""Spectrograms of one utterance below each other: the original, then every system, drawn with Pillow alone."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from madrigal.judge.colours import colourise
from madrigal.judge.report import Example
from madrigal.judge.signals import Wave
from madrigal.judge.spectra import decibels, hertz_to_mel, mel_spectrum
from madrigal.judge.ticks import label, linear_ticks

PAPER, INK, FAINT, RULE = (18, 18, 24), (236, 236, 240), (160, 160, 172), (70, 70, 82)
LEFT, TOP, PLOT, ROW, GAP, RIGHT, BOTTOM = 176, 56, 1080, 132, 12, 64, 64
BANDS, DEPTH = 96, 80.0


def spectrogram_picture(
    example: Example, *, title: str | None = None, seconds: float = 8.0, captions: dict[str, str] | None = None
) -> Image.Image:
    """One row for each wave of the example, its first `seconds`; `captions` are second lines under the labels.

    All rows share one scale, from the loudest band of the first wave (the original) down by 80 dB.
    """
    rows = {name: wave.mean(axis=0)[: round(seconds * example.rate)] for name, wave in example.waves.items()}
    duration = max(len(wave) for wave in rows.values()) / example.rate
    spectra = {name: _mel(wave, example.rate) for name, wave in rows.items()}
    peak = max(float(next(iter(spectra.values())).max()), 1e-9)
    height = TOP + len(rows) * (ROW + GAP) - GAP + BOTTOM
    image = Image.new("RGB", (LEFT + PLOT + RIGHT, height), PAPER)
    draw = ImageDraw.Draw(image)
    draw.text((20, 28), _shortened(title or example.text or example.name, 110), INK, _font(20), anchor="lm")
    for index, (name, spectrum) in enumerate(spectra.items()):
        top = TOP + index * (ROW + GAP)
        width = max(1, round(PLOT * len(rows[name]) / example.rate / duration))
        image.paste(_heat_map(decibels(spectrum, peak, DEPTH), width), (LEFT, top))
        _label(draw, top, name, (captions or {}).get(name, ""))
        _frequencies(draw, top, example.rate)
    _time_axis(draw, height - BOTTOM, duration)
    _colour_bar(image, draw, height - 22)
    # The colours of levels and of text fit a palette: the file is half as large and looks the same.
    return image.quantize(palette=_palette(), dither=Image.Dither.NONE)


def _palette() -> Image.Image:
    """224 colours of levels and 32 from paper to ink."""
    text = np.linspace(PAPER, INK, 32).round().astype(np.uint8)
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.concatenate([colourise(np.linspace(0.0, 1.0, 224)), text]).tobytes())
    return palette


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


def _mel(wave: Wave, rate: int) -> npt.NDArray[np.float64]:
    """Windows of about 32 ms every 4 ms: consonants stay apart in time and harmonics in frequency."""
    size = 1 << round(math.log2(0.032 * rate))
    return mel_spectrum(wave, rate, size, max(1, size // 8), BANDS)


def _heat_map(levels: npt.NDArray[np.float64], width: int) -> Image.Image:
    """Levels in dB [frames, bands] -> a picture of width x ROW, low frequencies at the bottom."""
    pixels = Image.fromarray((levels.T[::-1] / DEPTH + 1.0).astype(np.float32))
    stretched = pixels.resize((width, ROW), Image.Resampling.BICUBIC)
    return Image.fromarray(colourise(np.asarray(stretched)))


def _label(draw: ImageDraw.ImageDraw, top: int, name: str, caption: str) -> None:
    """The name, broken before the rate where it does not fit, and the caption below."""
    lines = [name] if draw.textlength(name, _font(19)) < LEFT - 34 else _broken(name)
    middle = top + ROW / 2 - 13 * (len(lines) + bool(caption) - 1)
    for line in lines:
        draw.text((20, middle), line, INK, _font(19), anchor="lm")
        middle += 26
    draw.text((20, middle), caption, FAINT, _font(15), anchor="lm")


def _broken(name: str) -> list[str]:
    words = name.split()
    if len(words) < 3:
        return [_shortened(name, 16)]
    return [_shortened(" ".join(words[:-2]), 16), " ".join(words[-2:])]


def _frequencies(draw: ImageDraw.ImageDraw, top: int, rate: int) -> None:
    """Marks at a few frequencies on the right, where they hide nothing."""
    for hertz in (500, 1000, 2000, 4000, 8000, 16000):
        place = float(hertz_to_mel(hertz) / hertz_to_mel(rate / 2))
        if 0.1 < place < 1.001:
            y = top + ROW * (1 - place)
            draw.line((LEFT + PLOT, y, LEFT + PLOT + 5, y), RULE)
            text = f"{hertz / 1000:g}k" if hertz >= 1000 else str(hertz)
            draw.text((LEFT + PLOT + 10, max(y, top + 6)), text, FAINT, _font(13), anchor="lm")


def _time_axis(draw: ImageDraw.ImageDraw, y: int, duration: float) -> None:
    for second in linear_ticks(0.0, duration, 8):
        x = LEFT + PLOT * second / duration
        draw.line((x, y + 2, x, y + 7), FAINT)
        draw.text((x, y + 18), f"{label(second)} s", FAINT, _font(14), anchor="mm")


def _colour_bar(image: Image.Image, draw: ImageDraw.ImageDraw, y: int) -> None:
    width = 180
    ramp = np.broadcast_to(np.linspace(0.0, 1.0, width), (10, width))
    left = LEFT + PLOT - width - 52
    image.paste(Image.fromarray(colourise(ramp)), (left, y - 5))
    draw.text((left - 8, y), f"-{DEPTH:.0f} dB", FAINT, _font(13), anchor="rm")
    draw.text((left + width + 8, y), "loudest", FAINT, _font(13), anchor="lm")
