"""The .mgl file: what goes in comes out, at the size that it should have, and no damage goes unnoticed."""

import hashlib
import io
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from madrigal.errors import UserError
from madrigal.soundstream.container import Contents, Reader, Writer, examine
from madrigal.soundstream.header import MAX_PAYLOAD, VERSION, Header
from madrigal.soundstream.packing import pack, packed_size, unpack

DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"
MARK = bytes.fromhex("0123456789abcdef")
HEADER = Header(
    sample_rate=16000,
    codec_rate=16000,
    hop=320,
    channels=1,
    streams=1,
    quantizers=4,
    bits=10,
    fingerprint=MARK,
    codec="tiny",
)


def codes_of(header: Header, frames: int, seed: int = 0) -> np.ndarray:
    shape = header.streams, frames, header.quantizers
    return np.random.default_rng(seed).integers(0, 1 << header.bits, shape)


def write(header: Header, codes: np.ndarray, samples: int | None = None, step: int = 10**9) -> bytes:
    file = io.BytesIO()
    writer = Writer(file, header)
    for start in range(0, codes.shape[1], step):
        writer.write(codes[:, start : start + step])
    samples = codes.shape[1] * header.hop * header.sample_rate // header.codec_rate if samples is None else samples
    assert writer.finish(samples) == len(file.getvalue())
    return file.getvalue()


def read(data: bytes, name: str = "talk.mgl") -> tuple[Reader, np.ndarray]:
    reader = Reader(io.BytesIO(data), name)
    blocks = list(reader.blocks())
    return reader, np.concatenate(blocks, axis=1) if blocks else codes_of(reader.header, 0)


def sealed(data: bytes) -> bytes:
    """The same file with a right checksum of the whole."""
    return data[:-8] + hashlib.sha256(data[:-8]).digest()[:8]


