"""What is said in a game of makers and judges: the judge's loss, the penalty of its gradients, and its features.

Every mean is over what is there: whatever lies behind an item's length, where items have one, is not counted.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Terms = dict[str, Tensor]


class Valid:
    """Which part of padded waves [batch, channels, samples] is sound, at any resolution of time.

    Without `lengths` all of it counts, whatever the shape: so it is with pictures.
    """

    def __init__(self, lengths: Tensor | None = None, samples: int = 0) -> None:
        self.lengths, self.samples = lengths, samples

    def mask(self, steps: int, ndim: int) -> Tensor | None:
        """Of tensors [batch, …, steps] that span the waves; None where all of it is sound."""
        if self.lengths is None:
            return None
        sound = -(-self.lengths * steps // self.samples)
        mask = torch.arange(steps, device=sound.device) < sound[:, None]
        return mask.reshape(len(sound), *[1] * (ndim - 2), steps)

    def silence(self, wave: Tensor) -> Tensor:
        mask = self.mask(wave.shape[-1], wave.ndim)
        return wave if mask is None else wave * mask

    def mean(self, values: Tensor) -> Tensor:
        """Mean of [batch, …, steps] over the sound."""
        mask = self.mask(values.shape[-1], values.ndim)
        if mask is None:
            return values.mean()
        count = mask.sum() * (values[0].numel() // values.shape[-1])
        return (values * mask).sum() / count


def hinge(real_logits: Tensor, fake_logits: Tensor, valid: Valid) -> Tensor:
    return valid.mean(F.relu(1 - real_logits)) + valid.mean(F.relu(1 + fake_logits))


def cross_entropy(real_logits: Tensor, fake_logits: Tensor, valid: Valid) -> Tensor:
    """Minus the log-likelihood of having told both apart."""
    return valid.mean(F.softplus(-real_logits)) + valid.mean(F.softplus(fake_logits))


def feature_distance(made: list[Tensor], real: list[Tensor], valid: Valid) -> Tensor:
    """Mean L1 over one discriminator's features [batch, …, time]."""
    return torch.stack([valid.mean((m - r).abs()) for m, r in zip(made, real, strict=True)]).mean()


def gradient_penalty(waves: Tensor, logits: Tensor, valid: Valid) -> Tensor:
    """Mean squared norm of the gradient of a clip's score, the mean of its logits, towards the clip's sound."""
    mask = valid.mask(logits.shape[-1], logits.ndim)
    weights = torch.ones_like(logits) if mask is None else mask.expand_as(logits).to(logits.dtype)
    scores = (logits * weights).flatten(1).sum(dim=1) / weights.flatten(1).sum(dim=1)
    (gradient,) = torch.autograd.grad(scores.sum(), waves, create_graph=True)
    return valid.silence(gradient).square().flatten(1).sum(dim=1).mean()


class Verdict(Protocol):
    """A discriminator's loss, from its logits of what is real and of what was made."""

    def __call__(self, real_logits: Tensor, fake_logits: Tensor, valid: Valid) -> Tensor: ...


def discriminator_terms(
    discriminator: nn.Module,
    real: Tensor,
    fake: Tensor,
    *,
    penalty: bool = False,
    lengths: Tensor | None = None,
    verdict: Verdict = hinge,
    name: str = "hinge",
) -> Terms:
    """One discriminator's loss for waves [batch, channels, samples] or pictures; nothing flows back into the maker."""
    valid = Valid(lengths, real.shape[-1])
    both = torch.cat((valid.silence(real), valid.silence(fake))).detach().requires_grad_(penalty)
    logits, _ = discriminator(both)
    real_logits, fake_logits = logits.chunk(2)
    terms = {name: verdict(real_logits, fake_logits, valid)}
    if penalty:
        twice = Valid(None if lengths is None else lengths.repeat(2), real.shape[-1])
        terms["penalty"] = gradient_penalty(both, logits, twice)
    return terms
