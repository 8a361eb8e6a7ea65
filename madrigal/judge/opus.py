"""Opus beside our codec: encode and decode through PyAV's libopus, with the time axis kept."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.signals import Wave, advance, as_channels, fit, lag, resample

ENCODER_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
DECODER_RATE = 48_000


def opus_available() -> bool:
    """Whether PyAV is installed and was built with libopus."""
    return packages.available("opus") and "libopus" in packages.load("opus").codecs_available


def opus_round_trip(wave: Any, rate: int, kbps: float, *, frame_ms: int = 20) -> tuple[Wave, float]:
    """[channels, samples] -> (the same shape after Opus at `kbps`, measured kbps of its packets).

    One or two channels, variable bit rate, tuned for voice, 20 ms frames as in ordinary use (60 ms buys Opus
    some quality at low rates for three times the delay). Opus cannot always go as low as it is asked: read the
    measured rate.
    """
    waves = as_channels(wave)
    channels, samples = waves.shape
    if channels > 2:
        raise UserError(f"Opus is compared on one or two channels, but the wave has {channels}: mix it down first.")
    if samples == 0:
        raise UserError("Opus was given a wave without samples: leave empty files out.")
    encoder_rate = next((known for known in ENCODER_RATES if known >= rate), DECODER_RATE)
    sound = resample(waves, rate, encoder_rate)
    packets, header = _encode(np.clip(sound, -1.0, 1.0), encoder_rate, kbps, frame_ms)
    decoded = fit(resample(_decode(packets, header, channels), DECODER_RATE, rate), samples)
    bits = 8 * sum(len(packet) for packet in packets)
    return _aligned(waves, decoded, rate), bits * rate / samples / 1000


def _encode(sound: Wave, rate: int, kbps: float, frame_ms: int) -> tuple[list[bytes], bytes]:
    """[channels, samples] -> packets, and the header that tells the decoder how many samples to skip."""
    av = packages.load("opus")
    layout = "mono" if len(sound) == 1 else "stereo"
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = rate, layout, "flt"
    encoder.bit_rate, encoder.time_base = round(kbps * 1000), Fraction(1, rate)
    encoder.options = {"application": "voip", "vbr": "on", "frame_duration": str(frame_ms)}
    try:
        encoder.open()
    except av.error.FFmpegError as error:
        raise UserError(
            f"libopus refuses {kbps} kbps with frames of {frame_ms} ms at {rate} Hz ({error.strerror}): "
            "choose 0.5 to 256 kbps for each channel and frames of 20, 40 or 60 ms."
        ) from error
    header = bytes(encoder.extradata)
    size = encoder.frame_size
    skipped = int.from_bytes(header[10:12], "little") * rate / DECODER_RATE
    needed = math.ceil((sound.shape[1] + skipped) / size)
    padded = fit(sound, needed * size)
    packets: list[bytes] = []
    for start in range(0, needed * size, size):
        block = np.ascontiguousarray(padded[:, start : start + size].T).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(block, format="flt", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    packets += [bytes(packet) for packet in encoder.encode(None)]
    # What the encoder adds after the last needed packet holds only padding, and is not charged.
    return packets[:needed], header


def _decode(packets: list[bytes], header: bytes, channels: int) -> Wave:
    """Packets -> [channels, samples] at 48 kHz; the decoder drops the encoder's look-ahead, as the header says."""
    av = packages.load("opus")
    decoder = av.CodecContext.create("libopus", "r")
    decoder.sample_rate, decoder.layout = DECODER_RATE, "mono" if channels == 1 else "stereo"
    decoder.extradata = header
    decoder.open()
    blocks = []
    for packet in packets:
        for frame in decoder.decode(av.Packet(packet)):
            block = frame.to_ndarray()
            if not frame.format.is_planar:
                block = block.reshape(-1, channels).T
            if block.dtype == np.int16:
                block = block.astype(np.float32) / 32768
            blocks.append(block)
    return np.concatenate(blocks, axis=1).astype(np.float32)


def _aligned(reference: Wave, decoded: Wave, rate: int) -> Wave:
    """Take away the last part of a millisecond that Opus' own filters delay or advance the sound by."""
    shift = lag(reference.mean(axis=0), decoded.mean(axis=0), rate // 1000)
    return advance(decoded, shift)
