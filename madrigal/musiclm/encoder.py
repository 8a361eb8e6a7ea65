"""What both sides of MuLaN are: a transformer that sees all of a sequence, and one vector of what it makes of it."""

from typing import Annotated, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from madrigal.layers.transformer import Transformer

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class EncoderConfig(BaseModel):
    """Options of both sides."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    dim: Count = Field(512, description="width of the transformer")
    depth: Count = Field(6, description="its layers")
    heads: Count = Field(8, description="heads of a layer")
    dim_head: int = Field(64, ge=2, description="width of a head")
    ff_mult: float = Field(4.0, gt=0, description="hidden width of the feed-forward parts, in multiples of dim")
    attn_dropout: Share = Field(0.0, description="in attention, while training")
    ff_dropout: Share = Field(0.0, description="in the feed-forward parts, while training")


class Encoded(NamedTuple):
    """One vector of each item, pooled [batch, dim], and those of every layer, [depth, batch, dim]."""

    pooled: Tensor
    layers: Tensor


class Encoder(nn.Module):
    """A side of MuLaN, `dim` wide and `depth` layers deep."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dim, self.depth = config.dim, config.depth
        self.transformer = Transformer(
            config.dim,
            config.depth,
            heads=config.heads,
            dim_head=config.dim_head,
            causal=False,
            ff_mult=config.ff_mult,
            attn_dropout=config.attn_dropout,
            ff_dropout=config.ff_dropout,
            qk_norm=True,
        )

    def run(self, x: Tensor, real: Tensor, *, at: Tensor | None = None, first_alone: bool = False) -> Encoded:
        """What it makes of x [batch, time, dim]: the mean of what is real [batch, time], or the first token alone."""
        hidden: list[Tensor] = []
        # Rows that are all whole need no mask, and attention is faster without.
        found = self.transformer(x, mask=None if bool(real.all()) else real, at=at, hidden=hidden)
        pooled = [state[:, 0] if first_alone else mean_over(state, real) for state in (found, *hidden)]
        return Encoded(pooled[0], torch.stack(pooled[1:]))


def mean_over(x: Tensor, real: Tensor) -> Tensor:
    """[batch, time, dim] -> [batch, dim], the mean over what is `real` [batch, time]."""
    weights = real[..., None].to(x.dtype)
    return (x * weights).sum(1) / weights.sum(1).clamp(min=1)
