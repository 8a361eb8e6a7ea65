"""The studio as it comes: the shipped voice speaks over HTTP."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import soundfile
from starlette.testclient import TestClient


def test_the_shipped_voice_speaks_and_streams_the_same(make_client: Callable[..., TestClient], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    client = make_client(folder=tmp_path / "empty", voice_runs=(), shipped=True)
    served = {model["id"]: model["distilled"] for model in client.get("/v1/models").json()["data"]}
    assert list(served) == ["voice-24k-live", "voice-24k", "speech-16k"]
    assert [name for name, distilled in served.items() if distilled] == ["voice-24k-live"]
    asked = {"model": "tts-1", "input": "All is well.", "response_format": "wav", "seconds": 1.6}
    whole = client.post("/v1/audio/speech", json=asked)
    assert whole.status_code == 200, whole.text
    sound, rate = soundfile.read(io.BytesIO(whole.content))
    assert rate == 24_000
    assert abs(len(sound) / rate - 1.6) < 0.02
    assert 0.02 < abs(sound).max() <= 1.0
    chosen = client.post("/v1/audio/speech", json={**asked, "steps": 7})
    assert chosen.status_code == 400
    assert "distilled to steps=4" in chosen.json()["error"]["message"]
    assert client.post("/v1/audio/speech", json={**asked, "steps": 2, "model": "voice-24k"}).status_code == 200
