"""The header of a `.mgl` file: what its codes mean. docs/format.md describes it byte by byte."""

import struct
import zlib
from dataclasses import dataclass
from typing import Self

from madrigal.soundstream.packing import MAX_BITS, packed_size

MAGIC = b"\x89MGL"
VERSION = 1
FINGERPRINT_SIZE = 8
MAX_NAME = 255
MAX_PAYLOAD = 1 << 20
"""Bytes of codes in a block: what a reader has to hold, whatever a damaged or hostile file claims."""

PRELUDE = struct.Struct("<4sHH")
"""Magic, version and size of the header. This, and the checksum at the header's end, are the same in every version."""

CRC = struct.Struct("<I")
_FIELDS = struct.Struct(f"<IIIBBHB{FINGERPRINT_SIZE}sB")


@dataclass(frozen=True, slots=True)
class Header:
    """How a file is to be read. `streams` are codings side by side: a mono codec codes stereo as two of them.

    A frame is `streams` times `quantizers` codes of `bits` bits and stands for `hop` samples at `codec_rate`, the rate
    that the codec works at. `sample_rate` and `channels` are the audio's own. `fingerprint` tells one codec from
    another and `codec` is a name for people.
    """

    sample_rate: int
    codec_rate: int
    hop: int
    channels: int
    streams: int
    quantizers: int
    bits: int
    fingerprint: bytes
    codec: str = ""

    @property
    def frame_bits(self) -> int:
        return self.streams * self.quantizers * self.bits

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.codec_rate / self.hop

    @property
    def kbps(self) -> float:
        """Nominal rate of the codes of all streams."""
        return self.frame_bits * self.frame_rate / 1000

    def num_frames(self, samples: int) -> int:
        """Frames that audio of `samples` samples per channel takes."""
        return -(-samples * self.codec_rate // (self.sample_rate * self.hop))

    def payload(self, frames: int) -> int:
        """Bytes of a block of so many frames, without its count and checksum."""
        return packed_size(frames * self.streams * self.quantizers, self.bits)

    def possible(self) -> bool:
        """Whether the numbers make sense together."""
        sizes = (self.sample_rate, self.codec_rate, self.hop, self.channels, self.streams, self.quantizers, self.bits)
        return min(sizes) > 0 and self.bits <= MAX_BITS and self.payload(1) <= MAX_PAYLOAD

    def to_bytes(self) -> bytes:
        name = self.codec.encode()
        if not self.possible() or len(name) > MAX_NAME or len(self.fingerprint) != FINGERPRINT_SIZE:
            raise ValueError(f"This is no possible header: {self}.")
        body = _FIELDS.pack(
            self.sample_rate,
            self.codec_rate,
            self.hop,
            self.channels,
            self.streams,
            self.quantizers,
            self.bits,
            self.fingerprint,
            len(name),
        )
        size = PRELUDE.size + len(body) + len(name) + CRC.size
        head = PRELUDE.pack(MAGIC, VERSION, size) + body + name
        return head + CRC.pack(zlib.crc32(head))

    @classmethod
    def from_body(cls, body: bytes) -> Self | None:
        """The header from what lies between prelude and checksum; None where that makes no sense."""
        if len(body) < _FIELDS.size:
            return None
        rate, codec_rate, hop, channels, streams, quantizers, bits, mark, length = _FIELDS.unpack_from(body)
        name = body[_FIELDS.size :]
        if len(name) != length:
            return None
        codec = name.decode(errors="replace")
        header = cls(rate, codec_rate, hop, channels, streams, quantizers, bits, mark, codec)
        return header if header.possible() else None
