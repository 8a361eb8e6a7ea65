"""Trains a tiny vocoder with every option on and leaves each rank's weights: test_vocoder_trainer.py runs it."""

import sys
from pathlib import Path

import torch
from trained import leave_weights
from voicebox_sounds import tiny_vocoder

from madrigal.voicebox.vocoder.trainer import VocoderTrainer


def train(recordings: Path, out: Path, accumulation: int) -> None:
    torch.manual_seed(0)
    trainer = VocoderTrainer(
        tiny_vocoder(discriminators=True, input_noise=0.3),
        folder=recordings,
        data_max_length_seconds=0.3,
        batch_size=2,
        grad_accum_every=accumulation,
        num_train_steps=5,
        warmup_steps=2,
        discr_start_step=1,
        apply_grad_penalty_every=2,
        ema_update_after_step=1,
        ema_update_every=2,
        valid_frac=0.3,
        save_results_every=5,
        results_folder=out,
    )
    trainer.train()
    leave_weights(trainer, out)


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
