"""A text over HTTP to sound: whole, in chunks, in events, in every format, and refused with a reason."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile
from fastapi import FastAPI
from stand_ins import RATE, WORD, StandInVoice
from starlette.testclient import TestClient

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
