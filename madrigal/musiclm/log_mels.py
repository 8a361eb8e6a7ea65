"""What the audio transformer hears: log-mel frames with about zero mean and unit variance in every band."""

from typing import Any

from torch import Tensor

from madrigal.tokenizers.mel_features import Features
from madrigal.tokenizers.mel_frames import MelFrames


class LogMels(Features):
    """Waves [batch, samples] -> [batch, samples // hop, n_mels]; mean and deviation are measured on data and kept.

    A row is the same in any batch, and frames behind its end are zero, which is the mean.
    """

    def __init__(
        self, sample_rate: int, *, hop: int, n_fft: int, win_length: int, n_mels: int, power: float = 2.0
    ) -> None:
        super().__init__(dim=n_mels, sample_rate=sample_rate, hop=hop)
        self.sizes: dict[str, Any] = {"hop": hop, "n_fft": n_fft, "win_length": win_length, "n_mels": n_mels}
        self.power = power
        self.mel = MelFrames(sample_rate, **self.sizes, power=power)

    def raw(self, wave: Tensor) -> Tensor:
        if wave.shape[-1] < self.hop:
            return wave.new_zeros(len(wave), 0, self.dim)
        frames: Tensor = self.mel(wave)
        return frames

    def options(self) -> dict[str, Any]:
        return {"kind": "log-mels", "sample_rate": self.sample_rate, "power": self.power, **self.sizes}
