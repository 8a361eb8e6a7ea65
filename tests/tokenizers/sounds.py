"""Waves for the tests, and tokenizers that build in milliseconds."""

from typing import Any

import torch
from torch import Tensor

from madrigal.tokenizers.kmeans import KmeansPlan, fit
from madrigal.tokenizers.masked_prediction import MaskedPrediction, MaskedPredictionConfig
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig
from madrigal.tokenizers.semantic import SemanticTokenizer

SMALL: dict[str, Any] = {
    "codebook_size": 8,
    "n_mels": 16,
    "dim": 16,
    "depth": 1,
    "predictor_depth": 1,
    "heads": 2,
    "dim_head": 8,
    "num_targets": 8,
}


def noise(*shape: int, seed: int = 1) -> Tensor:
    return 0.1 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fitted(tokenizer: SemanticTokenizer) -> SemanticTokenizer:
    """With centroids from two seconds of noise whose colour changes."""
    waves = [noise(16000, seed=seed).cumsum(0).diff(n=1 + seed % 2) for seed in range(2)]
    fit(tokenizer, waves, KmeansPlan(iterations=3))
    return tokenizer


def tiny_mel_kmeans(**options: Any) -> MelKmeans:
    return MelKmeans(MelKmeansConfig(**{"codebook_size": 8, **options}))


def tiny_encoder(**options: Any) -> MaskedPrediction:
    torch.manual_seed(0)
    return MaskedPrediction(MaskedPredictionConfig(**{**SMALL, **options}))