@pytest.mark.parametrize("bits", [1, 2, 7, 8, 9, 10, 16, 17, 31, 32])
def test_packing_is_exact_for_any_number_of_bits(bits: int) -> None:
    for count in (0, 1, 3, 8, 1001):
        numbers = np.random.default_rng(count).integers(0, 1 << bits, count)
        data = pack(numbers, bits)
        assert len(data) == packed_size(count, bits) == -(-count * bits // 8)
        assert np.array_equal(unpack(data, count, bits), numbers)
    # Against the definition, one bit after the other.
    text = "".join(f"{n:0{bits}b}" for n in numbers)
    assert data == int(text.ljust(len(data) * 8, "0"), 2).to_bytes(len(data), "big")


def test_packing_refuses_what_does_not_fit() -> None:
    for numbers in ([-1, 3], [0, 1024]):
        with pytest.raises(ValueError, match="do not fit into 10 bits"):
            pack(np.array(numbers), 10)


@pytest.mark.parametrize("step", [1, 7, 499, 500, 501, 10**9])
def test_codes_come_back_however_they_were_fed(step: int) -> None:
    header = replace(HEADER, streams=2, channels=2, quantizers=3, bits=11)
    codes = codes_of(header, 1203)
    data = write(header, codes, step=step)
    assert data == write(header, codes)
    reader, back = read(data)
    assert reader.header == header
    assert np.array_equal(back, codes)
    assert back.dtype == np.int64
    assert (reader.frames, reader.samples) == (1203, 1203 * 320)


def test_a_sound_without_samples_has_a_file() -> None:
    reader, codes = read(write(HEADER, codes_of(HEADER, 0)))
    assert (reader.frames, reader.samples, codes.shape) == (0, 0, (1, 0, 4))


def test_the_size_is_the_nominal_rate_and_little_more() -> None:
    for quantizers in (6, 12, 24):
        header = replace(HEADER, quantizers=quantizers)
        frames = 60 * 50
        size = len(write(header, codes_of(header, frames)))
        nominal = header.kbps * 1000 / 8 * 60
        assert nominal < size < nominal * 1.005
        assert size == nominal + 56 + len("tiny") + 6 * 6
    assert header.kbps == 12.0


def test_blocks_stay_small_for_any_codec() -> None:
    wide = replace(HEADER, hop=1, streams=8, channels=8, quantizers=64, bits=32)
    codes = codes_of(wide, 1100)
    reader = Reader(io.BytesIO(write(wide, codes)), "wide.mgl")
    sizes = [block.shape[1] for block in reader.blocks()]
    assert sum(sizes) == 1100
    assert max(map(wide.payload, sizes)) <= MAX_PAYLOAD
    with pytest.raises(ValueError, match="no possible header"):
        replace(HEADER, streams=255, quantizers=65535).to_bytes()


def test_the_number_of_frames_covers_the_sound_at_any_rate() -> None:
    other = replace(HEADER, sample_rate=44100)
    assert [other.num_frames(n) for n in (0, 1, 882, 883, 44100)] == [0, 1, 1, 2, 50]
    with pytest.raises(ValueError, match="are 51 frames, not 50"):
        write(other, codes_of(other, 50), samples=44101)


def test_every_flipped_bit_is_found() -> None:
    data = write(HEADER, codes_of(HEADER, 40), samples=12700)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(UserError, match=r"talk\.mgl") as caught:
            read(bytes(damaged))
        assert_one_sentence(caught.value)


def test_every_damaged_byte_of_a_long_file_is_found_and_placed() -> None:
    data = write(HEADER, codes_of(HEADER, 1600))
    rng = np.random.default_rng(1)
    header_size, block = 42, 2 + 2500 + 4
    for position in rng.integers(0, len(data), 300):
        damaged = bytearray(data)
        damaged[position] ^= int(rng.integers(1, 256))
        with pytest.raises(UserError, match=r"talk\.mgl") as caught:
            read(bytes(damaged))
        number, offset = divmod(int(position) - header_size, block)
        if position < header_size:
            place = "its header" if position >= len(b"?MGL") else "is no .mgl file"
        elif position >= len(data) - 18:
            place = "its end"
        else:
            place = f"block {number + 1} (from byte {header_size + number * block}, {number * 10}.0 s"
        # In its first two bytes, a block's length, damage may look like an end.
        assert place in str(caught.value) or offset < 2


def test_every_truncation_is_found() -> None:
    data = write(HEADER, codes_of(HEADER, 40))
    for size in range(len(data)):
        with pytest.raises(UserError, match=r"talk\.mgl (is damaged: it ends within|is empty)") as caught:
            read(data[:size])
        assert_one_sentence(caught.value)


def test_lost_doubled_and_swapped_blocks_are_found() -> None:
    data = write(HEADER, codes_of(HEADER, 1500))
    head, size = 42, 2 + 2500 + 4
    first, second, third, end = (data[head + i * size : head + (i + 1) * size] for i in range(4))
    for blocks in ([first, third], [first, second, second, third], [second, first, third]):
        with pytest.raises(UserError, match="the checksum of the whole file is wrong"):
            read(data[:head] + b"".join(blocks) + end)
    with pytest.raises(UserError, match="1000 frames cannot hold 480000 samples"):
        read(sealed(data[:head] + first + third + end))


def test_bytes_after_the_end_are_found() -> None:
    data = write(HEADER, codes_of(HEADER, 40))
    with pytest.raises(UserError, match=f"after its end .byte {len(data)}."):
        read(data + b"\0")


@pytest.mark.parametrize("garbage", [b"RIFF\x10\0\0\0WAVEfmt ", b"hello", b"\x89PNG\r\n\x1a\n", bytes(100), b"M"])
def test_garbage_is_no_mgl_file(garbage: bytes) -> None:
    with pytest.raises(UserError, match=r"talk\.mgl is no \.mgl file"):
        read(garbage)


def test_random_bytes_after_a_right_magic_are_damage() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        with pytest.raises(UserError, match="is damaged"):
            read(b"\x89MGL" + rng.bytes(int(rng.integers(0, 300))))


def test_a_version_from_the_future_is_told_from_a_damaged_version() -> None:
    newer = b"\x89MGL" + struct.pack("<HH", VERSION + 1, 20) + b"whatever"
    newer += struct.pack("<I", zlib.crc32(newer))
    with pytest.raises(UserError, match=r"version 2 of the format .* install a newer Madrigal"):
        read(newer + b"more that only the future understands")
    damaged = bytearray(write(HEADER, codes_of(HEADER, 4)))
    damaged[4] = VERSION + 1
    with pytest.raises(UserError, match="damaged in its header"):
        read(bytes(damaged))


@pytest.mark.parametrize(
    ("place", "value"), [(8, 0), (12, 0), (16, 0), (20, 0), (21, 0), (22, 0), (24, 0), (24, 33), (33, 9)]
)
def test_impossible_numbers_are_refused_even_with_a_right_checksum(place: int, value: int) -> None:
    data = bytearray(write(HEADER, codes_of(HEADER, 4)))
    width = {8: 4, 12: 4, 16: 4, 22: 2}.get(place, 1)
    data[place : place + width] = value.to_bytes(width, "little")
    data[38:42] = struct.pack("<I", zlib.crc32(data[:38]))
    with pytest.raises(UserError, match="its numbers are impossible"):
        read(sealed(bytes(data)))


def test_a_huge_block_is_refused_before_it_is_read() -> None:
    wide = replace(HEADER, quantizers=1000, bits=32)
    data = wide.to_bytes() + struct.pack("<H", 0xFFFF)
    with pytest.raises(UserError, match="its length is impossible"):
        read(data)


class Dripping(io.RawIOBase):
    """Gives three bytes at a time, as a pipe may, and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self.data.read(min(size, 3))


def test_a_pipe_is_good_enough_to_read_from() -> None:
    codes = codes_of(HEADER, 700)
    reader = Reader(Dripping(write(HEADER, codes)), "pipe")  # type: ignore[arg-type]
    assert np.array_equal(np.concatenate(list(reader.blocks()), axis=1), codes)


def test_examine_reads_a_file_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.mgl"
    path.write_bytes(write(HEADER, codes_of(HEADER, 40), samples=12700))
    assert examine(path) == Contents(HEADER, 12700, 40)
    with pytest.raises(UserError, match="There is no file"):
        examine(tmp_path / "b.mgl")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        examine(tmp_path)


def test_the_documented_example_is_what_is_written() -> None:
    text = DOCUMENT.read_text()
    dump = re.search(r"```hexdump\n(.*?)```", text, re.S)
    assert dump
    data = bytes.fromhex("".join(line.split("  ")[1] for line in dump[1].splitlines()))
    header = replace(HEADER, sample_rate=44100, quantizers=2)
    codes = np.array([[[1, 2], [3, 4], [1023, 0]]])
    assert write(header, codes, samples=2500) == data
    reader, back = read(data)
    assert (reader.header, reader.samples) == (header, 2500)
    assert np.array_equal(back, codes)
    # The table beside it names every byte, in order.
    rows = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", text.split("```hexdump")[1], re.M)
    position = 0
    for place, row in rows:
        assert int(place) == position
        assert data[position:].startswith(bytes.fromhex(row))
        position += len(bytes.fromhex(row))
    assert position == len(data)


def assert_one_sentence(error: UserError) -> None:
    text = str(error)
    assert text.startswith("The file talk.mgl")
    assert text.endswith(".")
    assert "\n" not in text
