"""Sound as bytes while it is made: wav, flac, mp3, opus in Ogg, and plain samples."""

import io
import struct
from typing import Any, Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

from madrigal.soundstream.wave_streams import Resampler

Format = Literal["mp3", "opus", "flac", "wav", "pcm"]

MEDIA_TYPES: dict[Format, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
_CODERS: dict[str, dict[str, Any]] = {
    # Of a constant rate: players tell the length of a stream by it, for the header that would say it is gone by then.
    "mp3": {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": "CONSTANT", "compression_level": 0.5},
    "opus": {"format": "OGG", "subtype": "OPUS"},
    "flac": {"format": "FLAC", "subtype": "PCM_16"},
}
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
_UNKNOWN = 0xFFFFFFFF


def to_int16(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    """Samples in 16 bits, rounded; what is beyond ±1 is clipped, and what is no number is silence."""
    return np.rint(_clean(sound) * 32767).astype("<i2")


def _clean(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.clip(np.nan_to_num(sound, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)


class Encoder:
    """Takes sound [samples] or [channels, samples] piece by piece and gives the bytes that are ready."""

    def __init__(self, kind: Format, sample_rate: int, channels: int = 1, *, samples: int | None = None) -> None:
        """`samples` is the length of a wav where it is known; players take what is unknown to the end."""
        self._kind = kind
        self._begin = b""
        if kind == "wav":
            self._begin = wav_header(sample_rate, channels, samples)
        # A flac without its length is one that libsndfile itself cannot read: it is sent when it is whole.
        self._sink: _Sink | io.BytesIO = io.BytesIO() if kind == "flac" else _Sink()
        self._file = None
        rate = 48_000 if kind == "opus" and sample_rate not in _OPUS_RATES else sample_rate
        self._resampler = Resampler(sample_rate, rate, channels)
        if kind in _CODERS:
            self._file = soundfile.SoundFile(self._sink, "w", rate, channels, **_CODERS[kind])

    def add(self, sound: NDArray[np.float32]) -> bytes:
        samples = to_int16(self._resampler.push(_clean(sound if sound.ndim == 2 else sound[None]).T))
        if self._file is not None:
            self._file.write(samples)
            return self._sink.take() if isinstance(self._sink, _Sink) else b""
        begin, self._begin = self._begin, b""
        return begin + samples.tobytes()

    def end(self) -> bytes:
        if self._file is not None:
            self._file.write(to_int16(self._resampler.flush()))
            self._file.close()
            return self._sink.take() if isinstance(self._sink, _Sink) else self._sink.getvalue()
        begin, self._begin = self._begin, b""
        return begin


def encoded(sound: NDArray[np.float32], kind: Format, sample_rate: int) -> bytes:
    """All of a sound at once."""
    encoder = Encoder(kind, sample_rate, 1 if sound.ndim == 1 else sound.shape[0], samples=sound.shape[-1])
    return encoder.add(sound) + encoder.end()


def wav_header(sample_rate: int, channels: int, samples: int | None) -> bytes:
    """Of 16-bit samples; with the largest length where it is not known, which players take as to the end."""
    size = _UNKNOWN if samples is None else min(samples * channels * 2, _UNKNOWN - 36)
    whole = _UNKNOWN if samples is None else size + 36
    form = struct.pack("<HHIIHH", 1, channels, sample_rate, sample_rate * channels * 2, channels * 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", whole)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", size)
    )


class _Sink:
    """What libsndfile writes to: bytes that are taken away as they come.

    At its end it goes back to write lengths into headers that are long gone; these bytes are dropped.
    """

    def __init__(self) -> None:
        self._ready = bytearray()
        self._place = self._size = 0

    def write(self, data: bytes) -> int:
        data = bytes(data)
        behind = self._place + len(data) - self._size
        if behind > 0:
            self._ready += data[-behind:] if behind < len(data) else data
            self._size += behind
        self._place += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, _: int = -1) -> bytes:
        return b""

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        ready, self._ready = bytes(self._ready), bytearray()
        return ready
