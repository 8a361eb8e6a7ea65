"""Is a file usable audio? The header says most of it, and what is doubtful is decoded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import soundfile

from madrigal.data.audio import NOT_AUDIO, AudioInfo, DecodeError, open_audio, probe, words

Check = Literal["doubtful", "full"]

MIN_RATE, MAX_RATE = 4_000, 768_000
MAX_CHANNELS = 2
# Half the distance between the highest and the lowest sample of silence: -80 dB, a few steps of 16 bits.
_SILENCE = 1e-4
# The header of a lossy file may be an estimate; one that holds less than this part of it was cut off.
_LOSSY_PART = 0.95
_BLOCK = 1 << 18
_WINDOW = 4096
_NUM_WINDOWS = 5
# Writers to a pipe cannot know the size and put one of these, or near them, into a WAV header.
_UNKNOWN_SIZES = range(0x7FFF0000, 0x100000000)
_LONGEST_PAGE = 27 + 255 + 255 * 255


class Rejection(Exception):
    """Why a file is not usable: `reason` from a short list, to count by, and `detail` about this file."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def inspect(path: Path, *, min_seconds: float = 0.1, check: Check = "doubtful") -> AudioInfo:
    """What a usable file holds, with the true number of frames; raises Rejection for one that is not usable.

    Decoded in full are lossy files, whose headers only promise a length, files of floats, which may hold NaN,
    files that seem silent at five places, and with `check="full"` all.
    """
    info = _header(path)
    if not MIN_RATE <= info.sample_rate <= MAX_RATE:
        raise Rejection("sample rate outside 4 kHz to 768 kHz", f"{info.sample_rate} Hz")
    if info.channels > MAX_CHANNELS:
        raise Rejection("more than 2 channels", f"{info.channels} channels")
    if check == "full" or info.lossy or info.subtype in ("FLOAT", "DOUBLE") or _seems_silent(path, info):
        info = _decode_all(path, info)
    if info.duration < min_seconds:
        raise Rejection(f"shorter than {min_seconds:g} s", f"{info.duration:.3f} s")
    return info


def check_file(path: Path) -> None:
    """Refuse what is no file with something in it."""
    if not path.exists():
        raise Rejection("missing", "a list names it, but there is no such file")
    if not path.is_file():
        raise Rejection("unreadable", "it is no regular file")
    if path.stat().st_size == 0:
        raise Rejection("empty", "0 bytes")


def _header(path: Path) -> AudioInfo:
    check_file(path)
    try:
        info = probe(path)
    except DecodeError as error:
        raise Rejection("not audio" if error.reason == NOT_AUDIO else "unreadable", error.reason) from error
    if missing := missing_bytes(path, info):
        raise Rejection("truncated", f"{missing} bytes less than its header says")
    if info.frames == 0:
        raise Rejection("empty", "0 samples")
    return info


def missing_bytes(path: Path, info: AudioInfo) -> int:
    """How many bytes a WAV or Ogg file lacks at its end: libsndfile shortens such files in silence."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if info.format in ("WAV", "WAVEX"):
            return max(0, _end_of_wav(file, size) - size)
        if info.format == "OGG":
            return max(0, _end_of_ogg(file, size) - size)
    return 0


def _end_of_wav(file: BinaryIO, size: int) -> int:
    """Where the chunk of samples ends by its header; 0 if that is not known."""
    if file.read(4) != b"RIFF":
        return 0
    position = 12
    while position + 8 <= size:
        file.seek(position)
        name, length = file.read(4), int.from_bytes(file.read(4), "little")
        position += 8
        if name == b"data":
            return 0 if length in _UNKNOWN_SIZES else position + length
        position += length + length % 2
    return 0


def _end_of_ogg(file: BinaryIO, size: int) -> int:
    """Where the last page ends by its header: 27 bytes, a table of sizes, and what these add up to."""
    first = max(0, size - _LONGEST_PAGE)
    file.seek(first)
    tail = file.read()
    page = tail.rfind(b"OggS\0")
    if page < 0:
        return 0
    count = tail[page + 26] if page + 26 < len(tail) else 1
    return first + page + 27 + count + sum(tail[page + 27 : page + 27 + count])


def _seems_silent(path: Path, info: AudioInfo) -> bool:
    """Look at a few places, the very end among them, where a truncated file cannot be read."""
    starts = np.linspace(0, max(0, info.frames - _WINDOW), _NUM_WINDOWS).astype(int)
    with open_audio(path) as file:
        try:
            file.seek(int(starts[-1]))
            rest = min(_WINDOW, info.frames)
            if len(file.read(rest, dtype="float32")) < rest:
                raise Rejection("truncated", "its end cannot be read")
        except soundfile.SoundFileError as error:
            raise Rejection("truncated", f"its end cannot be read: {words(error)}") from error
        try:
            for start in starts:
                file.seek(int(start))
                if _swing(file.read(_WINDOW, dtype="float32", always_2d=True)) > _SILENCE:
                    return False
        except soundfile.SoundFileError as error:
            raise Rejection("unreadable", words(error)) from error
    return True


def _decode_all(path: Path, info: AudioInfo) -> AudioInfo:
    """Decode the whole file, in blocks; the info with the number of frames that are really there."""
    frames, silent = 0, True
    for block in _blocks(path, info):
        if not np.isfinite(block).all():
            raise Rejection("NaN samples", "it holds samples that are not finite numbers")
        frames += len(block)
        silent = silent and _swing(block) <= _SILENCE
    if frames < info.frames * (_LOSSY_PART if info.lossy else 1):
        raise Rejection("truncated", f"{frames} of {info.frames} samples")
    if silent:
        raise Rejection("silent", f"{frames / info.sample_rate:.3f} s of silence")
    return replace(info, frames=frames)


def _blocks(path: Path, info: AudioInfo) -> Iterator[np.ndarray]:
    done = 0
    with open_audio(path) as file:
        try:
            while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
                done += len(block)
                yield block
        except soundfile.SoundFileError as error:
            raise Rejection("unreadable", f"damaged after {done / info.sample_rate:.1f} s: {words(error)}") from error


def _swing(block: np.ndarray) -> float:
    """Half of highest minus lowest in the liveliest channel; a constant offset is silence too."""
    return float(np.ptp(block, axis=0).max()) / 2 if len(block) else 0.0


def default_workers() -> int:
    """Threads for reading headers: decoding leaves Python's lock, and disks like to be asked in parallel."""
    return min(32, 2 * (os.cpu_count() or 1))
