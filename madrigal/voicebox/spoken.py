"""Recordings with the symbols of their texts, when nobody knows yet when each is said: what an aligner learns from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from madrigal.data.dataset import SoundDataset
from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.source import Say, Source, manifest_of
from madrigal.errors import UserError
from madrigal.voicebox.aligner import MOST_SECONDS, Aligner


def symbols_of(entry: Entry, aligner: Aligner) -> list[int]:
    """The symbols of a recording's text, or a DecodeError that says why it has none that fit."""
    if not (entry.text or "").strip():
        raise DecodeError.of(entry.path, "it has no text")
    if entry.duration > MOST_SECONDS:
        raise DecodeError.of(
            entry.path, f"it has {entry.duration:.0f} seconds, and {MOST_SECONDS:.0f} at most are aligned"
        )
    try:
        symbols = aligner.symbols.encode(entry.text or "")
    except UserError as error:
        raise DecodeError.of(entry.path, str(error).rstrip(".")) from error
    # A duration that is whole frames may come out a hair below them.
    check_frames(entry.path, len(symbols), int(entry.duration * aligner.config.frame_rate + 1e-6))
    return symbols


def check_frames(path: str | Path, symbols: int, frames: int) -> None:
    """Each symbol needs a frame."""
    if symbols > frames:
        raise DecodeError.of(path, f"its text has {symbols} symbols, and it has {frames} frames")


class SpokenDataset(SoundDataset):
    """Whole recordings, "audio" [1, samples], with "symbols" int64 [symbols].

    `left_out` says which have no text, or one that cannot be said or has more symbols than the recording frames.
    """

    def __init__(self, manifest: Manifest, aligner: Aligner, rejected_path: Path | None = None) -> None:
        self.left_out: dict[str, str] = {}
        self.symbols: list[list[int]] = []
        kept = []
        for entry in manifest:
            try:
                self.symbols.append(symbols_of(entry, aligner))
                kept.append(entry)
            except DecodeError as error:
                self.left_out[entry.path] = error.reason
        if not kept:
            raise UserError(
                f"None of the {len(manifest)} recordings of {manifest.root} has a text that can be aligned."
            )
        super().__init__(Manifest(manifest.root, kept), aligner.config.sample_rate, rejected_path=rejected_path)

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        return {**super().load(index, rng), "symbols": torch.tensor(self.symbols[index])}

    @property
    def summary(self) -> str:
        """How many were left out, and why."""
        reasons = Counter(self.left_out.values()).most_common(5)
        return ", ".join(f"{count}: {reason.rstrip('.')}" for reason, count in reasons)


def spoken_datasets(
    source: Source, aligner: Aligner, prepared_in: Path, *, anew: bool, say: Say | None
) -> tuple[Any, Any]:
    """The training set, and the validation set where one is named."""

    def dataset(path: Path, name: str) -> SpokenDataset:
        manifest = manifest_of(path, prepared_in / name, anew=anew, say=say)
        found = SpokenDataset(manifest, aligner, prepared_in / name / "rejected.jsonl")
        if found.left_out and say is not None:
            say(f"{len(found.left_out)} of {len(manifest)} recordings of {path} are left out ({found.summary})")
        return found

    return dataset(source.path, "train"), dataset(source.valid_path, "valid") if source.valid_path else None
