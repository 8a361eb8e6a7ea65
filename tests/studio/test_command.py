"""`madrigal studio`: mistakes in a sentence, and a process that leaves in good order."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from commanding import Command
from fastapi import FastAPI
from stand_ins import in_a_loop


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "studio")


def test_mistakes_are_told_in_a_sentence(command: Command, tmp_path: Path, root: Path) -> None:
    short, key = tmp_path / "short", tmp_path / "key"
    short.write_text("abc\n")
    key.write_text("a key with blanks\n")
    assert "no folder" in command.refused(tmp_path / "nothing")
    assert "--api-key-file" in command.refused(root, "--host", "0.0.0.0")
    assert "8 characters" in command.refused(root, "--api-key-file", short)
    assert "without blanks" in command.refused(root, "--api-key-file", key)
    assert "cannot be read" in command.refused(root, "--api-key-file", tmp_path / "none")
    assert "no run of a voicebox" in command.refused(root, "--voice-run", root / "codec")
    assert "--data-root" in command.refused(root, "--data-root", tmp_path / "none")
    assert "--port" in command.refused(root, "--port", "99999")
    assert "for --ray" in command.refused(root, "--replicas", "2")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen" in command.refused(root, "--port", str(taken.getsockname()[1]))


def test_the_help_has_an_example(command: Command) -> None:
    assert "madrigal studio runs" in command.done("--help")


def test_it_says_that_the_voice_is_being_loaded(
    make_app: Callable[..., FastAPI], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="madrigal.studio"):
        in_a_loop(make_app().state.studio.warm_up())
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("The voice voice is being loaded")
    assert said[1].startswith("The voice voice is ready")


def test_it_finishes_what_is_going_on_when_it_is_asked_to_leave(root: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from madrigal.studio import server, settings
from stand_ins import create_app
server.create_app = create_app
folder = Path({str(root)!r})
told = settings.StudioSettings(folder=folder, voice_runs=(folder.parent / "voice",), shipped=False, warm=False)
server.serve(told, host="127.0.0.1", port=0, json_logs=True)
"""
    environment = {**os.environ, "STAND_IN_SECONDS": "0.1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        address = found[0]
        asked = {"model": "tts-1", "input": "word " * 40, "response_format": "pcm"}
        answers: list[httpx.Response] = []
        speaking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{address}/v1/audio/speech", json=asked, timeout=120))
        )
        speaking.start()
        while "madrigal_work_running 1.0" not in httpx.get(f"{address}/metrics", timeout=60).text:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        while (refused := httpx.get(f"{address}/v1/models", timeout=60)).status_code == 200:
            time.sleep(0.05)
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        speaking.join(120)
        assert len(answers[0].content) == 40 * 2_400 * 2
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait(30)
