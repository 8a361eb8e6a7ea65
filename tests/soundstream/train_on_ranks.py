"""Trains a tiny codec with every option on and leaves each rank's weights: test_trainer.py runs it."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from madrigal import SoundStream, SoundStreamTrainer

CODEC = {
    "codebook_size": 16,
    "rq_num_quantizers": 3,
    "channels": 2,
    "codebook_dim": 16,
    "strides": (2, 4, 5, 8),
    "attn_heads": 2,
    "attn_dim_head": 8,
    "attn_window_size": 8,
    "discr_multi_scales": (1, 0.5),
    "complex_stft_discr_kwargs": {"channels": 2},
}


def train(recordings: Path, out: Path, accumulation: int) -> None:
    torch.manual_seed(0)
    trainer = SoundStreamTrainer(
        SoundStream(**CODEC),
        folder=recordings,
        data_max_length_seconds=0.5,
        batch_size=2,
        grad_accum_every=accumulation,
        num_train_steps=6,
        warmup_steps=2,
        discr_start_step=1,
        scheduler="cosine",
        max_grad_norm=0.5,
        discr_max_grad_norm=0.5,
        apply_grad_penalty_every=2,
        use_ema=True,
        ema_update_after_step=2,
        ema_update_every=2,
        valid_frac=0.3,
        save_results_every=3,
        save_model_every=3,
        best_metric="valid/ema/mel",
        results_folder=out,
    )
    trainer.train()
    state = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    assert trainer.ema is not None
    state |= {f"ema/{name}": tensor.clone() for name, tensor in trainer.ema.state_dict().items()}
    save_file(state, out / f"rank-{trainer.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
