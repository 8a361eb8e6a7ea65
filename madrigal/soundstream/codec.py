"""SoundStream: a neural codec that streams, after Zeghidour et al. (2021)."""

from collections.abc import Mapping
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.audio import resample
from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.recipe import build_config, known_keywords
from madrigal.errors import UserError
from madrigal.layers.attention import LocalTransformer
from madrigal.layers.convnext import ConvNeXtBlock
from madrigal.layers.convolutions import StreamCache
from madrigal.layers.gan_losses import discriminator_terms
from madrigal.layers.quantizers import Quantized, Quantizer, build_quantizer
from madrigal.soundstream import losses
from madrigal.soundstream.config import SoundStreamConfig
from madrigal.soundstream.discriminators import build_discriminators
from madrigal.soundstream.seanet import ResidualUnit, SeanetDecoder, SeanetEncoder
from madrigal.soundstream.spectral import SpectralDecoder, SpectralEncoder, start_as_vocoder

if TYPE_CHECKING:
    from madrigal.soundstream.streaming import StreamingDecoder


class LossBreakdown(NamedTuple):
    """The generator's terms before they are weighted."""

    recon: Tensor
    multi_spectral_recon: Tensor
    adversarial: Tensor
    feature: Tensor
    commitment: Tensor

    @classmethod
    def of(cls, terms: dict[str, Tensor]) -> Self:
        zero = next(iter(terms.values())).new_zeros(())
        return cls(*(terms.get(name, zero) for name in ("waveform", "mel", "adversarial", "feature", "commitment")))


