"""Whole recordings in MuLaN's space: longer than the clips that it learned from, and from files."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.data.audio import DecodeError, probe, read, resample
from madrigal.musiclm.mulan import MuLaN

PIECE_SECONDS = 10.0
"""A longer recording is embedded in pieces of this length, and is the mean of them.

It is the same for every model, however long the clips were that it learned from.
"""
TEXTS = 64
"""Captions that are embedded at once."""


@torch.no_grad()
def embedding_of(mulan: MuLaN, wave: Tensor, *, piece_seconds: float = PIECE_SECONDS) -> Tensor:
    """A wave [samples] at MuLaN's rate -> [dim_latent] of unit length; a last piece under half a length is left out."""
    size = max(1, int(piece_seconds * mulan.sample_rate))
    pieces = list(wave.split(size))
    if len(pieces) > 1 and len(pieces[-1]) < size // 2:
        pieces.pop()
    found = torch.cat([mulan.get_audio_latents(piece[None]) for piece in pieces])
    return F.normalize(found.mean(0), dim=0)


def embedding_of_file(mulan: MuLaN, path: Path, *, piece_seconds: float = PIECE_SECONDS) -> Tensor:
    """The same of an audio file, whatever its rate and channels."""
    rate = probe(path).sample_rate
    wave = resample(read(path, channels=1), rate, mulan.sample_rate)
    if not wave.numel():
        raise DecodeError.of(path, "it has no samples")
    device = mulan.audio.rows.device
    return embedding_of(mulan, wave[0].to(device), piece_seconds=piece_seconds).cpu()


def embeddings_of_files(
    mulan: MuLaN,
    paths: Sequence[Path],
    *,
    piece_seconds: float = PIECE_SECONDS,
    progress: Callable[..., None] | None = None,
) -> Tensor:
    """[files, dim_latent]."""
    rows = []
    for number, path in enumerate(paths):
        rows.append(embedding_of_file(mulan, path, piece_seconds=piece_seconds))
        if progress is not None:
            progress(number + 1, len(paths))
    return torch.stack(rows) if rows else torch.zeros(0, mulan.dim_latent)


@torch.no_grad()
def embeddings_of_texts(mulan: MuLaN, texts: Iterable[str]) -> Tensor:
    """[texts, dim_latent]."""
    given = list(texts)
    rows = [mulan.get_text_latents(given[start : start + TEXTS]).cpu() for start in range(0, len(given), TEXTS)]
    return torch.cat(rows) if rows else torch.zeros(0, mulan.dim_latent)
