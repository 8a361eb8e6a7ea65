"""The Descript Audio Codec (Kumar et al. 2023) through transformers."""

from math import prod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.tokenizers.codecs import ForeignCodec


class DACWrapper(ForeignCodec):
    """Codes [batch, frames, quantizers] of the first `num_quantizers` levels, or all."""

    kind: ClassVar[str] = "dac"
    model_class: ClassVar[str] = "DacModel"
    known: ClassVar[dict[str, dict[str, Any]]] = {
        f"descript/dac_{name}": {
            "sampling_rate": rate,
            "codebook_size": 1024,
            "n_codebooks": levels,
            "downsampling_ratios": ratios,
        }
        for name, rate, levels, ratios in (
            ("16khz", 16000, 12, [2, 4, 5, 8]),
            ("24khz", 24000, 32, [2, 4, 5, 8]),
            ("44khz", 44100, 9, [2, 4, 8, 8]),
        )
    }

    def __init__(self, checkpoint: str | Path = "descript/dac_16khz", num_quantizers: int | None = None) -> None:
        super().__init__(checkpoint)
        self._levels = num_quantizers
        if num_quantizers is not None and self._facts is not None and num_quantizers > self._all:
            raise UserError(f"{checkpoint} has {self._all} quantizers, not {num_quantizers}.")

    @property
    def _all(self) -> int:
        return int(self.facts["n_codebooks"])

    @property
    def num_quantizers(self) -> int:
        return self._levels or self._all

    @property
    def downsample_factor(self) -> int:
        return prod(self.facts["downsampling_ratios"])

    def _encode(self, wave: Tensor) -> Tensor:
        codes: Tensor = self.loaded.encode(wave, n_quantizers=self.num_quantizers).audio_codes
        return codes[0].T

    def _decode(self, codes: Tensor) -> Tensor:
        wave: Tensor = self.loaded.decoder(self.get_emb_from_indices(codes).transpose(1, 2))
        return wave.reshape(len(codes), 1, -1)

    @torch.no_grad()
    def get_emb_from_indices(self, indices: Tensor) -> Tensor:
        embedding: Tensor = self.loaded.quantizer.from_codes(indices.transpose(1, 2))[0]
        return embedding.transpose(1, 2)