class DenoiseFiLM(nn.Module):
    """Scale and shift of the latents, one pair to denoise with and one to leave noise alone; at first the identity."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2, dim))
        self.shift = nn.Parameter(torch.zeros(2, dim))

    def forward(self, x: Tensor, is_denoising: bool | None) -> Tensor:
        """[batch, frames, dim] -> the same shape; untouched where denoising is no topic (None)."""
        if is_denoising is None:
            return x
        return x * self.scale[int(is_denoising)] + self.shift[int(is_denoising)]


class SoundStream(nn.Module, Pretrained):
    """Codec of waves [batch, channels, samples] to codes [batch, frames, quantizers] and back.

    Options are those of `SoundStreamConfig`, as keywords or as one config. Waves may also be [batch, samples] or
    [samples] for a mono codec, and [channels, samples] for a stereo one; they come back with as many samples as went
    in. What a call does never depends on the training mode, except `forward`'s learning of the codebooks.
    `discriminators=False` builds none, for a codec that is only used; `stft_discriminator` replaces the complex one.
    """

    Config: ClassVar[type[SoundStreamConfig]] = SoundStreamConfig
    left_out: ClassVar[tuple[str, ...]] = ("discriminators.",)
    config: SoundStreamConfig

    def __init__(
        self,
        config: SoundStreamConfig | Mapping[str, Any] | None = None,
        *,
        stft_discriminator: nn.Module | None = None,
        discriminators: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(config, SoundStreamConfig) or options:
            given = config.model_dump() if isinstance(config, SoundStreamConfig) else dict(config or {})
            config = build_config(SoundStreamConfig, {**given, **options}, "SoundStream")
        self.config = config
        self.encoder = SeanetEncoder(config) if config.frontend == "waveform" else SpectralEncoder(config)
        self.encoder_attn = _attention(config)
        self.encoder_film = DenoiseFiLM(config.codebook_dim)
        try:
            self.quantizer = _quantizer(config)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"SoundStream cannot build its quantizer ({error}): see rq_kwargs and the rq_ keys."
            ) from error
        self.decoder_film = DenoiseFiLM(config.codebook_dim)
        self.decoder_attn = _attention(config)
        self.decoder = SeanetDecoder(config) if config.head == "waveform" else SpectralDecoder(config)
        if isinstance(self.encoder, SpectralEncoder) and isinstance(self.decoder, SpectralDecoder):
            start_as_vocoder(self.encoder, self.decoder, config.target_sample_hz)
        self.discriminators = nn.ModuleDict()
        if discriminators:
            self.discriminators = build_discriminators(config, config.input_channels, stft_discriminator)
        self.reconstruction_losses = losses.ReconstructionLosses(config, config.target_sample_hz)

    # Numbers that others ask for.

    @property
    def target_sample_hz(self) -> int:
        return self.config.target_sample_hz

    @property
    def codebook_size(self) -> int:
        return self.config.num_codes

    @property
    def codebook_dim(self) -> int:
        return self.config.codebook_dim

    @property
    def num_quantizers(self) -> int:
        """Residual levels; the codes have `num_quantizers * rq_groups` columns."""
        return self.config.rq_num_quantizers

    @property
    def rq_groups(self) -> int:
        return self.config.rq_groups

    @property
    def channels(self) -> int:
        return self.config.input_channels

    @property
    def downsample_factor(self) -> int:
        return self.config.downsample_factor

    @property
    def seq_len_multiple_of(self) -> int:
        return self.config.downsample_factor

    @property
    def frame_rate(self) -> float:
        return self.config.frame_rate

    @property
    def latency(self) -> int:
        """Samples by which a streaming decoder lags behind its codes."""
        return self.decoder.latency

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def bitrate(self, num_quantizers: int | None = None) -> float:
        """Bits per second with the first `num_quantizers` levels, or all."""
        levels = self.num_quantizers if num_quantizers is None else num_quantizers
        return self.frame_rate * levels * self.rq_groups * log2(self.codebook_size)

    def non_discr_parameters(self) -> list[nn.Parameter]:
        return [p for name, p in self.named_parameters() if not name.startswith(self.left_out)]

    def blocks(self) -> list[nn.Module]:
        """The repeated parts of encoder and decoder, worth compiling or recomputing."""
        parts = [*self.encoder.modules(), *self.decoder.modules()]
        return [part for part in parts if isinstance(part, ResidualUnit | ConvNeXtBlock)]

    # The ways through the codec.

    def latents(self, audio: Tensor, *, is_denoising: bool | None = None, cache: StreamCache | None = None) -> Tensor:
        """Waves to latents [batch, frames, codebook_dim] as the quantizer gets them."""
        audio = self._batched(audio)
        audio = F.pad(audio, (0, -audio.shape[-1] % self.downsample_factor))
        x = self.encoder(audio, cache).transpose(1, 2)
        if self.encoder_attn is not None:
            x = self.encoder_attn(x, cache)
        return self.encoder_film(x, is_denoising)

    def encode(self, audio: Tensor, *, num_quantizers: int | None = None, is_denoising: bool | None = None) -> Tensor:
        """Waves to codes [batch, frames, quantizers] of the first `num_quantizers` levels, or all."""
        latents = self.latents(audio, is_denoising=is_denoising)
        codes: Tensor = self.quantizer(latents, num_quantizers=num_quantizers).codes
        return codes

    @torch.no_grad()
    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Waves to codes [batch, frames, quantizers], without gradients.

        With real `lengths` [batch] each row is coded alone, so that its codes are to the bit those of the row by
        itself; behind its own frames they are -1.
        """
        if lengths is None:
            return self.encode(audio)
        rows = [wave[:, :size] for wave, size in zip(self._batched(audio), lengths.tolist(), strict=True)]
        none = torch.zeros(0, self.num_quantizers * self.rq_groups, dtype=torch.long, device=audio.device)
        codes = [self.encode(row[None])[0] if row.shape[-1] else none for row in rows]
        return pad_sequence(codes, batch_first=True, padding_value=PAD)

    def frames(self, lengths: Tensor) -> Tensor:
        """Frames [batch] of so many samples [batch]."""
        return -(-lengths // self.downsample_factor)

    def fingerprint(self) -> str:
        """16 hex digits of the options and weights that codes depend on."""
        from madrigal.soundstream.fingerprint import fingerprint

        return fingerprint(self).hex()

    def stream_decoder(self) -> "StreamingDecoder":
        """Decodes codes in pieces: `push(codes)`, and at the end `flush()`."""
        from madrigal.soundstream.streaming import StreamingDecoder

        return StreamingDecoder(self)

    def decode(
        self,
        x: Tensor,
        quantize: bool = False,
        *,
        is_denoising: bool | None = None,
        cache: StreamCache | None = None,
    ) -> Tensor:
        """Latents [batch, frames, codebook_dim] to waves [batch, channels, frames * downsample_factor]."""
        if quantize:
            x = self.quantizer(x).embedding
        x = self.decoder_film(x, is_denoising)
        if self.decoder_attn is not None:
            x = self.decoder_attn(x, cache)
        wave: Tensor = self.decoder(x.transpose(1, 2), cache)
        return wave

    def decode_from_codebook_indices(self, quantized_indices: Tensor, *, is_denoising: bool | None = None) -> Tensor:
        """Codes [batch, frames, quantizers] to waves [batch, channels, samples]."""
        if quantized_indices.ndim != 3:
            raise ValueError(
                f"Codes have the shape [batch, frames, quantizers]; these have {list(quantized_indices.shape)}."
            )
        return self.decode(self.quantizer.decode(quantized_indices.long()), is_denoising=is_denoising)

    def get_emb_from_indices(self, indices: Tensor) -> Tensor:
        """Codes [batch, frames, quantizers] -> the latents that they stand for, [batch, frames, codebook_dim]."""
        latents: Tensor = self.quantizer.decode(indices.to(self.device))
        return latents

    @torch.no_grad()
    def codes_of(self, latents: Tensor) -> Tensor:
        """The codes [batch, frames, quantizers] nearest to latents [batch, frames, codebook_dim]."""
        codes: Tensor = self.quantizer(latents).codes
        return codes

    def autoencode(
        self,
        audio: Tensor,
        *,
        collect: bool,
        num_quantizers: int | None = None,
        is_denoising: bool | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Quantized]:
        """Waves to their reconstruction [batch, channels, samples] and what the quantizer made of them.

        With `collect` the quantizer draws its number of levels and notes its statistics for the next `commit`; what
        lies behind `lengths` [batch] does not count.
        """
        latents = self.latents(audio, is_denoising=is_denoising)
        mask = None
        if lengths is not None:
            frames = -(-lengths // self.downsample_factor)
            mask = mask_from_lengths(frames, latents.shape[1])
        quantized = self.quantizer(latents, num_quantizers=num_quantizers, collect=collect, mask=mask)
        wave = self.decode(quantized.embedding, is_denoising=is_denoising)
        return wave[..., : audio.shape[-1]], quantized

    def forward(
        self,
        x: Tensor,
        target: Tensor | None = None,
        is_denoising: bool | None = None,
        return_encoded: bool = False,
        return_codes_only: bool = False,
        return_discr_loss: bool = False,
        return_discr_losses_separately: bool = False,
        return_loss_breakdown: bool = False,
        return_recons_only: bool = False,
        input_sample_hz: int | None = None,
        apply_grad_penalty: bool = False,
        curtail_from_left: bool = False,
    ) -> Any:
        """The generator's loss, or what is asked for by one of the `return_…`.

        `return_codes_only`: codes. `return_encoded`: quantized latents, codes and commitment loss.
        `return_recons_only`: waves of the shape of `x`. `return_loss_breakdown`: the loss and its terms.
        `return_discr_loss`: the loss of all discriminators, `return_discr_losses_separately`: a list of (name, loss).
        `target` is the clean audio that a denoising codec shall give; `input_sample_hz` is the rate of both.
        Samples that do not fill a frame are padded on the right, or, with `curtail_from_left`, on the left.

        In training mode the loss is also what the codebooks learn from, when the next loss is asked for.
        """
        if input_sample_hz is not None:
            x = resample(x, input_sample_hz, self.target_sample_hz)
            target = None if target is None else resample(target, input_sample_hz, self.target_sample_hz)
        audio = self._batched(x)
        clean = audio if target is None else self._batched(target)
        missing = -audio.shape[-1] % self.downsample_factor if curtail_from_left else 0
        audio = F.pad(audio, (missing, 0))
        if return_codes_only:
            return self.encode(audio, is_denoising=is_denoising)
        if return_encoded:
            return tuple(self.quantizer(self.latents(audio, is_denoising=is_denoising)))
        if return_recons_only:
            # By way of the codes, so that decoding them gives the same wave to the bit.
            codes = self.encode(audio, is_denoising=is_denoising)
            wave = self.decode_from_codebook_indices(codes, is_denoising=is_denoising)
            return self._unbatched(wave[..., missing : audio.shape[-1]], x.ndim)
        if is_denoising is not None and target is None:
            raise ValueError("A denoising codec is trained towards clean audio: give it as `target`.")
        if return_discr_loss or return_discr_losses_separately:
            with torch.no_grad():
                wave, _ = self.autoencode(audio, collect=False, is_denoising=is_denoising)
            named = self._discriminator_losses(clean, wave[..., missing:], apply_grad_penalty)
            return named if return_discr_losses_separately else torch.stack([loss for _, loss in named]).sum()
        learn = self.training and torch.is_grad_enabled()
        if learn:
            self._update_codebooks(audio, is_denoising)
        wave, quantized = self.autoencode(audio, collect=learn, is_denoising=is_denoising)
        terms = losses.generator_terms(self, clean, wave[..., missing:], quantized.commitment)
        total = losses.weighted_sum(terms, self.config.loss_weights)
        return (total, LossBreakdown.of(terms)) if return_loss_breakdown else total

    def _discriminator_losses(self, real: Tensor, fake: Tensor, penalty: bool) -> list[tuple[str, Tensor]]:
        weights, named = self.config.loss_weights, []
        for name, discriminator in self.discriminators.items():
            terms = discriminator_terms(discriminator, real, fake, penalty=penalty)
            named.append((name, weights["hinge"] * terms["hinge"]))
            if penalty:
                named.append((f"{name}_grad_penalty", weights["penalty"] * terms["penalty"]))
        return named

    @torch.no_grad()
    def _update_codebooks(self, audio: Tensor, is_denoising: bool | None) -> None:
        """Take in what the last loss collected; before the first one, start from this batch."""
        if bool(self.quantizer.pending_usage.any()):
            self.quantizer.commit()
        elif not bool(self.quantizer.initialized):
            self.quantizer.initialize(self.latents(audio, is_denoising=is_denoising).flatten(0, 1))

    def _batched(self, audio: Tensor) -> Tensor:
        """[samples], [batch, samples] of mono or [channels, samples] of stereo -> [batch, channels, samples]."""
        channels = self.config.input_channels
        if audio.ndim < 3 and channels == 1:
            audio = audio[None, None] if audio.ndim == 1 else audio.unsqueeze(1)
        elif audio.ndim == 2:
            audio = audio.unsqueeze(0)
        if audio.ndim != 3 or audio.shape[1] != channels or not audio.shape[-1]:
            raise ValueError(
                f"This codec takes waves of the shape [batch, {channels}, samples]; these are {list(audio.shape)}."
            )
        return audio

    def _unbatched(self, wave: Tensor, ndim: int) -> Tensor:
        is_single = ndim == 1 or (ndim == 2 and self.config.input_channels > 1)
        return wave[0] if is_single else wave

    # Names that scripts of older libraries call.

    def save(self, path: str | Path) -> None:
        self.save_pretrained(path)

    def load(self, path: str | Path) -> None:
        """Take the weights, averaged where there is an average, of a folder that `save` or a trainer wrote."""
        self.load_state_dict(type(self).from_pretrained(path, discriminators=False).exported(), strict=False)

    @classmethod
    def init_and_load_from(cls, path: str | Path) -> Self:
        return cls.from_pretrained(path).eval()


def _attention(config: SoundStreamConfig) -> LocalTransformer | None:
    if not config.use_local_attn:
        return None
    return LocalTransformer(
        config.codebook_dim,
        depth=config.attn_depth,
        heads=config.attn_heads,
        dim_head=config.attn_dim_head,
        window=config.attn_window_size,
        xpos_scale_base=config.attn_xpos_scale_base,
        dynamic_pos_bias=config.attn_dynamic_pos_bias,
    )


def _quantizer(config: SoundStreamConfig) -> Quantizer:
    options: dict[str, Any] = {
        "dim": config.codebook_dim,
        "codebook_size": config.num_codes,
        "num_quantizers": config.rq_num_quantizers,
        "groups": config.rq_groups,
        "levels": config.finite_scalar_quantizer_levels,
        "commitment_weight": config.rq_commitment_weight,
        "ema_decay": config.rq_ema_decay,
        "dropout_cutoff_index": config.quantize_dropout_cutoff_index,
        "dropout_multiple_of": config.rq_quantize_dropout_multiple_of,
        "stochastic_sample_codes": config.rq_stochastic_sample_codes,
        "rotation_trick": config.rq_rotation_trick,
        "factorised_dim": config.factorised_dim,
        "l2_normalised": config.l2_normalised_codes,
    }
    more = known_keywords(build_quantizer, config.rq_kwargs, "rq_kwargs")
    return build_quantizer(config.quantizer_kind, **{**options, **more})


def AudioLMSoundStream(**options: Any) -> SoundStream:
    """As in AudioLM: 16 kHz, 50 frames a second, 12 levels."""
    return SoundStream(**{"strides": (2, 4, 5, 8), "target_sample_hz": 16000, "rq_num_quantizers": 12, **options})


def MusicLMSoundStream(**options: Any) -> SoundStream:
    """As in MusicLM: 24 kHz, 50 frames a second, 12 levels."""
    return SoundStream(**{"strides": (3, 4, 5, 8), "target_sample_hz": 24000, "rq_num_quantizers": 12, **options})
