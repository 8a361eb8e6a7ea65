"""Voices: listed, uploaded, spoken with, removed; and none by a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stand_ins import StandInVoice, wav_bytes
from starlette.testclient import TestClient


def add(client: TestClient, name: str = "me", data: bytes | None = None, file_name: str = "a.wav", **form: str) -> Any:
    files = {"file": (file_name, wav_bytes(2.0) if data is None else data)}
    return client.post("/v1/audio/voices", data={"name": name, **form}, files=files)


def test_the_voices_of_a_model_are_listed(client: TestClient) -> None:
    voices = client.get("/v1/audio/voices").json()["voices"]
    assert [(voice["id"], voice["default"], voice["uploaded"]) for voice in voices] == [
        ("anna", True, False),
        ("bert", False, False),
    ]


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3", "AIFF"])
def test_a_voice_is_uploaded_spoken_with_and_removed(client: TestClient, kind: str) -> None:
    answer = add(client, data=wav_bytes(2.0, kind=kind), text="Hello there.")
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"id": "me", "name": "me", "model": "voice", "default": False, "uploaded": True}
    assert [row["id"] for row in client.get("/v1/audio/voices").json()["voices"]] == ["anna", "bert", "me"]
    assert client.post("/v1/audio/speech", json={"model": "voice", "input": "hi", "voice": "me"}).status_code == 200
    assert client.delete("/v1/audio/voices/me").status_code == 204
    refused = client.post("/v1/audio/speech", json={"model": "voice", "input": "hi", "voice": "me"})
    assert refused.json()["error"]["code"] == "voice_not_found"


def test_an_uploaded_voice_and_what_it_says_reach_the_model(client: TestClient, voice: StandInVoice) -> None:
    assert add(client, text="Hello there.").status_code == 201
    client.post("/v1/audio/speech", json={"model": "voice", "input": "hi", "voice": "me"})
    assert voice.asked[-1]["voice"].about == {"text": "Hello there."}


@pytest.mark.parametrize("damage", [b"garbage", b""])
def test_a_damaged_voice_is_told_without_its_place(client: TestClient, root: Path, damage: bytes) -> None:
    (root.parent / "voice/voices/bert.safetensors").write_bytes(damage)
    refused = client.post("/v1/audio/speech", json={"model": "voice", "input": "hi", "voice": "bert"})
    assert refused.status_code == 503, refused.text
    assert refused.json()["error"]["code"] == "voice_unusable"
    assert "bert" in refused.text
    assert str(root.parent) not in refused.text
    assert client.post("/v1/audio/speech", json={"model": "voice", "input": "hi", "voice": "anna"}).status_code == 200


def test_a_name_is_taken_once(client: TestClient) -> None:
    assert add(client).status_code == 201
    assert add(client).json()["error"]["code"] == "voice_exists"
    assert add(client, "anna").status_code == 409


@pytest.mark.parametrize("name", ["", "Default", "default", "../me", "a/b", "a.b", "-a", "a" * 42, "ä", "a\n", "a b"])
def test_a_name_is_plain(client: TestClient, root: Path, name: str) -> None:
    answer = add(client, name)
    assert answer.status_code == 400
    assert not (root / "voices").exists()


def test_a_file_name_is_never_used(client: TestClient, root: Path) -> None:
    assert add(client, file_name="../../../../tmp/evil.wav").status_code == 201
    files = [path.relative_to(root).as_posix() for path in (root / "voices").rglob("*") if path.is_file()]
    assert files == ["voices/voice/me.safetensors"]


@pytest.mark.parametrize(("seconds", "code"), [(0.5, "recording_too_short"), (31.0, "recording_too_long")])
def test_a_recording_has_some_seconds(client: TestClient, seconds: float, code: str) -> None:
    answer = add(client, data=wav_bytes(seconds))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_only_uploaded_voices_are_removed(client: TestClient, root: Path) -> None:
    for name in ("anna", "nobody", "..%2F..%2Fvoice%2Fvoices%2Fanna"):
        assert client.delete(f"/v1/audio/voices/{name}").status_code == 404
    assert (root.parent / "voice/voices/anna.safetensors").exists()
