"""A MuLaN, a quantizer and an AudioLM of a size for tests, and recordings with captions."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from madrigal.data.manifest import Entry, Manifest
from madrigal.engine.randomness import kept_randomness, seed_everything
from madrigal.musiclm.mulan import MuLaN, MuLaNConfig
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer

RATE = 16_000
TRANSFORMER = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8}
CAPTIONS = ("a low hum", "a middle tone", "a high whistle")


def small_mulan(seed: int = 0, **audio: Any) -> MuLaN:
    """Nobody has trained it."""
    sides = {
        "audio": {**TRANSFORMER, "spec_n_fft": 256, "patch_size": 8, **audio},
        "text": {**TRANSFORMER, "tokenizer": {"kind": "bytes"}},
        "dim_latent": 8,
    }
    with kept_randomness():
        seed_everything(seed)
        return MuLaN.of(MuLaNConfig(**sides)).eval()


def small_quantizer(mulan: MuLaN | None = None, *, dims: Any = (16, 12, 20), **options: Any) -> MuLaNEmbedQuantizer:
    """With codes that were started from tones and noises, as its trainer would."""
    mulan = mulan or small_mulan()
    with kept_randomness():
        seed_everything(1)
        made = MuLaNEmbedQuantizer(mulan, dims, **{"rq_num_quantizers": 3, "codebook_size": 8, **options})
        sounds = mulan.get_audio_latents(tones(32))
        made.means[0], made.means[1] = sounds.mean(0), mulan.get_text_latents(list(CAPTIONS)).mean(0)
        made.rq.initialize(made.placed(sounds))
    return made.eval()


def tones(count: int = 8, seconds: float = 1.0, rate: int = RATE) -> torch.Tensor:
    """Waves [count, samples] of different pitches, with a little noise."""
    time = torch.arange(int(seconds * rate)) / rate
    pitches = 110.0 * 2 ** (torch.arange(count) * 5 / count)
    noise = torch.randn(count, len(time), generator=torch.Generator().manual_seed(0))
    return 0.3 * torch.sin(2 * torch.pi * pitches[:, None] * time) + 0.02 * noise


def recorded(folder: Path, count: int = 8, seconds: float = 1.0, rate: int = RATE) -> Path:
    """A folder of them with a manifest and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, wave in enumerate(tones(count, seconds, rate)):
        soundfile.write(folder / f"{number}.wav", np.asarray(wave), rate, subtype="PCM_16")
        text = CAPTIONS[number * len(CAPTIONS) // count]
        entries.append(Entry(path=f"{number}.wav", duration=seconds, sample_rate=rate, channels=1, text=text))
    Manifest(folder, entries).write(folder)
    return folder
