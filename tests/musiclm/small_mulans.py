"""Small MuLaNs, and pairs of chords and captions that tell which notes they have."""

from pathlib import Path
from typing import Any

import soundfile
import torch
from torch import Tensor

from madrigal import AudioSpectrogramTransformer, MuLaN, MuLaNTrainer, TextTransformer

RATE = 4000
SIZE: dict[str, Any] = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16}
PLAIN: dict[str, Any] = {
    "patch_dropout_prob": 0.0,
    "spec_aug_freq_mask": 0,
    "spec_aug_time_mask": 0,
    "spec_aug_stretch_factor": 1.0,
}
"""Nothing is augmented."""
LETTERS = "abcdefgh"


def audio_side(**options: Any) -> AudioSpectrogramTransformer:
    sizes = {**SIZE, "sample_rate": RATE, "spec_n_fft": 256, "spec_n_mels": 64}
    return AudioSpectrogramTransformer(**{**sizes, **options})


def text_side(**options: Any) -> TextTransformer:
    return TextTransformer(**{**SIZE, "tokenizer": {"kind": "bytes"}, **options})


def mulan(audio: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **options: Any) -> MuLaN:
    torch.manual_seed(0)
    return MuLaN(audio_side(**(audio or {})), text_side(**(text or {})), **{"dim_latent": 32, **options})


def chord(number: int, seconds: float = 0.5) -> Tensor:
    """Two notes [samples], one of eight low ones and one of eight high ones."""
    time = torch.arange(int(RATE * seconds)) / RATE
    low, high = 200 + 60 * (number % 8), 900 + 100 * (number // 8 % 8)
    return 0.3 * torch.sin(2 * torch.pi * low * time) + 0.3 * torch.sin(2 * torch.pi * high * time)


def caption(number: int) -> str:
    return f"low {LETTERS[number % 8]} high {LETTERS[number // 8 % 8]}"


def pairs(count: int = 64, **options: Any) -> list[tuple[Tensor, str]]:
    return [(chord(number, **options), caption(number)) for number in range(count)]


def trainer(folder: Path, model: MuLaN | None = None, data: Any = None, **options: Any) -> MuLaNTrainer:
    plan = {"num_train_steps": 4, "batch_size": 8, "lr": 1e-3, "num_samples": 0, "valid_frac": 0.25, "use_ema": False}
    return MuLaNTrainer(
        model or mulan(), data if data is not None else pairs(), results_folder=folder, **{**plan, **options}
    )


def recordings(folder: Path, count: int = 12, seconds: float = 0.5) -> Path:
    """A folder of wav files with a .txt beside each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        soundfile.write(folder / f"{number:02d}.wav", chord(number, seconds).numpy(), RATE)
        (folder / f"{number:02d}.txt").write_text(caption(number))
    return folder


def gradients(model: MuLaN) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
