"""Small codecs and recordings for the tests of `compress` and `decompress`."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.container import Reader

TINY: dict[str, Any] = {
    "target_sample_hz": 8000,
    "strides": (2, 4, 5),
    "channels": 4,
    "channel_mults": (1, 2, 2),
    "codebook_dim": 8,
    "codebook_size": 32,
    "rq_num_quantizers": 4,
    "attn_heads": 2,
    "attn_dim_head": 4,
    "attn_window_size": 8,
    "spectral_dim": 8,
    "spectral_depth": 1,
}
SPECTRAL = {"frontend": "stft", "head": "istft"}


def build(seed: int = 0, **options: Any) -> SoundStream:
    torch.manual_seed(seed)
    return SoundStream(discriminators=False, **{**TINY, **options})


def sound(samples: int, channels: int = 1, rate: int = 8000) -> np.ndarray:
    """Tones of its own for each channel, [samples, channels]."""
    time = np.arange(samples)[:, None] / rate
    return 0.4 * np.sin(2 * np.pi * (300 + 170 * np.arange(channels)) * time * (1 + 0.1 * time))


def recorded(path: Path, samples: int, channels: int = 1, rate: int = 8000, subtype: str = "PCM_16") -> Path:
    soundfile.write(path, sound(samples, channels, rate), rate, subtype=subtype)
    return path


def codes_in(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return np.concatenate(list(Reader(file, path).blocks()), axis=1)


@contextmanager
def disk_with_room_for(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
