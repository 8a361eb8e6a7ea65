"""Frames of features in the place of sound, and the way there and back: what a flow makes, and a mel codec writes down.

Frame i stands for the samples from i * hop to (i + 1) * hop. Features have about zero mean and unit variance in every
dimension, by statistics that are measured on data and kept as buffers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.collate import mask_from_lengths
from madrigal.errors import UserError
from madrigal.layers.griffin_lim import GriffinLim
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.mel_config import MelConfig
from madrigal.tokenizers.mel_frames import MelFrames

STATISTICS_FROM = 200
"""Recordings that tell mean and deviation well enough."""


class Features(nn.Module):
    """Waves [batch, samples] -> features [batch, frames, dim] -> waves [batch, frames * hop].

    A kind says what its frames are before they are normalised (`raw`) and how sound comes of them (`sound`).
    """

    dim: int
    sample_rate: int
    hop: int
    mean: Tensor
    std: Tensor

    def __init__(self, *, dim: int, sample_rate: int, hop: int) -> None:
        super().__init__()
        self.dim, self.sample_rate, self.hop = dim, sample_rate, hop
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.fitted: Tensor

    # What a kind says of itself.

    def raw(self, wave: Tensor) -> Tensor:
        """[batch, samples] -> [batch, samples // hop, dim], as they are."""
        raise NotImplementedError

    def sound(self, raw: Tensor) -> Tensor:
        """[batch, frames, dim] as `raw` gives them -> [batch, frames * hop]."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """What features depend on beside the statistics."""
        raise NotImplementedError

    # What they share.

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.hop

    @overload
    def frames(self, samples: int) -> int: ...
    @overload
    def frames(self, samples: Tensor) -> Tensor: ...
    def frames(self, samples: int | Tensor) -> int | Tensor:
        """Whole frames in so many samples, a number or int64 [batch]."""
        return samples // self.hop

    @torch.no_grad()
    def encode(self, wave: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[batch, samples], or [batch, 1, samples] -> [batch, frames, dim].

        What lies behind `lengths` [batch], in samples, is silence to the frames before it, and zero itself: a row is
        the same in any batch.
        """
        wave = self._batched(wave)
        if lengths is not None:
            wave = wave * mask_from_lengths(lengths.to(wave.device), wave.shape[-1])
        features = self.normalise(self.raw(wave))
        if lengths is not None:
            features = features * mask_from_lengths(self.frames(lengths.to(wave.device)), features.shape[1])[..., None]
        return features

    @torch.no_grad()
    def decode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[batch, frames, dim] -> [batch, frames * hop]; with `lengths` [batch], in frames, each row sounds alone."""
        self._check(features)
        if lengths is None:
            return self.sound(self.denormalise(features))
        rows = [
            self.sound(self.denormalise(row[None, :count]))[0]
            for row, count in zip(features, lengths.tolist(), strict=True)
        ]
        wave = pad_sequence(rows, batch_first=True)
        return F.pad(wave, (0, features.shape[1] * self.hop - wave.shape[-1]))

    @torch.no_grad()
    def decode_in_chunks(self, features: Tensor, *, chunk: int = 100) -> Iterator[Tensor]:
        """[1, frames, dim] -> waves [1, samples] that joined are `decode`'s, the first one soon."""
        self._check(features)
        yield from self._chunks(self.denormalise(features), chunk)

    def _chunks(self, raw: Tensor, chunk: int) -> Iterator[Tensor]:
        """A kind that cannot sound in parts sounds whole."""
        yield self.sound(raw)

    def normalise(self, raw: Tensor) -> Tensor:
        """Frames [batch, frames, dim] to about zero mean and unit variance."""
        return (raw - self.mean) / self.std

    def denormalise(self, features: Tensor) -> Tensor:
        """Undoes `normalise`."""
        return features * self.std + self.mean

    @torch.no_grad()
    def fit(self, waves: Iterable[Tensor]) -> None:
        """Measure mean and deviation of every dimension on recordings [samples] or [1, samples]."""
        frames = []
        for number, wave in enumerate(waves):
            if number == STATISTICS_FROM:
                break
            frames.append(self.raw(self._batched(wave.reshape(1, -1))).flatten(0, 1).double())
        heard = torch.cat(frames) if frames else torch.zeros(0, self.dim)
        if len(heard) < 2:
            raise UserError(
                f"The features' statistics cannot be measured: the recordings hold {len(heard)} frames of {self.hop} "
                "samples; give longer ones."
            )
        std = heard.std(0)
        # A dimension that hardly moves is not blown up.
        self.take_statistics(heard.mean(0), std.clamp(min=1e-2 * float(std.mean()) + 1e-6))

    def fit_batches(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """The same on batches of `audio` [batch, 1, samples] with their `lengths` [batch]."""
        self.fit(
            wave[0, :length]
            for batch in batches
            for wave, length in zip(batch["audio"], batch["lengths"].tolist(), strict=True)
        )

    @torch.no_grad()
    def take_statistics(self, mean: Tensor, std: Tensor) -> None:
        """Use these [dim]."""
        self.mean.copy_(mean)
        self.std.copy_(std)
        self.fitted.fill_(True)

    def fingerprint(self) -> str:
        """16 hex digits of what features depend on, so that they never meet a model that knows others."""
        return fingerprint_of(self.options(), {"mean": self.mean, "std": self.std})

    def _batched(self, wave: Tensor) -> Tensor:
        if wave.ndim == 3 and wave.shape[1] == 1:
            wave = wave[:, 0]
        if wave.ndim != 2:
            raise UserError(
                f"Features are made of waves [batch, samples]; these are {list(wave.shape)}: mix them to one channel."
            )
        return wave.to(self.mean.device, torch.float32)

    def _check(self, features: Tensor) -> None:
        if features.ndim != 3 or features.shape[-1] != self.dim:
            raise UserError(f"Features have the shape [batch, frames, {self.dim}]; these are {list(features.shape)}.")

    # Names that scripts of older libraries call.

    @property
    def latent_dim(self) -> int:
        return self.dim

    @property
    def downsample_factor(self) -> int:
        return self.hop

    @property
    def sampling_rate(self) -> int:
        return self.sample_rate


class MelFeatures(Features):
    """Log-mels [batch, frames, n_mels]; sound by a vocoder that was trained for them, or by Griffin-Lim."""

    def __init__(self, config: MelConfig | None = None, *, vocoder: nn.Module | None = None) -> None:
        config = config or MelConfig()
        super().__init__(dim=config.n_mels, sample_rate=config.target_sample_hz, hop=config.hop)
        self.config = config
        sizes = {"hop": config.hop, "n_fft": config.n_fft, "n_mels": config.n_mels}
        self.mel = MelFrames(config.target_sample_hz, **sizes)
        self.griffin_lim = GriffinLim(config.target_sample_hz, **sizes)
        self.vocoder: Any = None if vocoder is None else vocoder.eval().requires_grad_(False)

    def raw(self, wave: Tensor) -> Tensor:
        if wave.shape[-1] < self.hop:
            return wave.new_zeros(len(wave), 0, self.dim)
        frames: Tensor = self.mel(wave)
        return frames

    def sound(self, raw: Tensor) -> Tensor:
        wave: Tensor = (self.vocoder or self.griffin_lim)(raw)
        return wave

    def _chunks(self, raw: Tensor, chunk: int) -> Iterator[Tensor]:
        yield from super()._chunks(raw, chunk) if self.vocoder is None else self.vocoder.in_chunks(raw, chunk=chunk)

    def options(self) -> dict[str, Any]:
        return {"kind": "mel", **self.config.mel_options()}
