"""Everything that can be chosen about a SoundStream codec, checked before anything is built."""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from madrigal.engine.loss_weights import Count, Weight
from madrigal.layers.convolutions import PadMode
from madrigal.soundstream.objective import ObjectiveConfig

DEFAULT_LOSS_WEIGHTS = {
    "waveform": 1.0,
    "mel": 1e-5,
    "stft": 0.0,
    "adversarial": 1.0,
    "feature": 100.0,
    "commitment": 1.0,
    "hinge": 1.0,
    "penalty": 10.0,
}
"""Weights of the generator's terms, then of a discriminator's two. A term of weight zero is not computed."""


class SoundStreamConfig(ObjectiveConfig):
    """Options of `SoundStream`. The frame rate is target_sample_hz / prod(strides)."""

    default_loss_weights: ClassVar[Mapping[str, float]] = DEFAULT_LOSS_WEIGHTS

    # signal
    target_sample_hz: Count = Field(16000, description="rate that the codec works at, in Hz")
    input_channels: Literal[1, 2] = Field(1, description="1 for mono, 2 for stereo")
    strides: tuple[Count, ...] = Field((2, 4, 5, 8), description="downsampling factors; their product is the hop")

    # architecture
    frontend: Literal["waveform", "stft"] = Field(
        "waveform", description="what the encoder hears: the wave, or STFT frames"
    )
    head: Literal["waveform", "istft"] = Field(
        "waveform", description="how the decoder ends: in the wave, or in an inverse STFT"
    )

    # time-domain encoder and decoder
    channels: Count = Field(32, description="channels of the first convolution")
    channel_mults: tuple[Count, ...] = Field(
        (2, 4, 8, 16), description="channels after each stride, as multiples of `channels`"
    )
    enc_cycle_dilations: tuple[Count, ...] = Field(
        (1, 3, 9), description="dilations of the encoder's residual units, in turn"
    )
    dec_cycle_dilations: tuple[Count, ...] = Field(
        (1, 3, 9), description="dilations of the decoder's residual units, in turn"
    )
    squeeze_excite: bool = Field(False, description="gate each residual unit by its mean over the past")
    use_gate_loop_layers: bool = Field(False, description="a gated recurrence after each stride")
    pad_mode: PadMode = Field("constant", description="what was before the first sample: zeros, or that sample")

    # STFT-domain encoder and decoder; the hop is prod(strides)
    spectral_dim: Count = Field(256, description="width of the blocks")
    spectral_depth: Count = Field(6, description="ConvNeXt blocks in the encoder, and in the decoder")
    spectral_n_fft: Count | None = Field(None, description="window in samples; null: twice the hop")
    spectral_ff_mult: Annotated[float, Field(gt=0)] = Field(
        3, description="hidden width of a block, in multiples of its width"
    )
    spectral_kernel_size: Count = Field(7, description="frames that a block's convolution sees")

    # attention on both sides of the quantizer
    use_local_attn: bool = Field(True, description="attention to the frames just past, before and after the quantizer")
    attn_depth: Count = Field(1, description="layers on each side")
    attn_heads: Count = Field(8, description="heads of a layer")
    attn_dim_head: Count = Field(64, description="width of a head")
    attn_window_size: Count = Field(128, description="frames that a frame attends to, with itself")
    attn_xpos_scale_base: Count | None = Field(None, description="decay of attention with distance (xPos); null: none")
    attn_dynamic_pos_bias: bool = Field(
        False, description="a learned bias for each distance instead of rotary positions"
    )

    # quantizer
    codebook_dim: Count = Field(512, description="width of the latents")
    codebook_size: Annotated[int, Field(ge=2)] | None = Field(
        None, description="codes of a codebook; null: 1024, or the product of the FSQ levels"
    )
    use_lookup_free_quantizer: bool = Field(
        False, description="LFQ: a code is the signs of log2(codebook_size) dimensions"
    )
    use_finite_scalar_quantizer: bool = Field(False, description="FSQ: a code is a few dimensions, each rounded")
    finite_scalar_quantizer_levels: tuple[Annotated[int, Field(ge=2)], ...] | None = Field(
        None, description="steps of each FSQ dimension, at least 3"
    )
    rq_num_quantizers: Count = Field(8, description="residual levels")
    rq_groups: Count = Field(1, description="equal parts of the latents, each with codebooks of its own")
    rq_commitment_weight: Weight = Field(1.0, description="factor of the quantizer's own loss, before loss_weights")
    rq_ema_decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.95, description="how much of a codebook's past a step keeps"
    )
    quantize_dropout_cutoff_index: Annotated[int, Field(ge=0)] = Field(
        1, description="dropout keeps the levels up to this one, counted from 0"
    )
    rq_quantize_dropout_multiple_of: Count = Field(1, description="dropout keeps a multiple of so many levels")
    rq_stochastic_sample_codes: bool = Field(
        False, description="in training, draw one of the near codes, not always the nearest"
    )
    rq_rotation_trick: bool = Field(
        True, description="pass gradients through codes by rotation; false: straight through"
    )
    factorised_dim: Count | None = Field(None, description="look codes up in so few dimensions; null: in all")
    l2_normalised_codes: bool = Field(False, description="the nearest code is that of the smallest angle")
    rq_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="more for `build_quantizer`: clip_invariance, kmeans_init, dead_code_threshold, quantize_dropout",
    )

    @property
    def downsample_factor(self) -> int:
        """Samples of a frame."""
        return prod(self.strides)

    @property
    def frame_rate(self) -> float:
        return self.target_sample_hz / self.downsample_factor

    @property
    def n_fft(self) -> int:
        """Window of the STFT front end and of the inverse-STFT head, in samples."""
        return self.spectral_n_fft or 2 * self.downsample_factor

    @property
    def quantizer_kind(self) -> Literal["vq", "lfq", "fsq"]:
        if self.use_lookup_free_quantizer:
            return "lfq"
        return "fsq" if self.use_finite_scalar_quantizer else "vq"

    @property
    def num_codes(self) -> int:
        """Entries of one codebook."""
        if self.finite_scalar_quantizer_levels:
            return prod(self.finite_scalar_quantizer_levels)
        return self.codebook_size or 1024

    @field_validator("pad_mode", mode="before")
    @classmethod
    def _pad_mode_is_causal(cls, mode: Any) -> Any:
        if mode in ("reflect", "circular"):
            raise ValueError(
                f"pad_mode='{mode}' would let the first outputs hear the future, so the codec could not stream; "
                "use 'constant' or 'replicate'."
            )
        return mode

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._check_sizes()
        self._check_quantizer()
        return self

    def _check_sizes(self) -> None:
        if not self.strides:
            raise ValueError("strides must name at least one downsampling factor.")
        if len(self.strides) != len(self.channel_mults):
            raise ValueError(
                f"strides has {len(self.strides)} entries and channel_mults {len(self.channel_mults)}; "
                "each stride needs its channel multiplier."
            )
        if self.n_fft % 2 or self.n_fft < self.downsample_factor:
            raise ValueError(
                f"spectral_n_fft={self.n_fft} must be even and at least the hop of {self.downsample_factor} samples."
            )

    def _check_quantizer(self) -> None:
        if self.use_lookup_free_quantizer and self.use_finite_scalar_quantizer:
            raise ValueError("Choose use_lookup_free_quantizer or use_finite_scalar_quantizer, not both.")
        if self.use_finite_scalar_quantizer != (self.finite_scalar_quantizer_levels is not None):
            raise ValueError("use_finite_scalar_quantizer and finite_scalar_quantizer_levels go together: give both.")
        if self.use_finite_scalar_quantizer and self.codebook_size not in (None, self.num_codes):
            raise ValueError(
                f"The levels make a codebook of {self.num_codes}, not {self.codebook_size}; leave codebook_size out."
            )
        if self.use_lookup_free_quantizer and self.num_codes & (self.num_codes - 1):
            raise ValueError(f"A lookup-free codebook_size must be a power of two, {self.num_codes} is not.")
        if self.use_local_attn and self.attn_dim_head % 2:
            raise ValueError(f"attn_dim_head={self.attn_dim_head} must be even: positions turn pairs of channels.")
        if self.codebook_dim % self.rq_groups:
            raise ValueError(f"codebook_dim={self.codebook_dim} cannot be split into {self.rq_groups} groups.")
