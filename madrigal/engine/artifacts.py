"""Things that a person can hear, look at or read, and how they are written."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image
from torch import Tensor

from madrigal.engine.run import writing


@dataclass(frozen=True)
class Audio:
    """A wave [channels, samples] or [samples] at `sample_rate`."""

    wave: Tensor
    sample_rate: int

    def write(self, stem: Path) -> Path:
        path = stem.with_name(stem.name + ".wav")
        wave = np.atleast_2d(self.wave.detach().float().cpu().numpy()).clip(-1.0, 1.0)
        encoded = io.BytesIO()  # libsndfile would not say that a disk is full
        soundfile.write(encoded, wave.T, self.sample_rate, format="WAV")
        path.write_bytes(encoded.getvalue())
        return path


@dataclass(frozen=True)
class Picture:
    """An image [3, height, width] with values in 0 … 1."""

    pixels: Tensor

    def write(self, stem: Path) -> Path:
        path = stem.with_name(stem.name + ".png")
        pixels = (self.pixels.detach().float().cpu().clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
        Image.fromarray(pixels.numpy()).save(path)
        return path


@dataclass(frozen=True)
class Text:
    """Words."""

    text: str

    def write(self, stem: Path) -> Path:
        path = stem.with_name(stem.name + ".txt")
        path.write_text(self.text + "\n")
        return path


Artifact = Audio | Picture | Text

Sample = dict[str, Artifact]
"""What belongs to one item, by name; `original` is written once, the rest online and averaged."""
ORIGINAL = "original"


def write_samples(folder: Path, online: list[Sample], averaged: list[Sample] | None = None) -> list[Path]:
    """N samples in, N samples out: `000-original.wav`, `000-reconstruction.wav`, `000-reconstruction-ema.wav`."""
    named = {f"{number:03d}-{name}": a for number, sample in enumerate(online) for name, a in sample.items()}
    for number, sample in enumerate(averaged or []):
        named |= {f"{number:03d}-{name}-ema": a for name, a in sample.items() if name != ORIGINAL}
    if not named:
        return []
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return [artifact.write(folder / name) for name, artifact in named.items()]
