"""Small codecs of log-mels and tones for them; as a script, a training on the ranks of one launch."""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import Dataset

from madrigal.data.audio import write
from madrigal.data.source import AudioSource
from madrigal.tokenizers.mel_codec import MelCodec
from madrigal.tokenizers.mel_codec_trainer import MelCodecPlan, MelCodecTrainer

SMALL: dict[str, Any] = {
    "dim": 32,
    "encoder_depth": 1,
    "decoder_depth": 1,
    "latent_dim": 8,
    "codebook_size": 16,
    "num_quantizers": 3,
    "n_mels": 20,
    "n_fft": 640,
}


def tones(rows: int = 8, seconds: float = 0.5) -> Tensor:
    """Waves [rows, 1, samples] of several pitches and levels."""
    time = torch.arange(int(seconds * 16000)) / 16000
    pitch = torch.linspace(120, 900, rows)[:, None]
    sweep = torch.sin(2 * torch.pi * pitch * time * (1 + 0.3 * time)) * torch.linspace(0.1, 0.6, rows)[:, None]
    return (sweep + 0.3 * torch.sin(6 * torch.pi * pitch * time) * sweep)[:, None]


class Tones(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"audio": tones()[index]}


def codec(**options: Any) -> MelCodec:
    torch.manual_seed(0)
    return MelCodec(**{**SMALL, **options}).eval()


def train(run: Path, **plan: Any) -> MelCodecTrainer:
    given = {"batch_size": 8, "lr": 2e-3, "valid_frac": 0.0, "num_samples": 0, "dl_num_workers": 0, **plan}
    return MelCodecTrainer(codec(), plan=MelCodecPlan(**given), dataset=Tones(), results_folder=run).train()


def recorded_tones(folder: Path) -> Path:
    """Files of several lengths."""
    folder.mkdir()
    for number, wave in enumerate(tones()):
        write(folder / f"{number}.wav", wave[:, : 8000 - 500 * number], 16000)
    return folder


def train_recordings(folder: Path, out: Path, accumulation: int) -> None:
    """With validation; leaves weights and average of this rank."""
    plan = MelCodecPlan(
        batch_size=2,
        grad_accum_every=accumulation,
        num_train_steps=3,
        lr=1e-3,
        valid_frac=0.25,
        save_results_every=2,
        num_samples=1,
        ema_update_after_step=1,
        ema_update_every=1,
        dl_num_workers=0,
    )
    made = MelCodecTrainer(codec(), plan=plan, source=AudioSource(path=folder), results_folder=out / "run").train()
    assert made.ema is not None
    state = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    state |= {f"ema/{name}": tensor.clone() for name, tensor in made.ema.state_dict().items()}
    save_file(state, out / f"rank-{made.ranks.rank}.safetensors")


if __name__ == "__main__":
    train_recordings(Path(sys.argv[1]), Path(sys.argv[2]), 1)
