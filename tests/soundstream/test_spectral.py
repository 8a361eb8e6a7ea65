"""The STFT-domain encoder and decoder: causal, streamable, and driven by every option they are given."""

from typing import Any

import pytest
import torch
from torch import Tensor

from madrigal.layers.convnext import ConvNeXtBlock, DepthwiseConv
from madrigal.layers.convolutions import StreamCache
from madrigal.soundstream.config import SoundStreamConfig
from madrigal.soundstream.spectral import (
    SpectralDecoder,
    SpectralEncoder,
    spectral_features,
    start_as_vocoder,
)

HOP = 16
FRAMES = 12


def config(**options: Any) -> SoundStreamConfig:
    settings = {"strides": (4, 4), "channel_mults": (1, 1), "codebook_dim": 6, "spectral_dim": 10, "spectral_depth": 2}
    return SoundStreamConfig(**{**settings, **options})


def pair(**options: Any) -> tuple[SpectralEncoder, SpectralDecoder]:
    torch.manual_seed(0)
    return SpectralEncoder(config(**options)).eval(), SpectralDecoder(config(**options)).eval()


def noise(channels: int = 1, frames: int = FRAMES) -> Tensor:
    torch.manual_seed(1)
    return 0.1 * torch.randn(2, channels, frames * HOP)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("n_fft", [None, 16, 40, 64])
def test_shapes_and_alignment(channels: int, n_fft: int | None) -> None:
    encoder, decoder = pair(input_channels=channels, spectral_n_fft=n_fft)
    latents = encoder(noise(channels))
    assert latents.shape == (2, 6, FRAMES)
    assert decoder(latents).shape == (2, channels, FRAMES * HOP)
    assert decoder.latency == (n_fft or 2 * HOP) - HOP


@pytest.mark.parametrize("n_fft", [None, 64])
def test_AM23_encoder_frames_never_see_the_future(n_fft: int | None) -> None:
    encoder, _ = pair(spectral_n_fft=n_fft)
    wave = noise()
    changed = wave.clone()
    changed[..., 5 * HOP :] *= -3
    before, after = encoder(wave), encoder(changed)
    assert torch.allclose(before[..., :5], after[..., :5], atol=1e-6)
    assert not torch.allclose(before[..., 5], after[..., 5], atol=1e-4)


@pytest.mark.parametrize("n_fft", [None, 40, 64])
def test_decoder_looks_ahead_by_its_latency_and_no_further(n_fft: int | None) -> None:
    _, decoder = pair(spectral_n_fft=n_fft)
    latents = torch.randn(1, 6, FRAMES)
    changed = latents.clone()
    changed[..., 6] += 1
    moved = (decoder(latents) - decoder(changed)).abs()[0, 0] > 1e-6
    first = int(moved.nonzero()[0])
    assert 7 * HOP - HOP - decoder.latency <= first <= 6 * HOP


@pytest.mark.parametrize("n_fft", [None, 16, 40, 64])
@pytest.mark.parametrize("chunk", [1, 5, FRAMES])
def test_streaming_equals_the_whole(n_fft: int | None, chunk: int) -> None:
    encoder, decoder = pair(spectral_n_fft=n_fft)
    wave = noise()
    latents = encoder(wave)
    cache: StreamCache = {}
    pieces = [encoder(part, cache) for part in wave.split(chunk * HOP, -1)]
    assert torch.allclose(torch.cat(pieces, -1), latents, atol=1e-5)
    cache = {}
    samples = [decoder(part, cache) for part in latents.split(chunk, -1)]
    sent = sum(part.shape[-1] for part in samples)
    assert sent == max(FRAMES * HOP - decoder.latency, 0), "everything complete is sent"
    assert torch.allclose(torch.cat([*samples, decoder.flush(cache)], -1), decoder(latents), atol=1e-5)


def test_a_stream_shorter_than_the_latency_is_whole_after_the_flush() -> None:
    _, decoder = pair(spectral_n_fft=64)
    latents = torch.randn(1, 6, 2)
    cache: StreamCache = {}
    assert decoder(latents, cache).shape[-1] == 0
    assert torch.allclose(decoder.flush(cache), decoder(latents), atol=1e-5)


def test_nothing_in_gives_nothing_out() -> None:
    encoder, decoder = pair()
    assert decoder.flush({}).shape[-1] == 0
    cache: StreamCache = {}
    assert encoder(torch.zeros(1, 1, 0), cache).shape == (1, 6, 0)
    assert decoder(torch.zeros(1, 6, 0), cache).shape == (1, 1, 0)
    assert decoder(torch.zeros(1, 6, 0)).shape == (1, 1, 0)


