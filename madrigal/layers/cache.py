"""What a causal transformer remembers of a sequence that is still being written."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FIRST_CAPACITY = 64
LARGE = 2**16
"""Numbers in a weight beyond which it takes longer to fetch them than to ask for the sum of its rows."""
FIRST_ROW = torch.zeros(1, dtype=torch.int32)


class KeyValueCache:
    """Keys and values of every layer, [batch, kv_heads, capacity, dim_head], of which `length` slots are in use.

    The buffers double when they are full. As long as all rows hold only real tokens there are no masks; the first pad
    or hidden token makes `real` (it counts as a position) and `visible` (later queries see it), bool [batch, capacity].
    The context of cross attention is projected once and kept. A cache carries no gradients, and it belongs to the
    weights that the transformer has while it is in use.
    """

    def __init__(self, layers: int, batch_size: int, capacity: int | None = None) -> None:
        self.batch_size, self.length, self.capacity = batch_size, 0, capacity or FIRST_CAPACITY
        self.real: Tensor | None = None
        self.visible: Tensor | None = None
        self.context: list[tuple[Tensor, Tensor]] = []  # keys and values of each layer, null keys first
        self.context_bias: Tensor | None = None  # [batch, 1, 1, null keys + context]
        self.distance_bias: Tensor | None = None  # of the distances capacity - 1 to 0, [heads, capacity]
        self._buffers: list[tuple[Tensor, Tensor] | None] = [None] * layers
        self._weights: dict[nn.Module, tuple[Tensor, Tensor | None]] = {}

    def open(self, new: int, real: Tensor | None, visible: Tensor | None, device: torch.device) -> None:
        """Make room for `new` slots and note which of them are real and visible, [batch, new]; None = all."""
        end = self.length + new
        if end > self.capacity:
            self._grow(end)
        if real is not None or visible is not None:
            self._mask(device)
        if self.real is not None and self.visible is not None:
            self.real[:, self.length : end] = True if real is None else real
            self.visible[:, self.length : end] = True if visible is None else visible

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values [batch, kv_heads, new, dim_head] and return all so far; `close` ends the turn."""
        buffers = self._buffers[layer]
        if buffers is None:
            keys = key.new_empty(*key.shape[:2], self.capacity, key.shape[3])
            buffers = self._buffers[layer] = keys, torch.empty_like(keys)
        keys, values = buffers
        new = key.shape[2]
        keys.narrow(2, self.length, new).copy_(key)
        values.narrow(2, self.length, new).copy_(value)
        return keys.narrow(2, 0, self.length + new), values.narrow(2, 0, self.length + new)

    def append_one(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The same for a single new slot, [batch, kv_heads, dim_head]."""
        buffers = self._buffers[layer]
        if buffers is None:
            return self.append(layer, key.unsqueeze(2), value.unsqueeze(2))
        keys, values = buffers
        keys.select(2, self.length).copy_(key)
        values.select(2, self.length).copy_(value)
        return keys.narrow(2, 0, self.length + 1), values.narrow(2, 0, self.length + 1)

    def close(self, new: int) -> None:
        """The new slots are in use from now on."""
        self.length += new

    def product(self, x: Tensor, linear: nn.Module, norm: nn.Module | None = None) -> Tensor:
        """Single tokens [batch, in] times the weight [out, in] of a linear layer -> [batch, out].

        The weight of the norm before it is multiplied in.
        """
        weight, rows = self._weights.get(linear) or self._turned(linear, norm)
        if rows is None or x.shape[0] != 1:
            return torch.mm(x, weight)
        # A product with one vector is a sum of rows; the kernel for that fetches rows ahead, which MKL does not.
        return torch.embedding_bag(weight, rows, FIRST_ROW, False, 0, False, x.view(-1))[0]

    def _turned(self, linear: nn.Module, norm: nn.Module | None) -> tuple[Tensor, Tensor | None]:
        """The weight as [in, out]: on a CPU it is read faster this way. And its rows' numbers, if they are summed.

        Under autocast the copy has the lower precision already; else it would be cast anew for every token.
        """
        weight: Tensor = linear.weight.detach()  # type: ignore[operator]
        if norm is not None:
            weight = weight * norm.weight.detach()  # type: ignore[operator]
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
        weight = weight.T.to(dtype).contiguous()
        # MKL shares a product among threads, and the sum of one vector's rows is one thread's.
        is_summed = dtype == torch.float32 and weight.numel() > LARGE and torch.get_num_threads() == 1
        rows = torch.arange(len(weight), dtype=torch.int32) if is_summed else None
        self._weights[linear] = weight, rows
        return weight, rows

    def select(self, rows: Sequence[int] | Tensor) -> None:
        """Keep only these rows (numbers or a bool mask [batch]), in this order; a row may be taken twice."""
        device = next((buffers[0].device for buffers in self._buffers if buffers is not None), None)
        rows = torch.as_tensor(rows, device=device)
        if rows.dtype == torch.bool:
            rows = rows.nonzero().flatten()
        self.batch_size = len(rows)
        self._buffers = [None if pair is None else (pair[0][rows], pair[1][rows]) for pair in self._buffers]
        self.context = [(key[rows], value[rows]) for key, value in self.context]
        self.real, self.visible, self.context_bias = (
            None if t is None else t[rows] for t in (self.real, self.visible, self.context_bias)
        )

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from the past of row `rows[i]`, int64 [batch], which has the same context: it stays in place.

        Only the rows that change are copied, which is what a beam search asks for at every step.
        """
        to = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
        if not len(to):
            return
        past = [t.narrow(2, 0, self.length) for pair in self._buffers if pair is not None for t in pair]
        past += [t for t in (self.real, self.visible) if t is not None]
        for buffer in past:
            buffer[to] = buffer[rows[to]]

    def truncate(self, length: int) -> None:
        """Forget the newest slots; `length` are left (a prefix counts)."""
        if not 0 <= length <= self.length:
            raise ValueError(f"A cache of {self.length} slots cannot be cut to {length}.")
        self.length = length

    def keep(self, kept: Tensor) -> None:
        """Of the newest slots forget in each row those that are False in `kept` [batch, newest]; they become pads.

        Slots at the end that no row keeps are free again.
        """
        newest = kept.shape[1]
        used = int(kept.any(dim=0).nonzero().max()) + 1 if bool(kept.any()) else 0
        self.truncate(self.length - newest + used)
        kept = kept[:, :used]
        if not bool(kept.all()):
            real, visible = self._mask(kept.device)
            real[:, self.length - used : self.length] &= kept
            visible[:, self.length - used : self.length] &= kept

    def _mask(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.real is None or self.visible is None:
            self.real = torch.ones(self.batch_size, self.capacity, dtype=torch.bool, device=device)
            self.visible = self.real.clone()
        return self.real, self.visible

    def _grow(self, needed: int) -> None:
        while self.capacity < needed:
            self.capacity *= 2
        for layer, pair in enumerate(self._buffers):
            if pair is not None:
                self._buffers[layer] = self._larger(pair[0]), self._larger(pair[1])
        if self.real is not None and self.visible is not None:
            more = self.capacity - self.real.shape[1]
            self.real, self.visible = F.pad(self.real, (0, more)), F.pad(self.visible, (0, more))

    def _larger(self, old: Tensor) -> Tensor:
        new = old.new_empty(*old.shape[:2], self.capacity, old.shape[3])
        new[:, :, : old.shape[2]] = old
        return new
