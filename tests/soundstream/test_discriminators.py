"""The critics: shapes, any number of channels, and guests."""

from typing import Any

import pytest
import torch
from tiny_codecs import TINY, noise, tiny_codec
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.soundstream.config import SoundStreamConfig
from madrigal.soundstream.discriminators import (
    ComplexSTFTDiscriminator,
    MultiScaleDiscriminator,
    SpectrogramDiscriminator,
    WideConv1d,
    build_discriminators,
)

SMALL_STFT: dict[str, Any] = TINY["complex_stft_discr_kwargs"]


def every_kind(channels: int) -> list[nn.Module]:
    return [
        MultiScaleDiscriminator(input_channels=channels, channels=4, chan_max=16, groups=(2, 4), factors=(2,)),
        ComplexSTFTDiscriminator(input_channels=channels, **SMALL_STFT),
        SpectrogramDiscriminator(64, input_channels=channels, channels=4),
    ]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("samples", [100, 1500])
def test_AM24_all_take_mono_and_stereo(channels: int, samples: int) -> None:
    for discriminator in every_kind(channels):
        wave = noise(2, channels, samples).requires_grad_()
        logits, features = discriminator(wave)
        assert len(features) >= 2
        assert all(len(tensor) == 2 and tensor.isfinite().all() for tensor in (logits, *features))
        (gradient,) = torch.autograd.grad(logits.sum(), wave)
        assert gradient.abs().sum(dim=(0, 2)).min() > 0


def test_complex_logits_have_time_last_and_one_band() -> None:
    discriminator = ComplexSTFTDiscriminator(**SMALL_STFT)
    logits, features = discriminator(noise(2, 1, 32 * 63))
    assert logits.shape == (2, 1, 1, 8)
    assert [feature.shape[-1] for feature in features] == [64, 64, 64, 64, 32, 32, 32, 32, 16, 16, 16, 16, 8, 8]
    assert (logits >= 0).all()
    both, _ = ComplexSTFTDiscriminator(**SMALL_STFT, logits_abs=False)(noise(2, 1, 32 * 63))
    assert both.shape == (2, 2, 1, 8)


def test_complex_discriminator_refuses_strides_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="do not divide"):
        ComplexSTFTDiscriminator(n_fft=100)


def test_wide_convolution_is_a_convolution() -> None:
    wide, plain = WideConv1d(3, 4, 5), nn.Conv1d(3, 4, 5, padding=2)
    plain.load_state_dict(wide.state_dict())
    x = noise(2, 3, 9)
    torch.testing.assert_close(wide(x), plain(x))


def test_sizes_are_those_of_the_paper() -> None:
    with torch.device("meta"):
        discriminators = build_discriminators(SoundStreamConfig())
    millions = {name: sum(p.numel() for p in module.parameters()) / 1e6 for name, module in discriminators.items()}
    assert list(millions) == ["scale_1", "scale_2", "scale_4", "stft"]
    assert millions["scale_1"] == pytest.approx(5.64, abs=0.01)
    assert millions["stft"] == pytest.approx(5.58, abs=0.01)


def test_scales_hear_the_wave_at_their_rate() -> None:
    config = SoundStreamConfig(**{**TINY, "discr_multi_scales": (1, 0.5, 0.25)})
    rates = [
        build_discriminators(config)[name].downsample(noise(1, 1, 160)) for name in ("scale_1", "scale_2", "scale_4")
    ]
    assert [wave.shape[-1] // 10 for wave in rates] == [16, 8, 4]


def test_choice_of_discriminators() -> None:
    config = SoundStreamConfig(**{**TINY, "use_complex_stft_discr": False, "discr_spectrogram_n_ffts": (64, 128)})
    assert list(build_discriminators(config)) == ["spectrogram_64", "spectrogram_128"]
    assert not tiny_codec(discriminators=False).discriminators


class Guest(nn.Module):
    """As a user of an older library wrote it: complex, and features only on request."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, x: Tensor, return_intermediates: bool = False) -> Any:
        feature = torch.fft.fft(x) * self.weight
        return (feature.abs(), [feature]) if return_intermediates else feature.abs()


def test_a_guest_takes_the_place_of_the_complex_one() -> None:
    discriminators = build_discriminators(SoundStreamConfig(**TINY), stft_discriminator=Guest())
    logits, features = discriminators["stft"](noise(2, 1, 64))
    assert logits.shape == (2, 1, 64)
    assert features[0].shape == (2, 2, 64)
    assert not features[0].is_complex()
