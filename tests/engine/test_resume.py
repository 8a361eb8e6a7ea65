"""A run that is killed or stopped at any instant and resumed ends as one that was never broken."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
from processes import Nursery
from toys import assert_identical, saved_state

from madrigal.engine.checkpoint import checkpoints, read_state

STEPS = 18
OPTIONS = {
    "num_train_steps": STEPS,
    "save_model_every": 3,
    "keep_checkpoints": 2,
    "grad_accum_every": 2,
    "best_metric": "valid/mse",
}
LAST = f"checkpoints/step-{STEPS:08d}"


@pytest.fixture(scope="module")
def unbroken(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    training = nursery.start(folder, **OPTIONS)
    assert training.end() == 0, training.said
    return folder


def assert_same_end(run: Path, unbroken: Path) -> None:
    """Weights, average and moments to the bit, the same figures, and no step twice or missing."""
    assert_identical(saved_state(run / LAST), saved_state(unbroken / LAST))
    lines = [read_metrics(folder) for folder in (run, unbroken)]
    for kind in ("generator/loss", "valid/mse"):
        steps, expected = ([(line["step"], line[kind]) for line in folder if kind in line] for folder in lines)
        assert steps == expected
    assert [line["step"] for line in lines[0] if "generator/loss" in line] == list(range(1, STEPS + 1))
    ends = [read_state(folder / LAST) for folder in (run, unbroken)]
    assert ends[0]["turns"] == ends[1]["turns"]
    assert ends[0]["best"] == ends[1]["best"]
    kept = [[p.name for p in checkpoints(folder / "checkpoints")] for folder in (run, unbroken)]
    assert kept[0][-2:] == kept[1][-2:]


def read_metrics(run: Path) -> list[dict[str, float]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_X3_a_run_killed_inside_its_writes_ends_like_an_unbroken_one(
    nursery: Nursery, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # Seven syncs a checkpoint: five files, the folder, and after the rename the folder above. From the second
    # checkpoint on an older one is removed as well.
    places = [("fsync", 1), ("fsync", 6), ("fsync", 7), ("rename", 1), ("rmtree", 2), ("fsync", 11), ("rename", 4)]
    for place in places:
        before = {p.name for p in checkpoints(run / "checkpoints")}
        training = nursery.start(run, hang=place, **OPTIONS)
        training.wait_until_it_hangs()
        assert training.end(signal.SIGKILL) == -signal.SIGKILL
        left = checkpoints(run / "checkpoints")
        assert not before or left
        assert all(read_state(path)["step"] == int(path.name[5:]) for path in left), "a half checkpoint has its name"
    training = nursery.start(run, **OPTIONS)
    assert training.end() == 0, training.said
    assert_same_end(run, unbroken)
    assert not [p for p in (run / "checkpoints").iterdir() if not p.name.startswith("step-")]


def test_X3_a_run_killed_at_random_instants_ends_like_an_unbroken_one(
    nursery: Nursery, unbroken: Path, tmp_path: Path
) -> None:
    run, chance = tmp_path / "run", random.Random(2)
    kills = 0
    for _ in range(8):
        # So many lines from now, whatever the machine's speed, and then somewhere in what follows them.
        lines = len(read_metrics_lines(run)) + chance.randrange(5)
        training = nursery.start(run, pause=0.01, **OPTIONS)
        training.wait_for(lambda lines=lines: len(read_metrics_lines(run)) > lines or (run / LAST).exists())
        time.sleep(0.05 * chance.random())
        kills += training.end(signal.SIGKILL) == -signal.SIGKILL
    training = nursery.start(run, **OPTIONS)
    assert training.end() == 0, training.said
    assert kills >= 4
    assert_same_end(run, unbroken)


def read_metrics_lines(run: Path) -> list[str]:
    path = run / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_saves_says_how_to_go_on_and_leaves_with_status_0(
    nursery: Nursery, unbroken: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    training = nursery.start(run, pause=0.05, **OPTIONS)
    training.wait_for(lambda: len(read_metrics_lines(run)) >= 4)
    assert training.end(number) == 0, training.said
    (step,) = [int(word) for line in training.said.splitlines() for word in _stopped_at(line)]
    assert f"go on with --resume --run {run}" in training.said
    assert "Traceback" not in training.said
    assert checkpoints(run / "checkpoints")[-1].name == f"step-{step:08d}"
    assert 4 <= step < STEPS
    training = nursery.start(run, **OPTIONS)
    assert training.end() == 0, training.said
    assert f"Resumed {run} at step {step}" in training.said
    assert_same_end_but_for_the_stop(run, unbroken)


def _stopped_at(line: str) -> list[str]:
    return [line.removeprefix("Stopped at step ").partition(";")[0]] if line.startswith("Stopped at step") else []


def assert_same_end_but_for_the_stop(run: Path, unbroken: Path) -> None:
    assert_identical(saved_state(run / LAST), saved_state(unbroken / LAST))
    assert [line["step"] for line in read_metrics(run) if "generator/loss" in line] == list(range(1, STEPS + 1))


def test_a_second_signal_stops_at_once(nursery: Nursery, tmp_path: Path) -> None:
    run = tmp_path / "run"
    training = nursery.start(run, hang=("fsync", 8), **OPTIONS)
    training.wait_until_it_hangs()
    training.signal(signal.SIGTERM)
    training.wait_for(lambda: "once more to stop at once" in training.said)
    assert training.end(signal.SIGTERM) == 1
    assert "KeyboardInterrupt" in training.said
    assert [p.name for p in checkpoints(run / "checkpoints")] == ["step-00000003"]


def test_a_run_killed_before_its_first_checkpoint_begins_again_at_step_0(
    nursery: Nursery, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training = nursery.start(run, hang=("fsync", 1), **OPTIONS)
    training.wait_until_it_hangs()
    training.end(signal.SIGKILL)
    assert len(read_metrics(run)) == 3
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "gener')
    training = nursery.start(run, **OPTIONS)
    assert training.end() == 0
    assert "holds no checkpoint yet: starting at step 0" in training.said
    assert_same_end(run, unbroken)
