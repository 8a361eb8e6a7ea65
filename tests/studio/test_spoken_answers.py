"""A text over HTTP to sound: whole, in chunks, in events, in every format, and refused with a reason."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from fastapi import FastAPI
from stand_ins import RATE, WORD, StandInVoice
from starlette.testclient import TestClient

from madrigal.errors import UserError
from madrigal.studio.encoding import Encoder

TEXT = "one two three four five six seven eight nine ten"
SAMPLES = 10 * WORD


def say(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/audio/speech", json={"model": "tts-1", "input": TEXT, "voice": "default", **changes})


@pytest.mark.parametrize(
    ("kind", "media"),
    [("mp3", "audio/mpeg"), ("opus", "audio/ogg"), ("flac", "audio/flac"), ("wav", "audio/wav")],
)
def test_every_format_decodes_to_the_right_length(client: TestClient, kind: str, media: str) -> None:
    answer = say(client, response_format=kind)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media
    sound, rate = soundfile.read(io.BytesIO(answer.content))
    assert rate == RATE
    slack = 2_400 if kind == "mp3" else 0  # an encoder of mp3 fills frames up, and its decoder is late
    assert abs(len(sound) - SAMPLES) <= slack
    middle = sound[SAMPLES // 4 : SAMPLES // 2]
    assert 0.3 < np.sqrt(2 * np.mean(middle**2)) < 0.6


@pytest.mark.parametrize("rate", [22_050, 24_000, 32_000, 44_100])
def test_opus_is_made_of_every_rate_that_a_model_may_have(rate: int) -> None:
    wave = 0.5 * np.sin(np.arange(rate, dtype=np.float32) * (2 * np.pi * 440 / rate)).astype(np.float32)
    encoder = Encoder("opus", rate)
    sent = b"".join(encoder.add(piece) for piece in np.split(wave, 10)) + encoder.end()
    heard, heard_rate = soundfile.read(io.BytesIO(sent))
    assert abs(len(heard) / heard_rate - 1.0) < 0.05
    loudest = np.abs(np.fft.rfft(heard[: heard_rate * 9 // 10])).argmax() / 0.9
    assert abs(loudest - 440) < 3


def test_two_voices_of_one_name_are_refused(make_app: Callable[..., FastAPI], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Two runs of --voice-run are named voice"):
        make_app(voice_runs=(tmp_path / "a/voice", tmp_path / "b/voice"))


def test_a_model_is_kept_by_its_folder_and_not_by_its_name(make_app: Callable[..., FastAPI], tmp_path: Path) -> None:
    models = make_app(
        loaders={"speech": lambda folder, _: folder, "codec": lambda folder, _: folder}
    ).state.studio.models
    found = models.find(None, "speech")
    other = replace(found, folder=tmp_path / "elsewhere", kind="codec")
    assert models.loaded(found) == found.folder
    assert models.loaded(other) == tmp_path / "elsewhere"
    assert models.loaded(found) == found.folder


def test_folders_are_not_listed_where_all_requests_wait(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    find, inside = app.state.studio.models.find, []

    def watched(*asked: Any) -> Any:
        inside.append(asyncio._get_running_loop())
        return find(*asked)

    monkeypatch.setattr(app.state.studio.models, "find", watched)
    with TestClient(app) as client:
        assert say(client).status_code == 200
    assert inside == [None]


def test_speech_has_an_end(make_client: Callable[..., TestClient]) -> None:
    client = make_client(limits={"spoken_seconds": 0.5})
    for told in ({"response_format": "flac"}, {"seconds": 2.0}):
        answer = say(client, **told)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "too_much"
    assert say(client, input="one two three").status_code == 200


def test_pcm_is_plain_samples_and_the_default_is_mp3(client: TestClient) -> None:
    answer = say(client, response_format="pcm")
    assert answer.headers["x-madrigal-sample-rate"] == str(RATE)
    assert len(answer.content) == 2 * SAMPLES
    assert say(client).headers["content-type"] == "audio/mpeg"


def test_streamed_bytes_are_the_whole_bytes(client: TestClient) -> None:
    whole = say(client, response_format="pcm").content
    with client.stream(
        "POST", "/v1/audio/speech", json={"model": "voice", "input": TEXT, "response_format": "pcm"}
    ) as streamed:
        assert b"".join(streamed.iter_bytes()) == whole
    events = say(client, response_format="pcm", stream_format="sse")
    assert events.headers["content-type"].startswith("text/event-stream")
    told = [json.loads(line.removeprefix("data: ")) for line in events.text.split("\n\n") if line]
    assert {event["type"] for event in told[:-1]} == {"speech.audio.delta"}
    assert told[-1]["type"] == "speech.audio.done"
    assert told[-1]["usage"]["total_tokens"] == told[-1]["usage"]["input_tokens"] + told[-1]["usage"]["output_tokens"]
    assert b"".join(base64.b64decode(event["audio"]) for event in told[:-1]) == whole


def test_options_reach_the_voice(client: TestClient, voice: StandInVoice) -> None:
    say(client, voice="bert", speed=2.0, seed=7, steps=3, cond_scale=1.5, response_format="pcm")
    asked = voice.asked[-1]
    assert (asked["rate"], asked["seed"], asked["steps"], asked["cond_scale"]) == (2.0, 7, 3, 1.5)
    assert asked["voice"] is not None
    say(client, seconds=1.5, voice={"id": "anna"})
    assert voice.asked[-1]["seconds"] == 1.5
    assert voice.asked[-1]["rate"] is None


@pytest.mark.parametrize(
    ("changes", "status", "code", "param"),
    [
        ({"voice": "alloy"}, 400, "voice_not_found", "voice"),
        ({"model": "nobody"}, 404, "model_not_found", "model"),
        ({"input": ""}, 400, "invalid_parameter", "input"),
        ({"input": "x" * 5000}, 400, "input_too_long", "input"),
        ({"input": "…"}, 400, "unusable_request", None),
        ({"input": "a\x00b"}, 400, "invalid_parameter", "input"),
        ({"input": 5}, 400, "invalid_parameter", "input"),
        ({"speed": 9}, 400, "invalid_parameter", "speed"),
        ({"speed": 2, "seconds": 3}, 400, "contradiction", "speed"),
        ({"response_format": "aac"}, 400, "invalid_parameter", "response_format"),
        ({"loudness": 3}, 400, "unknown_parameter", "loudness"),
        ({"seed": -1}, 400, "invalid_parameter", "seed"),
    ],
)
def test_a_mistake_is_told_in_openai_shape(
    client: TestClient, changes: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    answer = say(client, **changes)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
    assert "Traceback" not in answer.text


def test_a_bad_voice_is_told_which_there_are(client: TestClient) -> None:
    assert "anna, bert, default" in say(client, voice="alloy").json()["error"]["message"]


def test_a_model_that_cannot_be_loaded_says_nothing_of_folders(make_app: Callable[..., FastAPI]) -> None:
    from madrigal.errors import UserError

    def broken(*_: Any) -> Any:
        raise UserError("The part flow of /home/somebody/runs is not there yet.")

    with TestClient(make_app(loaders={"speech": broken}), raise_server_exceptions=False) as client:
        answer = say(client)
    assert answer.status_code == 503
    assert "somebody" not in answer.text


def test_an_error_that_nobody_foresaw_is_a_500_without_a_traceback(make_app: Callable[..., FastAPI]) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("secret")

    with TestClient(make_app(loaders={"speech": broken}), raise_server_exceptions=False) as client:
        answer = say(client)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
