"""The official client of OpenAI, unchanged, against the studio on a real socket."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import openai
import pytest
import soundfile
from PIL import Image
from stand_ins import RATE, WORD


def test_it_speaks_a_sentence(official: openai.OpenAI, tmp_path: Path) -> None:
    spoken = official.audio.speech.create(model="tts-1", voice="anna", input="one two three", response_format="wav")
    sound, rate = soundfile.read(io.BytesIO(spoken.content))
    assert (len(sound), rate) == (3 * WORD, RATE)
    official.audio.speech.create(model="tts-1", voice="default", input="hi").write_to_file(tmp_path / "hi.mp3")
    assert soundfile.info(tmp_path / "hi.mp3").samplerate == RATE


def test_it_streams_a_sentence(official: openai.OpenAI) -> None:
    asked = {"model": "gpt-4o-mini-tts", "voice": "bert", "input": "one two three four", "response_format": "pcm"}
    whole = official.audio.speech.create(**asked).content  # type: ignore[arg-type]
    with official.audio.speech.with_streaming_response.create(**asked) as response:  # type: ignore[arg-type]
        pieces = list(response.iter_bytes())
    assert b"".join(pieces) == whole
    assert len(whole) == 4 * WORD * 2
    with official.audio.speech.with_streaming_response.create(**asked, stream_format="sse") as response:  # type: ignore[arg-type]
        lines = [line for line in response.iter_lines() if line]
    assert lines[0].startswith('data: {"type": "speech.audio.delta"')
    assert '"speech.audio.done"' in lines[-1]


def test_it_is_told_what_is_wrong(official: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        official.audio.speech.create(model="tts-1", voice="alloy", input="hello")
    assert refused.value.code == "voice_not_found"
    assert refused.value.param == "voice"
    assert refused.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError):
        official.audio.speech.create(model="nobody", voice="anna", input="hello")
    with pytest.raises(openai.AuthenticationError) as refused_key:
        official.with_options(api_key="another-key").models.list()
    assert refused_key.value.code == "invalid_api_key"


def test_it_lists_models(official: openai.OpenAI) -> None:
    assert next(iter(official.models.list())).id == "voice"
    assert official.models.retrieve("voice").owned_by == "madrigal"


def test_it_draws_a_picture(official: openai.OpenAI, root: Path, muse: Path) -> None:
    (root / "muse").symlink_to(muse)
    drawn = official.images.generate(model="muse", prompt="white", n=2, size="auto", extra_body={"seed": 3, "steps": 2})
    assert drawn.data is not None
    sizes = [Image.open(io.BytesIO(base64.b64decode(picture.b64_json or ""))).size for picture in drawn.data]
    assert sizes == [(32, 32), (32, 32)]
    again = official.images.generate(model="dall-e-3", prompt="white", extra_body={"seed": 4, "steps": 2})
    assert again.data is not None
    assert again.data[0].b64_json == drawn.data[1].b64_json
    for refused in ({"size": "31x32"}, {"response_format": "url"}, {"n": 17}, {"prompt": ""}):
        with pytest.raises(openai.BadRequestError):
            official.images.generate(**{"model": "muse", "prompt": "white", **refused})  # type: ignore[call-overload]
    mask, picture = io.BytesIO(), io.BytesIO()
    half = Image.new("L", (32, 32))
    half.paste(255, (0, 0, 16, 32))
    half.save(mask, "PNG")
    Image.new("RGB", (32, 32), (9, 9, 9)).save(picture, "PNG")
    files = {"image": ("p.png", picture.getvalue()), "mask": ("m.png", mask.getvalue())}
    edited = official.images.edit(model="muse", prompt="white", **files)
    assert edited.data is not None
    made = Image.open(io.BytesIO(base64.b64decode(edited.data[0].b64_json or "")))
    assert made.getpixel((31, 5)) == (9, 9, 9)
    see_through = Image.new("RGBA", (32, 32), (0, 0, 0, 255))
    see_through.paste((0, 0, 0, 0), (0, 0, 16, 32))
    clear = io.BytesIO()
    see_through.save(clear, "PNG")
    files["mask"] = ("m.png", clear.getvalue())
    several = official.images.edit(model="gpt-image-1", prompt="white", n=2, **files)
    assert several.data is not None
    assert [picture.b64_json == edited.data[0].b64_json for picture in several.data] == [True, False]
    larger = official.images.edit(model="gpt-image-1", prompt="white", size="64x64", **files)  # type: ignore[call-overload]
    assert Image.open(io.BytesIO(base64.b64decode(larger.data[0].b64_json))).size == (64, 64)
