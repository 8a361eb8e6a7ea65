"""Where a token stands, and what its distance from another does to attention."""

import torch
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Turns queries and keys [..., time, dim_head] by angles that grow with the position.

    With `xpos_scale_base`, the product of query and key also decays with their distance, the faster the smaller it is.
    """

    def __init__(self, dim_head: int, xpos_scale_base: int | None = None) -> None:
        super().__init__()
        if dim_head % 2:
            raise ValueError(f"Rotary positions need an even dim_head, not {dim_head}.")
        self.dim_head, self.xpos_scale_base = dim_head, xpos_scale_base
        self._table: tuple[Tensor, Tensor] | None = None

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """The last query stands at the last key."""
        count = key.shape[-2]
        positions = torch.arange(count, device=key.device)
        cos, sin = (t.to(key.dtype) for t in self._angles(positions))
        first = count - query.shape[-2]
        query, key = (t.unflatten(-1, (2, -1)) for t in (query, key))
        query, key = turn(query, cos[first:], sin[first:]).flatten(-2), turn(key, cos, sin).flatten(-2)
        if self.xpos_scale_base is None:
            return query, key
        decays = (self._steps(key.device) + 0.4) / 1.4
        scale = decays ** ((positions[:, None] - count // 2) / self.xpos_scale_base)
        scale = torch.cat((scale, scale), dim=-1).to(key.dtype)
        return query * scale[first:], key / scale

    def table(self, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """The turns of `length` or more positions, [positions, 2, dim_head / 2] each, kept for later calls."""
        kept = self._table
        if kept is None or len(kept[0]) < length or kept[0].dtype != dtype or kept[0].device != device:
            # Rounded up, so that a growing sequence asks for a new table only now and then. A tensor made under
            # inference_mode could not serve a later training step.
            size = max(512, 1 << (length - 1).bit_length())
            with torch.inference_mode(False), torch.no_grad():
                cos, sin = self._angles(torch.arange(size, device=device))
                self._table = kept = cos.to(dtype), sin.to(dtype)
        return kept

    def _steps(self, device: torch.device) -> Tensor:
        return torch.arange(0, self.dim_head, 2, device=device) / self.dim_head

    def _angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        # Always in full precision: frequencies in bfloat16 would lose their way after a few hundred positions.
        angles = positions[:, None] * 10000.0 ** -self._steps(positions.device)
        cos, sin = angles.cos(), angles.sin()
        return torch.stack((cos, cos), dim=-2), torch.stack((-sin, sin), dim=-2)


class SinusoidalPositions(nn.Module):
    """Where a token stands, counted from the beginning: positions [...] -> waves [..., dim] to add to its vector.

    Attention from one sequence to another has no distances to go by; with these it can tell how far each has come.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self._turns = RotaryPositions(dim)

    def forward(self, positions: Tensor) -> Tensor:
        most = int(positions.max()) + 1 if positions.numel() else 1
        cos, sin = self._turns.table(most, torch.float32, positions.device)
        return torch.cat((cos[positions, 0], sin[positions, 1]), dim=-1)

    def span(self, first: int, count: int, device: torch.device) -> Tensor:
        """The waves of `count` positions from `first` on, [count, dim]; nothing has to be looked up."""
        cos, sin = self._turns.table(first + count, torch.float32, device)
        return torch.cat((cos[first : first + count, 0], sin[first : first + count, 1]), dim=-1)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs of the halves of vectors, x [..., 2, dim_head / 2]; `sin` carries a minus in its first half."""
    return torch.addcmul(x * cos, swapped(x), sin)


def swapped(x: Tensor) -> Tensor:
    """The halves [..., 2, dim_head / 2] in each other's place."""
    return x.roll(1, -2)


class DynamicPositionBias(nn.Module):
    """A small network that maps distances [count] to one bias for each head, [heads, count]."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, heads))

    def forward(self, distances: Tensor) -> Tensor:
        biases: Tensor = self.net(distances.to(self._weight.dtype)[:, None]).T
        return biases

    def between(self, lowest: int, highest: int) -> Tensor:
        """The biases of the distances `lowest` to `highest`, by their logarithms: near ones are told apart best."""
        distances = torch.arange(lowest, highest + 1, device=self._weight.device)
        return self(distances.sign() * distances.abs().add(1).log())

    @property
    def _weight(self) -> Tensor:
        return next(self.parameters())
