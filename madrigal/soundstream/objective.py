"""What can be chosen about how a wave is judged in training: its discriminators and its losses."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from madrigal.engine.loss_weights import Count, WeighedConfig

Fraction = Annotated[float, Field(gt=0, le=1)]

WEIGHT_ALIASES = {
    "recon_loss_weight": "waveform",
    "multi_spectral_recon_loss_weight": "mel",
    "adversarial_loss_weight": "adversarial",
    "feature_loss_weight": "feature",
}


class ObjectiveConfig(WeighedConfig):
    """Options of whatever learns to make waves: a codec, a vocoder."""

    weight_aliases: ClassVar[Mapping[str, str]] = WEIGHT_ALIASES

    # discriminators
    discr_multi_scales: tuple[Fraction, ...] = Field(
        (1.0, 0.5, 0.25), description="a waveform discriminator at each of these fractions of the rate"
    )
    use_complex_stft_discr: bool = Field(True, description="a discriminator of complex convolutions over the STFT")
    complex_stft_discr_logits_abs: bool = Field(
        True, description="its logits are moduli; false: real and imaginary parts"
    )
    complex_stft_discr_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="more for `ComplexSTFTDiscriminator`: channels, n_fft, strides"
    )
    discr_spectrogram_n_ffts: tuple[Count, ...] = Field(
        (), description="a light STFT discriminator for each of these windows"
    )
    discr_spectrogram_channels: Count = Field(32, description="channels of the light discriminators' first layer")
    stft_normalized: bool = Field(
        False, description="divide spectra by the root of n_fft (complex discriminator, mel term)"
    )

    # losses
    waveform_loss: Literal["mse", "l1"] = Field("mse", description="distance of the term `waveform`")
    mel_loss: Literal["soundstream", "log"] = Field(
        "soundstream", description="the paper's distance of the term `mel`, or L1 of log-mels"
    )
    multi_spectral_window_powers_of_two: tuple[Count, ...] = Field(
        (6, 7, 8, 9, 10, 11), description="windows of the term `mel`: 2 to these powers, in samples"
    )
    multi_spectral_n_ffts: Count | tuple[Count | None, ...] | None = Field(
        512, description="n_fft of all windows or of each, at least the window; null: the window"
    )
    multi_spectral_n_mels: Count | tuple[Count, ...] = Field(64, description="mel bands of all windows or of each")
    stft_loss_n_ffts: tuple[Count, ...] = Field((512, 1024, 2048), description="windows of the term `stft`")

    @model_validator(mode="after")
    def _losses_fit_together(self) -> Self:
        resolutions = len(self.multi_spectral_window_powers_of_two)
        for name in ("multi_spectral_n_ffts", "multi_spectral_n_mels"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != resolutions:
                raise ValueError(
                    f"{name} has {len(value)} entries for {resolutions} windows; give one each, or a number."
                )
        if any(abs(round(1 / scale) * scale - 1) > 1e-3 for scale in self.discr_multi_scales):
            raise ValueError(
                f"discr_multi_scales must be 1 over whole numbers, such as (1, 0.5), not {self.discr_multi_scales}."
            )
        return self
