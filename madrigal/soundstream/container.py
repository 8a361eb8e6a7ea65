"""The `.mgl` file: codes of a codec, packed, with checksums. docs/format.md describes it byte by byte.

    header | block | block | … | end

The header says how to read the rest, a block holds some seconds of codes, and the end holds the number of samples,
which a writer that is fed from a stream knows only then. Reader and writer hold one block at a time.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from madrigal.errors import UserError
from madrigal.soundstream.header import CRC, MAGIC, MAX_PAYLOAD, PRELUDE, VERSION, Header
from madrigal.soundstream.packing import pack, unpack

_COUNT = struct.Struct("<H")  # frames in a block; 0 is the end
_SAMPLES = struct.Struct("<Q")
_DIGEST_SIZE = 8
_BLOCK_SECONDS = 10.0


class Writer:
    """Writes codes [streams, frames, quantizers] to a binary file, in blocks of some ten seconds."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self.header, self.frames, self.size = header, 0, 0
        self._file, self._hash = file, hashlib.sha256()
        fitting = MAX_PAYLOAD * 8 // header.frame_bits
        self._block_frames = max(1, min(round(_BLOCK_SECONDS * header.frame_rate), fitting, 0xFFFF))
        self._pending = np.zeros((header.streams, 0, header.quantizers), np.int64)
        self._put(header.to_bytes())

    def write(self, codes: NDArray[np.integer]) -> None:
        """Append frames, any number of them; what does not fill a block waits for more."""
        pending, step = np.concatenate((self._pending, codes), axis=1), self._block_frames
        full = pending.shape[1] // step * step
        for start in range(0, full, step):
            self._put_block(pending[:, start : start + step])
        self._pending = pending[:, full:]

    def finish(self, samples: int) -> int:
        """Write the rest and the end; `samples` is the length of the audio. Returns the size of the file."""
        if self._pending.shape[1]:
            self._put_block(self._pending)
        if self.frames != self.header.num_frames(samples):
            raise ValueError(f"{samples} samples are {self.header.num_frames(samples)} frames, not {self.frames}.")
        self._put(_COUNT.pack(0) + _SAMPLES.pack(samples))
        self._put(self._hash.digest()[:_DIGEST_SIZE])
        return self.size

    def _put_block(self, codes: NDArray[np.integer]) -> None:
        frames = codes.shape[1]
        data = _COUNT.pack(frames) + pack(codes.transpose(1, 0, 2), self.header.bits)
        self._put(data + CRC.pack(zlib.crc32(data)))
        self.frames += frames

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)


class Reader:
    """Reads a binary file from its start; `name` is what errors call it.

    `blocks` yields codes int64 [streams, frames, quantizers]. Each block is checked before it is given out; `samples`
    and `frames` are known, and the file as a whole is known to be sound, when the blocks have come to their end.
    """

    def __init__(self, file: BinaryIO, name: str | Path) -> None:
        self.name, self.frames, self.samples = str(name), 0, 0
        self._file, self._hash, self._position = file, hashlib.sha256(), 0
        self.header = self._read_header()

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        header, number = self.header, 1
        while True:
            start, place = self._position, self._place(number)
            count = self._take(_COUNT.size, place)
            (frames,) = _COUNT.unpack(count)
            if frames == 0:
                return self._read_end(f"its end (from byte {start})")
            if header.payload(frames) > MAX_PAYLOAD:
                self._damaged(f"in {place}", "its length is impossible")
            data = self._take(header.payload(frames), place)
            if self._take(CRC.size, place) != CRC.pack(zlib.crc32(count + data)):
                self._damaged(f"in {place}", f"the checksum of its bytes {start} to {self._position - 1} is wrong")
            self.frames += frames
            number += 1
            codes = unpack(data, frames * header.streams * header.quantizers, header.bits)
            yield codes.reshape(frames, header.streams, header.quantizers).transpose(1, 0, 2)

    def _read_header(self) -> Header:
        prelude = self._take(PRELUDE.size, "its header", least=0)
        if not prelude:
            raise UserError(f"The file {self.name} is empty; give a file that `madrigal compress` wrote.")
        if not prelude.startswith(MAGIC[: len(prelude)]):
            raise UserError(f"The file {self.name} is no .mgl file; give one that `madrigal compress` wrote.")
        if len(prelude) < PRELUDE.size:
            self._cut_off("its header")
        _, version, size = PRELUDE.unpack(prelude)
        if size < PRELUDE.size + CRC.size:
            self._damaged("in its header (byte 6)", "its length is impossible")
        rest = self._take(size - PRELUDE.size, "its header")
        body, crc = rest[: -CRC.size], rest[-CRC.size :]
        if crc != CRC.pack(zlib.crc32(prelude + body)):
            self._damaged("in its header", f"the checksum of its bytes 0 to {size - 1} is wrong")
        # Only now: a flipped bit in the version is damage, not a file from the future.
        if version > VERSION:
            raise UserError(
                f"The file {self.name} is of version {version} of the format and this program reads versions up to "
                f"{VERSION}; install a newer Madrigal."
            )
        header = Header.from_body(body) if version == VERSION else None
        if header is None:
            self._damaged("in its header", "its numbers are impossible")
        return header

    def _read_end(self, place: str) -> None:
        (samples,) = _SAMPLES.unpack(self._take(_SAMPLES.size, place))
        digest = self._hash.digest()[:_DIGEST_SIZE]
        if self._take(_DIGEST_SIZE, place) != digest:
            self._damaged(f"before or in {place}", "the checksum of the whole file is wrong")
        if self.header.num_frames(samples) != self.frames:
            self._damaged(f"in {place}", f"{self.frames} frames cannot hold {samples} samples")
        end = self._position
        if self._take(1, place, least=0):
            self._damaged(f"after its end (byte {end})", "it goes on where it should stop")
        self.samples = samples

    def _place(self, number: int) -> str:
        seconds = self.frames / self.header.frame_rate
        return f"block {number} (from byte {self._position}, {seconds:.1f} s into the sound)"

    def _take(self, size: int, place: str, least: int | None = None) -> bytes:
        """The next `size` bytes, which may come in parts; fewer than `least`, or than `size`, are an error."""
        parts, missing = [], size
        try:
            while missing and (part := self._file.read(missing)):
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            raise UserError(f"The file {self.name} cannot be read: {error.strerror or error}.") from error
        if size - missing < (size if least is None else least):
            self._cut_off(place)
        data = b"".join(parts)
        self._hash.update(data)
        self._position += len(data)
        return data

    def _cut_off(self, place: str) -> NoReturn:
        raise UserError(f"The file {self.name} is damaged: it ends within {place}; take another copy of it.")

    def _damaged(self, where: str, what: str) -> NoReturn:
        raise UserError(f"The file {self.name} is damaged {where}: {what}; take another copy of it.")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a sound file holds: `samples` per channel, coded in `frames`."""

    header: Header
    samples: int
    frames: int


def examine(path: str | Path) -> Contents:
    """Read a whole file without keeping it, and check every byte of it."""
    with open_container(path) as file:
        reader = Reader(file, path)
        for _ in reader.blocks():
            pass
    return Contents(reader.header, reader.samples, reader.frames)


def open_container(path: str | Path) -> BinaryIO:
    """Open for reading; the error says what is in the way."""
    try:
        return Path(path).open("rb")
    except FileNotFoundError as error:
        raise UserError(f"There is no file {path}; give one that `madrigal compress` wrote.") from error
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror}.") from error
