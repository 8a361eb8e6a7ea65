"""A line chart as inline SVG; its colours are variables of the page, so that it follows light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from madrigal.judge.ticks import label, linear_ticks, log_ticks

WIDTH, HEIGHT = 880, 340
LEFT, RIGHT, BOTTOM = 62, 18, 46
COLOURS = 6
POINTS = 400


@dataclass(frozen=True)
class Series:
    """A named line: x and y of the same length; y may hold NaN, which leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class _Scale:
    """Maps values of one axis to pixels, evenly or by their logarithm."""

    def __init__(self, low: float, high: float, start: float, end: float, logarithmic: bool) -> None:
        self.logarithmic = logarithmic
        if high <= low:  # a constant line sits in the middle
            low, high = (low / 2, low * 2) if logarithmic else (low - 0.5, high + 0.5)
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.logarithmic else linear_ticks(self.low, self.high)


def thinned(series: Series, points: int = POINTS) -> Series:
    """At most `points` points, each the mean of its neighbours, so that long runs stay small on the page."""
    if len(series.x) <= points:
        return series
    x, y = (np.array_split(np.asarray(values, dtype=np.float64), points) for values in (series.x, series.y))
    finite = [part[np.isfinite(part)] for part in y]
    return Series(
        series.name,
        [float(part.mean()) for part in x],
        [float(part.mean()) if len(part) else math.nan for part in finite],
    )


def line_chart(
    series: Sequence[Series], *, x_label: str = "step", y_label: str = "", logarithmic: bool | None = None
) -> str:
    """An SVG element. Without a word on it, the y axis is logarithmic where values spread over a factor of 30."""
    lines = [thinned(one) for one in series]
    values = [float(y) for one in lines for y in one.y if math.isfinite(y)]
    if not values:
        return '<p class="faint">There is nothing to draw yet.</p>'
    if logarithmic is None or min(values) <= 0:
        logarithmic = min(values) > 0 and max(values) / min(values) > 30
    names = [one.name for one in lines]
    legend, legend_height = _legend(names)
    steps = [float(x) for one in lines for x in one.x]
    across = _Scale(_from_zero(min(steps), max(steps)), max(steps), LEFT, WIDTH - RIGHT, False)
    floor = min(values) if logarithmic else _from_zero(min(values), max(values))
    up = _Scale(floor, max(values), HEIGHT - BOTTOM, legend_height + 16, logarithmic)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(", ".join(names))}">',
        *_axes(across, up, x_label, y_label),
        *legend,
        *(f'<path class="line c{index % COLOURS}" d="{_path(one, across, up)}"/>' for index, one in enumerate(lines)),
        "</svg>",
    ]
    return "".join(parts)


def _from_zero(low: float, high: float) -> float:
    """Start an axis at zero where its values come near it anyway."""
    return 0.0 if 0 < low < high / 3 else low


def _path(series: Series, across: _Scale, up: _Scale) -> str:
    """Move and line commands; a gap starts a new stroke, and a lone point is drawn as a short dash."""
    commands, pen_down = [], False
    for x, y in zip(series.x, series.y):
        if math.isfinite(y):
            commands.append(f"{'L' if pen_down else 'M'}{across(x):.1f} {up(y):.1f}")
        pen_down = math.isfinite(y)
    return "".join(commands) + ("h3" if len(commands) == 1 else "")


def _axes(across: _Scale, up: _Scale, x_label: str, y_label: str) -> list[str]:
    floor = HEIGHT - BOTTOM
    parts = []
    for tick in up.ticks():
        y = up(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label(tick)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {floor}H{WIDTH - RIGHT}"/>')
    for tick in across.ticks():
        x = across(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {floor}v5"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{floor + 19}" text-anchor="middle">{label(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    if y_label:
        turn = f'transform="translate(14 {(up.start + up.end) / 2:.0f}) rotate(-90)"'
        parts.append(f'<text class="tick" {turn} text-anchor="middle">{escape(y_label)}</text>')
    return parts


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    """Names with their colours in rows along the top, and the height that they take."""
    parts, x, y = [], float(LEFT), 14
    for index, name in enumerate(names):
        width = 40 + 6.6 * len(name)  # no font to measure with: the widest that common fonts need
        if x > LEFT and x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + 20
        parts.append(f'<path class="line c{index % COLOURS}" d="M{x:.0f} {y}h16"/>')
        parts.append(f'<text class="name" x="{x + 22:.0f}" y="{y + 4}">{escape(name)}</text>')
        x += width
    return parts, y
