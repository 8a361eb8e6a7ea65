"""Tiny VQGANs and pictures to train them on."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from madrigal.muse.vae import VQGanVAE
from madrigal.muse.vae_trainer import VQGanVAETrainer

TINY = {"dim": 8, "layers": 2, "resnet_groups": 4, "discr_layers": 2}
QUANTIZERS: dict[str, dict[str, Any]] = {
    "lfq": {"quantizer": "lfq", "codebook_size": 64},
    "vq": {"quantizer": "vq", "codebook_size": 16, "vq_kwargs": {"kmeans_init": False}},
    "fsq": {"quantizer": "fsq", "levels": (4, 4, 4)},
}


def tiny_vae(seed: int = 0, **options: Any) -> VQGanVAE:
    torch.manual_seed(seed)
    return VQGanVAE(**{**TINY, **QUANTIZERS["fsq"], **options})


def pictures(count: int = 4, height: int = 16, width: int = 16, seed: int = 0) -> Tensor:
    """Patches of colours [count, 3, height, width]."""
    drawn = torch.rand(count, 3, height // 4, width // 4, generator=torch.Generator().manual_seed(seed))
    return drawn.repeat_interleave(4, 2).repeat_interleave(4, 3)


def write_pictures(folder: Path, count: int = 12, height: int = 16, width: int = 16) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in enumerate(pictures(count, height, width)):
        whole = (pixels * 255).round().byte().permute(1, 2, 0).numpy().astype(np.uint8)
        Image.fromarray(whole).save(folder / f"{number:03d}.png")
    return folder


def vqgan_trainer(folder: Path, out: Path, vae: VQGanVAE | None = None, **options: Any) -> VQGanVAETrainer:
    plan = {"batch_size": 2, "num_train_steps": 4, "image_size": 16, "num_samples": 2, "lr": 1e-3}
    return VQGanVAETrainer(vae or tiny_vae(), folder=folder, results_folder=out, **{**plan, **options})


def fake_vgg_weights(seed: int = 0) -> dict[str, Tensor]:
    """Weights of VGG16's shapes, named as torchvision names them."""
    from madrigal.muse.perceptual import CONVOLUTIONS

    drawn = torch.Generator().manual_seed(seed)
    weights = {}
    for number, (dim, wider) in CONVOLUTIONS.items():
        weights[f"features.{number}.weight"] = torch.randn(wider, dim, 3, 3, generator=drawn) / (3 * dim**0.5)
        weights[f"features.{number}.bias"] = torch.zeros(wider)
    return weights
