"""The terms of the losses: what they aim at, what they leave out, and one judgement for both sides."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny_codecs import noise, tiny_codec
from torch import Tensor, nn

from madrigal.layers.gan_losses import Valid, discriminator_terms
from madrigal.soundstream import losses
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.losses import generator_terms

CRITICS: dict[str, Any] = {"discr_spectrogram_n_ffts": (64,), "discr_spectrogram_channels": 4}
ALL_TERMS: dict[str, Any] = {"loss_weights": {"mel": 1, "stft": 1}}


def codec_with_critics(**options: Any) -> SoundStream:
    return tiny_codec(discriminators=True, **{**CRITICS, **ALL_TERMS, **options})


class Linear(nn.Module):
    """A critic whose gradient is known: its logits are the wave times a filter of one tap a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, wave: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self.weight * wave, []


def test_AM27_penalty_is_taken_of_the_logits_not_of_the_loss() -> None:
    loud = 100 * noise(2, 1, 50)
    penalty = discriminator_terms(Linear(), loud, -loud, penalty=True)["penalty"]
    # The score is the mean of 50 logits, each with slope 3; a hinge that is saturated would hide that.
    assert penalty.item() == pytest.approx(50 * (3 / 50) ** 2)


def test_AM25_every_discriminator_is_penalised_for_real_and_fake() -> None:
    codec = codec_with_critics()
    real, fake = noise(2, 1, 320), noise(2, 1, 320, seed=2)
    for discriminator in codec.discriminators.values():
        both = discriminator_terms(discriminator, real, fake, penalty=True)["penalty"]
        alone = [discriminator_terms(discriminator, w, w, penalty=True)["penalty"] for w in (real, fake)]
        torch.testing.assert_close(both, torch.stack(alone).mean())
        assert alone[0] != alone[1]
    named = dict(codec(real, return_discr_losses_separately=True, apply_grad_penalty=True))
    assert set(named) == {f"{n}{end}" for n in codec.discriminators for end in ("", "_grad_penalty")}
    total = codec(real, return_discr_loss=True, apply_grad_penalty=True)
    torch.testing.assert_close(total, torch.stack(list(named.values())).sum())


def test_penalty_reaches_the_weights() -> None:
    codec = codec_with_critics()
    for discriminator in codec.discriminators.values():
        discriminator_terms(discriminator, noise(2, 1, 320), noise(2, 1, 320), penalty=True)["penalty"].backward()
        kernels = [p for p in discriminator.parameters() if p.ndim > 2]
        assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in kernels)


def test_hinge_is_zero_for_a_critic_that_is_sure() -> None:
    ones = torch.ones(1, 1, 8)
    assert discriminator_terms(Linear(), ones, -ones)["hinge"] == 0
    assert discriminator_terms(Linear(), -ones, ones)["hinge"] == 8


def test_discriminators_turn_leaves_the_codec_alone() -> None:
    codec = codec_with_critics()
    wave = noise(2, 1, 320)
    made, _ = codec.autoencode(wave, collect=False)
    for discriminator in codec.discriminators.values():
        losses.weighted_sum(discriminator_terms(discriminator, wave, made), codec.config.loss_weights).backward()
    assert all(p.grad is None for p in codec.non_discr_parameters())


@pytest.mark.parametrize("mel_loss", ["soundstream", "log"])
@pytest.mark.parametrize("waveform_loss", ["mse", "l1"])
def test_padding_changes_no_reconstruction_term(mel_loss: str, waveform_loss: str) -> None:
    codec = tiny_codec(mel_loss=mel_loss, waveform_loss=waveform_loss, **ALL_TERMS)
    wave, made = noise(2, 1, 330), noise(2, 1, 330, seed=2)
    zero = torch.zeros(())
    plain = generator_terms(codec, wave, made, zero)
    lengths = torch.tensor([330, 330])
    padded = generator_terms(codec, F.pad(wave, (0, 70)), F.pad(made, (0, 70), value=9.0), zero, lengths)
    assert plain.keys() == padded.keys() == {"waveform", "mel", "stft", "commitment"}
    for name in ("waveform", "mel", "stft"):
        torch.testing.assert_close(plain[name], padded[name], rtol=1e-4, atol=1e-6)


def test_padding_counts_in_no_judgement() -> None:
    codec = codec_with_critics()
    wave, made = noise(2, 1, 640), noise(2, 1, 640, seed=2)
    lengths = torch.tensor([640, 320])
    other = made.clone()
    other[1, :, 320:] = 5.0
    zero = torch.zeros(())
    first, second = (generator_terms(codec, wave, w, zero, lengths) for w in (made, other))
    torch.testing.assert_close(first, second)
    discriminator = codec.discriminators["stft"]
    hinges = [discriminator_terms(discriminator, wave, w, lengths=lengths)["hinge"] for w in (made, other)]
    torch.testing.assert_close(*hinges)


def test_valid_mean_counts_what_is_sound() -> None:
    values = torch.arange(8.0).reshape(2, 1, 4)
    valid = Valid(torch.tensor([100, 50]), 100)
    assert valid.mean(values) == pytest.approx((0 + 1 + 2 + 3 + 4 + 5) / 6)
    assert Valid(None, 100).mean(values) == values.mean()


def test_terms_without_weight_are_not_computed() -> None:
    codec = codec_with_critics(loss_weights={"waveform": 0, "mel": 0, "feature": 0})
    wave = noise(1, 1, 320)
    terms = generator_terms(codec, wave, wave, torch.zeros(()))
    assert terms.keys() == {"adversarial", "commitment"}
    assert generator_terms(codec, wave, wave, torch.zeros(()), adversarial=False).keys() == {"commitment"}


def test_a_perfect_reconstruction_has_no_distance() -> None:
    codec = codec_with_critics()
    wave = noise(2, 1, 320)
    terms = generator_terms(codec, wave, wave.clone(), torch.zeros(()))
    assert all(abs(terms[name]) < 1e-6 for name in ("waveform", "mel", "stft", "feature"))


@pytest.mark.parametrize("n_ffts", [None, 512, (None, 512)])
def test_AM29_mel_windows_need_no_n_fft(n_ffts: Any) -> None:
    codec = tiny_codec(multi_spectral_n_ffts=n_ffts)
    sizes = [mel.n_fft for mel in codec.reconstruction_losses.mels]
    assert sizes == {None: [32, 64], 512: [512, 512], (None, 512): [32, 512]}[n_ffts]