def test_the_cache_of_a_stream_does_not_grow() -> None:
    encoder, decoder = pair()
    sizes = []
    cache: StreamCache = {}
    for _ in range(4):
        decoder(encoder(noise(frames=3), cache), cache)
        flat = [part for held in cache.values() for part in (held if isinstance(held, tuple) else (held,))]
        sizes.append(sum(part.untyped_storage().nbytes() for part in flat if isinstance(part, Tensor)))
    assert sizes[1] == sizes[2] == sizes[3]


@pytest.mark.parametrize(
    "options",
    [
        {"spectral_dim": 12},
        {"spectral_depth": 3},
        {"spectral_n_fft": 64},
        {"spectral_ff_mult": 2.0},
        {"spectral_kernel_size": 3},
        {"codebook_dim": 5},
        {"input_channels": 2},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_option_shapes_both_sides(options: dict[str, Any]) -> None:
    plain, other = pair(), pair(**options)
    for left, right in zip(plain, other, strict=True):
        shapes = [[tuple(p.shape) for p in side.parameters()] for side in (left, right)]
        assert shapes[0] != shapes[1]


def test_gradients_reach_every_parameter_and_bfloat16_stays_close() -> None:
    encoder, decoder = pair()
    wave = noise()
    whole = decoder(encoder(wave))
    whole.square().sum().backward()
    for parameter in (*encoder.parameters(), *decoder.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        rough = decoder(encoder(wave))
    assert rough.dtype == torch.float32
    assert (rough - whole).norm() < 0.1 * whole.norm()


def test_silence_gives_finite_features_gradients_and_sound() -> None:
    encoder, decoder = pair()
    wave = torch.zeros(1, 1, FRAMES * HOP, requires_grad=True)
    decoder(encoder(wave)).sum().backward()
    assert wave.grad is not None
    assert wave.grad.isfinite().all()


def test_features_tell_level_and_phase() -> None:
    spectrum = torch.randn(1, 1, 4, 9, dtype=torch.complex64)
    plain, louder, turned = (spectral_features(spectrum * factor) for factor in (1, 10, 1j))
    assert plain.shape == (1, 4, 27)
    assert not torch.allclose(plain, louder)
    assert torch.allclose(plain[..., 18:], turned[..., 18:], atol=1e-5), "the level does not hear the phase"
    assert not torch.allclose(plain[..., :18], turned[..., :18])


def test_depthwise_convolution_is_that_of_conv1d() -> None:
    layer = DepthwiseConv(5, 3)
    x = torch.randn(2, 7, 5)
    padded = torch.nn.functional.pad(x.transpose(1, 2), (2, 0))
    expected = torch.nn.functional.conv1d(padded, layer.weight[:, :, 0], layer.bias, groups=5)
    assert torch.allclose(layer(x), expected.transpose(1, 2), atol=1e-6)


def test_a_block_starts_as_the_identity() -> None:
    block = ConvNeXtBlock(64, 128, 7)
    x = torch.randn(2, 9, 64)
    assert torch.equal(block(x), x)


def test_an_untrained_codec_is_a_vocoder_and_no_noise() -> None:
    """Before any training, a tone under 1 kHz comes back as that tone."""
    options = {"strides": (2, 4, 5, 8), "channel_mults": (1, 1, 1, 1), "codebook_dim": 128, "spectral_dim": 160}
    encoder, decoder = pair(**options)
    start_as_vocoder(encoder, decoder, 16000)
    tone = 0.3 * torch.sin(2 * torch.pi * 437.0 * torch.arange(32000) / 16000)
    heard = decoder(encoder(tone[None, None]))[0, 0]
    inside = slice(3200, -3200)
    cosine = torch.nn.functional.cosine_similarity(tone[inside], heard[inside], dim=0)
    assert cosine > 0.9


def test_one_tone_can_be_learned() -> None:
    torch.manual_seed(0)
    encoder, decoder = pair(spectral_dim=32, codebook_dim=16)
    wave = 0.3 * torch.sin(0.3 * torch.arange(20 * HOP)).expand(1, 1, -1)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=5e-3)
    losses = []
    for _ in range(60):
        loss = (decoder(encoder(wave)) - wave).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
