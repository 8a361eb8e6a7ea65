"""A picture of a recording: time from left to right, mels from bottom to top."""

import io
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

SECONDS, HEIGHT, WIDTH = 30.0, 128, 600
_SIZE = 1024
# From dark to light, the same way in grey: readable without colours.
_COLOURS = np.array([[10, 8, 40], [80, 18, 110], [185, 55, 95], [250, 140, 40], [252, 250, 190]], np.float32)


def spectrogram(file: Path) -> bytes:
    """PNG of the first seconds of a sound file."""
    with soundfile.SoundFile(file) as opened:
        rate = opened.samplerate
        sound = opened.read(int(SECONDS * rate), dtype="float32", always_2d=True).mean(1)
    hop = max(64, len(sound) // WIDTH)
    padded = np.pad(np.nan_to_num(sound), (_SIZE // 2, _SIZE))
    starts = range(0, max(1, len(sound)), hop)
    frames = np.stack([padded[at : at + _SIZE] for at in starts]) * np.hanning(_SIZE)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    mels = np.log10(power @ _filters(rate).T + 1e-8)
    top = float(mels.max())
    level = np.clip((mels - (top - 7.0)) / 7.0, 0.0, 1.0).T[::-1] * (len(_COLOURS) - 1)
    below = np.minimum(level.astype(int), len(_COLOURS) - 2)
    share = (level - below)[..., None]
    pixels = _COLOURS[below] * (1 - share) + _COLOURS[below + 1] * share
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


def _filters(rate: int) -> np.ndarray:
    """Triangles [mels, bins], evenly spaced on the mel scale."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, HEIGHT + 2) / 2595) - 1)
    bins = np.linspace(0, rate / 2, _SIZE // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)
