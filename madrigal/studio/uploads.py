"""Recordings and pictures that come with a request, opened with care: looked at first, and decoded only so far."""

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import torch
from fastapi import UploadFile
from PIL import Image, ImageChops, ImageOps
from torch import Tensor

from madrigal.data.audio import NOT_AUDIO, resample, words
from madrigal.data.failures import DecodeError
from madrigal.data.images import open_picture
from madrigal.studio.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from madrigal.voicebox.mending import Sound

CONTAINERS = frozenset({"WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "AIFF", "AU"})
PICTURES = ("PNG", "JPEG", "WEBP")
RATES = (4_000, 96_000)
MOST_CHANNELS = 2
MOST_PIXELS = 16_000_000
_UPLOAD, _NO_SOUND = "The file", "it holds no sound"
_BLOCK = 1 << 16


async def content_of(file: UploadFile) -> bytes:
    """What was uploaded; the guard has bounded it."""
    data = await file.read()
    await file.close()
    if not data:
        raise ApiError(400, "The file is empty.", code="empty_file", param="file")
    return data


def wave_of(data: bytes, rate: int, *, most_seconds: float, least_seconds: float = 0.0) -> Tensor:
    """A recording as one channel, float32 [samples] at `rate`."""
    with _opened(data, most_seconds) as file:
        most = int(most_seconds * file.samplerate) + 1
        blocks: list[np.ndarray] = []
        # By blocks, each mixed at once: a header that promises too much gets no memory for it.
        for _ in range(-(-most // _BLOCK)):
            block = _read(file)
            if not len(block):
                break
            blocks.append(block.mean(1))
        source = file.samplerate
    sound = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    _check(sound, source, least_seconds)
    wave = resample(torch.from_numpy(sound[:most]), source, rate)
    if not len(wave):  # of one sample at a higher rate nothing is left
        raise DecodeError.of(_UPLOAD, _NO_SOUND)
    return wave


def sound_of(data: bytes, *, most_seconds: float, least_seconds: float = 0.0) -> "Sound":
    """A recording in its own numbers, to be changed in one place and left alone in all others."""
    from madrigal.voicebox.mending import Sound

    # What is read is bounded by the header, which was looked at, and by what is there.
    with _opened(data, most_seconds) as file:
        sound = Sound.of(file, _UPLOAD)
    _check_length(len(sound.data), sound.rate, least_seconds)
    return sound


def picture_of(data: bytes) -> Image.Image:
    """A picture in RGB."""
    return open_picture(io.BytesIO(data), max_pixels=MOST_PIXELS, formats=PICTURES)


def mask_of(data: bytes) -> Image.Image:
    """White where a picture is to be made anew: where the mask is transparent, as OpenAI's are, or else white."""
    return transparency_of(data) or picture_of(data)


def transparency_of(data: bytes) -> Image.Image | None:
    """White where a picture is transparent; None where it is nowhere."""
    picture_of(data)  # bounded, and whole
    with Image.open(io.BytesIO(data), formats=PICTURES) as file:
        if not file.has_transparency_data:
            return None
        alpha = ImageOps.exif_transpose(file).convert("RGBA").getchannel("A")
    return None if alpha.getextrema() == (255, 255) else ImageChops.invert(alpha).convert("RGB")


@contextmanager
def _opened(data: bytes, most_seconds: float) -> "Iterator[soundfile.SoundFile]":
    try:
        file = soundfile.SoundFile(io.BytesIO(data))
    except (soundfile.SoundFileError, OSError, TypeError, ValueError) as error:
        raise DecodeError.of(_UPLOAD, NOT_AUDIO) from error
    with file:
        if file.format not in CONTAINERS:
            raise DecodeError.of(_UPLOAD, f"{file.format} is not taken; send wav, flac, ogg, mp3 or aiff")
        if not RATES[0] <= file.samplerate <= RATES[1]:
            raise DecodeError.of(_UPLOAD, f"its rate of {file.samplerate} Hz is not between {RATES[0]} and {RATES[1]}")
        if not 1 <= file.channels <= MOST_CHANNELS:
            raise DecodeError.of(_UPLOAD, f"it has {file.channels} channels, and {MOST_CHANNELS} are the most")
        if file.frames > most_seconds * file.samplerate:
            seconds = file.frames / file.samplerate
            raise ApiError(
                400,
                f"The recording has {seconds:.0f} seconds, and {most_seconds:g} are the most.",
                code="recording_too_long",
                param="file",
            )
        yield file


def _read(file: soundfile.SoundFile) -> np.ndarray:
    try:
        return np.asarray(file.read(_BLOCK, dtype="float32", always_2d=True))
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise DecodeError.of(_UPLOAD, f"its data is damaged ({words(error)})") from error


def _check(sound: np.ndarray, rate: int, least_seconds: float) -> None:
    if not len(sound):
        raise DecodeError.of(_UPLOAD, _NO_SOUND)
    if not np.isfinite(sound).all():
        raise DecodeError.of(_UPLOAD, "it holds samples that are not finite numbers")
    _check_length(len(sound), rate, least_seconds)


def _check_length(samples: int, rate: int, least_seconds: float) -> None:
    if samples < least_seconds * rate:
        raise ApiError(
            400,
            f"The recording has {samples / rate:.2f} seconds, and {least_seconds:g} are the least.",
            code="recording_too_short",
            param="file",
        )
