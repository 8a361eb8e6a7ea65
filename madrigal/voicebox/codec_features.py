"""A codec's latents as the features that the flow model makes."""

from typing import Any

import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.tokenizers.encodec import EncodecWrapper
from madrigal.tokenizers.mel_features import Features


class CodecFeatures(Features):
    """A codec's latents before they are quantized, [batch, frames, codebook_dim].

    With `quantize`, latents go through the codebooks before they sound, which mends what is not quite a latent.
    """

    def __init__(self, codec: Any, *, quantize: bool = True) -> None:
        if not hasattr(codec, "latents") or codec.channels != 1:
            raise UserError(
                f"{type(codec).__name__} gives no latents of one channel to make features of: "
                "choose a mono SoundStream or EnCodec."
            )
        super().__init__(dim=codec.codebook_dim, sample_rate=codec.target_sample_hz, hop=codec.downsample_factor)
        self.codec, self.quantize = codec.eval().requires_grad_(False), quantize

    def raw(self, wave: Tensor) -> Tensor:
        wave = wave[:, : wave.shape[-1] // self.hop * self.hop]
        if not wave.shape[-1]:
            return wave.new_zeros(len(wave), 0, self.dim)
        # One row at a time: some codecs level what they hear by the whole of it.
        return torch.cat([self.codec.latents(row[None, None]) for row in wave])

    def sound(self, raw: Tensor) -> Tensor:
        if not raw.shape[1]:
            return raw.new_zeros(len(raw), 0)
        wave: Tensor = self.codec.decode(raw, quantize=self.quantize)
        return wave[:, 0, : raw.shape[1] * self.hop]

    def decode_to_codes(self, features: Tensor) -> Tensor:
        """Codes [batch, frames, quantizers] that are nearest to features [batch, frames, dim]."""
        codes: Tensor = self.codec.codes_of(self.denormalise(features))
        return codes

    def options(self) -> dict[str, Any]:
        return {"kind": "codec", "codec": self.codec.fingerprint()}


def EncodecVoco(*, sampling_rate: int = 24000, bandwidth: float | None = None) -> CodecFeatures:
    """The older name of EnCodec's latents; its weights are fetched when they are first needed."""
    return CodecFeatures(EncodecWrapper(bandwidth=bandwidth, target_sample_hz=sampling_rate))
