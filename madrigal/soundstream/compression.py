"""From a sound file to a `.mgl` file and back, with a bounded amount of memory for files of any length."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from madrigal.data.inspection import MAX_CHANNELS, MAX_RATE, MIN_RATE
from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.container import Contents, Reader, Writer, examine, open_container
from madrigal.soundstream.fingerprint import fingerprint
from madrigal.soundstream.header import MAX_NAME, Header
from madrigal.soundstream.output_file import written_beside
from madrigal.soundstream.streaming import StreamingDecoder, StreamingEncoder
from madrigal.soundstream.wave_streams import PIECE, Wave, WaveReader, WaveWriter, output_format

Progress = Callable[[int, int], object]
"""Is called with the samples done and the samples in all (0 where a file does not say)."""

_RATE_TOLERANCE = 0.01
"""By how much a rate may differ from the one asked for, so that 1.33 finds 1.333."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """Length of the audio in seconds, size of the file in bytes, and the rate that this makes."""

    seconds: float
    bytes: int

    @property
    def kbps(self) -> float:
        return self.bytes * 8 / self.seconds / 1000


@dataclass(frozen=True, slots=True)
class Decompressed:
    """What was written: samples per channel, their rate in Hz, and the number of channels."""

    samples: int
    sample_rate: int
    channels: int

    @property
    def seconds(self) -> float:
        return self.samples / self.sample_rate


@torch.no_grad()
def compress(
    codec: SoundStream,
    source: str | Path,
    target: str | Path,
    *,
    kbps: float | None = None,
    num_quantizers: int | None = None,
    codec_name: str = "",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Compressed:
    """Code the sound file `source` as the `.mgl` file `target`.

    `kbps` is the rate of the file, all channels together; `num_quantizers` says it in levels of the codec, and without
    either all levels are used. A mono codec codes the channels of a stereo file each for itself. `codec_name` is kept
    in the file, to tell people which codec they need.
    """
    source, target = Path(source), Path(target)
    with closing(WaveReader(source)) as reader:
        levels = _levels(codec, kbps, num_quantizers, _num_streams(codec, reader.channels))
        header = _header(codec, reader.sample_rate, reader.channels, levels, codec_name)
        with written_beside(target, source=source, overwrite=overwrite) as file:
            writer, encoder = Writer(file, header), StreamingEncoder(codec, levels)
            for piece in reader.pieces(header.codec_rate):
                writer.write(_numbers(encoder.push(_rows(codec, piece))))
                if progress:
                    progress(reader.samples, reader.total)
            writer.write(_numbers(encoder.flush()))
            size = writer.finish(reader.samples)
    return Compressed(reader.samples / reader.sample_rate, size)


@torch.no_grad()
def decompress(
    codec: SoundStream,
    source: str | Path,
    target: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Decompressed:
    """Decode the `.mgl` file `source` to `target`, whose ending says the format (.wav or .flac).

    The result has the length, the sample rate and the channels of what was compressed. The whole of `source` is checked
    before the first sample is decoded.
    """
    source, target = Path(source), Path(target)
    output_format(target)
    contents = examine(source)
    header = contents.header
    _check_codec(codec, header, source)
    with (
        open_container(source) as packed,
        written_beside(target, source=source, overwrite=overwrite) as file,
        closing(_wave_writer(file, target, contents)) as writer,
    ):
        reader, decoder, done = Reader(packed, source), StreamingDecoder(codec), 0
        for block in reader.blocks():
            for codes in _pieces(codec, block, source):
                writer.write(_wave(decoder.push(codes), header.channels))
                done += codes.shape[1]
                if progress:
                    progress(done * contents.samples // contents.frames, contents.samples)
        writer.write(_wave(decoder.flush(), header.channels))
        writer.finish()
    return Decompressed(contents.samples, header.sample_rate, header.channels)


def _header(codec: SoundStream, sample_rate: int, channels: int, levels: int, codec_name: str) -> Header:
    return Header(
        sample_rate=sample_rate,
        codec_rate=codec.target_sample_hz,
        hop=codec.downsample_factor,
        channels=channels,
        streams=_num_streams(codec, channels),
        quantizers=levels * codec.rq_groups,
        bits=(codec.codebook_size - 1).bit_length(),
        fingerprint=fingerprint(codec),
        codec=codec_name.encode()[:MAX_NAME].decode(errors="ignore"),
    )


def levels_for(codec: SoundStream, kbps: float, channels: int = 1) -> int:
    """Levels of the quantizer that code a sound of so many channels at `kbps`, all channels together."""
    return _levels(codec, kbps, None, _num_streams(codec, channels))


def _levels(codec: SoundStream, kbps: float | None, num_quantizers: int | None, streams: int) -> int:
    """How many levels of the quantizer to use; errors say what is possible."""
    most = codec.num_quantizers
    if kbps is not None and num_quantizers is not None:
        raise UserError(f"{kbps:g} kbps and {num_quantizers} quantizers say the rate twice; give one of them.")
    if kbps is None:
        levels = most if num_quantizers is None else num_quantizers
        if not 1 <= levels <= most:
            raise UserError(f"This codec cannot use {levels} quantizers; give 1 to {most}.")
        return levels
    rates = {levels: streams * codec.bitrate(levels) / 1000 for levels in range(1, most + 1)}
    nearest = min(rates, key=lambda levels: abs(rates[levels] - kbps))
    if not isclose(rates[nearest], kbps, rel_tol=_RATE_TOLERANCE):
        possible = ", ".join(f"{rate:.4g}" for rate in rates.values())
        subject = "This codec" if streams == 1 else f"This codec, with {streams} channels,"
        raise UserError(f"{subject} cannot code at {kbps:g} kbps; the possible rates are {possible} kbps.")
    return nearest


def _num_streams(codec: SoundStream, channels: int) -> int:
    """A mono codec takes each channel for itself; a stereo codec takes two at once, and a mono sound twice."""
    return max(1, channels // codec.config.input_channels)


def _rows(codec: SoundStream, piece: Wave) -> Tensor:
    """[n, channels] -> [streams, channels of the codec, n]."""
    taken, (samples, channels) = codec.config.input_channels, piece.shape
    wave = torch.from_numpy(piece).T.reshape(_num_streams(codec, channels), -1, samples)
    return wave.expand(-1, taken, -1).contiguous().to(codec.device)


def _wave(rows: Tensor, channels: int) -> Wave:
    """[streams, channels of the codec, n] -> [n, channels], the mean where the codec has more channels."""
    wave = rows.flatten(0, 1).unflatten(0, (channels, -1)).mean(dim=1)
    return wave.T.float().cpu().numpy()


def _numbers(codes: Tensor) -> NDArray[np.int64]:
    return codes.cpu().numpy()


def _pieces(codec: SoundStream, block: NDArray[np.int64], source: Path) -> Iterator[Tensor]:
    """A block of codes in parts that decode to about as much as is worked on at once."""
    if block.max() >= codec.codebook_size:
        raise UserError(f"The file {source} holds codes that this codec does not have; it was not written by it.")
    size = max(1, PIECE // (codec.downsample_factor * len(block)))
    for codes in torch.from_numpy(block).split(size, dim=1):
        yield codes.to(codec.device)


def _wave_writer(file: BinaryIO, target: Path, contents: Contents) -> WaveWriter:
    header = contents.header
    return WaveWriter(
        file,
        target,
        from_rate=header.codec_rate,
        sample_rate=header.sample_rate,
        channels=header.channels,
        samples=contents.samples,
    )


def _check_codec(codec: SoundStream, header: Header, source: Path) -> None:
    own = fingerprint(codec)
    if own != header.fingerprint:
        name = f" {header.codec!r}" if header.codec else ""
        raise UserError(
            f"The file {source} was compressed with another codec{name} (fingerprint {header.fingerprint.hex()}, "
            f"this one has {own.hex()}); decompress it with that one."
        )
    # Checksums guard against accidents, not against a file that was made to do harm.
    levels = min(header.quantizers // codec.rq_groups, codec.num_quantizers)
    honest = header.channels <= MAX_CHANNELS and MIN_RATE <= header.sample_rate <= MAX_RATE
    if not honest or header != _header(codec, header.sample_rate, header.channels, levels, header.codec):
        raise UserError(f"The header of {source} does not fit this codec; `madrigal compress` did not write it.")
