"""The line that a person watches."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from toys import RegressionTrainer, make

from madrigal.engine.machine import environment, matmul_rate, usable_cores
from madrigal.engine.progress import Progress, clock

REDRAW = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    time = [0.0]
    monkeypatch.setattr("madrigal.engine.progress.time.perf_counter", lambda: time[0])
    return time


def stepped(progress: Progress, now: list[float], steps: int, seconds: float) -> None:
    for step in range(1, steps + 1):
        now[0] += seconds
        progress.step(step, {"loss": 0.5 / step}, units=3.0, flops=1e9, machine=1e10)


def test_on_a_terminal_one_line_is_redrawn(now: list[float]) -> None:
    out = Terminal()
    progress = Progress(10, "items", out=out)
    stepped(progress, now, 10, 1.0)
    progress.close()
    text = out.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text.count(REDRAW) == 10
    assert "step 4/10  loss 0.125  3 items/s  10% of matmul rate  0:06 left" in text


def test_elsewhere_plain_lines_come_every_few_seconds(now: list[float]) -> None:
    out = io.StringIO()
    progress = Progress(100, "audio s", seconds=10.0, out=out)
    stepped(progress, now, 100, 1.0)
    progress.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()
    assert lines[0].startswith("step 10/100  loss 0.05  3 audio s/s")
    assert lines[0].endswith("1:30 left")
    assert lines[-1].startswith("step 100/100")


def test_what_is_said_stays_above_the_line(now: list[float]) -> None:
    out = Terminal()
    progress = Progress(3, "items", out=out)
    stepped(progress, now, 2, 1.0)
    progress.say("Resumed")
    assert out.getvalue().endswith(f"{REDRAW}Resumed\n")


def test_time_between_steps_is_no_training_time(now: list[float]) -> None:
    progress = Progress(100, "items", seconds=2.0, out=io.StringIO())
    stepped(progress, now, 1, 1.0)
    now[0] += 1000.0
    progress.restart_clock()
    stepped(progress, now, 2, 1.0)
    assert progress.units_per_second == 3.0


def test_a_run_says_its_steps_and_validations_in_plain_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make(RegressionTrainer, tmp_path, num_train_steps=5).train()
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert any(line.startswith("step 5/5  mse ") and "items/s" in line and "left" in line for line in lines)
    assert any(line.startswith("step 5  valid/mse ") for line in lines)
    assert "\r" not in said.err


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_times_are_written_as_on_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_the_machine_is_measured_alike_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    shapes = []
    product = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: shapes.append(tuple(a.shape)) or product(a[:2, :2], b[:2, :2]))
    for device in ("cpu", "cpu:1"):
        matmul_rate.__wrapped__(device, 32)
    assert set(shapes) == {(1024, 1024)}


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert usable_cores() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert usable_cores() == 2
    assert environment()["cores"] == 2
