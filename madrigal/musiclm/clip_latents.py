"""The joint embeddings of all recordings of a manifest: computed once, kept on disk, learned from many times."""

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import Dataset

from madrigal.data.audio import read
from madrigal.data.failures import DecodeError, note_rejected
from madrigal.data.manifest import REJECTED, Entry, Manifest
from madrigal.data.source import Say, Source, manifest_of
from madrigal.data.tokens import digest
from madrigal.errors import UserError
from madrigal.musiclm.captions import captions_of
from madrigal.musiclm.windows import window_starts
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.token_making import one_thread

TEXTS_AT_ONCE = 64


class LatentSource(Source):
    """Recordings, with captions where the place of texts is to be learned too."""

    def datasets(
        self, mulan: Any, window_seconds: float, *, prepared_in: Path, anew: bool = False, say: Say | None = None
    ) -> tuple["LatentDataset", "LatentDataset | None"]:
        """The training set, and the validation set where one is named."""

        def dataset(path: Path, name: str) -> LatentDataset:
            manifest = manifest_of(path, prepared_in / name, anew=anew, say=say)
            return LatentDataset(*latents_of(mulan, manifest, window_seconds, prepared_in / name, say=say))

        return dataset(self.path, "train"), dataset(self.valid_path, "valid") if self.valid_path else None


class LatentDataset(Dataset[dict[str, Tensor]]):
    """Embeddings [n, dim] of sounds, and of texts [m, dim], of which an item has one of each if there are any."""

    def __init__(self, sounds: Tensor, texts: Tensor) -> None:
        self.sounds, self.texts = sounds, texts

    def __len__(self) -> int:
        return len(self.sounds)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        item = {"latents": self.sounds[index]}
        return {**item, "text_latents": self.texts[index % len(self.texts)]} if len(self.texts) else item


def latents_of(
    mulan: Any, manifest: Manifest, window_seconds: float, folder: Path, *, say: Say | None = None
) -> tuple[Tensor, Tensor]:
    """Embeddings [windows, dim] of all windows of all recordings, and [texts, dim] of all captions.

    A recording that cannot be read is left out, and noted in `folder`.
    """
    asked = {"mulan": mulan.fingerprint(), "window_seconds": window_seconds, "texts": _texts(manifest)}
    made_by = fingerprint_of(asked, {})
    file = folder / f"latents-{made_by}-{digest(manifest.entries)}.safetensors"
    if not file.is_file():
        if say is not None:
            say(f"{len(manifest)} recordings are put into the joint space")
        with torch.no_grad(), one_thread():
            sounds = _sounds(mulan, manifest, window_seconds, folder / REJECTED, say)
            texts = [mulan.get_text_latents(part).cpu() for part in _batches(_texts(manifest))]
        made = {"sounds": torch.cat(sounds), "texts": torch.cat(texts) if texts else torch.zeros(0, mulan.dim_latent)}
        folder.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        save_file(made, beside)
        os.replace(beside, file)
    found = load_file(file)
    return found["sounds"], found["texts"]


def _sounds(mulan: Any, manifest: Manifest, seconds: float, rejected: Path, say: Say | None) -> list[Tensor]:
    """The windows of every recording; what cannot be read must not cost the work on all others."""
    found, last = [], ""
    for entry in manifest:
        try:
            found.append(_windows(mulan, manifest, entry, seconds))
        except DecodeError as error:
            last = str(error)
            note_rejected(rejected, manifest.resolve(entry), error.reason)
    if not found:
        raise UserError(f"None of the {len(manifest)} recordings can be read; the last: {last}")
    if last and say is not None:
        bad = len(manifest) - len(found)
        say(f"{bad} of {len(manifest)} recordings cannot be read, and are left out: see {rejected}")
    return found


def _windows(mulan: Any, manifest: Manifest, entry: Entry, seconds: float) -> Tensor:
    wave = read(manifest.resolve(entry), sample_rate=mulan.sample_rate, channels=1)
    if not wave.numel():
        raise DecodeError.of(manifest.resolve(entry), "it has no samples")
    starts, size = window_starts(wave.shape[-1], mulan.sample_rate, seconds)
    device = next(mulan.parameters()).device
    # One at a time: what an embedding is must not hang on its neighbours.
    rows = [mulan.get_audio_latents(wave[:, s : s + size].to(device)) for s in dict.fromkeys(starts)]
    return torch.cat(rows).cpu()


def _texts(manifest: Manifest) -> list[str]:
    return [captions[0] for entry in manifest if (captions := captions_of(entry))]


def _batches(texts: list[str]) -> list[list[str]]:
    return [texts[at : at + TEXTS_AT_ONCE] for at in range(0, len(texts), TEXTS_AT_ONCE)]
