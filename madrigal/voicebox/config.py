"""What can be chosen about the model; the same words are keyword arguments, recipe keys and overrides."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

OF_IDS = ("num_cond_tokens", "dim_cond_emb", "ids_drop_prob", "text_drop_prob")
"""Options that a model without ids does not have."""


class VoiceBoxConfig(BaseModel):
    """A transformer over frames of sound, and what is hidden from it while it learns."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dim_in: int = Field(ge=1, description="numbers in a frame of features")
    num_cond_tokens: int | None = Field(None, ge=1, description="size of the vocabulary of a frame's ids")
    condition_on_text: bool = Field(True, description="each frame has an id; false: the sound around it is all it has")
    dim_cond_emb: int = Field(256, ge=1, description="width of an id's vector")
    voice_dim: int = Field(0, ge=0, description="width of a vector that sums up the given frames; 0: there is none")

    dim: int = Field(1024, ge=8, multiple_of=2, description="width of the transformer")
    depth: int = Field(24, ge=1, description="its layers")
    heads: int = Field(16, ge=1, description="its heads")
    dim_head: int = Field(64, ge=2, multiple_of=2, description="width of a head")
    ff_mult: float = Field(4, gt=0, description="width of the feed-forward, before its gate takes a third")
    frames_per_token: int = Field(1, ge=1, description="frames that the transformer takes as one: fewer, and quicker")
    time_hidden_dim: int | None = Field(
        None, ge=2, multiple_of=2, description="width of the vector of the flow's time; default: dim"
    )
    conv_pos_embed_kernel_size: int = Field(31, ge=1, description="frames that a frame's place is heard from; odd")
    num_register_tokens: int = Field(16, ge=0, description="vectors beside the frames that all of them see")
    attn_qk_norm: bool = Field(True, description="queries and keys are normed")
    use_unet_skips: bool = Field(True, description="the first half's layers are joined to the second half's")
    attn_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward")

    p_drop_prob: float = Field(0.3, ge=0, le=1, description="share of rows trained with no frame given")
    frac_lengths_mask: tuple[float, float] = Field(
        (0.7, 1.0), description="in the others, the share of a row that is one span to be made"
    )
    ids_drop_prob: float = Field(
        0.0, ge=0, le=1, description="share of rows whose given frames have no ids: prompts without a transcript"
    )
    text_drop_prob: float = Field(
        0.0, ge=0, le=1, description="share of rows with given frames that have no ids at all: filling without a text"
    )
    cond_drop_prob: float = Field(
        0.0, ge=0, lt=1, description="share of rows trained with neither frames nor ids, for guidance"
    )
    distilled_steps: int | None = Field(
        None, ge=1, description="intervals that it was distilled to, of one evaluation each; training writes it"
    )
    distilled_sway: float = Field(0.0, description="where these intervals lie; training writes it")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        low, high = self.frac_lengths_mask
        if not 0 < low <= high <= 1:
            raise ValueError(f"frac_lengths_mask is ({low}, {high}); give two shares of a row, the lower one first")
        if self.conv_pos_embed_kernel_size % 2 == 0:
            raise ValueError(f"conv_pos_embed_kernel_size is {self.conv_pos_embed_kernel_size}; give an odd number")
        if self.condition_on_text and self.num_cond_tokens is None:
            raise ValueError("num_cond_tokens is missing; give the size of the vocabulary, or condition_on_text=False")
        for name in OF_IDS if not self.condition_on_text else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} says something of ids, and condition_on_text=False has none; leave it out")
        return self
