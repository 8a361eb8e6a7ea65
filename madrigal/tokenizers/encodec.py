"""EnCodec (Défossez et al. 2022) through transformers: 24 kHz mono and 48 kHz stereo, at all their bandwidths."""

from math import floor, log2, prod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.tokenizers.codecs import ForeignCodec

LEVEL = 0.1
"""Root mean square of what a model that was trained on levelled audio gives back: it never knew the loudness."""


class EncodecWrapper(ForeignCodec):
    """Codes [batch, frames, quantizers] of an EnCodec at `bandwidth` kbps.

    The 48 kHz model was trained on pieces of a second, each brought to the same level. It hears such pieces here too,
    one after another without overlap, so that its codes have one steady rate; the level is not part of the codes, and
    what comes back has the root mean square `LEVEL`.
    """

    kind: ClassVar[str] = "encodec"
    model_class: ClassVar[str] = "EncodecModel"
    known: ClassVar[dict[str, dict[str, Any]]] = {
        "facebook/encodec_24khz": {
            "sampling_rate": 24000,
            "audio_channels": 1,
            "upsampling_ratios": [8, 5, 4, 2],
            "codebook_size": 1024,
            "target_bandwidths": [1.5, 3.0, 6.0, 12.0, 24.0],
            "normalize": False,
            "chunk_length_s": None,
        },
        "facebook/encodec_48khz": {
            "sampling_rate": 48000,
            "audio_channels": 2,
            "upsampling_ratios": [8, 5, 4, 2],
            "codebook_size": 1024,
            "target_bandwidths": [3.0, 6.0, 12.0, 24.0],
            "normalize": True,
            "chunk_length_s": 1.0,
        },
    }

    def __init__(
        self,
        bandwidth: float | None = None,
        checkpoint: str | Path = "facebook/encodec_24khz",
        target_sample_hz: int | None = None,
    ) -> None:
        super().__init__(checkpoint)
        self._bandwidth = bandwidth
        if self._facts is not None:
            self._check(target_sample_hz)

    def _check(self, target_sample_hz: int | None) -> None:
        if target_sample_hz not in (None, self.target_sample_hz):
            raise UserError(f"{self.checkpoint} works at {self.target_sample_hz} Hz, not at {target_sample_hz}.")
        if self.bandwidth not in self.bandwidths:
            offered = ", ".join(f"{b:g}" for b in self.bandwidths)
            raise UserError(f"{self.checkpoint} has no bandwidth of {self.bandwidth:g} kbps; it has {offered}.")

    @property
    def bandwidths(self) -> list[float]:
        """Thousands of bits a second that the checkpoint offers."""
        return [float(b) for b in self.facts["target_bandwidths"]]

    @property
    def bandwidth(self) -> float:
        """6 kbps unless another one was asked for, or the checkpoint does not have it."""
        if self._bandwidth is not None:
            return float(self._bandwidth)
        return 6.0 if 6.0 in self.bandwidths else self.bandwidths[0]

    @property
    def downsample_factor(self) -> int:
        return prod(self.facts["upsampling_ratios"])

    @property
    def channels(self) -> int:
        return int(self.facts["audio_channels"])

    @property
    def num_quantizers(self) -> int:
        bits = log2(self.codebook_size) * -(-self.target_sample_hz // self.downsample_factor)
        return max(1, floor(1000 * self.bandwidth / bits))

    @property
    def _piece(self) -> int | None:
        """Frames of a piece; None where the model hears all at once."""
        seconds = self.facts.get("chunk_length_s")
        return None if seconds is None else int(seconds * self.target_sample_hz) // self.downsample_factor

    def _encode(self, wave: Tensor) -> Tensor:
        size = (self._piece or wave.shape[-1]) * self.downsample_factor
        return torch.cat([self._encode_piece(piece) for piece in wave.split(size, dim=-1)])

    def _encode_piece(self, wave: Tensor) -> Tensor:
        if self.facts.get("normalize"):
            level = wave.mean(1, keepdim=True).square().mean(-1, keepdim=True).sqrt() + 1e-8
            wave = wave / level
        embedding = self.loaded.encoder(wave)
        codes: Tensor = self.loaded.quantizer.encode(embedding, self.bandwidth)
        return codes[:, 0].T

    def _decode(self, codes: Tensor) -> Tensor:
        pieces = codes.split(self._piece or max(codes.shape[1], 1), dim=1)
        wave = torch.cat([self.loaded.decoder(self.get_emb_from_indices(p).transpose(1, 2)) for p in pieces], dim=-1)
        return wave * LEVEL if self.facts.get("normalize") else wave

    @torch.no_grad()
    def get_emb_from_indices(self, indices: Tensor) -> Tensor:
        embedding: Tensor = self.loaded.quantizer.decode(indices.permute(2, 0, 1))
        return embedding.transpose(1, 2)

    # Latents, of the models that hear all at once and as loud as it is.

    @property
    def codebook_dim(self) -> int:
        """Width of the latents."""
        return int(self.facts.get("hidden_size", 128))

    @torch.no_grad()
    def latents(self, audio: Tensor) -> Tensor:
        """Waves [batch, 1, a multiple of downsample_factor] -> what is quantized, [batch, frames, codebook_dim]."""
        if self._piece is not None or self.facts.get("normalize"):
            raise UserError(
                f"{self.checkpoint} levels its audio by pieces, which latents do not tell; take the 24 kHz one."
            )
        latents: Tensor = self.loaded.encoder(self._batched(audio).float())
        return latents.transpose(1, 2)

    @torch.no_grad()
    def codes_of(self, latents: Tensor) -> Tensor:
        """The codes [batch, frames, quantizers] nearest to latents [batch, frames, codebook_dim]."""
        codes: Tensor = self.loaded.quantizer.encode(latents.transpose(1, 2), self.bandwidth)
        return codes.permute(1, 2, 0)

    @torch.no_grad()
    def decode(self, latents: Tensor, quantize: bool = False) -> Tensor:
        """Latents [batch, frames, codebook_dim] -> waves [batch, 1, frames * downsample_factor]."""
        if quantize:
            latents = self.get_emb_from_indices(self.codes_of(latents))
        wave: Tensor = self.loaded.decoder(latents.transpose(1, 2))
        return wave[..., : latents.shape[1] * self.downsample_factor]
