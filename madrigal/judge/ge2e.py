"""The voice encoder of Resemblyzer (generalised end-to-end loss; Wan and others, 2018), for listening only.

Runs the weights of that package without the package: it needs librosa. Silence is cut out by level, where the package
asks WebRTC's detector; on clean speech the embeddings of the two agree to a cosine of 0.99.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from madrigal.judge.signals import Wave
from madrigal.judge.spectra import magnitudes

RATE = 16_000
WINDOW, HOP, BANDS = 400, 160, 40
SLICE, STEP = 160, 77
"""Frames of 10 ms that are embedded at once (1.6 s), and how far apart slices start."""
LEVEL = 10 ** (-30 / 20)


def _mel(hertz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Slaney's scale: even steps below 1 kHz, even ratios above."""
    f = np.asarray(hertz, dtype=np.float64)
    return np.where(f < 1000, 3 * f / 200, 15 + 27 * np.log(np.maximum(f, 1000) / 1000) / np.log(6.4))


def mel(wave: Wave) -> npt.NDArray[np.float32]:
    """[samples] at 16 kHz -> mel power [frames, 40]."""
    places = np.linspace(0, float(_mel(RATE / 2)), BANDS + 2)
    edges = np.where(places < 15, 200 * places / 3, 1000 * np.exp(np.log(6.4) * (places - 15) / 27))
    bins = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - bins) / np.diff(edges)[1:]
    filters = np.maximum(0.0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])
    # `magnitudes` divides by the sum of its window, which these weights do not expect.
    power = (magnitudes(wave, WINDOW, HOP) * (WINDOW / 2)) ** 2
    return np.asarray(power @ filters, dtype=np.float32)


def without_silence(wave: Wave, depth: float = 35.0, frame: int = 480, pause: int = 6) -> Wave:
    """Leave out frames of 30 ms that are `depth` dB under the loud ones, but for pauses of about `pause` frames."""
    count = len(wave) // frame
    if count == 0:
        return wave
    frames = wave[: count * frame].reshape(count, frame)
    levels = np.sqrt((frames.astype(np.float64) ** 2).mean(axis=1))
    loud = levels > np.quantile(levels, 0.95) * 10 ** (-depth / 20)
    near = np.convolve(loud, np.ones(pause + 1))[pause // 2 :][:count] > 0.5
    return np.asarray(frames[near].reshape(-1)) if near.any() else wave


class VoiceEncoder(nn.Module):
    """Three LSTM layers and a projection: [samples] at 16 kHz -> embedding [256], the mean over slices of 1.6 s."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.lstm = nn.LSTM(BANDS, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        own = self.state_dict()
        self.load_state_dict({name: weights[name] for name in own})
        self.eval()

    @torch.no_grad()
    def embed(self, wave: Wave) -> npt.NDArray[np.float32]:
        """The voice of a wave; one shorter than a slice is filled up with silence."""
        level = float(np.sqrt(np.mean(wave.astype(np.float64) ** 2)))
        sound = without_silence(np.asarray(wave * max(1.0, LEVEL / max(level, 1e-9)), dtype=np.float32))
        frames = mel(sound)
        # A last slice counts when three quarters of it are sound.
        starts = [0, *(at for at in range(STEP, len(frames), STEP) if len(frames) - at >= 0.75 * SLICE)]
        padded = np.pad(frames, ((0, starts[-1] + SLICE), (0, 0)))
        slices = torch.from_numpy(np.stack([padded[at : at + SLICE] for at in starts]))
        _, (hidden, _) = self.lstm(slices)
        voices = nn.functional.normalize(torch.relu(self.linear(hidden[-1])), dim=1)
        return np.asarray(voices.mean(dim=0).numpy())
