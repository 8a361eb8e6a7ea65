"""`align`: the alignments of every recording of a manifest, resumable at any instant.

The manifest is cut into shards as tokens are. A shard that lies on the disk whole and undamaged stays; the others are
made one by one. What is in a shard follows from the manifest and the aligner alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.audio import read
from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.shards import checksum, finished_list, shard_file
from madrigal.data.token_writing import cut, remove_remains, write_whole
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.tokenizers.tokenizing import locked
from madrigal.voicebox.aligner import Aligner
from madrigal.voicebox.alignments import (
    ALIGNMENTS,
    WORDS,
    AlignedEntry,
    AlignedShard,
    AlignmentInfo,
    Alignments,
    AlignmentSet,
    texts_digest,
)
from madrigal.voicebox.spoken import check_frames, symbols_of

Progress = Callable[[int, int], object]
# Padded seconds that are aligned at once: enough to share the cost of going from frame to frame.
BATCH_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Aligning:
    """What `align_manifest` has, and how many of the shards it made just now."""

    alignments: Alignments
    written: int

    @property
    def figures(self) -> dict[str, Any]:
        """What `alignments.json` says, the reasons, and how many shards were written now."""
        return {
            **self.alignments.info.model_dump(mode="json"),
            "reasons": self.alignments.reasons,
            "written": self.written,
        }

    @property
    def summary(self) -> str:
        """What was made and what could not be, to be shown."""
        info = self.alignments.info
        hours = info.frames / info.frame_rate / 3600
        found = f"{len(self.alignments)} files, {hours:.2f} hours, mean confidence {info.confidence:.3f}"
        return self.alignments.summary(found)


def align_manifest(
    aligner: Aligner, manifest: Manifest, out: str | Path, *, progress: Progress | None = None
) -> Aligning:
    """Align the recordings of `manifest` with their texts into a folder below `out`; shards that are there are kept."""
    if not any(entry.text for entry in manifest):
        raise UserError(f"No recording of {manifest.root} has a text to align; prepare a folder with texts.")
    info = AlignmentInfo(
        fingerprint=aligner.fingerprint(),
        symbols=aligner.config.symbols,
        num_symbols=aligner.symbols.size,
        sample_rate=aligner.config.sample_rate,
        hop=aligner.config.hop,
    )
    folder = Path(out) / f"align-{info.fingerprint}-{texts_digest(manifest.entries)}"
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[AlignedShard] = []
    written = done = 0
    with locked(folder):
        remove_remains(folder)
        for number, entries in enumerate(cut(manifest)):
            shard = finished_list(folder, number, AlignedShard, texts_digest(entries), WORDS)
            if shard is None:
                shard = _write_shard(folder, number, entries, manifest, aligner)
                written += 1
            shards.append(shard)
            done += len(entries)
            if progress:
                progress(done, len(manifest))
        _close(folder, info, manifest, shards)
    return Aligning(Alignments.open(folder), written)


def _write_shard(
    folder: Path, number: int, entries: Sequence[Entry], manifest: Manifest, aligner: Aligner
) -> AlignedShard:
    found: dict[str, AlignedEntry] = {}
    rows: dict[str, np.ndarray] = {}
    symbols: dict[str, list[int]] = {}
    for entry in entries:
        try:
            symbols[entry.path] = symbols_of(entry, aligner)
        except DecodeError as error:
            found[entry.path] = AlignedEntry(path=entry.path, reason=error.reason)
    for batch in _batches([entry for entry in entries if entry.path in symbols]):
        for entry, outcome in zip(batch, _align(batch, symbols, manifest, aligner), strict=True):
            if isinstance(outcome, str):
                found[entry.path] = AlignedEntry(path=entry.path, reason=outcome)
            else:
                rows[entry.path], confidence = outcome
                frames = int(rows[entry.path][:, 1].sum())
                size = len(rows[entry.path])
                found[entry.path] = AlignedEntry(path=entry.path, symbols=size, frames=frames, confidence=confidence)
    listed, start = [], 0
    for entry in entries:
        listed.append(found[entry.path].model_copy(update={"start": start}))
        start += listed[-1].symbols
    whole = [rows[entry.path] for entry in entries if entry.path in rows]
    data = io.BytesIO()
    np.save(data, np.concatenate([np.zeros((0, 2), "<i4"), *whole]), allow_pickle=False)
    shard = AlignedShard(recordings=texts_digest(entries), crc32=checksum(data.getvalue()), entries=listed)
    write_whole(shard_file(folder, number, "npy"), data.getvalue())
    write_whole(shard_file(folder, number, "json"), shard.model_dump_json(exclude_none=True, indent=1).encode() + b"\n")
    return shard


def _batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Recordings of like length, as many as fit into BATCH_SECONDS with their padding."""
    batch: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: (entry.duration, entry.path)):
        if batch and (len(batch) + 1) * entry.duration > BATCH_SECONDS:
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def _align(
    batch: Sequence[Entry], symbols: dict[str, list[int]], manifest: Manifest, aligner: Aligner
) -> list[tuple[np.ndarray, float] | str]:
    """Symbols and durations [symbols, 2] of each recording with their confidence, or the reason why not."""
    outcomes: list[tuple[np.ndarray, float] | str] = []
    waves: list[Tensor] = []
    for entry in batch:
        try:
            waves.append(_wave(manifest.resolve(entry), len(symbols[entry.path]), aligner))
            outcomes.append("")
        except DecodeError as error:
            outcomes.append(error.reason)
    places = [place for place, outcome in enumerate(outcomes) if outcome == ""]
    if not places:
        return outcomes
    texts = [torch.tensor(symbols[batch[place].path]) for place in places]
    device = aligner.mean.device
    found = aligner.align(
        pad_sequence(waves, batch_first=True).to(device),
        pad_sequence(texts, batch_first=True, padding_value=PAD).to(device),
        samples=torch.tensor([len(wave) for wave in waves], device=device),
        lengths=torch.tensor([len(text) for text in texts], device=device),
        names=[batch[place].path for place in places],
    )
    for place, text, durations, sure in zip(
        places, texts, found.durations.cpu(), found.confidence.tolist(), strict=True
    ):
        both = torch.stack((text, durations[: len(text)]), dim=1)
        outcomes[place] = both.numpy().astype("<i4"), min(1.0, sure)
    return outcomes


def _wave(path: Path, symbols: int, aligner: Aligner) -> Tensor:
    """The recording [samples]; one that came out shorter than its header says may have too few frames after all."""
    wave = read(path, sample_rate=aligner.config.sample_rate, channels=1)[0]
    check_frames(path, symbols, len(wave) // aligner.config.hop)
    return wave


def _close(folder: Path, info: AlignmentInfo, manifest: Manifest, shards: Sequence[AlignedShard]) -> None:
    entries = [entry for shard in shards for entry in shard.entries]
    aligned = [entry for entry in entries if entry.reason is None]
    whole = AlignmentSet(
        **dict(info),
        manifest=texts_digest(manifest.entries),
        entries=len(entries),
        failed=len(entries) - len(aligned),
        frames=sum(entry.frames for entry in aligned),
        confidence=sum(entry.confidence for entry in aligned) / max(len(aligned), 1),
        shards=len(shards),
    )
    write_whole(folder / ALIGNMENTS, whole.model_dump_json(indent=1).encode() + b"\n")
