"""Recordings with captions, and batches of them, whoever gives them.

A batch holds `audio` [batch, 1, samples], `lengths` [batch], and either `text`, a list of captions, or `texts`, ids
[batch, time] padded with PAD. `draw` [batch] is the seed of all that is random about an item's augmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from madrigal.data.collate import collate, join_tokens
from madrigal.data.dataset import SoundDataset
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.source import AudioSource, Say, manifest_of
from madrigal.errors import UserError

DRAWS = 2**62


class CaptionedDataset(SoundDataset):
    """Crops of recordings with their captions and the seeds of their augmentation.

    A manifest may give a recording several `captions` beside its `text`: training then reads one of them at random,
    and validation the `text`, or where there is none the first.
    """

    any_caption = True

    def for_evaluation(self) -> CaptionedDataset:
        plain = super().for_evaluation()
        assert isinstance(plain, CaptionedDataset)
        plain.any_caption = False
        return plain

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        item = {**super().load(index, rng), "draw": int(rng.integers(DRAWS))}
        entry = self.entries[index]
        if self.any_caption and entry is not None and (several := captions_of(entry)):
            item["text"] = several[int(rng.integers(len(several)))]
        return item


def captions_of(entry: Entry) -> list[str]:
    """All that a manifest says of a recording, each text once, its `text` first."""
    more = (entry.model_extra or {}).get("captions") or []
    if not isinstance(more, list) or not all(isinstance(text, str) for text in more):
        raise UserError(f'The captions of {entry.path} are no list of texts: write "captions": ["one", "another"].')
    return list(dict.fromkeys(text for text in (entry.text or "", *more) if text.strip()))


class CaptionedSource(AudioSource):
    """Recordings with captions: the `text` of a manifest, a `.txt` beside each file, a metadata.csv."""

    def captioned(self, path: Path, prepared_in: Path, *, anew: bool = False, say: Say | None = None) -> Manifest:
        """The recordings that have a caption; how many have none is said."""
        manifest = manifest_of(path, prepared_in, anew=anew, say=say)
        entries = [entry for entry in manifest if is_captioned(entry)]
        if not entries:
            raise UserError(
                f"None of the {len(manifest)} recordings of {path} has a caption: put a .txt beside each file, or give "
                "the manifest a text."
            )
        if len(entries) < len(manifest) and say is not None:
            say(f"{len(manifest) - len(entries)} of {len(manifest)} recordings of {path} have no caption: left out")
        # Validation and samples read the text.
        return Manifest(manifest.root, [entry.model_copy(update={"text": captions_of(entry)[0]}) for entry in entries])

    def pairs(self, sample_rate: int, *, prepared_in: Path, anew: bool, say: Say | None) -> tuple[Any, Any]:
        """The training set, and the validation set where one is named."""
        length = None if self.max_length_seconds is None else int(self.max_length_seconds * sample_rate)

        def dataset(path: Path, name: str, gain_db: tuple[float, float]) -> CaptionedDataset:
            return CaptionedDataset(
                self.captioned(path, prepared_in / name, anew=anew, say=say),
                sample_rate,
                max_length=length,
                gain_db=gain_db,
                fields=("text",),
                rejected_path=prepared_in / name / "rejected.jsonl",
            )

        train = dataset(self.path, "train", self.gain_db)
        return train, dataset(self.valid_path, "valid", (0.0, 0.0)).for_evaluation() if self.valid_path else None


def is_captioned(entry: Entry) -> bool:
    """Whether there are words to learn a recording by."""
    return bool(captions_of(entry))


class PairedDataset(Dataset[dict[str, Any]]):
    """Somebody's own dataset of pairs, (wave, caption) or (wave, ids) in any order, or dicts of these.

    A wave longer than `data_max_length` samples is cut there.
    """

    def __init__(self, dataset: Any, data_max_length: int | None = None) -> None:
        if data_max_length is not None and data_max_length < 1:
            raise UserError(f"data_max_length is {data_max_length}; give 1 sample or more, or leave it out.")
        self.dataset, self.data_max_length = dataset, data_max_length

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = named(self.dataset[index])
        if self.data_max_length is not None:
            item["audio"] = item["audio"][..., : self.data_max_length]
        if "audio" in item and not bool(torch.isfinite(torch.as_tensor(item["audio"])).all()):
            raise UserError(
                f"The wave of item {index} of MuLaN's dataset has samples that are not finite numbers; leave it out."
            )
        # The loader has seeded torch for this draw of the item.
        return {**item, "draw": int(torch.randint(DRAWS, ()))}


def named(item: Any) -> dict[str, Any]:
    """A pair by the kinds of its parts: sound is floats, ids are whole numbers, a caption is a string."""
    older = {"wavs": "audio", "raw_texts": "text"}
    if isinstance(item, dict):
        return {str(older.get(name, name)): value for name, value in item.items()}
    pair: dict[str, Any] = {}
    for part in item if isinstance(item, Sequence) and not isinstance(item, str) else (item,):
        if isinstance(part, str):
            pair["text"] = part
        else:
            tensor = torch.as_tensor(part)
            pair["audio" if tensor.is_floating_point() else "texts"] = tensor
    if "audio" not in pair or len(pair) < 2:
        raise UserError("An item of MuLaN's dataset should be a pair: a wave of floats, and a caption or its ids.")
    return pair


def collate_pairs(items: Sequence[Any]) -> dict[str, Any]:
    """Waves are padded with silence and ids with PAD, each to its own longest; nothing is cut to the shortest."""
    rows = [named(item) for item in items]
    ids = [row.pop("texts", None) for row in rows]
    batch = collate(rows)
    if ids[0] is not None:
        batch["texts"] = join_tokens("texts", ids)[0]
    return batch


def texts_of(batch: dict[str, Any]) -> list[str] | Tensor:
    """The captions of a batch, or their ids."""
    found = batch.get("text", batch.get("texts"))
    if found is None:
        raise UserError(f"A batch of MuLaN needs text or texts beside its audio; this one has {', '.join(batch)}.")
    return found if isinstance(found, Tensor) else list(found)
