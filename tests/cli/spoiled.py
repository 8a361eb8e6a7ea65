"""Recordings that cannot be used, each for a reason of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

RATE = 16_000


def voice(seconds: float = 0.6, pitch: float = 150.0, channels: int = 1) -> np.ndarray:
    """Something with overtones and breath, [samples, channels]."""
    time = np.arange(round(seconds * RATE)) / RATE
    tones = sum(np.sin(2 * np.pi * pitch * overtone * time) / overtone for overtone in range(1, 8))
    breath = np.random.default_rng(int(pitch)).standard_normal(len(time))
    return np.repeat((0.2 * tones + 0.02 * breath)[:, None], channels, axis=1).astype(np.float32)


def cut(path: Path, part: float = 0.5) -> None:
    """Take the end off a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])


def _text(path: Path) -> None:
    path.write_text("This is no recording.\n" * 50)


def _truncated(path: Path) -> None:
    soundfile.write(path, voice(), RATE)
    cut(path)


def _long_and_truncated(path: Path) -> None:
    soundfile.write(path, voice(4), RATE)  # what comes before the sound is some kilobytes already
    cut(path)


def _only_a_header(path: Path) -> None:
    soundfile.write(path, voice(), RATE)
    path.write_bytes(path.read_bytes()[:30])


def _not_a_number(path: Path) -> None:
    wave = voice()
    wave[1000:1010] = np.nan
    soundfile.write(path, wave, RATE, subtype="FLOAT")


def _infinite(path: Path) -> None:
    wave = voice()
    wave[-1] = np.inf
    soundfile.write(path, wave, RATE, subtype="DOUBLE")


SPOILED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "text.wav": ("not audio", _text),
    "text.flac": ("not audio", _text),
    "truncated.wav": ("truncated", _truncated),
    "truncated.flac": ("truncated", _truncated),
    "truncated.ogg": ("truncated", _long_and_truncated),
    "header.wav": ("unreadable", _only_a_header),
    "nan.wav": ("NaN samples", _not_a_number),
    "infinite.wav": ("NaN samples", _infinite),
    "no_bytes.wav": ("empty", lambda path: path.write_bytes(b"")),
    "no_samples.wav": ("empty", lambda path: soundfile.write(path, voice(0.0), RATE)),
    "one_hertz.wav": ("sample rate outside 4 kHz to 768 kHz", lambda path: soundfile.write(path, voice(), 1)),
    "eight_channels.wav": ("more than 2 channels", lambda path: soundfile.write(path, voice(channels=8), RATE)),
    "silent.wav": ("silent", lambda path: soundfile.write(path, 0 * voice(), RATE)),
    "short.wav": ("shorter than 0.1 s", lambda path: soundfile.write(path, voice(0.05), RATE)),
}
"""File name to the reason that is counted, and what writes such a file."""

NOT_COMPRESSED = [name for name in SPOILED if name not in ("silent.wav", "short.wav")]
"""Silence and a short sound are nothing to learn from, but there is no reason not to compress them."""


def spoil(folder: Path, *names: str) -> list[Path]:
    """Write the named files, or one of every kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or SPOILED:
        SPOILED[name][1](folder / name)
    return [folder / name for name in names or SPOILED]


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Change one bit of a file; a negative position counts from its end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
