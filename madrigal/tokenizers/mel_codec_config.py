"""Everything that can be chosen about a codec of log-mels."""

from typing import Literal, Self

from pydantic import Field, model_validator

from madrigal.tokenizers.mel_config import Count, MelConfig


class MelCodecConfig(MelConfig):
    """Options of `MelCodec`: its frames, its blocks, its codebooks."""

    kind: Literal["mel-codec"] = Field("mel-codec", description="what this is")

    target_sample_hz: Count = Field(16000, description="rate of the sound, in Hz")
    hop: Count = Field(320, description="samples of a frame")
    n_fft: Count = Field(1024, description="window of a frame, in samples")
    n_mels: Count = Field(80, description="bands of a frame")

    dim: Count = Field(256, description="width of the blocks")
    encoder_depth: Count = Field(2, description="ConvNeXt blocks before the quantizer: few, so that codes stay local")
    decoder_depth: Count = Field(6, description="ConvNeXt blocks behind it")
    ff_mult: float = Field(3, gt=0, description="hidden width of a block, in multiples of its width")
    kernel_size: Count = Field(5, description="frames that a block's convolution sees, an odd number")

    latent_dim: Count = Field(64, description="width of what is quantized")
    codebook_size: int = Field(1024, ge=2, description="codes of a codebook")
    num_quantizers: Count = Field(8, description="codebooks, each of which refines those before it")
    quantize_dropout_cutoff_index: int = Field(0, ge=0, description="dropout keeps the codebooks up to this one")
    ema_decay: float = Field(0.98, ge=0, lt=1, description="how much of a codebook's past a step keeps")

    @model_validator(mode="after")
    def _a_kernel_has_a_middle(self) -> Self:
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is {self.kernel_size}; give an odd number")
        return self
