"""Trainings that the studio starts are processes of their own: it may be killed, and they go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import soundfile
from fastapi import FastAPI
from starlette.testclient import TestClient

STEPS = 40
LAUGHS = "[" + ", ".join(["&a0 [x]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]) + "]"
"""A few hundred bytes that stand for more words than any machine holds."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora") / "tones"
    folder.mkdir()
    for number in range(6):
        wave = 0.3 * np.sin(np.arange(16_000) * (0.02 + 0.01 * number))
        soundfile.write(folder / f"{number}.wav", wave.astype(np.float32), 16_000)
    return folder


@pytest.fixture
def controlled(make_app: Callable[..., FastAPI], recordings: Path) -> Iterator[TestClient]:
    app = make_app(control=True, data_roots=(recordings.parent,))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def wait_for(what: Callable[[], Any], seconds: float = 240.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.1)
    return found


def test_without_control_nothing_is_started(client: TestClient) -> None:
    for answer in (
        client.post("/api/runs", json={"recipe": "soundstream/tiny", "name": "x"}),
        client.post("/api/runs/stopped/resume"),
        client.post("/api/runs/stopped/stop"),
    ):
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "no_control"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"recipe": "../../etc/passwd"}, 400),
        ({"recipe": "soundstream/nothing"}, 400),
        ({"name": "../out"}, 400),
        ({"name": "/tmp/out"}, 400),
        ({"name": "codec"}, 409),
        ({"name": ""}, 400),
        ({"overrides": ["data=/etc"]}, 400),
        ({"overrides": ["data=../../etc"]}, 400),
        ({"overrides": ["data={path: /etc}"]}, 400),
        ({"overrides": ["data.valid_path=/"]}, 400),
        ({"overrides": ["--overwrite"]}, 400),
        ({"overrides": ["plan.lr=1\nx"]}, 400),
        ({"overrides": ["plan.lr"]}, 400),
        ({"overrides": ["plan.lr.a.b=1"]}, 400),
        ({"overrides": ["plan.lr=&a [*a]"]}, 400),
        ({"overrides": ["plan.lr=" + LAUGHS]}, 400),
        ({"overrides": ["plan.lr=" + "[" * 900 + "]" * 900]}, 400),
        ({"name": "codec/checkpoints/step-99999999"}, 400),
        ({"name": "codec/part"}, 400),
        ({"name": "group/other/x"}, 400),
        ({"name": "voices/x"}, 400),
        ({"name": "listening/x"}, 400),
    ],
)
def test_what_must_not_be_started_is_not(
    controlled: TestClient, root: Path, changes: dict[str, Any], status: int
) -> None:
    before = sorted(root.rglob("*"))
    asked = {"recipe": "soundstream/tiny", "name": "fresh", "overrides": ["data=tones"], **changes}
    assert controlled.post("/api/runs", json=asked).status_code == status
    assert sorted(root.rglob("*")) == before
    assert controlled.post("/api/runs/codec/resume").status_code == 409
    assert controlled.post("/api/runs/codec/stop").status_code == 409


@pytest.mark.parametrize(
    "override",
    [
        "vae=!!binary L2V0Yw==",
        "data.path=!!binary L2V0Yw==",
        "data={path: !!binary L2V0Yw==}",
        "data.path=!!set {/etc}",
        "data.path=[!!omap [a: /etc]]",
        "data=tones # /../../../../../../../../etc",
        "plan.lr=!!bool maybe",
        "plan.lr=2020-01-01",
    ],
)
def test_no_path_is_hidden_from_the_data_roots(controlled: TestClient, root: Path, override: str) -> None:
    asked = {"recipe": "maskgit/tiny", "name": "fresh", "overrides": ["data=tones", override]}
    answer = controlled.post("/api/runs", json=asked)
    assert answer.status_code == 400, answer.text
    assert "without tags, aliases and comments" in answer.json()["error"]["message"]
    assert not (root / "fresh").exists()


