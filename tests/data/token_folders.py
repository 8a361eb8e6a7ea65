"""Token folders made in milliseconds: ids that say which recording and which frame they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.token_writing import close_folder, cut, open_folder, write_shard
from madrigal.data.tokens import TokenInfo, TokenShards

SEMANTIC = TokenInfo(kind="stub", fingerprint="0123456789abcdef", frame_rate=25.0, codebook_size=4000)
ACOUSTIC = TokenInfo(kind="codec", fingerprint="fedcba9876543210", frame_rate=50.0, codebook_size=4000, quantizers=3)


def manifest_of(root: Path, seconds: Mapping[str, float]) -> Manifest:
    """Recordings that need not exist."""
    entries = [Entry(path=path, duration=s, sample_rate=16000, channels=1, text=path) for path, s in seconds.items()]
    return Manifest(root, entries)


def ids_of(info: TokenInfo, entry: Entry) -> np.ndarray:
    """The frames of a recording, counted from 0; column q counts from 1000 * q."""
    if "bad" in entry.path:
        raise DecodeError.of(entry.path, "its data is damaged")
    count = np.arange(int(np.ceil(entry.duration * info.frame_rate - 1e-6)))
    return count[:, None] + 1000 * np.arange(info.quantizers) if info.quantizers else count


def write_tokens(out: Path, info: TokenInfo, manifest: Manifest) -> TokenShards:
    folder = open_folder(out, info, manifest)
    shards = [
        write_shard(folder, number, info, entries, lambda entry: ids_of(info, entry))
        for number, entries in enumerate(cut(manifest))
    ]
    close_folder(folder, info, manifest, shards)
    return TokenShards.open(folder)
