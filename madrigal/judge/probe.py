"""A linear classifier on features: an independent eye that says what is on a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from madrigal.errors import UserError
from madrigal.judge.frechet import Features


class Probe(NamedTuple):
    """Logistic regression on normalised features: `labels`, and the weights [dim + 1, labels]."""

    labels: list[str]
    mean: Features
    std: Features
    weights: Features

    def scores(self, features: Features) -> Features:
        """Logits [n, labels] of features [n, dim]."""
        scaled = (np.asarray(features, np.float64) - self.mean) / self.std
        logits: Features = scaled @ self.weights[:-1] + self.weights[-1]
        return logits

    def guesses(self, features: Features) -> list[str]:
        """The likeliest label of each item."""
        return [self.labels[number] for number in self.scores(features).argmax(1)]

    def accuracy(self, features: Features, labels: Sequence[str], top: int = 1) -> float:
        """The share of items whose label is among the `top` likeliest; labels that it does not know are never right."""
        best = np.argsort(-self.scores(features), axis=1)[:, :top]
        right = [label in {self.labels[n] for n in row} for row, label in zip(best, labels, strict=True)]
        return float(np.mean(right))

    @property
    def chance(self) -> float:
        """How often a guess without looking is right, all labels being equally likely."""
        return 1 / len(self.labels)


def fit_probe(features: Features, labels: Sequence[str], *, decay: float = 1e-2, steps: int = 200) -> Probe:
    """Learn from features [n, dim] of real pictures and their labels, by L-BFGS from zero: always the same."""
    known = sorted(set(labels))
    if len(known) < 2:
        raise UserError("A classifier needs pictures of at least two labels; give it more.")
    rows = np.asarray(features, np.float64)
    mean, std = rows.mean(0), rows.std(0) + 1e-6
    x = torch.from_numpy((rows - mean) / std)
    x = torch.cat((x, torch.ones(len(x), 1, dtype=x.dtype)), dim=1)
    places = {label: number for number, label in enumerate(known)}
    wanted = torch.tensor([places[label] for label in labels])
    weights = torch.zeros(x.shape[1], len(known), dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        value = F.cross_entropy(x @ weights, wanted) + decay * weights[:-1].square().sum() / 2
        value.backward()
        return float(value.detach())

    optimizer.step(loss)
    return Probe(known, mean, std, weights.detach().numpy())
