"""Frames that lie centred on their own hop, and the sound that they give back."""

import pytest
import torch

from madrigal.layers.hop_stft import hop_stft, inverse_hop_stft, margins


@pytest.mark.parametrize(("n_fft", "hop"), [(64, 16), (64, 32), (60, 16), (48, 16)])
@pytest.mark.parametrize("samples", [16, 160, 171])
def test_whole_hops_come_back_exactly(n_fft: int, hop: int, samples: int) -> None:
    wave = torch.randn(2, samples, generator=torch.Generator().manual_seed(0))
    frames = hop_stft(wave, n_fft, hop)
    assert frames.shape == (2, samples // hop, n_fft // 2 + 1)
    whole = samples // hop * hop
    torch.testing.assert_close(inverse_hop_stft(frames, n_fft, hop), wave[:, :whole], rtol=1e-4, atol=1e-4)


def test_a_frame_is_loudest_on_its_own_hop() -> None:
    for place in (0, 7, 15):
        wave = torch.zeros(5 * 16)
        wave[2 * 16 + place] = 1.0
        assert int(hop_stft(wave, 64, 16).abs().sum(-1).argmax()) == 2


def test_less_than_a_hop_has_no_frame() -> None:
    frames = hop_stft(torch.ones(2, 15), 64, 16)
    assert frames.shape == (2, 0, 33)
    assert inverse_hop_stft(frames, 64, 16).shape == (2, 0)


def test_windows_that_skip_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="skip"):
        margins(8, 16)
