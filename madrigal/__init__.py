"""Madrigal trains, runs and judges generative models of sound and image.

The public classes load on first use, so that `import madrigal` stays light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "SoundStream": "madrigal.soundstream.codec",
    "AudioLMSoundStream": "madrigal.soundstream.codec",
    "MusicLMSoundStream": "madrigal.soundstream.codec",
    "SoundStreamTrainer": "madrigal.soundstream.trainer",
    "SoundDataset": "madrigal.data.dataset",
    "UserError": "madrigal.errors",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'madrigal' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
