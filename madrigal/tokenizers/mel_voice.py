"""What stays the same through a recording, written down once: whose voice it is, how loud, in which room.

Codes of the time-invariant kind (TiCodec, Ren et al., 2023). A language model that goes on from a prompt has only to
repeat them to keep its voice, whoever it is; codes of frames say the voice anew with every frame, and a model that has
heard few voices says them in one of those. Frames are left to say what changes by hiding from them what does not: in
training they come bent along frequency, tilted and at another level, and have to be given back as they were.
"""

import torch
from torch import Tensor, nn

from madrigal.layers.convnext import ConvNeXt
from madrigal.layers.quantizers import build_quantizer

BEND, TILT, LEVEL = 0.08, 0.6, 0.4
"""How far frames are changed: a share of the frequency axis, and deviations of a band's level at most and in all."""


class VoiceCode(nn.Module):
    """Frames [batch, frames, n_mels] -> `columns` codes a recording, and the vectors [batch, frames, dim] they stand for."""

    def __init__(self, n_mels: int, dim: int, *, columns: int, codebook_size: int, depth: int, hidden: int) -> None:
        super().__init__()
        self.columns = columns
        self.embed = nn.Linear(n_mels, dim)
        self.encoder = ConvNeXt(dim, depth=depth, hidden=hidden, kernel_size=5, causal=False)
        self.narrow = nn.Linear(2 * dim, dim)
        self.quantizer = build_quantizer(
            "fsq",
            dim=dim,
            codebook_size=codebook_size,
            num_quantizers=1,
            groups=columns,
            levels=scalar_levels(codebook_size),
            quantize_dropout=False,
        )
        self.scale_shift = nn.Linear(dim, 2 * dim)
        nn.init.zeros_(self.scale_shift.bias)

    def forward(self, frames: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The vector [batch, 1, dim] of each row and its codes [batch, 1, columns]."""
        hidden = self.encoder(self.embed(frames), mask=mask).float()
        weight = torch.ones_like(hidden[..., :1]) if mask is None else mask[..., None].to(hidden.dtype)
        count = weight.sum(1).clamp(min=1)
        mean = (hidden * weight).sum(1) / count
        spread = (((hidden - mean[:, None]).square() * weight).sum(1) / count + 1e-5).sqrt()
        quantized = self.quantizer(self.narrow(torch.cat((mean, spread), -1))[:, None])
        return quantized.embedding, quantized.codes

    def decode(self, codes: Tensor) -> Tensor:
        """[batch, frames, columns] -> [batch, frames, dim]."""
        vectors: Tensor = self.quantizer.decode(codes)
        return vectors

    def spoken(self, hidden: Tensor, vectors: Tensor) -> Tensor:
        """What frames [batch, frames, dim] are in a voice [batch, 1 or frames, dim]."""
        scale, shift = self.scale_shift(vectors).chunk(2, -1)
        return hidden * (1 + scale) + shift


def scalar_levels(codebook_size: int) -> list[int]:
    """Steps of four (and one of eight, where it must be) whose product is the size, a power of two."""
    bits = codebook_size.bit_length() - 1
    if codebook_size != 2**bits or bits < 2:
        raise ValueError(f"Codes of a voice need a codebook_size that is a power of two from 4 on, not {codebook_size}")
    return [4] * (bits // 2) if bits % 2 == 0 else [8] + [4] * ((bits - 3) // 2)


def disguised(frames: Tensor) -> Tensor:
    """Normalised log-mels [batch, frames, n_mels] as if somebody else had said the same somewhere else."""
    batch, _, bands = frames.shape
    place = torch.linspace(-1, 1, bands, device=frames.device)
    bend, shift, tilt, curve, level = (torch.rand(5, batch, 1, device=frames.device) * 2 - 1).unbind()
    at = place * (1 + BEND * bend) + 2 * BEND * shift
    # Between two bands lies what they say together; beyond the last one its own level goes on.
    position = ((at + 1) / 2 * (bands - 1)).clamp(0, bands - 1)
    below = position.floor().long().clamp(max=bands - 2)
    part = (position - below)[:, None]
    index = below[:, None].expand(-1, frames.shape[1], -1)
    bent = frames.gather(-1, index) * (1 - part) + frames.gather(-1, index + 1) * part
    change = TILT * (tilt * place + curve * (2 * place.square() - 1)) + LEVEL * level
    return bent + change[:, None]


def halves(frames: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Crops [batch, frames, …] as twice as many of half the length: all first halves, then all second ones."""
    size = frames.shape[1] // 2
    first, second = frames[:, :size], frames[:, size : 2 * size]
    return torch.cat((first, second)), torch.cat((mask[:, :size], mask[:, size : 2 * size]))


def swapped(rows: Tensor) -> Tensor:
    """What `halves` made, with the halves of each crop in each other's place."""
    return rows.roll(len(rows) // 2, dims=0)


