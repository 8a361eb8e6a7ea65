"""Transforms invert each other, filterbanks leave no band empty, and nothing causal hears the future."""

import math

import pytest
import torch

from madrigal.layers.spectra import (
    CausalInverseSTFT,
    CausalSTFT,
    MelSpectrogram,
    hz_to_mel,
    log_mel,
    mel_filterbank,
    mel_to_hz,
    stft,
    window,
)

SIZES = [(64, 32), (100, 32), (32, 32), (128, 32), (50, 32)]


def tone(hz: float, samples: int = 16000, rate: int = 16000) -> torch.Tensor:
    return torch.sin(2 * torch.pi * hz * torch.arange(samples) / rate)


def test_stft_finds_a_tone_and_keeps_leading_dimensions() -> None:
    spectrum = stft(tone(1000.0).expand(2, 3, -1), 512)
    assert spectrum.shape == (2, 3, 257, 1 + 16000 // 128)
    assert spectrum.abs().mean(-1).argmax(-1).unique().tolist() == [32]


def test_stft_options_change_the_transform() -> None:
    wave = tone(440.0)
    plain = stft(wave, 512)
    assert stft(wave, 512, hop=64).shape[-1] == 251
    assert not torch.allclose(stft(wave, 512, hop=128, win_length=256).abs(), plain.abs(), atol=1e-2)
    assert torch.allclose(stft(wave, 512, normalized=True) * math.sqrt(512), plain, atol=1e-3)


def test_stft_accepts_a_clip_shorter_than_its_window() -> None:
    assert stft(torch.randn(10), 512).shape == (257, 1)


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_mel_scales_invert(scale: str) -> None:
    hz = torch.linspace(0, 8000, 50, dtype=torch.float64)
    assert torch.allclose(mel_to_hz(hz_to_mel(hz, scale), scale), hz, atol=1e-6)  # type: ignore[arg-type]


def test_mel_scales_agree_with_their_definitions() -> None:
    assert hz_to_mel(torch.tensor([0.0, 500.0, 1000.0, 6400.0])).tolist() == pytest.approx([0, 7.5, 15, 42], abs=1e-4)
    assert hz_to_mel(torch.tensor([1000.0]), "htk").item() == pytest.approx(1000, abs=0.1)


@pytest.mark.parametrize(("n_mels", "n_fft"), [(64, 64), (64, 512), (128, 2048), (8, 64)])
def test_no_mel_band_is_empty(n_mels: int, n_fft: int) -> None:
    assert (mel_filterbank(n_mels, n_fft, 16000).sum(1) > 0).all()


def test_neighbouring_triangles_add_up_to_one() -> None:
    filters = mel_filterbank(20, 2048, 16000, equal_area=False)
    first, last = filters.argmax(1)[[0, -1]].tolist()
    assert torch.allclose(filters.sum(0)[first + 1 : last], torch.ones(last - first - 1), atol=1e-5)


def test_filterbank_options_change_the_bands() -> None:
    plain = mel_filterbank(20, 512, 16000)
    for options in ({"scale": "htk"}, {"equal_area": False}, {"f_min": 200.0}, {"f_max": 4000.0}):
        assert not torch.allclose(mel_filterbank(20, 512, 16000, **options), plain)  # type: ignore[arg-type]


def test_mel_spectrogram_is_differentiable_and_its_options_matter() -> None:
    wave = tone(440.0, 4000).requires_grad_()
    plain = MelSpectrogram(16000, 512, n_mels=20)
    mel = plain(wave)
    assert mel.shape == (20, 1 + 4000 // 128)
    log_mel(mel).sum().backward()
    assert wave.grad is not None
    assert wave.grad.isfinite().all()
    for options in ({"power": 2.0}, {"scale": "htk"}, {"equal_area": False}, {"normalized": True}, {"win_length": 256}):
        other = MelSpectrogram(16000, 512, hop=128, n_mels=20, **options)(wave)  # type: ignore[arg-type]
        assert not torch.allclose(other, mel)


def test_log_mel_of_silence_is_its_floor_and_finite() -> None:
    wave = torch.zeros(4000, requires_grad=True)
    level = log_mel(MelSpectrogram(16000, 256)(wave), floor=1e-3)
    level.sum().backward()
    assert torch.allclose(level, torch.full_like(level, math.log(1e-3)))
    assert wave.grad is not None
    assert wave.grad.isfinite().all()


def test_AM4_windows_made_in_inference_mode_serve_training_later() -> None:
    with torch.inference_mode():
        window("hann", 338)
        mel_filterbank(7, 338, 16000)
        CausalSTFT(338, 169)(torch.randn(1, 1, 338))
    wave = torch.randn(1, 1, 338, requires_grad=True)
    (MelSpectrogram(16000, 338, n_mels=7)(wave).sum() + CausalSTFT(338, 169)(wave).abs().sum()).backward()
    assert wave.grad is not None


@pytest.mark.parametrize(("n_fft", "hop"), SIZES)
def test_causal_transform_and_back_is_the_identity_without_delay(n_fft: int, hop: int) -> None:
    forth, back = CausalSTFT(n_fft, hop), CausalInverseSTFT(n_fft, hop)
    wave = torch.randn(2, 1, 10 * hop)
    again = back(forth(torch.nn.functional.pad(wave, (0, back.extra_frames * hop))))
    assert back.latency == n_fft - hop
    assert torch.allclose(again[..., : 10 * hop], wave, atol=1e-4)


@pytest.mark.parametrize(("n_fft", "hop"), SIZES)
@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_equal_the_whole(n_fft: int, hop: int, chunk: int) -> None:
    forth, back = CausalSTFT(n_fft, hop), CausalInverseSTFT(n_fft, hop)
    wave = torch.randn(2, 2, 10 * hop)
    spectrum = forth(wave)
    cache: dict = {}
    chunks = [forth(part, cache) for part in wave.split(chunk * hop, -1)]
    assert torch.allclose(torch.cat(chunks, 2), spectrum, atol=1e-5)
    whole = back(spectrum)
    assert whole.shape[-1] == max(10 * hop - back.latency, 0)
    parts = [back(part, cache) for part in spectrum.split(chunk, 2)]
    assert torch.allclose(torch.cat(parts, -1), whole, atol=1e-5)


def test_AM23_causal_frames_never_see_the_future() -> None:
    transform = CausalSTFT(64, 32)
    wave = torch.randn(1, 1, 320)
    changed = wave.clone()
    changed[..., 5 * 32 :] += 1
    assert torch.equal(transform(wave)[:, :, :5], transform(changed)[:, :, :5])
    assert not torch.allclose(transform(wave)[:, :, 5], transform(changed)[:, :, 5])


def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of the hop"):
        CausalSTFT(64, 32)(torch.zeros(1, 1, 33))
    with pytest.raises(ValueError, match="skip"):
        CausalSTFT(16, 32)
    with pytest.raises(ValueError, match="holes"):
        CausalInverseSTFT(16, 32)
