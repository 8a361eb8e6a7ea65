"""Codes of log-mels to sound, piece by piece: what is heard is what all codes together would sound like.

Griffin-Lim lets each frame hear a hundred others, and no more: a frame sounds as in the whole as soon as those are
there. So the sound lags behind the codes, by some two seconds, and each piece is made with the frames around it.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from madrigal.tokenizers.mel_codec import MelCodec


class MelStreamDecoder:
    """Codes [batch, frames, quantizers] in pieces to waves [batch, 1, samples], which lag `reach` frames behind."""

    def __init__(self, codec: "MelCodec") -> None:
        self.codec, self.reach = codec, codec.reach
        self._begin()

    def _begin(self) -> None:
        self._codes: Tensor | None = None
        self._first = self._said = 0  # numbers of the first frame that is kept, and of the next to be heard

    def push(self, codes: Tensor) -> Tensor:
        """The samples that are complete by now."""
        self._codes = codes if self._codes is None else torch.cat((self._codes, codes), dim=1)
        return self._heard(max(self._first + self._codes.shape[1] - self.reach, self._said))

    def flush(self) -> Tensor:
        """The samples that were held back. After this a new stream begins."""
        if self._codes is None:
            return torch.zeros(1, 1, 0)
        wave = self._heard(self._first + self._codes.shape[1])
        self._begin()
        return wave

    def _heard(self, upto: int) -> Tensor:
        """The sound of the frames that follow what was heard, up to the frame `upto`."""
        assert self._codes is not None
        if upto == self._said:
            return torch.zeros(len(self._codes), 1, 0, device=self._codes.device)
        wave = self.codec.decode_from_codebook_indices(self._codes, start=self._first)
        hop = self.codec.config.hop
        wave = wave[..., (self._said - self._first) * hop : (upto - self._first) * hop]
        kept = max(upto - self.reach, 0)
        self._codes, self._first, self._said = self._codes[:, kept - self._first :], kept, upto
        return wave
