"""How sound is cut into log-mel frames: the words that the features, the aligner and the vocoder share."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]


class MelConfig(BaseModel):
    """Frames of `hop` samples at `target_sample_hz`, seen through windows of `n_fft` samples in `n_mels` bands."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    target_sample_hz: Count = Field(24000, description="rate of the sound, in Hz")
    hop: Count = Field(256, description="samples of a frame")
    n_fft: Count = Field(1024, description="window of a frame, in samples")
    n_mels: Count = Field(100, description="bands of a frame")

    @model_validator(mode="after")
    def _windows_overlap(self) -> Self:
        if self.n_fft % 2 or self.n_fft < 2 * self.hop:
            raise ValueError(f"n_fft={self.n_fft} must be even and at least twice the hop of {self.hop} samples.")
        return self

    def mel_options(self) -> dict[str, Any]:
        """These options alone, also of a config that has more."""
        return {name: getattr(self, name) for name in MelConfig.model_fields}
