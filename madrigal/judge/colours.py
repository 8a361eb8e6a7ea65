"""A colour map for levels: dark to light in even steps of perceived lightness, readable in grey and when printed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ANCHORS: tuple[tuple[float, tuple[int, int, int]], ...] = (
    (0.000, (7, 7, 18)),
    (0.117, (30, 20, 66)),
    (0.225, (62, 28, 112)),
    (0.319, (103, 34, 134)),
    (0.405, (148, 42, 131)),
    (0.501, (193, 59, 112)),
    (0.602, (229, 91, 82)),
    (0.712, (249, 138, 58)),
    (0.827, (252, 190, 82)),
    (0.940, (253, 234, 160)),
    (1.000, (255, 252, 226)),
)
"""(position, colour): each position is where its colour's lightness (OKLab) falls between black and white here."""


def colourise(values: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Values from 0 to 1 (others are clipped) of any shape -> the same shape with a last axis of RGB bytes."""
    levels = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    positions = [position for position, _ in ANCHORS]
    channels = [np.interp(levels, positions, [colour[channel] for _, colour in ANCHORS]) for channel in range(3)]
    return np.asarray(np.round(np.stack(channels, axis=-1)), dtype=np.uint8)
