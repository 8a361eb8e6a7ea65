"""A codec that builds and runs in milliseconds, with every part in it."""

from typing import Any

import torch

from madrigal.soundstream.codec import SoundStream

TINY: dict[str, Any] = {
    "strides": (2, 4),
    "channels": 2,
    "channel_mults": (2, 4),
    "codebook_dim": 8,
    "codebook_size": 16,
    "rq_num_quantizers": 4,
    "attn_heads": 2,
    "attn_dim_head": 4,
    "attn_window_size": 16,
    "spectral_dim": 8,
    "spectral_depth": 1,
    "discr_multi_scales": (),
    "complex_stft_discr_kwargs": {"channels": 2, "n_fft": 128, "hop_length": 32, "win_length": 128},
    "multi_spectral_window_powers_of_two": (5, 6),
    "multi_spectral_n_ffts": 64,
    "multi_spectral_n_mels": 4,
    "stft_loss_n_ffts": (32, 64),
}
DOMAINS = {
    "waveform": {},
    "stft": {"frontend": "stft", "head": "istft"},
    "waveform to istft": {"head": "istft"},
    "stft to waveform": {"frontend": "stft"},
}


def tiny_codec(*, discriminators: bool = False, **options: Any) -> SoundStream:
    torch.manual_seed(0)
    return SoundStream(discriminators=discriminators, **{**TINY, **options})


def noise(*shape: int, seed: int = 1) -> torch.Tensor:
    return 0.3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
