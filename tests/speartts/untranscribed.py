"""Untranscribed speech as tokens on disk, and a run that reads it: made in milliseconds."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.token_writing import close_folder, cut, open_folder, write_shard
from madrigal.data.tokens import TokenInfo
from madrigal.speartts.model import TextToSemantic
from madrigal.tokenizers.text import ENGLISH

SPEECH = 12
INFO = TokenInfo(kind="stub", fingerprint="0123456789abcdef", frame_rate=25.0, codebook_size=SPEECH)
LETTERS = {"text": {"kind": "characters"}, "num_text_token_ids": len(ENGLISH)}


def reader(**options: Any) -> TextToSemantic:
    """A model that has learned nothing, reads something else in every recording, and mostly comes to an end."""
    torch.manual_seed(2)
    sizes = {"dim": 16, "source_depth": 1, "target_depth": 3, "heads": 2, "dim_head": 8, "target_kv_heads": 1}
    sizes["target_early_exit_layer"] = 1
    model = TextToSemantic(**{**sizes, "num_semantic_token_ids": SPEECH, **LETTERS, **options}).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.35)
    with torch.no_grad():
        model.tables["text"].weight[-1] *= 1.5
    return model


def reading_run(folder: Path, **options: Any) -> Path:
    """A run of semantic-to-text, as far as reading needs it."""
    reader(**options).save_pretrained(folder)
    recipe = {"system": "semantic-to-text", "fingerprints": {"tokenizer": INFO.fingerprint}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def speech(root: Path, count: int = 10, damaged: tuple[int, ...] = ()) -> Manifest:
    """Recordings of one to two seconds that are there as tokens only."""
    entries = [
        Entry(path=f"{n}.wav", duration=1 + n / count, sample_rate=16000, channels=1, speaker="ada")
        for n in range(count)
    ]
    manifest = Manifest(root, entries)

    def ids_of(entry: Entry) -> np.ndarray:
        number = int(Path(entry.path).stem)
        if number in damaged:
            raise DecodeError.of(entry.path, "its data is damaged")
        return np.random.default_rng(number).integers(0, SPEECH, round(25 * entry.duration))

    folder = open_folder(root / "tokens", INFO, manifest)
    shards = [write_shard(folder, number, INFO, part, ids_of) for number, part in enumerate(cut(manifest))]
    close_folder(folder, INFO, manifest, shards)
    return manifest
