"""The audio side of MuLaN: log-mels in patches, through the shared transformer, to one vector.

    wave -> log-mels -> [SpecAugment] -> patches of bands and frames -> [some left out] -> transformer -> mean

Time is a clock: rotary positions count columns of patches, so that a clip may have any length. Frequency is a vector
for each row of patches. Neither costs more memory than the patches themselves.
"""

from typing import Any, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.musiclm.augmentation import SpecAugment, kept_patches, uniform_draws
from madrigal.musiclm.encoder import Count, Encoded, Encoder, EncoderConfig, Share
from madrigal.musiclm.log_mels import LogMels

WINDOW = 640
"""Samples of a window unless it is given: 40 ms at 16 kHz."""


class AudioConfig(EncoderConfig):
    """Options of `AudioSpectrogramTransformer`."""

    patch_size: Count | tuple[Count, Count] = Field(16, description="bands and frames of a patch, or one for both")
    sample_rate: Count = Field(16000, description="rate of the sound, in Hz")
    accept_spec: bool = Field(False, description="it is given log-mels in place of waves; it is trained on waves")
    accept_spec_time_first: bool = Field(
        True, description="these are [batch, frames, bands], not [batch, bands, frames]"
    )
    spec_n_fft: int = Field(1024, ge=2, description="size of a Fourier transform")
    spec_win_length: Count | None = Field(
        None, description="samples of a window; none: 640, spec_n_fft if that is less"
    )
    spec_hop_length: Count | None = Field(None, description="samples between frames; none: half a window")
    spec_n_mels: Count | None = Field(None, description="mel bands; none: an eighth of spec_n_fft, at most 128")
    spec_power: float = Field(2.0, gt=0, description="what magnitudes are raised to before they are summed to bands")
    spec_aug_stretch_factor: float = Field(
        0.9, gt=0, le=1, description="training stretches time by up to this; 1: not at all, where captions tell a tempo"
    )
    spec_aug_freq_mask: int = Field(24, ge=0, description="training hides up to so many bands, half of them at most")
    spec_aug_time_mask: int = Field(64, ge=0, description="training hides up to so many frames, half of a clip at most")
    patch_dropout_prob: Share = Field(0.25, description="share of the patches that training leaves out")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.window > self.spec_n_fft:
            raise ValueError(f"spec_win_length={self.window} is longer than spec_n_fft={self.spec_n_fft}")
        if self.hop > self.window:
            raise ValueError(f"spec_hop_length={self.hop} skips samples: a window has {self.window}")
        if self.n_mels % self.patch[0]:
            raise ValueError(f"spec_n_mels={self.n_mels} cannot be cut into patches of {self.patch[0]} bands")
        return self

    @property
    def patch(self) -> tuple[int, int]:
        """Bands and frames."""
        return (self.patch_size, self.patch_size) if isinstance(self.patch_size, int) else self.patch_size

    @property
    def window(self) -> int:
        return self.spec_win_length or min(WINDOW, self.spec_n_fft)

    @property
    def hop(self) -> int:
        return self.spec_hop_length or max(1, self.window // 2)

    @property
    def n_mels(self) -> int:
        if self.spec_n_mels is not None:
            return self.spec_n_mels
        return max(1, min(128, self.spec_n_fft // 8) // self.patch[0]) * self.patch[0]


OLDER: dict[str, tuple[Any, str]] = {
    "spec_pad": (0, "silence can be added to the waves"),
    "spec_center": (True, "a window lies centred on its frame"),
    "spec_pad_mode": ("constant", "around a clip is silence, so that it is the same alone and in a batch"),
}
"""Words of older scripts that have one value here."""


class AudioSpectrogramTransformer(Encoder):
    """Waves [batch, samples] at `sample_rate` -> vectors [batch, dim]."""

    def __init__(self, config: AudioConfig | None = None, **options: Any) -> None:
        if config is None or options:
            config = _config_of(options, config)
        super().__init__(config)
        self.config = config
        bands, frames = config.patch
        self.mels = LogMels(
            config.sample_rate,
            hop=config.hop,
            n_fft=config.spec_n_fft,
            win_length=config.window,
            n_mels=config.n_mels,
            power=config.spec_power,
        )
        self.augment = SpecAugment(
            stretch_factor=config.spec_aug_stretch_factor,
            freq_mask=config.spec_aug_freq_mask,
            time_mask=config.spec_aug_time_mask,
        )
        self.to_patches = nn.Linear(bands * frames, config.dim)
        self.patch_norm = nn.LayerNorm(config.dim)
        self.rows = nn.Parameter(torch.randn(config.n_mels // bands, config.dim) * 0.02)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        *,
        seeds: Tensor | None = None,
        augment: bool | None = None,
        return_all_layers: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Waves [batch, samples], or log-mels where it takes these -> [batch, dim]; all layers: [depth, batch, dim].

        `lengths` int64 [batch] counts what is real of each row. `augment`: SpecAugment and patch dropout, None = while
        training; `seeds` int64 [batch] decides what they do, None = torch's generator does.
        """
        found = self.encode(x, lengths, seeds=seeds, augment=augment)
        return (found.pooled, found.layers) if return_all_layers else found.pooled

    def encode(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        *,
        seeds: Tensor | None = None,
        augment: bool | None = None,
    ) -> Encoded:
        """As `forward`, with the pooled layers beside."""
        frames, counts = self.frames(x, lengths)
        bands, time = self.config.patch
        # A clip shorter than a frame is one patch of nothing.
        columns = max(1, -(-frames.shape[1] // time))
        size = columns * len(self.rows)
        draws = None
        if self.training if augment is None else augment:
            seeds = torch.randint(2**62, (len(frames),)) if seeds is None else seeds
            draws = uniform_draws(seeds.to(frames.device), SpecAugment.draws + size)
            frames, counts = self.augment(frames, counts, draws[:, : SpecAugment.draws])
        frames = F.pad(frames, (0, 0, 0, columns * time - frames.shape[1]))
        # [batch, columns, frames, rows, bands] -> [batch, columns * rows, bands * frames]
        cut = frames.unflatten(2, (-1, bands)).unflatten(1, (columns, time)).permute(0, 1, 3, 4, 2)
        tokens = self.patch_norm(self.to_patches(cut.flatten(3))) + self.rows
        x = tokens.flatten(1, 2)
        real = mask_from_lengths((-(-counts // time)).clamp(min=1), columns).repeat_interleave(len(self.rows), dim=1)
        at = torch.arange(size, device=x.device) // len(self.rows)
        places = at.expand(len(x), -1)
        if draws is not None and self.config.patch_dropout_prob:
            kept, real = kept_patches(real, self.config.patch_dropout_prob, draws[:, SpecAugment.draws :])
            x, places = x.gather(1, kept[..., None].expand(-1, -1, x.shape[2])), at[kept]
        return self.run(x, real, at=places)

    def frames(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Normalised log-mels [batch, frames, bands], zero behind their end, and how many are real, int64 [batch]."""
        if not self.config.accept_spec:
            frames = self.mels.encode(x, lengths)
            whole = torch.full((len(x),), x.shape[-1]) if lengths is None else lengths
            return frames, self.mels.frames(whole.to(frames.device))
        time_first = self.config.accept_spec_time_first
        if x.ndim != 3 or x.shape[2 if time_first else 1] != self.mels.dim:
            order = f"[batch, frames, {self.mels.dim}]" if time_first else f"[batch, {self.mels.dim}, frames]"
            raise UserError(f"The audio transformer takes log-mels {order}; these are {list(x.shape)}.")
        x = x if time_first else x.transpose(1, 2)
        frames = self.mels.normalise(x.to(self.rows.device, torch.float32))
        counts = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
        counts = counts.to(frames.device)
        return frames * mask_from_lengths(counts, frames.shape[1])[..., None], counts


def _config_of(options: dict[str, Any], given: AudioConfig | None) -> AudioConfig:
    where = "AudioSpectrogramTransformer"
    for name, (value, instead) in OLDER.items():
        if options.pop(name, value) != value:
            raise UserError(f"{where} has {name}={value} only: {instead}.")
    return build_config(AudioConfig, {**({} if given is None else given.model_dump()), **options}, where)
