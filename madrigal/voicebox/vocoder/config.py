"""Everything that can be chosen about a vocoder, checked before anything is built."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from madrigal.engine.loss_weights import Count, Weight
from madrigal.soundstream.objective import Fraction, ObjectiveConfig
from madrigal.tokenizers.mel_config import MelConfig

LOSS_WEIGHTS = {
    "waveform": 0.0,
    "mel": 1.0,
    "stft": 0.0,
    "adversarial": 0.1,
    "feature": 2.0,
    "hinge": 1.0,
    "penalty": 10.0,
}
"""Weights of the generator's terms, then of a discriminator's two. A term of weight zero is not computed.

Log-mels do not tell the phase, so a distance of waves, or of spectra with their phase, would only teach silence.
"""


class VocoderConfig(MelConfig, ObjectiveConfig):
    """Options of `Vocoder`: the frames that it takes, its blocks, and how it is judged while it learns."""

    default_loss_weights: ClassVar[Mapping[str, float]] = LOSS_WEIGHTS

    kind: Literal["vocoder"] = Field("vocoder", description="what this is")

    iterations: Count = Field(16, description="rounds of Griffin-Lim before the network")
    dim: Count = Field(256, description="width of the blocks")
    depth: Count = Field(8, description="ConvNeXt blocks")
    ff_mult: float = Field(3, gt=0, description="hidden width of a block, in multiples of its width")
    kernel_size: Count = Field(7, description="frames that a block's convolution sees, an odd number")
    input_noise: Weight = Field(
        0.0,
        description="noise laid over the frames in training, in their deviations, so that a model's are borne",
    )

    # Lighter than a codec's, and none of the wave: on a CPU they cost more than the vocoder itself.
    discr_multi_scales: tuple[Fraction, ...] = Field(
        (), description="a waveform discriminator at each of these fractions of the rate"
    )
    use_complex_stft_discr: bool = Field(False, description="a discriminator of complex convolutions over the STFT")
    discr_spectrogram_n_ffts: tuple[Count, ...] = Field(
        (512, 1024, 2048), description="a light STFT discriminator for each of these windows"
    )
    mel_loss: Literal["soundstream", "log"] = Field(
        "log", description="the paper's distance of the term `mel`, or L1 of log-mels"
    )
    multi_spectral_window_powers_of_two: tuple[Count, ...] = Field(
        (7, 8, 9, 10, 11), description="windows of the term `mel`: 2 to these powers, in samples"
    )
    multi_spectral_n_ffts: Count | tuple[Count | None, ...] | None = Field(
        None, description="n_fft of all windows or of each, at least the window; null: the window"
    )
    multi_spectral_n_mels: Count | tuple[Count, ...] = Field(
        (16, 32, 64, 80, 100), description="mel bands of all windows or of each"
    )

    @model_validator(mode="after")
    def _kernel_has_a_middle(self) -> Self:
        if not self.kernel_size % 2:
            raise ValueError(f"kernel_size={self.kernel_size} must be odd: a block sees as much on both sides.")
        return self
