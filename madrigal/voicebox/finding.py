"""Where the symbols of recordings and their durations are: below a folder of `madrigal align`, or of semantic tokens.

Semantic tokens need no aligner: how often one repeats is how long it lasts.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import torch

from madrigal.data.manifest import Manifest
from madrigal.data.tokens import TOKENS, TokenShards
from madrigal.errors import UserError
from madrigal.voicebox.alignments import ALIGNMENTS, AlignmentInfo, Alignments, AnyAlignments, Timed, texts_digest
from madrigal.voicebox.expand import at_frame_rate, collapse


def find_alignments(folder: str | Path, manifest: Manifest, grid: tuple[int, int] | None = None) -> AnyAlignments:
    """The alignments of a manifest's recordings at or below `folder`, or semantic tokens in their place.

    `grid` is sample rate and hop of the frames that are wanted; alignments have their own, which must be the same.
    """
    folder = Path(folder)
    if (folder / TOKENS).is_file():
        if grid is None:
            raise UserError(
                f"{folder} holds tokens, which have no frames of their own: give model.sample_rate and hop."
            )
        return TokenAlignments(TokenShards.open(folder), sample_rate=grid[0], hop=grid[1])
    places = (
        [folder] if (folder / ALIGNMENTS).is_file() else sorted(file.parent for file in folder.glob(f"*/{ALIGNMENTS}"))
    )
    fitting = [found for place in places if _has(found := Alignments.open(place), manifest)]
    exact = [found for found in fitting if found.info.manifest == texts_digest(manifest.entries)]
    if not fitting:
        raise UserError(
            f"{folder} holds no finished alignments of the recordings of {manifest.root}: make them with "
            f"`madrigal align RUN MANIFEST -o {folder}`."
        )
    if len({found.info.fingerprint for found in fitting}) > 1:
        raise UserError(f"{folder} holds alignments of several aligners; name one of its folders, as {places[0]}.")
    found = (exact or fitting)[0]
    if grid is not None and grid != (found.info.sample_rate, found.info.hop):
        raise UserError(
            f"{found.folder} counts frames of {found.info.hop} samples at {found.info.sample_rate} Hz, and {grid[1]} "
            f"samples at {grid[0]} Hz are wanted: train an aligner with model.hop={grid[1]} and "
            f"model.sample_rate={grid[0]}."
        )
    return found


def _has(found: Alignments, manifest: Manifest) -> bool:
    return all(found.knows(entry.path) for entry in manifest)


class TokenAlignments:
    """Semantic tokens on disk as alignments to frames of `hop` samples: runs of a token are its duration."""

    def __init__(self, shards: TokenShards, *, sample_rate: int, hop: int) -> None:
        self.shards, self.failed = shards, shards.failed
        self.info = AlignmentInfo(
            fingerprint=shards.info.fingerprint,
            symbols=None,
            num_symbols=shards.info.codebook_size,
            sample_rate=sample_rate,
            hop=hop,
        )

    def __contains__(self, path: str) -> bool:
        return path in self.shards

    def row(self, path: str) -> Timed:
        ids = torch.from_numpy(self.shards.tokens(path))[None]
        rate = Fraction(self.info.sample_rate, self.info.hop)
        spread = at_frame_rate(ids, torch.tensor([ids.shape[1]]), self.shards.info.rate, rate)
        symbols, durations, _ = collapse(spread)
        return Timed(symbols[0], durations[0])

    def frames(self, path: str) -> int:
        rate = Fraction(self.info.sample_rate, self.info.hop) / self.shards.info.rate
        return self.shards.frames(path) * rate.numerator // rate.denominator

    def size(self, path: str) -> int:
        return self.shards.frames(path)  # at most; runs are only known when they are read

    def confidence(self, path: str) -> float:
        return 1.0
