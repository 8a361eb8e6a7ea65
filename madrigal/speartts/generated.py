"""Pairs that a model has read out of a dataset, under the names that older scripts know.

The files are those of `madrigal pseudo-label`: a manifest with texts, and shards of tokens. Nothing is numbered anew
over what another run has left, and no id stands between speech and text.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from madrigal.audiolm.keywords import without
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.tokens import PAD, TokenInfo, TokenShards
from madrigal.errors import UserError
from madrigal.speartts.labels import Label, LabelFolder, begin
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.pseudo_label import BEAM, Reader
from madrigal.tokenizers.fingerprint import fingerprint_of

FOLDER = "./generated-audio-text-pairs"
PADDING = {
    "delimiter_id": (-1, "speech and text lie in files of their own"),
    "audio_pad_id": (None, "padding is always -1"),
    "text_pad_id": (0, "padding is always -1"),
}
UNKNOWN_RATE = 25.0
"""Tokens a second where no tokenizer says how many there are."""


class SemanticToTextDatasetGenerator:
    """Reads the items of a dataset (waves [samples] or semantic ids [time], alone or first in a tuple) into text."""

    def __init__(
        self,
        model: TextToSemantic,
        *,
        dataset: Any,
        folder: str | Path = FOLDER,
        batch_size: int = 4,
        threshold: float = 0.0,
        **older: Any,
    ) -> None:
        unknown = next(iter(without(older, PADDING, type(self).__name__)), None)
        if unknown is not None:
            raise UserError(f"{type(self).__name__} has no option {unknown}; it takes dataset, folder and batch_size.")
        self.model, self.dataset, self.folder = model, dataset, Path(folder)
        self.batch_size, self.threshold = batch_size, threshold

    def __call__(
        self, *, beam_search_decode: bool | None = None, beam_size: int | None = None, overwrite: bool = False
    ) -> Manifest:
        """Write the folder, or go on with it; gives the manifest of what passed.

        As `madrigal pseudo-label` does, a model with a CTC head reads by that unless a beam is asked for.
        """
        info, manifest = self._info(), Manifest(self.folder.resolve(), self._entries())
        if beam_search_decode is not None:
            beam_size = (beam_size or BEAM) if beam_search_decode else 1
        reader = Reader(self.model, beam_size=beam_size, batch_size=self.batch_size)
        begin(self.folder, reader.settings(info.fingerprint, manifest, self.threshold), overwrite=overwrite)
        labels = LabelFolder(self.folder, manifest, info)
        for number in labels.missing():
            entries = labels.parts[number]
            found: dict[int, Label] = dict(reader.read([self._ids(entry.path) for entry in entries]))
            named = [found[n].model_copy(update={"path": entry.path}) for n, entry in enumerate(entries)]
            labels.write_part(number, named)
        return labels.close(self._ids, self.threshold)

    def _info(self) -> TokenInfo:
        tokenizer = self.model.wav2vec
        return TokenInfo(
            kind="semantic",
            fingerprint="unknown" if tokenizer is None else tokenizer.fingerprint(),
            frame_rate=UNKNOWN_RATE if tokenizer is None else tokenizer.frame_rate,
            codebook_size=self.model.config.num_semantic_token_ids,
        )

    def _entries(self) -> list[Entry]:
        rate = 16_000 if self.model.wav2vec is None else self.model.wav2vec.target_sample_hz
        per_second = {True: float(rate), False: self._info().frame_rate}
        return [
            Entry(
                # What it holds is part of its name: two datasets of the same shapes are never taken for one.
                path=f"{number:08d}-{fingerprint_of({}, {'item': item})}",
                duration=max(1, item.shape[-1]) / per_second[item.is_floating_point()],
                sample_rate=rate,
                channels=1,
            )
            for number, item in enumerate(self._item(number) for number in range(len(self.dataset)))
        ]

    def _item(self, number: int) -> Tensor:
        item = self.dataset[number]
        return torch.as_tensor(item[0] if isinstance(item, tuple | list) else item)

    def _ids(self, path: str) -> np.ndarray:
        item = self._item(int(path.partition("-")[0]))
        if item.is_floating_point():
            tokenizer = self.model.wav2vec
            if tokenizer is None:
                raise UserError("Waves need a semantic tokenizer: give the model its wav2vec, or give semantic ids.")
            ids, lengths = tokenizer.tokenize(item.float().reshape(1, -1).to(self.model.device))
            item = ids[0, : int(lengths[0])]
        return item[item != PAD].cpu().numpy()


class GeneratedAudioTextDataset(Dataset[tuple[Tensor, Any]]):
    """What a folder of pairs holds: (semantic ids [time], text), where text is a string or ids [length]."""

    def __init__(self, folder: str | Path, **older: Any) -> None:
        unknown = next(iter(without(older, PADDING, type(self).__name__)), None)
        if unknown is not None:
            raise UserError(f"{type(self).__name__} has no option {unknown}; it takes folder.")
        self.manifest = Manifest.load(folder)
        self.shards = TokenShards.find(folder, "*", self.manifest)

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        entry = self.manifest.entries[index]
        ids = (entry.model_extra or {}).get("text_ids")
        return torch.from_numpy(self.shards.tokens(entry.path)), entry.text if ids is None else torch.tensor(ids)

    def tokens(self, index: int) -> int:
        """Semantic ids of the item, for length buckets."""
        return self.shards.frames(self.manifest.entries[index].path)

    def seconds(self, index: int) -> float:
        """Length of the recording."""
        return self.manifest.entries[index].duration


def fingerprint_of_pairs(folder: str | Path) -> str:
    """Sixteen hex digits that change with a folder's pairs: the recordings, their texts and their order."""
    lines = [json.dumps(entry.model_dump(exclude_none=True), sort_keys=True) for entry in Manifest.load(folder)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
