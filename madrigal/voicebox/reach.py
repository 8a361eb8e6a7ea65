"""How far a frame hears: what is in a hole is heard by frames beside it, too, which have to be made anew with it."""

import torch

from madrigal.layers.hop_stft import margins
from madrigal.tokenizers.mel_features import Features, MelFeatures

PROBED = 100
"""Frames on each side of a hole that are looked at, where nobody says how far they hear."""
HEARD = 0.05
"""Of a frame's deviation: what changes by less does not hear the hole."""


def window_reach(n_fft: int, hop: int) -> int:
    """Frames beside a hole that a window of a spectrum reaches from."""
    return -(-max(margins(n_fft, hop)) // hop)


def reach_of(features: Features) -> int:
    """Frames beside a hole that hear into it: those of log-mels by their window, those of a codec by trial."""
    if isinstance(features, MelFeatures):
        return window_reach(features.config.n_fft, features.hop)
    hop = features.hop
    wave = 0.1 * torch.randn(1, (2 * PROBED + 10) * hop, generator=torch.Generator().manual_seed(0))
    holed = wave.clone()
    holed[:, PROBED * hop : (PROBED + 10) * hop] = 0.0
    one, other = features.encode(wave), features.encode(holed)
    changed = ((one - other).abs().amax(-1)[0] > HEARD).nonzero()[:, 0].tolist()
    return max((PROBED - frame if frame < PROBED else frame - PROBED - 9 for frame in changed), default=0)
