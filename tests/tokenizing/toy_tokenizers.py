"""A semantic tokenizer and a codec of a few lines, with the interface of the real ones."""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor


class ToyTokenizer:
    """25 ids a second: the loudness of each 40 ms."""

    kind = "toy"
    target_sample_hz, downsample_factor, frame_rate = 16000, 640, 25.0

    def __init__(self, codebook_size: int = 64, pause: float = 0.0, deadly: bool = False) -> None:
        self.codebook_size, self.pause, self.deadly = codebook_size, pause, deadly

    def fingerprint(self) -> str:
        return f"{self.codebook_size:016x}"

    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        time.sleep(self.pause)
        if self.deadly:
            os._exit(9)
        assert torch.get_num_threads() == 1
        frames = audio[:, : audio.shape[-1] // self.downsample_factor * self.downsample_factor]
        levels = frames.unflatten(1, (-1, self.downsample_factor)).abs().mean(-1)
        ids = (levels * 4 * self.codebook_size).long().clamp(max=self.codebook_size - 1)
        return ids, torch.full((len(ids),), ids.shape[1])


class ToyCodec(ToyTokenizer):
    """Codes [batch, frames, 4] of two levels and two groups, 50 frames a second, of stereo audio."""

    kind = "toy-codec"
    downsample_factor, frame_rate = 320, 50.0
    num_quantizers, rq_groups, channels = 2, 2, 2

    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> Tensor:  # type: ignore[override]
        assert audio.shape[1] == 2
        ids, _ = super().tokenize(audio.mean(1))
        return torch.stack([ids, ids // 2, ids // 3, ids // 4], dim=-1)
