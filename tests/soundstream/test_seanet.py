"""The time-domain encoder and decoder and their optional layers."""

import pytest
import torch
from tiny_codecs import TINY, noise
from torch import Tensor

from madrigal.layers.convolutions import StreamCache
from madrigal.soundstream.config import SoundStreamConfig
from madrigal.soundstream.seanet import GateLoop, SeanetDecoder, SeanetEncoder, SqueezeExcite, linear_recurrence

OPTIONS = [{}, {"squeeze_excite": True}, {"use_gate_loop_layers": True}, {"pad_mode": "replicate"}]


def in_chunks(layer: torch.nn.Module, x: Tensor, size: int) -> Tensor:
    cache: StreamCache = {}
    return torch.cat([layer(chunk, cache) for chunk in x.split(size, dim=-1)], dim=-1)


def test_AM21_squeeze_excite_averages_over_the_past() -> None:
    torch.manual_seed(0)
    layer, x = SqueezeExcite(4), noise(2, 4, 10)
    for t in range(10):
        gate = layer.net(x[..., : t + 1].mean(dim=-1, keepdim=True))
        torch.testing.assert_close(layer(x)[..., t : t + 1], x[..., t : t + 1] * gate)
    torch.testing.assert_close(in_chunks(layer, x, 3), layer(x))


def test_linear_recurrence_equals_the_loop() -> None:
    keep, value = torch.rand(2, 11, 3), noise(2, 11, 3)
    state = torch.zeros(2, 3)
    for t, made in enumerate(linear_recurrence(keep, value).unbind(1)):
        state = keep[:, t] * state + value[:, t]
        torch.testing.assert_close(made, state)


def test_AM22_gate_loop_adds_its_input_once() -> None:
    torch.manual_seed(0)
    layer, x = GateLoop(4), noise(2, 4, 10)
    torch.testing.assert_close(in_chunks(layer, x, 3), layer(x))
    with torch.no_grad():
        for parameter in layer.to_out.parameters():
            parameter.zero_()
    assert torch.equal(layer(x), x)


@pytest.mark.parametrize("options", OPTIONS)
def test_AM23_encoder_and_decoder_are_causal(options: dict[str, object]) -> None:
    config = SoundStreamConfig(**{**TINY, **options})
    torch.manual_seed(0)
    encoder, decoder = SeanetEncoder(config), SeanetDecoder(config)
    wave = noise(1, 1, 80)
    changed = wave.clone()
    changed[..., 40:] += 1
    latents, others = encoder(wave), encoder(changed)
    assert latents.shape == (1, 8, 10)
    assert torch.equal(latents[..., :5], others[..., :5])
    assert not torch.allclose(latents[..., 5:], others[..., 5:])
    out, other_out = decoder(latents), decoder(others)
    assert out.shape == wave.shape
    torch.testing.assert_close(out[..., :40], other_out[..., :40])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("frames", [1, 3])
def test_chunks_make_the_whole(options: dict[str, object], frames: int) -> None:
    config = SoundStreamConfig(**{**TINY, **options})
    torch.manual_seed(0)
    encoder, decoder = SeanetEncoder(config), SeanetDecoder(config)
    wave, latents = noise(2, 1, 80), noise(2, 8, 10)
    torch.testing.assert_close(in_chunks(encoder, wave, 8 * frames), encoder(wave), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(in_chunks(decoder, latents, frames), decoder(latents), rtol=1e-4, atol=1e-5)
