"""What Muse costs on one core: pictures per CPU second of its tokenizer in training.

The reference configuration: VQGanVAE of dimension 64, 3 layers, 1,024 lookup-free codes and a discriminator of 4
layers; 8 pictures of 64 by 64 a step, a gradient penalty at every fourth, an average of the weights. `vae` has the
features of the discriminator as perceptual loss, `vae-vgg` those of a VGG16 (with random weights: they cost the same).
"""

import statistics
from pathlib import Path
from typing import Any

import torch
from measuring import Records, cpu_seconds, run_part, tell
from safetensors.torch import save_file

from madrigal.engine.machine import matmul_rate
from madrigal.muse.perceptual import CONVOLUTIONS
from madrigal.muse.vae import VQGanVAE
from madrigal.muse.vae_trainer import VQGanVAETrainer

BATCH, CYCLE = 8, 4


class Pictures(torch.utils.data.Dataset[dict[str, Any]]):
    """Random pictures."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(index))}


def random_vgg(file: Path) -> str:
    """A file of VGG16's weights that mean nothing."""
    weights = {}
    for number, (dim, wider) in CONVOLUTIONS.items():
        weights[f"features.{number}.weight"] = torch.randn(wider, dim, 3, 3) / (3 * dim**0.5)
        weights[f"features.{number}.bias"] = torch.zeros(wider)
    save_file(weights, file)
    return str(file)


def train(name: str, folder: Path, other: Records) -> None:
    """One cycle of the penalty after a warm-up, the median of its steps and their mean."""
    theirs = next((record["img_per_cpu_s"] for record in other.get("muse.vae.train", [])), None)
    torch.manual_seed(0)
    vgg = random_vgg(folder / "vgg.safetensors") if name == "vae-vgg" else None
    run = VQGanVAETrainer(
        VQGanVAE(dim=64, layers=3, codebook_size=1024, vgg=vgg),
        dataset=Pictures(),
        num_train_steps=10**6,
        batch_size=BATCH,
        results_folder=folder / name,
    )
    run.train_step()
    costs = [cpu_seconds(run.train_step) for _ in range(2 * CYCLE)]
    share = run.step_flops / costs[-1] / matmul_rate("cpu", 32)
    more = f"{BATCH / statistics.mean(costs):.2f} with penalties, {100 * share:.0f} % of the matmul rate"
    tell(name, BATCH / statistics.median(costs), more, theirs, unit="pictures")


if __name__ == "__main__":
    run_part(__doc__, {"vae": train, "vae-vgg": train})
