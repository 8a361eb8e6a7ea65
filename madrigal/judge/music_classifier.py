"""A classifier of instruments, trained on recordings alone: an ear that has heard nothing of the model it judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.judge.music_features import Vector, clip_features

HIDDEN, STEPS, BATCH, NOISE = 64, 300, 128, 0.5


class InstrumentClassifier:
    """Two layers over the statistics of a clip's log-mels. Clips are waves [samples] or [channels, samples]."""

    def __init__(self, names: Sequence[str], mean: Vector, std: Vector, network: nn.Module) -> None:
        self.names, self.mean, self.std, self.network = list(names), mean, std, network

    @classmethod
    def fit(cls, features: Vector, labels: Sequence[str], *, seed: int = 0) -> InstrumentClassifier:
        """From features [clips, dims] of recordings and the instruments in them."""
        names = sorted(set(labels))
        if len(names) < 2:
            raise UserError("A classifier needs clips of two instruments at least.")
        mean, std = features.mean(0), features.std(0) + 1e-3
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = nn.Sequential(
                nn.Linear(features.shape[1], HIDDEN), nn.GELU(), nn.Dropout(0.2), nn.Linear(HIDDEN, len(names))
            )
            made = cls(names, mean, std, network)
            made._learn(made._scaled(features), torch.tensor([names.index(label) for label in labels]))
        return made

    def _learn(self, features: Tensor, targets: Tensor) -> None:
        """Noise on what it hears: a codec changes the statistics a little, and must not change the answer."""
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=3e-3, weight_decay=0.05)
        self.network.train()
        for _ in range(STEPS):
            chosen = torch.randint(len(features), (BATCH,))
            heard = features[chosen] + NOISE * torch.randn(BATCH, features.shape[1])
            loss = F.cross_entropy(self.network(heard), targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.network.eval()

    @torch.no_grad()
    def predict(self, features: Vector) -> list[str]:
        """The instrument of each of [clips, dims]."""
        return [self.names[i] for i in self.network(self._scaled(features)).argmax(-1).tolist()]

    @torch.no_grad()
    def embed(self, features: Vector) -> Vector:
        """Its inner features [clips, HIDDEN], in which clips of an instrument lie together."""
        inner = self.network[:2](self._scaled(features))  # type: ignore[index]
        return np.asarray(inner.double().numpy())

    def _scaled(self, features: Vector) -> Tensor:
        return torch.from_numpy((features - self.mean) / self.std).float()


def features_of(waves: Sequence[Any], rate: int) -> Vector:
    """[clips, dims] of several clips."""
    return np.stack([clip_features(wave, rate) for wave in waves])
