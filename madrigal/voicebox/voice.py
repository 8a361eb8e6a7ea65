"""A voice: some seconds of somebody's speech as features, with the symbols that are said in it where they are known."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from madrigal.data.token_writing import write_whole
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.voicebox.expand import crop, expand

VOICES = "voices"
"""The folder of a run, or of an exported one, that holds voices by name."""
ENDING = ".safetensors"


@dataclass(frozen=True)
class Voice:
    """Features [frames, dim], and symbols and durations [symbols] that add up to the frames, or None.

    `fingerprint` is that of the features, so that a voice never meets a model of others. `about` is what its file
    tells of it: its text, its speaker, its licence, how many seconds of the speaker were learned from.
    """

    features: Tensor
    fingerprint: str
    symbols: Tensor | None = None
    durations: Tensor | None = None
    about: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if (self.symbols is None) != (self.durations is None):
            raise ValueError("A voice has symbols and durations, or neither.")
        if self.durations is not None and int(self.durations.sum()) != len(self.features):
            raise ValueError(f"The durations last {int(self.durations.sum())} of {len(self.features)} frames.")

    @property
    def ids(self) -> Tensor:
        """[frames], -1 where nobody knows what is said."""
        if self.symbols is None or self.durations is None:
            return torch.full((len(self.features),), PAD)
        return expand(self.symbols[None], self.durations[None])[0]

    def first(self, frames: int, silence: int | None = None) -> Self:
        """The voice up to so many frames; where the symbols are known, up to the end of a word.

        What is said after it begins with a pause of its own.
        """
        end = min(frames, len(self.features))
        if self.symbols is None or self.durations is None:
            return type(self)(self.features[:end], self.fingerprint, about=self.about)
        starts = self.durations.cumsum(0) - self.durations
        pauses = starts[(self.symbols == silence) & (starts <= end) & (starts > end // 2)]
        end = int(pauses[-1]) if len(pauses) else end
        symbols, durations = crop(self.symbols, self.durations, 0, end)
        return type(self)(self.features[:end], self.fingerprint, symbols, durations, self.about)

    def save(self, path: str | Path) -> None:
        """A file of safetensors: the features in half precision, which is finer than they are heard."""
        tensors = {"features": self.features.half()}
        if self.symbols is not None and self.durations is not None:
            tensors |= {"symbols": self.symbols.int(), "durations": self.durations.int()}
        told = {"fingerprint": self.fingerprint, "about": json.dumps(self.about or {}, ensure_ascii=False)}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(path), save({name: t.cpu().contiguous() for name, t in tensors.items()}, told))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` has written."""
        try:
            with safe_open(path, framework="pt") as file:
                told = file.metadata() or {}
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            symbols, durations = (found[name].long() if name in found else None for name in ("symbols", "durations"))
            about = json.loads(told.get("about", "{}"))
            return cls(found["features"].float(), told["fingerprint"], symbols, durations, about)
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UserError(f"{path} holds no voice ({error}); take another one, or make it anew.") from error


def voice_files(folder: Path) -> dict[str, Path]:
    """The voices of a run or an exported folder by name: who has spoken longest in the data first, others by name."""
    files = sorted((folder / VOICES).glob(f"*{ENDING}"), key=lambda file: (-_seconds(file), file.name))
    return {file.name.removesuffix(ENDING): file for file in files}


def _seconds(file: Path) -> float:
    """Of the speaker in the data, as the file tells; nothing of one that does not, or that is damaged."""
    try:
        with safe_open(file, framework="pt") as opened:
            return float(json.loads((opened.metadata() or {}).get("about", "{}")).get("seconds", 0.0))
    except (OSError, SafetensorError, ValueError, AttributeError):
        return 0.0
