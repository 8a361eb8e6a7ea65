"""One recording as other bodies would have spoken it: of another size, with other resonances, with more breath.

Speakers differ in how fast their voice swings, where their mouth resonates and how much of their voice is breath. Each
of these can be moved by itself, so that one recording becomes as many voices as one likes. (How bright a recording is
would be a fourth; to a judge of speakers it is the room's and not the voice's.)
"""

import math
import random
from dataclasses import dataclass

import numpy as np
from corpus import resample

SIZE, HOP = 512, 128
RESONANCES = 24
"""Cepstral coefficients that are kept of a mouth: at 16 kHz, what is quicker than 1.5 ms."""
LOUDER = 20.0
"""Decibels by which a frequency is moved at the most: where a recording has nothing, there is only noise to raise."""
Span = tuple[float, float]


@dataclass(frozen=True)
class Body:
    """`speed` moves pitch and resonances together, `resonances` these alone; `breath` is from 0 to 1, a whisper."""

    speed: float = 1.0
    resonances: float = 1.0
    breath: float = 0.0

    @classmethod
    def drawn(cls, chance: random.Random, speeds: Span, resonances: Span, breath: float) -> "Body":
        """A body with factors between these, and breath in that share of bodies."""
        speed = _between(chance, speeds)
        breathes = chance.uniform(0.5, 1.0) if chance.random() < breath else 0.0
        return cls(speed, _between(chance, resonances), breathes)

    def speaks(self, wave: np.ndarray, rate: int, seed: str) -> np.ndarray:
        """A wave [samples] in this body; with a speed it has another length."""
        wave = spoken_at(wave, rate, self.speed)
        if self.resonances != 1.0:
            wave = reshaped(wave, self.resonances)
        return breathed(wave, self.breath, seed) if self.breath else wave


def _between(chance: random.Random, span: Span) -> float:
    return math.exp(chance.uniform(*map(math.log, span)))


def spoken_at(wave: np.ndarray, rate: int, speed: float) -> np.ndarray:
    """A wave [samples] as if its recording were played `speed` times as fast."""
    return resample(wave, round(rate * speed), rate)


def reshaped(wave: np.ndarray, resonances: float) -> np.ndarray:
    """A wave [samples] of the same pitch, its resonances at `resonances` times their frequencies."""
    spectra = np.fft.rfft(_frames(wave))
    envelope = _envelope(spectra)
    bins = np.arange(envelope.shape[1])
    source = np.minimum(bins / resonances, bins[-1])
    low = np.minimum(source.astype(int), bins[-1] - 1)
    moved = envelope[:, low] + (source - low) * (envelope[:, low + 1] - envelope[:, low])
    most = LOUDER * math.log(10) / 20  # the envelope is the natural logarithm of amplitudes
    gains = np.exp(np.clip(moved - envelope, -most, most))
    return _as_loud_as(wave, _overlapped(np.fft.irfft(spectra * gains), len(wave)))


def breathed(wave: np.ndarray, share: float, seed: str) -> np.ndarray:
    """A wave [samples] of which a `share` of the amplitude is breath: noise in the same resonances; 1 is a whisper."""
    frames = _frames(wave)
    noise = np.random.default_rng(list(seed.encode())).standard_normal(frames.shape) * _window()
    blown = np.fft.irfft(np.fft.rfft(noise) * np.exp(_envelope(np.fft.rfft(frames))))
    breath = _as_loud_as(wave, _overlapped(blown, len(wave)))
    return np.asarray((1 - share) * wave + share * breath, dtype=np.float32)


def _window() -> np.ndarray:
    return np.hanning(SIZE + 1)[:-1]


def _frames(wave: np.ndarray) -> np.ndarray:
    """Windowed frames [frames, SIZE] of a wave with silence around it."""
    padded = np.pad(wave, (SIZE, SIZE + -len(wave) % HOP))
    return np.lib.stride_tricks.sliding_window_view(padded, SIZE)[::HOP] * _window()


def _envelope(spectra: np.ndarray) -> np.ndarray:
    """The logarithm of the mouth's part of spectra [frames, bins]: what comes back sooner than any voice swings."""
    cepstra = np.fft.irfft(np.log(np.abs(spectra) + 1e-4))
    cepstra[:, RESONANCES : SIZE - RESONANCES + 1] = 0
    return np.asarray(np.fft.rfft(cepstra).real)


def _overlapped(frames: np.ndarray, length: int) -> np.ndarray:
    """The wave [length] of which these frames [frames, SIZE], windowed once more, are the parts."""
    parts = (frames * _window()).reshape(len(frames), SIZE // HOP, HOP)
    wave = np.zeros((len(frames) + SIZE // HOP - 1, HOP))
    for part in range(SIZE // HOP):
        wave[part : part + len(frames)] += parts[:, part]
    return wave.reshape(-1)[SIZE : SIZE + length]


def _as_loud_as(wave: np.ndarray, other: np.ndarray) -> np.ndarray:
    loudness = np.sqrt(np.mean(np.square(wave)) / max(float(np.mean(np.square(other))), 1e-12))
    return np.asarray(loudness * other, dtype=np.float32)
