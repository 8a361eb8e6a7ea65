"""Recordings edited, timed, gone on with, coded: by a small voicebox and a small codec, as they are."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile
from fastapi import FastAPI
from small_codecs import small_codec
from stand_ins import wav_bytes
from starlette.testclient import TestClient

from madrigal.studio.word_times import _edges


def post(client: TestClient, path: str, sounds: Path, **form: Any) -> Any:
    return client.post(path, data=form, files={"file": ("in.wav", (sounds / "hum.wav").read_bytes())})


def test_a_span_is_made_anew_and_the_rest_stays(sounding: TestClient, sounds: Path) -> None:
    before, rate = soundfile.read(sounds / "hum.wav", dtype="int16")
    answer = post(sounding, "/v1/audio/edits", sounds, fill="1.0-1.5", seed=3)
    assert answer.status_code == 200, answer.text
    after, same_rate = soundfile.read(io.BytesIO(answer.content), dtype="int16")
    assert (after.shape, same_rate) == (before.shape, rate)
    assert answer.headers["x-madrigal-span"] == "1.000-1.500"
    assert np.array_equal(before[:rate], after[:rate])
    assert np.array_equal(before[3 * rate // 2 :], after[3 * rate // 2 :])
    assert not np.array_equal(before, after)


def test_words_are_replaced_and_the_new_text_is_told(sounding: TestClient, sounds: Path) -> None:
    said = {"text": "a hum, and so on", "replace_old": "so on", "replace_new": "nothing – more"}
    answer = post(sounding, "/v1/audio/edits", sounds, **said)
    assert answer.status_code == 200, answer.text
    assert unquote(answer.headers["x-madrigal-text"]) == "a hum, and nothing – more"
    start, stop = map(float, answer.headers["x-madrigal-span"].split("-"))
    assert 0 <= start < stop


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"fill": "1-2", "replace_old": "a", "replace_new": "b"},
        {"replace_old": "a"},
        {"fill": "2-1"},
        {"fill": "a-b"},
        {"fill": "-1--2"},
        {"fill": "1-99"},
        {"fill": "nan-inf"},
        {"fill": "0-3"},
        {"replace_old": "x", "replace_new": "y", "text": "a hum"},
        {"fill": "1-2", "seed": "-1"},
        {"fill": "1-2", "text": "x" * 5000},
    ],
    ids=str,
)
def test_an_edit_that_cannot_be_made_is_refused(sounding: TestClient, sounds: Path, form: dict[str, str]) -> None:
    answer = post(sounding, "/v1/audio/edits", sounds, **form)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


def test_every_written_word_has_its_time(sounding: TestClient, sounds: Path) -> None:
    told = post(sounding, "/v1/audio/words", sounds, text="A hum, and 21 hums!").json()
    assert [word["word"] for word in told["words"]] == ["A", "hum,", "and", "21", "hums!"]
    assert told["seconds"] == 3.0
    times = [(word["start"], word["end"]) for word in told["words"]]
    assert all(start < end <= 3.01 for start, end in times)
    assert all(one[1] <= other[0] + 1e-6 for one, other in itertools.pairwise(times))


def test_words_want_a_text_where_nobody_listens(sounding: TestClient, sounds: Path) -> None:
    sounding.app.state.studio._recogniser = False  # type: ignore[attr-defined]
    error = post(sounding, "/v1/audio/words", sounds).json()["error"]
    assert (error["code"], error["param"]) == ("missing_parameter", "text")


@pytest.mark.parametrize(("samples", "rate"), [(1, 24_000), (10, 24_000), (200, 24_000), (300, 96_000)])
def test_a_recording_too_short_for_a_word_is_refused(sounding: TestClient, samples: int, rate: int) -> None:
    files = {"file": ("in.wav", wav_bytes(samples / rate, rate))}
    answer = sounding.post("/v1/audio/words", data={"text": "a hum"}, files=files)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "recording_too_short"


def test_joined_words_share_their_sounds() -> None:
    assert _edges([2, 3, 1], range(6), [2, 3, 1]) == [(0, 1), (2, 4), (5, 5)]
    assert _edges([1, 1], range(4), [4]) == [(0, 1), (2, 3)]
    assert _edges([5, 5, 5], range(2), [2]) == [(0, 0), (0, 0), (1, 1)]


def test_a_small_voice_speaks_and_takes_a_prompt(sounding: TestClient, sounds: Path) -> None:
    added = post(sounding, "/v1/audio/voices", sounds, name="hum", text="a hum")
    assert added.status_code == 201, added.text
    asked = {"model": "speaker", "voice": "hum", "input": "One two three.", "response_format": "wav", "seconds": 2.5}
    answer = sounding.post("/v1/audio/speech", json=asked)
    sound, rate = soundfile.read(io.BytesIO(answer.content))
    assert abs(len(sound) / rate - 2.5) < 0.02
    again = sounding.post("/v1/audio/speech", json=asked)
    assert again.content == answer.content
    refused = sounding.post("/v1/audio/speech", json={**asked, "seconds": 0.1})
    assert refused.status_code == 400
    assert sounding.delete("/v1/audio/voices/hum").status_code == 204


def test_codes_there_and_back(sounding: TestClient, sounds: Path) -> None:
    coded = post(sounding, "/v1/audio/codes", sounds).json()
    assert (coded["model"], coded["sample_rate"], coded["samples"]) == ("coder", 16_000, 48_000)
    assert len(coded["codes"]) == 150
    assert {len(row) for row in coded["codes"]} == {2}
    sound, rate = soundfile.read(io.BytesIO(sounding.post("/v1/audio/codes/decode", json=coded).content))
    assert (len(sound), rate) == (48_000, 16_000)
    assert len(post(sounding, "/v1/audio/codes", sounds, levels=1).json()["codes"][0]) == 1
    assert post(sounding, "/v1/audio/codes", sounds, levels=3).status_code == 400
    assert sounding.post("/v1/audio/codes", files={"file": wav_bytes(130.0, 8_000)}).status_code == 400


def test_a_recording_of_which_no_sample_is_left_is_refused(sounding: TestClient) -> None:
    answer = sounding.post("/v1/audio/codes", files={"file": ("in.wav", wav_bytes(1 / 96_000, 96_000))})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "unusable_file"


def test_codes_in_groups_come_for_whole_levels(make_app: Callable[..., FastAPI]) -> None:
    codec = small_codec(16, 2, rq_groups=2)
    with TestClient(make_app(loaders={"codec": lambda *_: codec}), raise_server_exceptions=False) as client:
        for count, status in ((1, 400), (2, 200), (3, 400), (4, 200), (6, 400)):
            answer = client.post("/v1/audio/codes/decode", json={"model": "codec", "codes": [[0] * count] * 20})
            assert answer.status_code == status, answer.text


def test_music_and_continuations_last_as_long_as_asked(sounding: TestClient, sounds: Path) -> None:
    answer = post(sounding, "/v1/audio/continuations", sounds, seconds=2.0)
    assert len(soundfile.read(io.BytesIO(answer.content))[0]) == 5 * 16_000
    asked = {"prompt": "a slow piano", "seconds": 1.5, "n": 2, "response_format": "flac"}
    answer = sounding.post("/v1/audio/music", json=asked)
    assert len(soundfile.read(io.BytesIO(answer.content))[0]) == 24_000
    assert answer.headers["x-madrigal-similarity"] == "0.5000"
    for changes in ({"seconds": 61}, {"prompt": ""}, {"prompt": "x" * 3000}, {"n": 0}, {"model": "speaker"}):
        assert sounding.post("/v1/audio/music", json={**asked, **changes}).status_code in (400, 404)
