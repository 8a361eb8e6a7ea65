"""What the ranks of a run tell each other.

Gradients are summed once a turn, after its last micro-batch, over that turn's parameters alone. So a
micro-batch in the middle of an accumulation sends nothing, a parameter that a step does not use needs no
special mode, and a loss may call any method of a model, not only its `forward`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Ranks:
    """The processes of one run. With one process every call returns at once."""

    def __init__(self, rank: int, world: int, device: torch.device) -> None:
        self.rank, self.world, self.device = rank, world, device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum over the ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in rank order; their shapes are the same."""
        if self.world == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(parts, tensor.contiguous())
        return parts

    def gather_rows(self, rows: Tensor) -> tuple[Tensor, int, int]:
        """The rows [rows, …] of all ranks in rank order, where one's own begin, and how many ranks there are.

        Ranks may have different numbers of rows. A gradient at a row goes back to the rank whose it is, summed over the
        ranks: with `average_gradients_`, the mean of all ranks' losses is what is followed.
        """
        if self.world == 1:
            return rows, 0, 1
        sizes = [int(size) for size in self.gather(torch.tensor([len(rows)], device=self.device))]
        gathered: Tensor = _GatherRows.apply(rows, self, sizes)
        return gathered, sum(sizes[: self.rank]), self.world

    def gather_text(self, text: str) -> list[str]:
        """The texts of all ranks, in rank order."""
        letters = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if text else torch.empty(0)
        lengths = [int(part) for part in self.gather(torch.tensor([len(letters)], device=self.device))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8, device=self.device)
        padded[: len(letters)] = letters
        parts = self.gather(padded)
        return [bytes(part[:length].tolist()).decode() for part, length in zip(parts, lengths, strict=True)]

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank the main rank's values."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def any(self, flag: bool) -> bool:
        """True on all ranks when it is true on one."""
        if self.world == 1:
            return flag
        return bool(self.sum_(torch.tensor([float(flag)], device=self.device)).item() > 0)

    def weighted_means(self, sums: dict[str, float], weights: dict[str, float]) -> dict[str, float]:
        """Means over all ranks of named sums; a rank that had nothing to add learns the others' names."""
        names = list(sums)
        if self.world > 1:
            names = sorted({name for part in self.gather_text("\n".join(names)) for name in part.splitlines()})
        pairs = [(sums.get(name, 0.0), weights.get(name, 0.0)) for name in names]
        totals = self.sum_(torch.tensor(pairs, dtype=torch.float64, device=self.device).view(-1, 2)).tolist()
        return {name: total / weight for name, (total, weight) in zip(names, totals, strict=True) if weight}

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """The main rank goes through the block before the others enter it."""
        if not self.is_main:
            self.wait()
        yield
        if self.is_main:
            self.wait()

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()

    @torch.no_grad()
    def average_gradients_(self, parameters: Sequence[nn.Parameter], extra: Tensor) -> Tensor:
        """Average the gradients over the ranks, and `extra` (a vector of losses) with them, in one message.

        A parameter that no rank used keeps no gradient, as it would in one process.
        """
        if self.world == 1:
            return extra
        used = torch.tensor([p.grad is not None for p in parameters], dtype=extra.dtype, device=self.device)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        parts = [*(g.reshape(-1).to(extra.dtype) for g in gradients), used, extra]
        flat = self.sum_(torch.cat(parts)).div_(self.world)
        *averaged, used, extra = flat.split([part.numel() for part in parts])
        for parameter, average, was_used in zip(parameters, averaged, used.tolist(), strict=True):
            parameter.grad = average.view_as(parameter).to(parameter.dtype) if was_used else None
        return extra


class _GatherRows(torch.autograd.Function):
    """Gathers rows of all ranks; backward, each rank gets the sum of all ranks' gradients at its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks, sizes: list[int]) -> Tensor:
        ctx.ranks, ctx.sizes = ranks, sizes
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        return torch.cat([part[:size] for part, size in zip(ranks.gather(padded), sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        first = sum(ctx.sizes[: ctx.ranks.rank])
        whole = ctx.ranks.sum_(grad.contiguous().clone())
        return whole[first : first + ctx.sizes[ctx.ranks.rank]], None, None
