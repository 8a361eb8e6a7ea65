"""The plainest semantic tokenizer: k-means over cepstra, their movement and their neighbours."""

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from madrigal.layers.kmeans import nearness
from madrigal.tokenizers.mel_frames import MelFrames, UtteranceNorm
from madrigal.tokenizers.semantic import SemanticTokenizer, TokenizerConfig


class MelKmeansConfig(TokenizerConfig):
    """Options of `MelKmeans`."""

    kind: Literal["mel-kmeans"] = "mel-kmeans"
    hop: int = Field(160, ge=1, description="samples between spectra")
    n_fft: int = Field(512, ge=2, description="window of a spectrum, in samples")
    n_mels: int = Field(40, ge=1, description="mel bands")
    cepstra: int | None = Field(13, ge=1, description="cosine coefficients of the log-mels; null: the log-mels")
    lifter: float = Field(3.0, gt=0, description="coefficient k counts 1 / (1 + k / lifter): the high ones tell voices")
    frames_per_token: int = Field(4, ge=1, description="spectra that make a token")
    context: int = Field(2, ge=0, description="spectra before and behind that a token hears too")
    deltas: bool = Field(True, description="add each value's slope over five spectra")
    prior_seconds: float = Field(0.3, ge=0, description="how strongly the corpus' mean holds an utterance's own")


class MelKmeans(SemanticTokenizer):
    """Features [batch, time, values * (frames_per_token + 2 * context)] of normalised cepstra or log-mels."""

    Config: ClassVar[type[MelKmeansConfig]] = MelKmeansConfig
    config: MelKmeansConfig

    def __init__(self, config: MelKmeansConfig | None = None) -> None:
        config = config or MelKmeansConfig()
        values = config.cepstra or config.n_mels
        heard = config.frames_per_token + 2 * config.context
        super().__init__(config, feature_dim=values * (2 if config.deltas else 1) * heard)
        self.spectra = MelFrames(config.target_sample_hz, hop=config.hop, n_fft=config.n_fft, n_mels=config.n_mels)
        self.norm = UtteranceNorm(values, prior=config.prior_seconds * config.target_sample_hz / config.hop)
        self.cosines: Tensor
        self.register_buffer("cosines", _cosines(config.n_mels, config.cepstra), persistent=False)
        self.shares: Tensor
        order = torch.arange(values) if config.cepstra else torch.zeros(values)
        self.register_buffer("shares", 1 / (1 + order / config.lifter), persistent=False)

    @property
    def downsample_factor(self) -> int:
        return self.config.hop * self.config.frames_per_token

    def features(self, wave: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, samples] -> [batch, time, feature_dim]; `mask` [batch, spectra] leaves padding out of the means."""
        frames = self.norm(self._cepstra(wave), mask) * self.shares
        if self.config.deltas:
            slopes = _slopes(frames)
            # Behind the end there is nothing, and no slope down to it either.
            frames = torch.cat((frames, slopes if mask is None else slopes * mask[..., None]), dim=-1)
        context, step = self.config.context, self.config.frames_per_token
        padded = F.pad(frames, (0, 0, context, context))
        return padded.unfold(1, step + 2 * context, step).flatten(2)

    def classes(self, wave: Tensor, mask: Tensor) -> Tensor:
        """Ids [batch, time] of a padded batch, for a model that learns them; `mask` [batch, spectra] is as above."""
        features = self.features(wave, mask)
        return nearness(features, self.centroids.expand(len(features), -1, -1)).argmax(-1)

    @torch.no_grad()
    def fit_statistics(self, waves: Iterable[Tensor]) -> None:
        whole = (wave[: len(wave) // self.config.hop * self.config.hop] for wave in waves)
        self.norm.fit(torch.cat([self._cepstra(wave[None])[0] for wave in whole]))

    def _cepstra(self, wave: Tensor) -> Tensor:
        frames: Tensor = self.spectra(wave)
        return frames if self.config.cepstra is None else frames @ self.cosines


def _cosines(n_mels: int, cepstra: int | None) -> Tensor:
    """The discrete cosine transform [n_mels, cepstra]."""
    places = (torch.arange(n_mels) + 0.5) * math.pi / n_mels
    return torch.cos(places[:, None] * torch.arange(cepstra or 1)) * math.sqrt(2 / n_mels)


def _slopes(frames: Tensor) -> Tensor:
    """The slope of the line through five frames [batch, time, dim], silence around; scaled to a deviation near one."""
    before = F.pad(frames, (0, 0, 2, 2))
    time = frames.shape[1]
    near, far = before[:, 3 : 3 + time] - before[:, 1 : 1 + time], before[:, 4:] - before[:, :time]
    return (near + 2 * far) / 5
