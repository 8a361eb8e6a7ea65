"""Speech of a kind: every letter is a tone, spaces are silence, and it is known how long each lasts."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from madrigal.data.audio import write
from madrigal.data.manifest import Entry, Manifest
from madrigal.voicebox.aligner import Aligner, AlignerConfig

RATE, HOP = 8000, 80
LETTERS = "abcdef"
SPEC = {"text": {"kind": "characters", "alphabet": " " + LETTERS}, "read": None}
SMALL: dict[str, Any] = {
    "symbols": SPEC, "sample_rate": RATE, "hop": HOP, "n_fft": 256, "n_mels": 20, "dim": 16, "depth": 1, "kernel": 3,
}  # fmt: skip


def aligner(seed: int = 0) -> Aligner:
    torch.manual_seed(seed)
    return Aligner(AlignerConfig(**SMALL))


def text_of(number: int) -> str:
    """Two words without a letter twice in a row."""
    rng = np.random.default_rng(number)
    letters = [rng.permutation(list(LETTERS))[: rng.integers(2, 5)] for _ in range(2)]
    return " ".join("".join(word) for word in letters)


def said(text: str, number: int = 0) -> tuple[torch.Tensor, list[int]]:
    """The wave [samples] of a text, and the frames of its symbols, the silences around it included."""
    rng = np.random.default_rng(1000 + number)
    pieces, frames = [], []
    for letter in f" {text} ":
        count = int(rng.integers(5, 15))
        time = np.arange(count * HOP) / RATE
        tone = 0.3 * np.sin(2 * np.pi * (300 + 550 * LETTERS.find(letter)) * time) if letter != " " else 0 * time
        pieces.append(tone + 0.003 * rng.standard_normal(len(time)))
        frames.append(count)
    return torch.from_numpy(np.concatenate(pieces)).float(), frames


def corpus(folder: Path, count: int = 24, start: int = 0) -> Manifest:
    """Recordings of two speakers with their texts, and a manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number in range(start, start + count):
        wave, _ = said(text_of(number), number)
        write(folder / f"{number:03d}.wav", wave[None], RATE)
        entries.append(
            Entry(
                path=f"{number:03d}.wav",
                duration=len(wave) / RATE,
                sample_rate=RATE,
                channels=1,
                text=text_of(number),
                speaker="ab"[number % 2],
            )
        )
    manifest = Manifest(folder, entries)
    manifest.write(folder / "manifest.jsonl")
    return manifest
