"""A run that is killed and resumed, again and again, ends as the run that nobody touched."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

STEPS = 40
KILLS = 20


def command(recordings: Path, run: Path, *more: str) -> list[str]:
    overrides = [
        f"data={recordings}",
        f"plan.num_train_steps={STEPS}",
        "plan.save_model_every=2",
        "plan.save_results_every=8",
        "plan.grad_accum_every=2",
        "plan.ema_update_every=2",
        "plan.num_samples=1",
    ]
    return [sys.executable, "-m", "madrigal.cli", "train", "soundstream/tiny", *overrides, "--run", str(run), *more]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def unbroken(recordings: Path, run: Path) -> Path:
    subprocess.run(command(recordings, run), env=environment(), check=True, capture_output=True)
    return run / "checkpoints" / f"step-{STEPS:08d}"


def assert_same_end(expected: Path, found: Path) -> None:
    for name in ("model", "ema", "optimizer"):
        left, right = load_file(expected / f"{name}.safetensors"), load_file(found / f"{name}.safetensors")
        assert left.keys() == right.keys()
        for key, tensor in left.items():
            assert torch.equal(tensor, right[key]), f"{name}: {key}"


def logged(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def kill_inside_a_write(process: subprocess.Popen[bytes], run: Path) -> bool:
    """Wait until this process writes a checkpoint and kill it there; true when it left one half written."""
    mine = f".partial-*-{process.pid}"
    while process.poll() is None and not list((run / "checkpoints").glob(mine)):
        time.sleep(0.0005)
    process.kill()
    process.wait()
    return bool(list((run / "checkpoints").glob(mine)))


def kill_amid_steps(process: subprocess.Popen[bytes], run: Path, delay: float) -> bool:
    """Wait until this process has taken a step, and a while longer."""
    fewest = lines = logged(run)
    while process.poll() is None and lines <= fewest:  # a resume drops lines before it adds some
        time.sleep(0.002)
        lines = logged(run)
        fewest = min(fewest, lines)
    time.sleep(delay)
    process.kill()
    process.wait()
    return False


@pytest.mark.slow
def test_X3_killed_twenty_times_ends_bit_identical(recordings: Path, tmp_path: Path) -> None:
    expected = unbroken(recordings, tmp_path / "unbroken")
    run = tmp_path / "killed"
    rng = random.Random(7)
    half_written = 0
    for number in range(KILLS):
        process = subprocess.Popen(
            command(recordings, run, "--resume"),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        delay = rng.uniform(0.0, 0.4)
        half_written += kill_inside_a_write(process, run) if number % 2 else kill_amid_steps(process, run, delay)
    assert half_written >= 5, "too few kills fell into a checkpoint's write"
    subprocess.run(command(recordings, run, "--resume"), env=environment(), check=True, capture_output=True)
    assert_same_end(expected, run / "checkpoints" / expected.name)
    assert not list((run / "checkpoints").glob(".partial-*"))


@pytest.mark.slow
def test_stopped_by_sigterm_ends_bit_identical(recordings: Path, tmp_path: Path) -> None:
    expected = unbroken(recordings, tmp_path / "unbroken")
    run = tmp_path / "stopped"
    process = subprocess.Popen(command(recordings, run), env=environment(), stderr=subprocess.PIPE, text=True)
    while not list((run / "checkpoints").glob("step-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0
    assert "--resume" in said
    assert not (run / "checkpoints" / expected.name).exists()
    subprocess.run(command(recordings, run, "--resume"), env=environment(), check=True, capture_output=True)
    assert_same_end(expected, run / "checkpoints" / expected.name)
