"""Everything that can be chosen about a SoundStream codec, checked before anything is built."""

import difflib
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from madrigal.layers.convolutions import PadMode

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Weight = Annotated[float, Field(ge=0)]

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

WEIGHT_ALIASES = {
    "recon_loss_weight": "waveform",
    "multi_spectral_recon_loss_weight": "mel",
    "adversarial_loss_weight": "adversarial",
    "feature_loss_weight": "feature",
}
"""Older names of single weights, accepted as keywords and kept in `loss_weights`."""


class SoundStreamConfig(BaseModel):
    """Options of `SoundStream`. The frame rate is target_sample_hz / prod(strides)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # signal
    target_sample_hz: Count = 16000
    input_channels: Literal[1, 2] = 1
    strides: tuple[Count, ...] = (2, 4, 5, 8)

    # time-domain encoder and decoder
    frontend: Literal["waveform", "stft"] = "waveform"
    head: Literal["waveform", "istft"] = "waveform"
    channels: Count = 32
    channel_mults: tuple[Count, ...] = (2, 4, 8, 16)
    enc_cycle_dilations: tuple[Count, ...] = (1, 3, 9)
    dec_cycle_dilations: tuple[Count, ...] = (1, 3, 9)
    squeeze_excite: bool = False
    use_gate_loop_layers: bool = False
    pad_mode: PadMode = "constant"

    # STFT-domain encoder and decoder; the hop is prod(strides)
    spectral_dim: Count = 256
    spectral_depth: Count = 6
    spectral_n_fft: Count | None = Field(None, description="None means twice the hop.")
    spectral_ff_mult: Annotated[float, Field(gt=0)] = 3
    spectral_kernel_size: Count = 7

    # attention on both sides of the quantizer
    use_local_attn: bool = True
    attn_depth: Count = 1
    attn_heads: Count = 8
    attn_dim_head: Count = 64
    attn_window_size: Count = 128
    attn_xpos_scale_base: Count | None = Field(None, description="None means plain rotary positions.")
    attn_dynamic_pos_bias: bool = False

    # quantizer
    codebook_dim: Count = 512
    codebook_size: Annotated[int, Field(ge=2)] | None = Field(None, description="None: 1024, or given by the levels.")
    use_lookup_free_quantizer: bool = False
    use_finite_scalar_quantizer: bool = False
    finite_scalar_quantizer_levels: tuple[Annotated[int, Field(ge=2)], ...] | None = None
    rq_num_quantizers: Count = 8
    rq_groups: Count = 1
    rq_commitment_weight: Weight = 1.0
    rq_ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.95
    quantize_dropout_cutoff_index: Annotated[int, Field(ge=0)] = 1
    rq_quantize_dropout_multiple_of: Count = 1
    rq_stochastic_sample_codes: bool = False
    rq_rotation_trick: bool = True
    factorised_dim: Count | None = None
    l2_normalised_codes: bool = False
    rq_kwargs: dict[str, Any] = Field(default_factory=dict, description="Passed on to `build_quantizer`.")

    # discriminators
    discr_multi_scales: tuple[Fraction, ...] = (1.0, 0.5, 0.25)
    use_complex_stft_discr: bool = True
    complex_stft_discr_logits_abs: bool = True
    complex_stft_discr_kwargs: dict[str, Any] = Field(default_factory=dict)
    discr_spectrogram_n_ffts: tuple[Count, ...] = Field((), description="One light discriminator for each n_fft.")
    discr_spectrogram_channels: Count = 32
    stft_normalized: bool = False

    # losses
    waveform_loss: Literal["mse", "l1"] = "mse"
    mel_loss: Literal["soundstream", "log"] = "soundstream"
    multi_spectral_window_powers_of_two: tuple[Count, ...] = (6, 7, 8, 9, 10, 11)
    multi_spectral_n_ffts: Count | None | tuple[Count | None, ...] = 512
    multi_spectral_n_mels: Count | tuple[Count, ...] = 64
    stft_loss_n_ffts: tuple[Count, ...] = (512, 1024, 2048)
    loss_weights: dict[str, Weight] = Field(default_factory=lambda: dict(DEFAULT_LOSS_WEIGHTS))

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

    @model_validator(mode="before")
    @classmethod
    def _gather_loss_weights(cls, options: Any) -> Any:
        """Fills `loss_weights` from the older keywords and with the defaults."""
        if not isinstance(options, dict):
            return options
        options = dict(options)
        named = dict(options.pop("loss_weights", None) or {})
        for alias, term in WEIGHT_ALIASES.items():
            if alias not in options:
                continue
            weight = options.pop(alias)
            if named.setdefault(term, weight) != weight:
                raise ValueError(f"{alias}={weight} contradicts loss_weights['{term}']={named[term]}; give one of them.")
        for term in named:
            if term not in DEFAULT_LOSS_WEIGHTS:
                near = difflib.get_close_matches(str(term), DEFAULT_LOSS_WEIGHTS, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"the terms are {', '.join(DEFAULT_LOSS_WEIGHTS)}."
                raise ValueError(f"There is no loss term '{term}'; {hint}")
        return {**options, "loss_weights": {**DEFAULT_LOSS_WEIGHTS, **named}}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._check_sizes()
        self._check_quantizer()
        self._check_losses()
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
        if self.codebook_dim % self.rq_groups:
            raise ValueError(f"codebook_dim={self.codebook_dim} cannot be split into {self.rq_groups} groups.")

    def _check_losses(self) -> None:
        resolutions = len(self.multi_spectral_window_powers_of_two)
        for name in ("multi_spectral_n_ffts", "multi_spectral_n_mels"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != resolutions:
                raise ValueError(f"{name} has {len(value)} entries for {resolutions} windows; give one each, or a number.")
        if any(abs(round(1 / scale) * scale - 1) > 1e-3 for scale in self.discr_multi_scales):
            raise ValueError(
                f"discr_multi_scales must be 1 over whole numbers, such as (1, 0.5), not {self.discr_multi_scales}."
            )
