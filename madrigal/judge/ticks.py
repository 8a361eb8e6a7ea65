"""Round numbers for the marks of an axis."""

from __future__ import annotations

import math


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` multiples of 1, 2 or 5 times a power of ten, all from low to high."""
    if not high > low:
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high, with 2 and 5 times them or finer steps where those would be under three."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5)):
        marks = [factor * 10.0**exponent for exponent in exponents for factor in factors]
        inside = [mark for mark in marks if low * 0.999 <= mark <= high * 1.001]
        if len(inside) >= 3:
            return inside
    return linear_ticks(low, high)


def label(value: float) -> str:
    """A tick as a person writes it: 0.05, 2.5, 1,500, 20k, 3M."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:g}M"
    if size >= 1e4:
        return f"{value / 1e3:g}k"
    if size >= 1e3:
        return f"{value:,.0f}"
    return f"{value:.4g}" if size >= 1e-4 or size == 0 else f"{value:.0e}"
