"""The metrics of a run, read from its metrics.jsonl into lines for a chart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from madrigal.errors import UserError
from madrigal.judge.chart import Series

FILE = "metrics.jsonl"
BOOKKEEPING = frozenset(["step", "time"])


def read_curves(run: str | os.PathLike[str]) -> dict[str, Series]:
    """Name -> line over steps, from a run's folder or from the file itself, names in the order of their first use.

    A step that was written twice (a run that was resumed) counts as it was written last. Half a last line, left by a
    kill, is passed over; so is what is no number. Null, NaN and infinities are gaps in a chart.
    """
    path = Path(run)
    path = path / FILE if path.is_dir() else path
    points: dict[str, dict[int, float]] = {}
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for record in _records(lines):
                for name, value in record.items():
                    value = float("nan") if value is None else value
                    if name not in BOOKKEEPING and isinstance(value, (int, float)) and not isinstance(value, bool):
                        points.setdefault(name, {})[record["step"]] = float(value)
    except OSError as error:
        raise UserError(
            f"There are no metrics to read at {path} ({error.strerror}): name the folder of a run."
        ) from error
    return {name: _series(name, values) for name, values in points.items()}


def _records(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            yield record


def _series(name: str, values: dict[int, float]) -> Series:
    steps = sorted(values)
    return Series(name, steps, [values[step] for step in steps])


def select(curves: dict[str, Series], patterns: Sequence[str]) -> list[Series]:
    """The lines whose names match one of the patterns ("valid/*"), in the order of the patterns, each once."""
    names = [name for pattern in patterns for name in curves if fnmatchcase(name, pattern)]
    return [curves[name] for name in dict.fromkeys(names)]


def curves_of_parts(run: Path, losses: Mapping[str, str]) -> list[Series]:
    """The loss of every part that a run has trained itself, on what it had not seen; `losses` names them by part."""
    lines: list[Series] = []
    for part, loss in losses.items():
        if (run / part / FILE).is_file():
            found = select(read_curves(run / part), (f"valid/ema/{loss}", f"valid/{loss}"))
            lines += [Series(part, line.x, line.y) for line in found[:1]]
    return lines


def smoothed(series: Series, span: int) -> Series:
    """A running mean over the last `span` points, as exponential weights with an unbiased start; gaps are kept out."""
    keep = 1.0 - 1.0 / max(1, span)
    total, weight, means = 0.0, 0.0, []
    for value in series.y:
        if value == value and abs(value) != float("inf"):
            total, weight = keep * total + value, keep * weight + 1.0
        means.append(total / weight if weight else float("nan"))
    return Series(series.name, series.x, means)
