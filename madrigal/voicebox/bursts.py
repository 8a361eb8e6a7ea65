"""Where a recording is drowned by a burst of noise: loud, and flat over all frequencies, as no sound of speech is.

Speech has its energy in some bands at a time: a vowel in the low ones, an s in the high ones. A cough of static, a
knock on the microphone or a rustle has it in all.
"""

from itertools import pairwise

import torch
from torch import Tensor

from madrigal.voicebox.mending import Span

BANDS, LOW_HZ, HIGH_HZ = 16, 150.0, 7500.0
"""Bands of equal width, between which noise is flat and speech is not."""
NOTHING = 1e-6
"""Beside its strongest frequency, a recording has nothing where there is less power than this (-60 dB)."""
FLAT = 0.5
"""Geometric over arithmetic mean of the bands: noise has over 0.8, an s about 0.2, a vowel less."""
BELOW_SPEECH_DB = 15.0
"""A burst is at least so loud beside the loud parts of the speech; what is softer hides nothing."""
SHORTEST, LONGEST = 0.05, 1.5
"""Seconds: what is shorter may be a consonant, what is longer is no burst: nothing around it tells what was there."""
MARGIN = 0.03
"""Seconds on each side that go with a burst, which comes and goes."""
JOIN = 0.08
"""Seconds between two bursts under which they are one."""


def find_bursts(wave: Tensor, sample_rate: int) -> list[Span]:
    """Spans in seconds of a wave [samples], in order; none where it is clean."""
    hop = max(1, round(0.008 * sample_rate))
    bands = _bands(wave, sample_rate, hop)
    if not len(bands):
        return []
    power = bands.mean(1)
    flatness = bands.clamp(min=1e-12).log().mean(1).exp() / power.clamp(min=1e-12)
    # The level of speech is that of frames which are not flat; a recording that is all noise has none.
    voiced = power[flatness < FLAT]
    if not len(voiced) or float(voiced.max()) <= 1e-9:
        return []
    level = 10 * torch.quantile(voiced, 0.95).log10()
    loud = 10 * power.clamp(min=1e-12).log10() > level - BELOW_SPEECH_DB
    spans = [(start * hop / sample_rate, stop * hop / sample_rate) for start, stop in _runs((flatness > FLAT) & loud)]
    spans = [span for span in _merged(spans) if SHORTEST <= span[1] - span[0] <= LONGEST]
    seconds = len(wave) / sample_rate
    return _merged([(max(0.0, start - MARGIN), min(seconds, stop + MARGIN)) for start, stop in spans])


def _bands(wave: Tensor, sample_rate: int, hop: int) -> Tensor:
    """Power in each band, [frames, BANDS]; frame i is centred on sample i * hop."""
    size = 4 * hop
    window = torch.hann_window(size, device=wave.device)
    spectrum = torch.stft(wave, size, hop, window=window, return_complex=True, pad_mode="constant").abs().square().T
    # A recording that came by telephone, or was brought to another rate, has nothing above some frequency: empty bands
    # would make all of it look like speech.
    power = spectrum.mean(0)
    there = (power > NOTHING * power.max()).nonzero()[:, 0]
    top = float(there[-1]) * sample_rate / size if len(there) else sample_rate / 2
    edges = torch.linspace(LOW_HZ, max(2 * LOW_HZ, min(HIGH_HZ, top)), BANDS + 1) * size / sample_rate
    places = edges.round().long().tolist()
    return torch.stack([spectrum[:, a : max(b, a + 1)].mean(1) for a, b in pairwise(places)], 1)


def _runs(marked: Tensor) -> list[tuple[int, int]]:
    """First and behind-the-last places of every run of True."""
    steps = torch.diff(marked.int(), prepend=marked.new_zeros(1).int(), append=marked.new_zeros(1).int())
    return list(zip((steps == 1).nonzero()[:, 0].tolist(), (steps == -1).nonzero()[:, 0].tolist(), strict=True))


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for start, stop in spans:
        if found and start - found[-1][1] < JOIN:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
