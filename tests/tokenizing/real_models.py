"""A codec and a semantic tokenizer of ours, of a size that loads and runs at once, as folders on disk."""

from __future__ import annotations

from pathlib import Path

import torch

from madrigal.soundstream.codec import SoundStream
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig

CODEC = {
    "strides": (8, 40),
    "channels": 2,
    "channel_mults": (2, 4),
    "codebook_dim": 8,
    "codebook_size": 16,
    "rq_num_quantizers": 2,
    "rq_groups": 2,
    "use_local_attn": False,
    "target_sample_hz": 16000,
}


def write_models(folder: Path) -> list[str]:
    """The names of both."""
    torch.manual_seed(0)
    SoundStream(discriminators=False, **CODEC).save_pretrained(folder / "codec")
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=20))
    tokenizer.centroids.normal_()
    tokenizer.save_pretrained(folder / "tokenizer")
    return [str(folder / "tokenizer"), str(folder / "codec")]
