"""What training does to log-mels, to each item by numbers of its own: SpecAugment, and patches that are left out.

All numbers of an item come from one seed, which the data give. So an item is augmented the same way on whatever process
and in whatever batch it is drawn.
"""

import math

import torch
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths


def uniform_draws(seeds: Tensor, count: int) -> Tensor:
    """Float [batch, count] in 0 … 1, row by row from the seeds int64 [batch]; more of them change no earlier one."""
    rows = [torch.rand(count, generator=torch.Generator().manual_seed(seed)) for seed in seeds.tolist()]
    return torch.stack(rows).to(seeds.device)


class SpecAugment(nn.Module):
    """Stretches time, hides a band of frequencies and a stretch of time (Park et al., 2019), item by item.

    `stretch_factor` 0.8: slower or faster by up to that, 1 = never. At most `freq_mask` bands are hidden, and never
    more than half of them; at most `time_mask` frames, and never more than half of an item's own.
    """

    draws = 5

    def __init__(self, *, stretch_factor: float = 0.9, freq_mask: int = 24, time_mask: int = 64) -> None:
        super().__init__()
        self.stretch_factor, self.freq_mask, self.time_mask = stretch_factor, freq_mask, time_mask

    def forward(self, frames: Tensor, counts: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """frames [batch, time, bands], real ones int64 [batch], draws [batch, 5] -> both, as they are heard now."""
        speed, low_width, low, wide, early = draws.unbind(1)
        if self.stretch_factor != 1.0:
            frames, counts = _stretched(frames, counts, (math.log(self.stretch_factor) * (2 * speed - 1)).exp())
        bands, most = frames.shape[2], min(self.freq_mask, frames.shape[2] // 2)
        hidden_bands = _span((low_width * (most + 1)).long(), torch.full_like(counts, bands), low, bands)
        longest = (counts // 2).clamp(max=self.time_mask)
        hidden_frames = _span((wide * (longest + 1)).long(), counts, early, frames.shape[1])
        hidden = hidden_bands[:, None] | hidden_frames[..., None]
        return frames.masked_fill(hidden, 0.0), counts


def _span(width: Tensor, room: Tensor, place: Tensor, size: int) -> Tensor:
    """Bool [batch, size]: `width` neighbours within the first `room`, at a `place` in 0 … 1."""
    first = (place * (room - width + 1)).long()[:, None]
    where = torch.arange(size, device=width.device)
    return (where >= first) & (where < first + width[:, None])


def _stretched(frames: Tensor, counts: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """Played `rate` [batch] times as fast, interpolated between frames; what does not fit any more is cut off."""
    time = frames.shape[1]
    last = (counts - 1).clamp(min=0)
    counts = torch.minimum(counts, (last / rate).long() + 1)
    source = torch.arange(time, device=frames.device) * rate[:, None]
    source = torch.minimum(source, last[:, None].to(source.dtype))
    before = source.long()
    after = torch.minimum(before + 1, last[:, None])
    share = (source - before)[..., None].to(frames.dtype)
    rows = torch.arange(len(frames), device=frames.device)[:, None]
    frames = torch.lerp(frames[rows, before], frames[rows, after], share)
    return frames * mask_from_lengths(counts, time)[..., None], counts


def kept_patches(real: Tensor, drop: float, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Which patches stay, int64 [batch, kept] in their order, and bool [batch, kept] which of these are real.

    `real` [batch, patches]; of an item's n real ones (1 - drop) * n stay, and at least one. `draws` [batch, patches].
    """
    wanted = (real.sum(1) * (1 - drop)).round().long().clamp(min=1)
    chosen = draws.masked_fill(~real, 2.0).argsort(1)[:, : int(wanted.max())]
    chosen_real = torch.arange(chosen.shape[1], device=real.device) < wanted[:, None]
    # The real ones in the order of their places, and padding behind them.
    places, order = chosen.masked_fill(~chosen_real, real.shape[1]).sort(1)
    return places.clamp(max=real.shape[1] - 1), chosen_real.gather(1, order)
