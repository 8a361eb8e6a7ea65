"""A short name for what a codec has learned, so that codes never meet a codec that did not make them."""

import hashlib
import json
from typing import Any

import torch

from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.config import SoundStreamConfig
from madrigal.soundstream.header import FINGERPRINT_SIZE

_TRAINING_OPTIONS = (
    "discr_",
    "complex_stft_discr_",
    "use_complex_stft_discr",
    "stft_normalized",
    "stft_loss_",
    "multi_spectral_",
    "waveform_loss",
    "mel_loss",
    "loss_weights",
    "rq_commitment_weight",
    "rq_ema_decay",
    "rq_stochastic_sample_codes",
    "rq_quantize_dropout_",
    "quantize_dropout_",
)
"""Beginnings of the names of options that change how a codec learns, and not how it codes."""


def fingerprint(codec: SoundStream) -> bytes:
    """The first bytes of the SHA-256 of the codec's options and weights, without what only training uses."""
    digest = hashlib.sha256(json.dumps(_options(codec), sort_keys=True).encode())
    for name, weight in sorted(codec.named_parameters(), key=lambda item: item[0]):
        if not name.startswith("discriminators."):
            digest.update(f"\n{name} {weight.dtype} {list(weight.shape)}\n".encode())
            digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.digest()[:FINGERPRINT_SIZE]


def _options(codec: SoundStream) -> dict[str, Any]:
    """Only what differs from the defaults: a later version that has more options still knows an old codec's files."""
    options, defaults = (
        codec.config.model_dump(mode="json"),
        SoundStreamConfig.model_validate({}).model_dump(mode="json"),
    )
    return {
        name: value
        for name, value in options.items()
        if value != defaults[name] and not name.startswith(_TRAINING_OPTIONS)
    }
