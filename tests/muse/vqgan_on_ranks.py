"""Trains a tiny VQGAN with every option on and leaves each rank's weights: test_vqgan_training.py runs it."""

import sys
from pathlib import Path

from trained import leave_weights
from vqgan_toys import QUANTIZERS, tiny_vae, vqgan_trainer


def train(folder: Path, out: Path, accumulation: int) -> None:
    trainer = vqgan_trainer(
        folder,
        out,
        tiny_vae(**{**QUANTIZERS["vq"], "vq_kwargs": {"kmeans_init": True}, "levels": None}),
        grad_accum_every=accumulation,
        discr_start_step=1,
        apply_grad_penalty_every=2,
        max_grad_norm=1.0,
        valid_frac=0.3,
        save_results_every=4,
    )
    trainer.train()
    leave_weights(trainer, out)


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
