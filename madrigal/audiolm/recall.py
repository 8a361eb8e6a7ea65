"""What followed where the prompt was in a like state: the continuous cache of Grave et al. (2017, arXiv:1612.04426).

The weights know the voices of the training, and draw a new one towards these. The prompt's own codes are of no other
voice: a share of every chance is theirs, by how like the state is in which each of them came.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.audiolm.packing import Packed
from madrigal.data.tokens import PAD

SHARPNESS = 20.0
"""By how much a cosine of 1 is likelier than one of 0, in nats."""


@dataclass(frozen=True)
class PromptMemory:
    """The directions [batch, columns, dim] of a prompt's states, and by head the codes [batch, columns] that followed.

    PAD is where nothing followed: a row without a prompt has nothing else.
    """

    states: Tensor
    followed: dict[int, Tensor]

    @classmethod
    def of(cls, hidden: Tensor, packed: Packed, first_head: int) -> "PromptMemory":
        """Of the states [batch, columns, dim] of a packed prompt; heads before `first_head` draw nothing."""
        followed = {
            head: packed.targets.masked_fill(packed.heads != head, PAD).amax(-1)
            for head in packed.heads[packed.targets != PAD].unique().tolist()
            if head >= first_head
        }
        return cls(F.normalize(hidden.float(), dim=-1), followed)

    def likeness(self, hidden: Tensor) -> Tensor:
        """How like the states [batch, dim] are to those of the prompt, as logits [batch, columns]."""
        return SHARPNESS * torch.einsum("bd,bcd->bc", F.normalize(hidden.float(), dim=-1), self.states)

    def mixed(self, logits: Tensor, likeness: Tensor, head: int, codes: int, share: float) -> Tensor:
        """Logits [batch, classes] of which a `share` of the first `codes` is remembered.

        An end, which is behind the codes, stays as likely as it was.
        """
        if head not in self.followed:
            return logits
        followed = self.followed[head]
        is_there = followed != PAD
        has_any = is_there.any(1, keepdim=True)
        weights = likeness.masked_fill(~is_there & has_any, float("-inf")).softmax(-1)
        remembered = weights.new_zeros(len(weights), codes).scatter_add_(1, followed.clamp(min=0), weights)
        chances = logits.softmax(-1)
        known = chances[:, :codes]
        mixed = torch.lerp(known, remembered * known.sum(-1, keepdim=True), share)
        return torch.where(has_any, torch.cat((mixed, chances[:, codes:]), 1).log(), logits)
