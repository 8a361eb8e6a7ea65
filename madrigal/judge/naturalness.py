"""How good does it sound: the score that listeners would give, 1 (bad) to 5 (excellent), guessed by a network.

No listener was asked, and the network rates clean synthetic speech above real recordings of a telephone line: that is
no better than human. It is for comparing ways to say the same sentences, never alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.report import LeftOut
from madrigal.judge.signals import mono, resample

FEATURE = "distillmos"
WEIGHTS = "weights/distill_mos_v7.pt"
RATE = 16_000
SHORTEST = 0.1
"""Seconds under which nothing can be told."""
WORST = 1.0


class Listener(Protocol):
    """Anything that says how good a wave [channels, samples] sounds."""

    @property
    def told(self) -> str: ...

    def score(self, wave: Any, rate: int) -> float: ...


class NaturalnessJudge:
    """Distill-MOS: waves [channels, samples] or [samples] at any rate -> a mean opinion score, 1 to 5."""

    def __init__(self, weights: str | os.PathLike[str] | None = None) -> None:
        path = find_weights() if weights is None else Path(weights)
        if path is None:
            raise packages.MissingPackage(FEATURE)
        self.path = path
        self._network = _load(path)

    @property
    def told(self) -> str:
        """A note for the report: figures of other weights are other figures."""
        return f"Weights of Distill-MOS: {packages.fingerprint(self.path)}."

    def score(self, wave: Any, rate: int) -> float:
        """Silence is the worst there is; NaN where the wave is broken or shorter than 0.1 s."""
        sound = resample(mono(wave)[None], rate, RATE)[0]
        if len(sound) < SHORTEST * RATE or not np.isfinite(sound).all():
            return math.nan
        return float(self._network.score(sound)) if sound.any() else WORST


def find_weights() -> Path | None:
    """Where the installed package keeps its weights; None without the package."""
    return packages.file_of(FEATURE, WEIGHTS)


def find_naturalness() -> NaturalnessJudge | None:
    """The judge, where its weights are installed."""
    return None if find_weights() is None else NaturalnessJudge()


def naturalness_left_out(listener: Listener | None) -> list[LeftOut]:
    """What a report says where there is no judge."""
    missing = LeftOut(measure="Scores of naturalness", install=packages.PACKAGES[FEATURE].install)
    return [] if listener is not None else [missing]


def scores(
    listener: Listener, names: Sequence[str], waves: Sequence[Any], rate: int, label: str, advance: Callable[[str], Any]
) -> list[float]:
    """The score of every wave; `advance` is told which one is done, and its `label`."""
    found = []
    for name, wave in zip(names, waves, strict=True):
        found.append(listener.score(wave, rate))
        advance(f"{label}, naturalness of {name}")
    return found


def _load(path: Path) -> Any:
    """The network. Its file is somebody else's pickle: only tensors are read from it."""
    import torch  # here, so that metrics that need no network start without it

    from madrigal.judge.distill_mos import DistillMos

    try:
        return DistillMos(torch.load(path, map_location="cpu", weights_only=True)["model"])
    except Exception as error:  # a damaged file raises whatever the reader stumbled over
        raise UserError(
            f"The weights of Distill-MOS in {path} do not load ({type(error).__name__}): install them again "
            f"with `{packages.PACKAGES[FEATURE].install}`."
        ) from error
