"""What a maker of waves and its discriminators are trained for: named terms, weighed by `config.loss_weights`.

Every term is a mean over what is sound: whatever lies behind an item's length is silenced and not counted.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.gan_losses import Valid, feature_distance
from madrigal.layers.spectra import MelSpectrogram, log_mel, stft
from madrigal.soundstream.objective import ObjectiveConfig

Terms = dict[str, Tensor]


class WaveMaker(Protocol):
    """What makes waves and has somebody who judges them."""

    @property
    def config(self) -> ObjectiveConfig: ...

    @property
    def target_sample_hz(self) -> int: ...

    @property
    def downsample_factor(self) -> int: ...

    @property
    def channels(self) -> int: ...

    @property
    def discriminators(self) -> nn.ModuleDict: ...

    @property
    def reconstruction_losses(self) -> "ReconstructionLosses": ...


def weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    return torch.stack([weights[name] * term for name, term in terms.items()]).sum()


class ReconstructionLosses(nn.Module):
    """Distances of a wave from its reconstruction, both [batch, channels, samples]; it has nothing to learn."""

    def __init__(self, config: ObjectiveConfig, sample_rate: int) -> None:
        super().__init__()
        self.config = config
        powers = config.multi_spectral_window_powers_of_two
        self.mels = nn.ModuleList()
        for power, n_fft, n_mels in zip(
            powers,
            _one_each(config.multi_spectral_n_ffts, len(powers)),
            _one_each(config.multi_spectral_n_mels, len(powers)),
            strict=True,
        ):
            self.mels.append(_mel(config, sample_rate, 2**power, n_fft, n_mels))

    def waveform(self, target: Tensor, reconstruction: Tensor, valid: Valid) -> Tensor:
        difference = target - reconstruction
        return valid.mean(difference.abs() if self.config.waveform_loss == "l1" else difference.square())

    def mel(self, target: Tensor, reconstruction: Tensor, valid: Valid) -> Tensor:
        """Over windows of several sizes. "soundstream": equations 4 and 5 of the paper, L1 of the energies and
        sqrt(window / 2) times L2 of their logarithms. "log": mean L1 of the logarithms of the magnitudes."""
        losses = []
        for mel in self.mels:
            assert isinstance(mel, MelSpectrogram)
            with torch.no_grad():
                wanted = _framed(mel, target, mel.n_fft, mel.hop)
            made = _framed(mel, reconstruction, mel.n_fft, mel.hop)
            if self.config.mel_loss == "log":
                losses.append(valid.mean((log_mel(wanted) - log_mel(made)).abs()))
                continue
            l1 = valid.mean((wanted - made).abs().sum(dim=-2))
            l2 = valid.mean(torch.linalg.vector_norm(log_mel(wanted, 1e-10) - log_mel(made, 1e-10), dim=-2))
            losses.append(l1 + (mel.win_length / 2) ** 0.5 * l2)
        total = torch.stack(losses)
        return total.mean() if self.config.mel_loss == "log" else total.sum()

    def stft(self, target: Tensor, reconstruction: Tensor, valid: Valid) -> Tensor:
        """L1 of spectra whose magnitudes are compressed, so that quiet parts count: with phase and without."""
        losses = []
        for n_fft in self.config.stft_loss_n_ffts:
            transform = lambda wave, n_fft=n_fft: stft(wave, n_fft)
            with torch.no_grad():
                wanted, wanted_size = _compressed(_framed(transform, target, n_fft, n_fft // 4))
            made, made_size = _compressed(_framed(transform, reconstruction, n_fft, n_fft // 4))
            losses += [valid.mean((w - m).abs()) for w, m in zip(wanted, made, strict=True)]
            losses.append(valid.mean((wanted_size - made_size).abs()))
        return torch.stack(losses).mean()


def _one_each(value: Any, count: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) * count


def _mel(config: ObjectiveConfig, sample_rate: int, window: int, n_fft: int | None, n_mels: int) -> MelSpectrogram:
    is_log = config.mel_loss == "log"
    return MelSpectrogram(
        sample_rate,
        max(n_fft or window, window),
        win_length=window,
        n_mels=n_mels,
        power=1.0 if is_log else 2.0,
        scale="slaney" if is_log else "htk",
        equal_area=is_log,
        normalized=config.stft_normalized,
    )


def _framed(transform: Any, wave: Tensor, n_fft: int, hop: int) -> Tensor:
    """A centred transform whose frames see silence behind the end, whether it is padding of the batch or not."""
    frames: Tensor = transform(F.pad(wave, (0, n_fft // 2)))
    return frames[..., : -(-wave.shape[-1] // hop)]


def _compressed(spectrum: Tensor, power: float = 0.3) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Real and imaginary part, and the magnitude, after raising the magnitude to `power`."""
    square = spectrum.real.square() + spectrum.imag.square() + 1e-8
    scale = square ** ((power - 1) / 2)
    return (spectrum.real * scale, spectrum.imag * scale), square ** (power / 2)


def generator_terms(
    maker: WaveMaker,
    target: Tensor,
    reconstruction: Tensor,
    commitment: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    adversarial: bool = True,
) -> Terms:
    """The maker's own terms for `target` and its `reconstruction`, both [batch, channels, samples].

    With `adversarial`, also what its discriminators say; `lengths` [batch] are samples before padding, and
    `commitment` is the loss of a quantizer's own, where there is one.
    """
    valid = Valid(lengths, target.shape[-1])
    target, reconstruction = valid.silence(target), valid.silence(reconstruction)
    terms = _reconstruction_terms(maker, target, reconstruction, commitment, valid)
    weights = maker.config.loss_weights
    if not adversarial or not (weights["adversarial"] or weights["feature"]):
        return terms
    verdicts = []
    for discriminator in maker.discriminators.values():
        with torch.no_grad():
            _, real_features = discriminator(target)
        verdicts.append((*discriminator(reconstruction), real_features))
    return terms | _adversarial_terms(weights, verdicts, valid)


def _reconstruction_terms(
    maker: WaveMaker, target: Tensor, reconstruction: Tensor, commitment: Tensor | None, valid: Valid
) -> Terms:
    distances, weights = maker.reconstruction_losses, maker.config.loss_weights
    terms: Terms = {}
    for name in ("waveform", "mel", "stft"):
        if weights[name]:
            terms[name] = getattr(distances, name)(target, reconstruction, valid)
    return terms if commitment is None or not weights["commitment"] else {**terms, "commitment": commitment}


def _adversarial_terms(
    weights: Mapping[str, float], verdicts: list[tuple[Tensor, list[Tensor], list[Tensor]]], valid: Valid
) -> Terms:
    """From each discriminator's logits and features of the reconstruction, and its features of the target."""
    terms: Terms = {}
    if verdicts and weights["adversarial"]:
        terms["adversarial"] = torch.stack([-valid.mean(logits) for logits, _, _ in verdicts]).mean()
    if verdicts and weights["feature"]:
        terms["feature"] = torch.stack([feature_distance(made, real, valid) for _, made, real in verdicts]).mean()
    return terms
