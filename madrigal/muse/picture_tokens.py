"""The tokens of a folder's pictures, computed once and read from disk from then on.

A folder NAME holds `ids.npy` [pictures, rows, columns], for super-resolution also `cond_ids.npy`, and `tokens.json`,
which is written last and says which pictures they are of. The name follows from the vae's weights, the sizes and what
is in the pictures' files: with another vae or a changed picture they are made anew, and a copied folder keeps them.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from madrigal.data.failures import DecodeError
from madrigal.data.images import ImageFolderDataset
from madrigal.data.inspection import default_workers
from madrigal.data.shared_files import digest
from madrigal.engine.run import writing
from madrigal.errors import UserError
from madrigal.muse.tokenised import Tokenised

DONE = "tokens.json"
TOGETHER = 32
"""Pictures that are encoded at once."""


class PictureTokens(Dataset[dict[str, Any]]):
    """The pictures of a dataset as {"ids": int64 [rows, columns]}, "cond_ids" where there are such, and "text"."""

    def __init__(self, pictures: ImageFolderDataset, folder: Path) -> None:
        try:
            done = json.loads((folder / DONE).read_text())
            self.arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in done["arrays"]}
            self.kept: list[int] = done["pictures"]
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"The tokens in {folder} cannot be read ({error}): remove that folder.") from error
        self.captions = pictures.captions

    def for_evaluation(self) -> "PictureTokens":
        """The same: tokens are of pictures as they are."""
        return self

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item: dict[str, Any] = {
            name: torch.from_numpy(array[index].astype(np.int64)) for name, array in self.arrays.items()
        }
        if self.captions is not None:
            item["text"] = self.captions[self.kept[index]]
        return item


def tokens_of_pictures(
    model: Tokenised, pictures: ImageFolderDataset, folder: Path, say: Callable[[str], object] | None = None
) -> PictureTokens:
    """The tokens of a dataset's pictures, without augmentation, below `folder`; made if they are not there yet."""
    target = folder / _name(model, pictures)
    if not (target / DONE).is_file():
        made = _write(model, pictures.for_evaluation(), target)
        if say is not None:
            say(f"tokens: {made} of {len(pictures)} pictures in {target}")
    return PictureTokens(pictures, target)


def _name(model: Tokenised, pictures: ImageFolderDataset) -> str:
    vaes = [vae.fingerprint for vae in (model.vae, model.cond_vae if model.is_superres else None) if vae is not None]
    sizes = [list(model.config.image_size), list(model.config.cond_image_size or ())]
    with ThreadPoolExecutor(default_workers()) as pool:
        files = list(pool.map(_content, pictures.files))
    return "pictures-" + hashlib.sha256(json.dumps([vaes, sizes, files]).encode()).hexdigest()[:16]


def _content(file: Path) -> str | None:
    """Not its size and time: a picture may be rewritten with the same size, and the time of a copy is another."""
    try:
        return digest(file).hex()
    except OSError:
        return None  # it has no tokens, but its place in the list


def _write(model: Tokenised, pictures: ImageFolderDataset, target: Path) -> int:
    """How many pictures have tokens; those that cannot be read are noted by the dataset."""
    kept: list[int] = []
    found: dict[str, list[np.ndarray]] = {}
    waiting: list[torch.Tensor] = []

    def encode() -> None:
        ids, low = model.tokenised(torch.stack(waiting))
        for name, values in (("ids", ids), ("cond_ids", low)):
            if values is not None:
                found.setdefault(name, []).append(values.cpu().numpy())
        waiting.clear()

    for index in range(len(pictures)):
        try:
            waiting.append(pictures.load(index, np.random.default_rng(index))["image"])
        except DecodeError as error:
            pictures._note(pictures.files[index], error.reason)
            continue
        kept.append(index)
        if len(waiting) == TOGETHER:
            encode()
    if waiting:
        encode()
    if not kept:
        raise UserError("None of the pictures can be read: there is nothing to make tokens of.")
    _store(target, {name: np.concatenate(arrays) for name, arrays in found.items()}, kept)
    return len(kept)


def _store(target: Path, arrays: dict[str, np.ndarray], kept: list[int]) -> None:
    partial = target.with_name(f".{target.name}-{os.getpid()}")
    with writing(target):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", array.astype("<u2" if array.max() < 1 << 16 else "<u4"))
        (partial / DONE).write_text(json.dumps({"arrays": list(arrays), "pictures": kept}))
        shutil.rmtree(target, ignore_errors=True)  # a half one of before
        partial.replace(target)
