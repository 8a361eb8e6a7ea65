"""What is hidden from a masked-prediction encoder: spans of time, and the pitch of the voice's resonances."""

import torch
from torch import Tensor


def span_mask(real: Tensor, *, share: float, span: int) -> Tensor:
    """Spans of `span` tokens that cover about `share` of the real ones: bool [batch, time], True = hidden.

    `real` is bool [batch, time]. A row with real tokens always has at least one hidden and, where it has more than a
    span, one that is not.
    """
    batch, time = real.shape
    lengths = real.sum(1)
    # Spans overlap, so that more have to begin than share / span: 1 - (1 - p) ** span of the tokens are hidden.
    begins = torch.rand(batch, time, device=real.device) < 1 - (1 - share) ** (1 / span)
    one = (torch.rand(batch, device=real.device) * lengths).long().clamp(max=max(time - 1, 0))
    begins[torch.arange(batch, device=real.device), one] = True
    counts = begins.long().cumsum(1)
    ended = torch.nn.functional.pad(counts, (span, 0))[:, :time]
    hidden = (counts > ended) & real
    # Nothing can be said about a row of which nothing is heard.
    hidden[(hidden == real).all(1), : span // 2 + 1] = False
    first = torch.zeros_like(hidden)
    first[:, 0] = True
    return torch.where((hidden.sum(1, keepdim=True) == 0) & real.any(1, keepdim=True), first & real, hidden)


def warp_bands(frames: Tensor, amount: float) -> Tensor:
    """Stretch the bands of log-mels [batch, time, bands] by a factor of each row, up to 1 ± `amount`.

    A shorter vocal tract moves all resonances up: the same words as if another person spoke.
    """
    batch, _, bands = frames.shape
    factors = 1 + amount * (2 * torch.rand(batch, 1, device=frames.device) - 1)
    places = (torch.arange(bands, device=frames.device) * factors).clamp(max=bands - 1)
    low = places.floor().long().clamp(max=max(bands - 2, 0))
    weight = (places - low)[:, None]
    low = low[:, None].expand_as(frames)
    return frames.gather(2, low) * (1 - weight) + frames.gather(2, (low + 1).clamp(max=bands - 1)) * weight
