"""Rows whose source is hidden from the decoder still learn from it: like sources should have like targets.

Representation similarity regularisation (Shi et al., 2023, arXiv:2309.08773): sources and targets are pooled over time
to one vector a row; the similarities among the sources and those among the targets are brought together. The rows of
all ranks are compared with each other. A row's vector is all that a rank sends, so lengths need not agree, and every
rank sends in every micro-batch, whether it has such rows or not: nobody waits for one who has nothing to say.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


def alignment(
    source: Tensor,
    source_mask: Tensor,
    target: Tensor,
    target_mask: Tensor,
    rows: Tensor,
    *,
    temperature: float | None,
) -> Tensor:
    """The mean squared difference of similarities, over all pairs of different `rows` (bool [batch]) of all ranks.

    Hidden states are [batch, time, dim], masks [batch, time]. `temperature` is the softness of the maximum that pools
    them over time; None takes the maximum itself.
    """
    pooled = [_pooled(hidden, mask, temperature) for hidden, mask in ((source, source_mask), (target, target_mask))]
    # A row that has nothing to pool is no row to compare.
    rows = rows & source_mask.any(1) & target_mask.any(1)
    vectors = gathered(torch.cat((*pooled, rows[:, None].to(pooled[0].dtype)), dim=1))
    vectors = vectors[vectors[:, -1] > 0.5]
    if len(vectors) < 2:
        return vectors.sum() * 0.0
    sources, targets = vectors[:, :-1].chunk(2, dim=1)
    others = ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    return F.mse_loss(_similarities(sources)[others], _similarities(targets)[others])


def gathered(rows: Tensor) -> Tensor:
    """The rows [batch, width] of all ranks, in rank order; batches may differ in size.

    Gradients reach one's own rows alone, as many times as there are ranks: averaged over the ranks, which all compute
    the same loss, they are those of one process that has all the rows.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return rows
    world, rank = dist.get_world_size(), dist.get_rank()
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = [int(count) for count in counts]
    most = max(sizes)
    parts = [rows.new_empty(most, rows.shape[1]) for _ in range(world)]
    dist.all_gather(parts, F.pad(rows.detach(), (0, 0, 0, most - len(rows))).contiguous())
    own = rows * world - rows.detach() * (world - 1)
    return torch.cat([own if r == rank else part[:size] for r, (part, size) in enumerate(zip(parts, sizes))])


def _pooled(hidden: Tensor, mask: Tensor, temperature: float | None) -> Tensor:
    """[batch, dim], the (soft) maximum over the real part of the time."""
    hidden = F.rms_norm(hidden.float(), hidden.shape[-1:])
    # A number, not -inf: a row without anything real has to stay finite.
    hidden = hidden.masked_fill(~mask[..., None], torch.finfo(hidden.dtype).min / 4)
    if not hidden.shape[1]:
        return hidden.new_zeros(len(hidden), hidden.shape[-1])
    if temperature is None:
        return hidden.amax(dim=1)
    return (hidden / temperature).logsumexp(dim=1) * temperature


def _similarities(vectors: Tensor) -> Tensor:
    unit = F.normalize(vectors, dim=-1)
    return unit @ unit.T
