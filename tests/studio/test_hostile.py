"""Uploads that mean harm: each gets a 4xx, in bounded memory, and the server goes on."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from fastapi import FastAPI
from PIL import Image
from pydantic import ValidationError
from stand_ins import wav_bytes, write_model
from starlette.testclient import TestClient

from madrigal.studio.sounds import Codes
from madrigal.studio.uploads import mask_of

MEGABYTES = 400
"""More than that no upload may cost; a bomb would take gigabytes."""


def header(*, rate: int = 16_000, channels: int = 1, claimed: int = 0, bits: int = 16, form: int = 1) -> bytes:
    block = channels * bits // 8
    told = struct.pack("<HHIIHH", form, channels, rate, rate * block & 0xFFFFFFFF, block & 0xFFFF, bits)
    return (
        b"RIFF"
        + struct.pack("<I", (claimed + 36) & 0xFFFFFFFF)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + told
        + (b"data" + struct.pack("<I", claimed & 0xFFFFFFFF))
    )


def zip_bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.wav", b"\0" * 50_000_000)
    return out.getvalue()


def flac_of_hours() -> bytes:
    """An hour of silence in some kilobytes."""
    out = io.BytesIO()
    with soundfile.SoundFile(out, "w", 8_000, 1, "PCM_16", format="FLAC") as file:
        for _ in range(60):
            file.write(np.zeros(8_000 * 60, np.int16))
    return out.getvalue()


def floats(value: float) -> bytes:
    out = io.BytesIO()
    wave = np.zeros(32_000, np.float32)
    wave[1_000] = value
    soundfile.write(out, wave, 16_000, format="WAV", subtype="FLOAT")
    return out.getvalue()


def patched_flac() -> bytes:
    """A header that promises 68 billion samples."""
    data = bytearray(wav_bytes(2.0, kind="FLAC"))
    data[21] |= 0x0F
    data[22:26] = b"\xff" * 4
    return bytes(data)


SOUNDS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "one byte": lambda: b"\0",
    "text": lambda: b"this is no sound" * 100,
    "zip bomb": zip_bomb,
    "gzip bomb": lambda: gzip.compress(b"\0" * 50_000_000),
    "100 hours in a header": lambda: header(claimed=100 * 3600 * 32_000) + b"\0" * 100,
    "a header and nothing": lambda: header(claimed=1_000_000),
    "no channels": lambda: header(channels=0, claimed=100) + b"\0" * 100,
    "60000 channels": lambda: header(channels=60_000, claimed=2_000_000) + b"\0" * 2_000_000,
    "a rate of zero": lambda: header(rate=0, claimed=64_000) + b"\0" * 64_000,
    "a rate of 4 GHz": lambda: header(rate=0xFFFFFFFF, claimed=64_000) + b"\0" * 64_000,
    "a rate of 1 Hz": lambda: header(rate=1, claimed=64_000) + b"\0" * 64_000,
    "zero bits": lambda: header(bits=0, claimed=64_000) + b"\0" * 64_000,
    "an unknown coding": lambda: header(form=0x1234, claimed=64_000) + b"\0" * 64_000,
    "an hour of flac": flac_of_hours,
    "flac that promises too much": patched_flac,
    "half a flac": lambda: wav_bytes(2.0, kind="FLAC")[:60],
    "half an mp3": lambda: wav_bytes(2.0, kind="MP3")[:100],
    "an ogg without its end": lambda: wav_bytes(2.0, kind="OGG")[:200],
    "not a number": lambda: floats(float("nan")),
    "infinity": lambda: floats(float("inf")),
    "too long": lambda: wav_bytes(40.0, 8_000),
    "too short": lambda: wav_bytes(0.1),
    "a picture": lambda: png(8, 8),
    "another container": lambda: wav_bytes(2.0, kind="W64"),
    "raw matlab": lambda: wav_bytes(2.0, kind="MAT5"),
    "a page": lambda: b"<html><script>alert(1)</script></html>",
    "pickle": lambda: b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
}


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, "PNG")
    return out.getvalue()


def pixel_bomb() -> bytes:
    """A picture of 50000 x 50000 pixels in some kilobytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    told = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"\0" * 1_000_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", told) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def jpeg_with_damaged_exif() -> bytes:
    """The pixels are whole and to be turned; a description in the EXIF data is marked as a width, and is no number."""
    told, out = Image.Exif(), io.BytesIO()
    told[0x0112], told[0x010E] = 6, "hello"
    Image.new("RGB", (64, 64)).save(out, "JPEG", exif=told)
    return out.getvalue().replace(b"\x01\x0e\x00\x02", b"\x01\x00\x00\x02", 1)


