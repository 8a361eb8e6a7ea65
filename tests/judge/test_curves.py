from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from madrigal.errors import UserError
from madrigal.judge.chart import HEIGHT, WIDTH, Series, line_chart, thinned
from madrigal.judge.curves import read_curves, select, smoothed


def write(path: Path, *records: object, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


def points(drawing: str) -> list[tuple[float, float]]:
    """All points of the lines in a chart, without those of its legend."""
    paths = [path for path in re.findall(r'class="line c\d" d="([^"]+)"', drawing) if "h16" not in path]
    return [(float(x), float(y)) for path in paths for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path)]


def test_names_become_lines_over_steps(tmp_path: Path) -> None:
    write(
        tmp_path / "metrics.jsonl",
        {"step": 10, "time": 1.0, "loss": 3.0, "generator/mel": 2.0},
        {"step": 20, "time": 2.0, "loss": 2.0, "valid/mel": 1.5, "note": "text", "flag": True},
    )
    curves = read_curves(tmp_path)
    assert list(curves) == ["loss", "generator/mel", "valid/mel"]
    assert curves["loss"] == Series("loss", [10, 20], [3.0, 2.0])
    assert read_curves(tmp_path / "metrics.jsonl") == curves


def test_a_resumed_run_counts_each_step_as_written_last(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.jsonl",
        *({"step": step, "loss": loss} for step, loss in [(1, 5.0), (2, 4.0), (3, 9.0), (2, 4.5), (3, 3.0)]),
    )
    assert read_curves(path)["loss"] == Series("loss", [1, 2, 3], [5.0, 4.5, 3.0])


def test_half_a_line_and_other_rubbish_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", [1], {"loss": 1.0}, {"step": 1, "loss": 2.0}, tail='\n{"step": 2, "lo')
    assert read_curves(path)["loss"].y == [2.0]


@pytest.mark.parametrize("nothing", [math.nan, None])
def test_what_is_no_finite_number_stays_as_a_gap(tmp_path: Path, nothing: float | None) -> None:
    path = write(tmp_path / "m.jsonl", *({"step": step, "loss": nothing if step == 2 else 1.0} for step in range(4)))
    loss = read_curves(path)["loss"]
    assert math.isnan(loss.y[2])
    assert line_chart([loss]).count("M", line_chart([loss]).rindex('class="line')) == 2


def test_a_run_without_metrics_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name the folder of a run"):
        read_curves(tmp_path)


def test_lines_are_chosen_by_pattern_each_once() -> None:
    curves = {name: Series(name, [0], [1.0]) for name in ("loss", "valid/mel", "valid/stft")}
    assert [one.name for one in select(curves, ["valid/*", "loss", "*"])] == ["valid/mel", "valid/stft", "loss"]


def test_smoothing_keeps_a_constant_and_calms_noise() -> None:
    assert smoothed(Series("a", range(5), [2.0] * 5), 3).y == pytest.approx([2.0] * 5)
    jumpy = smoothed(Series("a", range(100), [index % 2 for index in range(100)]), 20)
    assert 0.4 < min(jumpy.y[50:]) < max(jumpy.y[50:]) < 0.6
    assert not math.isnan(smoothed(Series("a", [0, 1], [1.0, math.nan]), 3).y[1])


def test_long_lines_are_thinned_by_means() -> None:
    long = thinned(Series("a", range(10_000), [float(index) for index in range(10_000)]), 100)
    assert len(long.x) == 100
    assert list(long.x) == list(long.y)


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [0.001, 50.0, 3.0], [-1.0, 0.0, 4.0], [2.0, 2.0, 2.0], [7.0]])
def test_all_points_lie_inside_of_the_chart(values: list[float]) -> None:
    drawn = points(line_chart([Series("a", range(len(values)), values)]))
    assert len(drawn) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in drawn)


def test_higher_values_are_drawn_higher_and_wide_spreads_by_their_logarithm() -> None:
    heights = [y for _, y in points(line_chart([Series("a", [0, 1, 2], [1.0, 10.0, 100.0])]))]
    assert heights[0] > heights[1] > heights[2]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


def test_nothing_to_draw_is_said() -> None:
    assert "nothing to draw" in line_chart([Series("a", [0], [math.nan])])
    assert "nothing to draw" in line_chart([])


def test_many_names_wrap_into_rows_of_the_legend() -> None:
    drawing = line_chart([Series(f"discriminator/scale_{index}/loss", [0, 1], [1.0, 2.0]) for index in range(9)])
    rows = set(re.findall(r'class="name" x="\d+" y="(\d+)"', drawing))
    assert len(rows) > 1
