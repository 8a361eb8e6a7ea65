"""A run that is killed and resumed, again and again, ends as the run that nobody touched."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

STEPS = 24
KILLS = 20


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        soundfile.write(folder / f"{number}.wav", 0.1 * rng.standard_normal(12000), 16000)
    return folder


def command(recordings: Path, run: Path, *more: str) -> list[str]:
    overrides = [
        f"data={recordings}",
        f"plan.num_train_steps={STEPS}",
        "plan.save_model_every=2",
        "plan.save_results_every=6",
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


def kill_inside_a_write(process: subprocess.Popen[bytes], checkpoints: Path) -> None:
    while process.poll() is None and not list(checkpoints.glob(".partial-*")):
        time.sleep(0.0005)
    process.kill()


@pytest.mark.slow
def test_X3_killed_twenty_times_ends_bit_identical(recordings: Path, tmp_path: Path) -> None:
    expected = unbroken(recordings, tmp_path / "unbroken")
    run = tmp_path / "killed"
    checkpoints = run / "checkpoints"
    rng = random.Random(7)
    left_in_a_write = 0
    for number in range(KILLS):
        process = subprocess.Popen(
            command(recordings, run, "--resume"),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if number % 2:
            kill_inside_a_write(process, checkpoints)
        else:
            time.sleep(rng.uniform(0.1, 6.0))
            process.kill()
        process.wait()
        left_in_a_write += bool(list(checkpoints.glob(".partial-*")))
    assert left_in_a_write > 0, "no kill fell into a checkpoint's write"
    subprocess.run(command(recordings, run, "--resume"), env=environment(), check=True, capture_output=True)
    assert_same_end(expected, checkpoints / expected.name)
    assert not list(checkpoints.glob(".partial-*"))


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