PICTURES: dict[str, Callable[[], bytes]] = {
    "a pixel bomb": pixel_bomb,
    "17 million pixels": lambda: png(17_000, 1_000),
    "damaged exif": jpeg_with_damaged_exif,
    "half a picture": lambda: png(64, 64)[:60],
    "a sound": lambda: wav_bytes(1.0),
    "svg": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    "eps": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(/etc/passwd) (r) file\n",
    "nothing": lambda: b"",
}


@contextmanager
def in_bounded_memory(*processes: int | str) -> Iterator[None]:
    """What is done inside must not need much memory in any of them, at no time."""
    for process in processes:
        with suppress(OSError):
            Path(f"/proc/{process}/clear_refs").write_text("5")  # the highest mark is that of now
    before = {process: highest(process) for process in processes}
    yield
    assert all(highest(process) - before[process] < MEGABYTES for process in processes)


def highest(process: int | str) -> float:
    """Megabytes of memory that a process has had at once."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert told is not None
    return int(told[1]) / 1e3


@pytest.fixture
def bounded() -> Iterator[None]:
    with in_bounded_memory("self"):
        yield


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", SOUNDS)
def test_a_hostile_recording_is_refused(client: TestClient, name: str) -> None:
    data = SOUNDS[name]()
    answer = client.post("/v1/audio/voices", data={"name": "evil"}, files={"file": (name, data)})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]["message"]
    assert client.get("/healthz").status_code == 200


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", PICTURES)
def test_a_hostile_picture_is_refused(painted: TestClient, name: str) -> None:
    files = {"image": ("a.png", PICTURES[name]()), "mask": ("m.png", png(64, 64))}
    answer = painted.post("/v1/images/edits", data={"prompt": "x"}, files=files)
    assert 400 <= answer.status_code < 500, answer.text


def test_no_hostile_picture_comes_as_far_as_the_model(make_app: Callable[..., FastAPI], root: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("a model was asked for")

    write_model(root / "muse", "muse")
    with TestClient(make_app(loaders={"pictures": never}), raise_server_exceptions=False) as client:
        for name, picture in PICTURES.items():
            files = {"image": ("a.png", picture()), "mask": ("m.png", png(64, 64))}
            answer = client.post("/v1/images/edits", data={"prompt": "x"}, files=files)
            assert 400 <= answer.status_code < 500, (name, answer.text)


SPOKEN = {"model": "tts-1", "input": "hello"}
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"model": "tts-1", "inp',
    "a list": b"[1, 2, 3]",
    "a string": b'"hello"',
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "a deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "not utf-8": b'{"model": "tts-1", "input": "\xff\xfe"}',
    "a lone surrogate": b'{"model": "tts-1", "input": "\\ud800"}',
    "nan": b'{"model": "tts-1", "input": "hello", "speed": NaN}',
    "infinity": b'{"model": "tts-1", "input": "hello", "cond_scale": Infinity}',
    "a huge number": b'{"model": "tts-1", "input": "hello", "seed": ' + b"9" * 10_000 + b"}",
    "a huge exponent": b'{"model": "tts-1", "input": "hello", "speed": 1e999}',
    "many keys": json.dumps({**SPOKEN, **{f"k{i}": i for i in range(50_000)}}).encode(),
    "a huge text": json.dumps({**SPOKEN, "input": "a" * 5_000_000}).encode(),
    "another voice": json.dumps({**SPOKEN, "voice": "../../../etc/passwd"}).encode(),
    "another model": json.dumps({**SPOKEN, "model": "/etc"}).encode(),
    "a voice of keys": json.dumps({**SPOKEN, "voice": {"id": ["a"]}}).encode(),
    "over the limit": b'{"input": "' + b"a" * 26_000_000 + b'"}',
}


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused(client: TestClient, name: str) -> None:
    answer = client.post("/v1/audio/speech", content=BODIES[name], headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert len(answer.content) < 5_000
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "codes",
    [
        [],
        [[]],
        [[1], [1, 2]],
        [[10**6]],
        [[-1]],
        [["a"]],
        [[1.5]],
        "x",
        [[0] * 5000],
        [[0]] * 9000,
        None,
        [None],
        {"a": 1},
    ],
    ids=str,
)
def test_hostile_codes_are_refused(client: TestClient, codes: Any) -> None:
    answer = client.post("/v1/audio/codes/decode", json={"model": "codec", "codes": codes})
    assert answer.status_code == 400, answer.text


def test_of_codes_that_are_wrong_throughout_one_error_is_kept() -> None:
    for codes in ([[-1] * 1000], [[-1]] * 1000, [["x"] * 10] * 1000):
        with pytest.raises(ValidationError) as caught:
            Codes(codes=codes)  # type: ignore[arg-type]
        assert caught.value.error_count() <= 1


def test_a_mask_marks_what_is_transparent_or_else_what_is_white() -> None:
    def marked(mode: str, all_over: Any, left: Any) -> list[Any]:
        mask, out = Image.new(mode, (4, 4), all_over), io.BytesIO()
        mask.paste(left, (0, 0, 2, 4))
        mask.save(out, "PNG")
        return [mask_of(out.getvalue()).getpixel((x, 0)) for x in (0, 3)]

    white, black = (255, 255, 255), (0, 0, 0)
    assert marked("L", 0, 255) == [white, black]
    assert marked("RGBA", (0, 0, 0, 255), (255, 255, 255, 255)) == [white, black]
    assert marked("RGBA", (255, 255, 255, 255), (0, 0, 0, 0)) == [white, black]


@pytest.mark.parametrize("told", [{"n": "0"}, {"n": "17"}, {"size": "64"}, {"response_format": "url"}])
def test_an_edit_that_cannot_be_made_as_asked_is_refused(painted: TestClient, told: dict[str, str]) -> None:
    files = {"image": ("a.png", png(64, 64)), "mask": ("m.png", png(64, 64))}
    answer = painted.post("/v1/images/edits", data={"prompt": "x", **told}, files=files)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(told))


def test_an_edit_without_a_mask_needs_a_picture_that_is_transparent_somewhere(painted: TestClient) -> None:
    answer = painted.post("/v1/images/edits", data={"prompt": "x"}, files={"image": ("a.png", png(64, 64))})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_mask"


def test_names_of_openai_stand_for_models_of_their_kind(painted: TestClient) -> None:
    told = {"prompt": "x", "output_format": "png", "output_compression": 90, "stream": False}
    for model, status in (("gpt-image-1", 200), ("dall-e-3", 200), ("tts-1", 404)):
        answer = painted.post("/v1/images/generations", json={**told, "model": model})
        assert answer.status_code == status, answer.text


def test_a_form_of_thousands_of_fields_is_refused(client: TestClient) -> None:
    data = {f"field{i}": "x" for i in range(2_000)}
    answer = client.post("/v1/audio/voices", data=data, files={"file": ("a.wav", wav_bytes(2.0))})
    assert answer.status_code == 400
    broken = client.post(
        "/v1/audio/voices", content=b"--x\r\nnothing", headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert broken.status_code == 400
    assert client.post("/v1/audio/voices", data={"name": "x", "file": "no file"}).status_code == 400
