"""Semantic tokens from a layer of Whisper's encoder: trained on transcripts, so close to words and far from voices."""

from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from madrigal.tokenizers.hidden_layer import HiddenLayerConfig, HiddenLayerTokenizer
from madrigal.tokenizers.whisper_encoder import HOP, RATE, load_whisper, whisper_dim


class WhisperConfig(HiddenLayerConfig):
    """Options of `WhisperTokenizer`."""

    kind: Literal["whisper"] = "whisper"
    layer: int = Field(3, ge=1, description="the layer whose output is clustered, counted from 1")
    frames_per_token: int = Field(2, ge=1, description="20 ms frames that are averaged to a token")
    window_seconds: float = Field(30.0, ge=1, le=30, description="recordings are heard in pieces of this length")

    @model_validator(mode="after")
    def _hears_at_16_khz(self) -> "WhisperConfig":
        if self.target_sample_hz != RATE:
            raise ValueError(f"Whisper hears at {RATE} Hz; leave target_sample_hz out")
        return self


class WhisperTokenizer(HiddenLayerTokenizer):
    """Mean [batch, time, dim] of the encoder's frames that a token covers.

    The encoder hears windows of a fixed length, filled up with silence, as it was trained.
    """

    Config: ClassVar[type[WhisperConfig]] = WhisperConfig
    config: WhisperConfig

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config, feature_dim=whisper_dim(config.checkpoint))

    @property
    def downsample_factor(self) -> int:
        return 2 * HOP * self.config.frames_per_token

    @property
    def window(self) -> tuple[int, int]:
        context = round(self.frame_rate)
        return max(1, int(self.config.window_seconds * self.frame_rate) - 2 * context), context

    def features(self, wave: Tensor) -> Tensor:
        encoder: Any = self.loaded
        tokens = wave.shape[-1] // self.downsample_factor
        full = int(self.config.window_seconds * RATE)
        frames = encoder(encoder.log_mels(F.pad(wave, (0, max(0, full - wave.shape[-1])))))
        covered = frames[:, : tokens * self.config.frames_per_token]
        return covered.unflatten(1, (tokens, self.config.frames_per_token)).mean(2)

    def _load(self) -> nn.Module:
        encoder = load_whisper(self.config.checkpoint, self.config.layer)
        self._set_feature_dim(encoder.positions.shape[1])
        return encoder
