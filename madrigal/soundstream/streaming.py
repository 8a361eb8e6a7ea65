"""The codec on an endless signal: pieces of any size in, whatever they complete out, the past in bounded memory."""

import torch
from torch import Tensor

from madrigal.layers.convolutions import StreamCache
from madrigal.soundstream.codec import SoundStream


class StreamingEncoder:
    """Waves in pieces to codes; all codes in order equal those of the whole wave."""

    def __init__(
        self, codec: SoundStream, num_quantizers: int | None = None, *, is_denoising: bool | None = None
    ) -> None:
        self.codec, self.num_quantizers, self.is_denoising = codec, num_quantizers, is_denoising
        self._cache: StreamCache = {}
        self._waiting = torch.zeros(1, codec.config.input_channels, 0, device=codec.device)

    @torch.no_grad()
    def push(self, wave: Tensor) -> Tensor:
        """[batch, channels, any number of samples] -> codes [batch, complete frames, quantizers]."""
        if self._waiting.shape[-1]:
            wave = torch.cat((self._waiting, wave), dim=-1)
        ready = wave.shape[-1] - wave.shape[-1] % self.codec.downsample_factor
        self._waiting = wave[..., ready:].clone()
        return self._codes(wave[..., :ready])

    @torch.no_grad()
    def flush(self) -> Tensor:
        """The frame that was not full, if any, filled up with silence. After this a new stream begins."""
        codes = self._codes(self._waiting)
        self._waiting, self._cache = self._waiting[..., :0], {}
        return codes

    def _codes(self, wave: Tensor) -> Tensor:
        if not wave.shape[-1]:
            levels = self.num_quantizers or self.codec.num_quantizers
            return torch.zeros(wave.shape[0], 0, levels * self.codec.rq_groups, dtype=torch.long, device=wave.device)
        latents = self.codec.latents(wave, is_denoising=self.is_denoising, cache=self._cache)
        codes: Tensor = self.codec.quantizer(latents, num_quantizers=self.num_quantizers).codes
        return codes


class StreamingDecoder:
    """Codes in pieces to waves; the waves in order equal that of all codes. It lags `codec.latency` samples behind."""

    def __init__(self, codec: SoundStream, *, is_denoising: bool | None = None) -> None:
        self.codec, self.is_denoising = codec, is_denoising
        self._cache: StreamCache = {}

    @torch.no_grad()
    def push(self, codes: Tensor) -> Tensor:
        """[batch, frames, quantizers] -> the samples that are complete by now, [batch, channels, samples]."""
        if not codes.shape[1]:
            return torch.zeros(codes.shape[0], self.codec.config.input_channels, 0, device=codes.device)
        latents = self.codec.quantizer.decode(codes.long())
        return self.codec.decode(latents, is_denoising=self.is_denoising, cache=self._cache)

    @torch.no_grad()
    def flush(self) -> Tensor:
        """The samples that the decoder still held back. After this a new stream begins."""
        cache, self._cache = self._cache, {}
        wave: Tensor = self.codec.decoder.flush(cache)
        return wave
