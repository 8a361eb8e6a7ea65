"""What every corpus script shares: 16-bit mono wav files, and a manifest that a person can read.

A corpus is a folder of wav files and one `manifest.jsonl` with a JSON object per line:
path (relative to the manifest), duration, sample_rate, channels, text, speaker, licence, synthetic.
"""

import argparse
import importlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np
import soundfile
import soxr

MANIFEST = "manifest.jsonl"
Row = dict[str, Any]


def arguments(description: str, example: str) -> argparse.ArgumentParser:
    """A parser with the options that every corpus has, and an example at the foot of its help."""
    parser = argparse.ArgumentParser(
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the corpus is written")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of every choice (default: 0)")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "madrigal" / "corpora",
        metavar="FOLDER",
        help="where downloaded packages are kept (default: %(default)s)",
    )
    return parser


def rate_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--sample-rate` to the scripts that write one corpus."""
    parser.add_argument(
        "--sample-rate",
        type=int,
        default=None,
        metavar="HZ",
        help="resample to this rate (default: as recorded)",
    )


def optional(module: str, install: str) -> ModuleType:
    """Import a synthesiser that Madrigal itself does not need, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise SystemExit(f"The Python package '{module}' is missing; install it with: {install}") from None


def resample(audio: np.ndarray, source: int, target: int) -> np.ndarray:
    """Mono audio [samples] from one sampling rate to another."""
    return audio if source == target else soxr.resample(audio, source, target, quality="VHQ")


def to_pcm16(audio: np.ndarray) -> np.ndarray:
    """Float audio [samples] in -1..1 as 16-bit integers; exact for audio that came from 16-bit integers."""
    if not np.isfinite(audio).all():
        raise ValueError("The audio holds values that are not finite.")
    peak = float(np.abs(audio).max(initial=0.0))
    if peak > 1.0:
        # Resampling can overshoot a full-scale recording: clipping would be a fault the codec then learns.
        audio = audio * (0.999 / peak)
    return np.clip(np.rint(audio * 32768.0), -32768, 32767).astype(np.int16)


def write_manifest(path: Path, rows: Iterable[Row]) -> None:
    """Write a manifest beside its place and rename it, so that a half-written one never has its name."""
    beside = path.with_suffix(".partial")
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    beside.write_text("".join(lines), encoding="utf-8")
    os.replace(beside, path)


def read_manifest(path: Path) -> list[Row]:
    """The rows of a manifest, in order."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class CorpusWriter:
    """Writes clips into a folder and, if all went well, their manifest.

    A folder without a manifest is therefore one that was not finished, and is built anew.
    """

    def __init__(self, folder: Path, licence: str, synthetic: bool, sample_rate: int | None = None) -> None:
        self.folder = folder
        self.licence = licence
        self.synthetic = synthetic
        self.sample_rate = sample_rate
        self.rows: list[Row] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            write_manifest(self.folder / MANIFEST, self.rows)
            print(f"{self.folder}: {len(self.rows)} clips, {self.seconds() / 3600:.2f} h", flush=True)

    def seconds(self) -> float:
        """How much speech was written so far."""
        return sum(row["duration"] for row in self.rows)

    def add(self, name: str, audio: np.ndarray, rate: int, text: str, speaker: str) -> float:
        """Write mono audio [samples] as `name`.wav and return its duration in seconds."""
        target = self.sample_rate or rate
        pcm = to_pcm16(resample(audio, rate, target))
        path = self.folder / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, pcm, target, subtype="PCM_16")
        row = {
            "path": path.relative_to(self.folder).as_posix(),
            "duration": round(len(pcm) / target, 6),
            "sample_rate": target,
            "channels": 1,
            "text": text,
            "speaker": speaker,
            "licence": self.licence,
            "synthetic": self.synthetic,
        }
        self.rows.append(row)
        return len(pcm) / target
