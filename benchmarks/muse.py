"""What Muse costs on one core: pictures per CPU second of its tokenizer and of MaskGit in training, and in generation.

The reference configuration: VQGanVAE of dimension 64, 3 layers, 1,024 lookup-free codes and a discriminator of 4
layers; 8 pictures of 64 by 64 a step, a gradient penalty at every fourth, an average of the weights. `vae` has the
features of the discriminator as perceptual loss, `vae-vgg` those of a VGG16 (with random weights: they cost the same).
MaskGit: dimension 256, 6 layers, 4 heads, 1,024 tokens on a grid of 16 by 16; 8 pictures as ids and 32 text embeddings
of 768 numbers each a step; one picture in 18 steps with a guidance of 3, its VQGAN's decoder included. The reference's
VQGAN has 8.2 million parameters, this one 7.2 (no third convolution in a residual block, no gates in the decoder's, a
discriminator with two convolutions fewer); its MaskGit has 7.6 million, this one 7.1.
"""

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import Records, cpu_seconds, precisions, run_part, share_told, tell, ways_to_train
from safetensors.torch import save_file

from madrigal.engine.machine import matmul_rate
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_training import MaskGitTrainer
from madrigal.muse.maskgit_transformer import MaskGitTransformer
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


class Tokens(torch.utils.data.Dataset[dict[str, Any]]):
    """Random ids and text embeddings."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        chance = torch.Generator().manual_seed(index)
        ids = torch.randint(0, 1024, (16, 16), generator=chance)
        embeds = torch.randn(32, 768, generator=chance)
        return {"ids": ids, "text_embeds": embeds, "text_mask": torch.ones(32, dtype=torch.bool)}


def maskgit() -> MaskGit:
    torch.manual_seed(0)
    size = {"dim": 256, "depth": 6, "heads": 4, "dim_head": 64, "ff_mult": 4}
    net = MaskGitTransformer(num_tokens=1024, seq_len=256, text_encoder="embeds", cond_dim=768, **size)
    vae = VQGanVAE(dim=64, layers=2, codebook_size=1024, discriminators=False)
    return MaskGit(64, net, vae=vae)


def train_maskgit(name: str, folder: Path, other: Records) -> None:
    """Training from ids in the precisions that there are, then compiled too."""
    theirs = next((r["img_per_cpu_s"] for r in other.get("muse.maskgit.train", []) if r.get("input") == "ids"), None)
    for word, precision, bits, is_compiled in ways_to_train():
        run = MaskGitTrainer(
            maskgit(),
            dataset=Tokens(),
            num_train_steps=10**6,
            batch_size=BATCH,
            results_folder=folder / f"{name} {word}",
            mixed_precision=precision,
            compile=is_compiled,
        )
        for _ in range(3):
            run.train_step()
        cost = statistics.median(cpu_seconds(run.train_step) for _ in range(8))
        tell(f"{name} {word}", BATCH / cost, share_told(run, cost, bits), theirs, unit="pictures")


def generate(name: str, folder: Path, other: Records) -> None:
    """One picture in 18 steps, in the precisions that there are."""
    theirs = next((1 / record["cpu_median"] for record in other.get("muse.maskgit.generate18", [])), None)
    model, embeds = maskgit().eval(), torch.randn(1, 32, 768)
    for precision, _ in precisions():
        options: dict[str, Any] = {"timesteps": 18, "cond_scale": 3.0, "bf16": precision == "bf16"}
        draw = partial(model.generate, text_embeds=embeds, **options)
        draw()
        cost = statistics.median(cpu_seconds(draw) for _ in range(5))
        tell(f"{name} {precision}", 1 / cost, "18 steps, guidance 3", theirs, unit="pictures")


if __name__ == "__main__":
    run_part(__doc__, {"vae": train, "vae-vgg": train, "maskgit": train_maskgit, "maskgit-gen": generate})
