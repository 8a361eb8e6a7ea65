"""No dead options: each field of the config, changed, changes what the codec is or does."""

from functools import cache
from typing import Any

import pytest
import torch
from tiny_codecs import TINY, noise

from madrigal.layers.gan_losses import discriminator_terms
from madrigal.soundstream import losses
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.config import SoundStreamConfig

SPECTRAL = {"frontend": "stft", "head": "istft"}
FSQ = {"use_finite_scalar_quantizer": True, "codebook_size": None, "finite_scalar_quantizer_levels": (4, 4)}
STFT_TERM = {"loss_weights": {"stft": 1}}

CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "target_sample_hz": (24000, {}),
    "input_channels": (2, {}),
    "strides": ((4, 2), {}),
    "frontend": ("stft", {}),
    "head": ("istft", {}),
    "channels": (3, {}),
    "channel_mults": ((2, 5), {}),
    "enc_cycle_dilations": ((1, 2), {}),
    "dec_cycle_dilations": ((1, 2), {}),
    "squeeze_excite": (True, {}),
    "use_gate_loop_layers": (True, {}),
    "pad_mode": ("replicate", {}),
    "spectral_dim": (9, SPECTRAL),
    "spectral_depth": (2, SPECTRAL),
    "spectral_n_fft": (32, SPECTRAL),
    "spectral_ff_mult": (2, SPECTRAL),
    "spectral_kernel_size": (5, SPECTRAL),
    "use_local_attn": (False, {}),
    "attn_depth": (2, {}),
    "attn_heads": (3, {}),
    "attn_dim_head": (6, {}),
    "attn_window_size": (4, {}),
    "attn_xpos_scale_base": (4, {}),
    "attn_dynamic_pos_bias": (True, {}),
    "codebook_dim": (10, {}),
    "codebook_size": (8, {}),
    "use_lookup_free_quantizer": (True, {}),
    "use_finite_scalar_quantizer": (False, FSQ),
    "finite_scalar_quantizer_levels": ((4, 3), FSQ),
    "rq_num_quantizers": (3, {}),
    "rq_groups": (2, {}),
    "rq_commitment_weight": (2.0, {}),
    "rq_ema_decay": (0.5, {}),
    "quantize_dropout_cutoff_index": (3, {}),
    "rq_quantize_dropout_multiple_of": (4, {}),
    "rq_stochastic_sample_codes": (True, {}),
    "rq_rotation_trick": (False, {}),
    "factorised_dim": (4, {}),
    "l2_normalised_codes": (True, {"factorised_dim": 4}),
    "rq_kwargs": ({"quantize_dropout": False}, {}),
    "discr_multi_scales": ((0.5,), {}),
    "use_complex_stft_discr": (False, {}),
    "complex_stft_discr_logits_abs": (False, {}),
    "complex_stft_discr_kwargs": ({"n_fft": 256, "channels": 2}, {}),
    "discr_spectrogram_n_ffts": ((64,), {}),
    "discr_spectrogram_channels": (4, {"discr_spectrogram_n_ffts": (64,)}),
    "stft_normalized": (True, {}),
    "waveform_loss": ("l1", {}),
    "mel_loss": ("log", {}),
    "multi_spectral_window_powers_of_two": ((5, 7), {}),
    "multi_spectral_n_ffts": (128, {}),
    "multi_spectral_n_mels": (5, {}),
    "stft_loss_n_ffts": ((32,), STFT_TERM),
    "loss_weights": ({"mel": 1.0}, {}),
}


@cache
def plain_signature() -> tuple[list[Any], torch.Tensor]:
    return signature()


def signature(**options: Any) -> tuple[list[Any], torch.Tensor]:
    """All that one can see of a codec: its parameters, and numbers from using and training it for a step."""
    torch.manual_seed(0)
    codec = SoundStream(**{**TINY, "complex_stft_discr_kwargs": {**TINY["complex_stft_discr_kwargs"]}, **options})
    wave = noise(4, codec.config.input_channels, 400)
    wave[..., :50] += 1
    with torch.no_grad():
        codec.quantizer.initialize(codec.latents(wave).flatten(0, 1))
    made, quantized = codec.autoencode(wave, collect=True)
    terms = losses.generator_terms(codec, wave, made, quantized.commitment)
    judged = {name: discriminator_terms(critic, wave, made) for name, critic in codec.discriminators.items()}
    total = losses.weighted_sum(terms, codec.config.loss_weights)
    total.backward()
    codec.quantizer.commit()
    shapes = [(name, tuple(p.shape)) for name, p in codec.named_parameters()]
    numbers = [
        made.mean(),
        made.std(),
        total,
        *terms.values(),
        *(term for critic in judged.values() for term in critic.values()),
        quantized.codes.double().mean(),
        codec.encode(wave).double().mean(),
        next(p.grad for p in codec.encoder.parameters() if p.grad is not None).norm(),
        codec.decode_from_codebook_indices(codec.encode(wave)).std(),
        torch.tensor(codec.frame_rate),
    ]
    return shapes, torch.stack([number.detach().double() for number in numbers])


def test_every_option_is_listed() -> None:
    assert set(CHANGES) == set(SoundStreamConfig.model_fields)


@pytest.mark.parametrize("option", CHANGES)
def test_AM17_option_does_something(option: str) -> None:
    value, base = CHANGES[option]
    changed = {**base, option: value}
    if option == "use_finite_scalar_quantizer":
        changed |= {"finite_scalar_quantizer_levels": None, "codebook_size": 16}
    shapes, numbers = signature(**base) if base else plain_signature()
    other_shapes, other_numbers = signature(**changed)
    same_numbers = numbers.shape == other_numbers.shape and torch.allclose(numbers, other_numbers, rtol=1e-6)
    assert shapes != other_shapes or not same_numbers