def test_a_folder_whose_name_is_a_number_is_a_folder(
    controlled: TestClient, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere/2024").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    for override in ("data=2024", "data.valid_path=2024"):
        asked = {"recipe": "soundstream/tiny", "name": "fresh", "overrides": [override]}
        answer = controlled.post("/api/runs", json=asked)
        assert answer.json()["error"]["code"] == "outside_data_roots", answer.text
    assert not (root / "fresh").exists()


def test_a_process_of_another_machine_is_never_stopped(
    controlled: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
import platform
from pathlib import Path
platform.node = lambda: "elsewhere"
from madrigal.engine.run import RunFolder
with RunFolder(Path({str(root / "stopped")!r})).held():
    print("held", flush=True)
    input()
"""
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a process of this machine was sent a signal"))
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        row = controlled.get("/api/runs/stopped").json()
        assert (row["state"], row["can_resume"], row["can_stop"]) == ("training", False, False)
        assert controlled.post("/api/runs/stopped/stop").status_code == 409
    finally:
        process.communicate("\n", timeout=30)


def test_a_kill_of_the_server_does_not_touch_a_training_that_it_started(root: Path, recordings: Path) -> None:
    words = ["studio", str(root), "--port", "0", "--control", "--data-root", str(recordings.parent)]
    server = subprocess.Popen(
        [sys.executable, "-m", "madrigal.cli", *words, "--voice-run", str(root.parent / "voice")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert server.stderr is not None
        address = re.search(r"http://\S+", server.stderr.readline())
        assert address is not None
        overrides = ["data=tones", f"plan.num_train_steps={STEPS}"]
        asked = {"recipe": "soundstream/tiny", "name": "fresh", "overrides": overrides}
        row = httpx.post(f"{address[0]}/api/runs", json=asked, timeout=120)
        assert row.status_code == 201, row.text

        def seen() -> dict[str, Any]:
            return dict(httpx.get(f"{address[0]}/api/runs/fresh", timeout=60).json())

        wait_for(lambda: seen()["can_stop"] and seen()["step"] >= 1)
        pid = int((root / "fresh/training.lock").read_text().split()[0])
        assert os.getsid(pid) != os.getsid(server.pid)
        server.send_signal(signal.SIGKILL)
        server.wait(60)
        assert psutil.Process(pid).is_running()
        wait_for(lambda: (root / f"fresh/checkpoints/step-{STEPS:08d}").is_dir())
        wait_for(lambda: not (root / "fresh/training.lock").exists())
        figures = (root / "fresh/metrics.jsonl").read_text().splitlines()
        assert len([line for line in figures if f'"step": {STEPS}' in line]) >= 1
    finally:
        server.kill()
        server.wait(60)


def test_a_training_that_is_stopped_before_it_begins_leaves_its_name_to_others(
    controlled: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("madrigal.studio.control.SEEN_SECONDS", 0.0)
    asked = {"recipe": "soundstream/tiny", "name": "group/early", "overrides": ["data=tones"]}
    for _ in range(2):
        assert controlled.post("/api/runs", json=asked).status_code == 201
        (root / "group/early/checkpoints").mkdir(exist_ok=True)  # as far as it may have got
        assert controlled.post("/api/runs/group%2Fearly/stop").status_code == 200
        wait_for(lambda: controlled.get("/api/runs/group%2Fearly").status_code == 404)
        assert not (root / "group/early").exists()


def test_a_training_is_stopped_and_resumed(controlled: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("madrigal.studio.control.SEEN_SECONDS", 240.0)  # a machine may be busy
    overrides = ["data=tones", "plan.num_train_steps=2000"]
    asked = {"recipe": "soundstream/tiny", "name": "group/fresh", "overrides": overrides}
    started = controlled.post("/api/runs", json=asked)
    assert started.status_code == 201, started.text
    assert started.json()["state"] == "training"
    assert started.json()["recipe"] == "soundstream/tiny"
    place = "/api/runs/group%2Ffresh"
    wait_for(lambda: controlled.get(place).json()["step"] >= 2)
    assert controlled.post(f"{place}/stop").status_code == 200
    wait_for(lambda: controlled.get(place).json()["state"] == "stopped")
    stopped = controlled.get(place).json()["step"]
    assert controlled.post(f"{place}/resume").status_code == 200
    wait_for(lambda: controlled.get(place).json()["step"] > stopped)
    controlled.post(f"{place}/stop")
    wait_for(lambda: controlled.get(place).json()["state"] == "stopped")
    refused = controlled.post("/api/runs", json={**asked, "name": "typo", "overrides": ["plan.lrr=1"]})
    assert refused.status_code == 400
    assert "lr" in refused.json()["error"]["message"]
    assert not (root / "typo").exists()
