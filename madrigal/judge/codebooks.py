"""Are the codebooks alive: perplexity and usage of each quantizer, counted over many utterances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

HEALTHY = 0.5
"""A codebook whose perplexity is under this fraction of its size raises the alarm."""


class Codebook(BaseModel):
    """What one quantizer's codes looked like: perplexity (1 to size), used entries (fraction), codes counted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    perplexity: float
    usage: float
    count: int

    @property
    def healthy(self) -> bool:
        """Perplexity of at least half the size, or of half of what so few codes could show at most."""
        return self.perplexity >= HEALTHY * min(self.size, self.count)


def as_codes(codes: Any) -> npt.NDArray[np.int64]:
    """Array or tensor of [frames, quantizers] or [batch, frames, quantizers] -> [frames, quantizers]."""
    if hasattr(codes, "detach"):
        codes = codes.detach().cpu()
    array = np.asarray(codes)
    if array.ndim == 3:
        array = array.reshape(-1, array.shape[-1])
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            "Codes are integers of the shape [frames, quantizers] or [batch, frames, quantizers], "
            f"not {array.dtype} {list(array.shape)}."
        )
    return array.astype(np.int64)


class CodeCounter:
    """Histograms of codes [quantizers, codebook_size], added up utterance by utterance."""

    def __init__(self, codebook_size: int) -> None:
        self.codebook_size = codebook_size
        self.counts = np.zeros((0, codebook_size), dtype=np.int64)

    def add(self, codes: Any) -> None:
        """Count codes [frames, quantizers]; utterances may have different numbers of quantizers."""
        array = as_codes(codes)
        if array.size and (array.min() < 0 or array.max() >= self.codebook_size):
            raise ValueError(
                f"Codes run from {array.min()} to {array.max()}, outside of a codebook of {self.codebook_size}."
            )
        more = array.shape[1] - len(self.counts)
        if more > 0:
            self.counts = np.pad(self.counts, ((0, more), (0, 0)))
        for quantizer in range(array.shape[1]):
            self.counts[quantizer] += np.bincount(array[:, quantizer], minlength=self.codebook_size)

    def codebooks(self) -> list[Codebook]:
        """One record for each quantizer, the coarsest first."""
        return [self._codebook(row) for row in self.counts]

    def _codebook(self, row: npt.NDArray[np.int64]) -> Codebook:
        total = int(row.sum())
        if total == 0:
            return Codebook(size=self.codebook_size, perplexity=0.0, usage=0.0, count=0)
        shares = row[row > 0] / total
        return Codebook(
            size=self.codebook_size,
            perplexity=float(np.exp(-(shares * np.log(shares)).sum())),
            usage=float((row > 0).mean()),
            count=total,
        )


def perplexity(codes: Any, codebook_size: int) -> list[float]:
    """Perplexity of each quantizer of codes [batch, frames, quantizers]."""
    counter = CodeCounter(codebook_size)
    counter.add(codes)
    return [codebook.perplexity for codebook in counter.codebooks()]


def usage(codes: Any, codebook_size: int) -> list[float]:
    """The fraction of entries that each quantizer of codes [batch, frames, quantizers] used at all."""
    counter = CodeCounter(codebook_size)
    counter.add(codes)
    return [codebook.usage for codebook in counter.codebooks()]


def bits(codes: Any, codebook_size: int) -> float:
    """What codes [frames, quantizers] cost when each is packed into log2(codebook_size) bits."""
    return as_codes(codes).size * math.log2(codebook_size)
