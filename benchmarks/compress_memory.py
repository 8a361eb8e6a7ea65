"""Compresses a long recording and prints the peak of the process's memory, which must not depend on the length.

    python benchmarks/compress_memory.py --minutes 60 --codec speech-16k

Without --codec the codec is an untrained one in the size of its defaults, which costs as much as a trained one.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import compress, decompress
from madrigal.soundstream.container import examine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=44100, help="sample rate of the recording")
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--codec", help="name or folder of a codec")
    parser.add_argument("--form", choices=["stft", "waveform"], default="stft", help="of the untrained codec")
    parser.add_argument("--kbps", type=float)
    given = parser.parse_args()
    codec = _codec(given.codec, given.form)
    with tempfile.TemporaryDirectory() as folder:
        source, packed, back = (Path(folder) / name for name in ("in.wav", "packed.mgl", "back.wav"))
        _record(source, given.minutes * 60, given.rate, given.channels)
        print(f"{given.minutes:g} minutes, {given.rate} Hz, {given.channels} channel(s); {_peak():.0f} MB before")
        start = time.perf_counter()
        done = compress(codec, source, packed, kbps=given.kbps)
        nominal = examine(packed).header.kbps
        print(f"compress    {_speed(done.seconds, start)}, peak {_peak():.0f} MB")
        print(f"            {done.bytes} bytes, {done.kbps:.3f} kbps, nominal {nominal:.3f} kbps")
        start = time.perf_counter()
        result = decompress(codec, packed, back)
        print(f"decompress  {_speed(result.seconds, start)}, peak {_peak():.0f} MB")
        same = result.samples == soundfile.info(source).frames
        print("the length is the same" if same else "THE LENGTH IS ANOTHER")


def _codec(name: str | None, form: str) -> SoundStream:
    if name:
        return SoundStream.from_pretrained(name, discriminators=False)
    if form == "stft":
        return SoundStream(frontend="stft", head="istft", discriminators=False)
    return SoundStream(discriminators=False)


def _record(path: Path, seconds: float, rate: int, channels: int) -> None:
    """Noise under a slow tremolo, written in pieces so that the recording itself takes no memory."""
    rng, left, done = np.random.default_rng(0), round(seconds * rate), 0
    with soundfile.SoundFile(path, "w", rate, channels, "PCM_16") as file:
        while left:
            size = min(left, 1 << 16)
            tremolo = 0.2 + 0.2 * np.sin(np.arange(done, done + size) / rate * 4)
            file.write(rng.uniform(-1, 1, (size, channels)) * tremolo[:, None])
            left, done = left - size, done + size


def _peak() -> float:
    """MB; ru_maxrss is in kB on Linux."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _speed(seconds: float, start: float) -> str:
    took = time.perf_counter() - start
    return f"{took:.1f} s, {seconds / took:.0f} times faster than it plays"


if __name__ == "__main__":
    main()
