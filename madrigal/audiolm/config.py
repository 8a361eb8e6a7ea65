"""What can be chosen about the three stages; the same words are keyword arguments, recipe keys and overrides."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from madrigal.audiolm.patterns import PatternName
from madrigal.tokenizers.text_encoders import TextEncoderName

PositionName = Literal["rotary", "relative", "none"]


class StageConfig(BaseModel):
    """A transformer over tokens, and what conditions it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dim: int = Field(512, ge=8, description="width of the transformer")
    depth: int = Field(6, ge=1, description="layers")
    heads: int = Field(8, ge=1, description="query heads")
    dim_head: int = Field(64, ge=2, description="width of a head")
    kv_heads: int = Field(1, ge=1, description="key and value heads: 1 shares them among all query heads")
    ff_mult: float = Field(4, gt=0, description="width of the feed-forward, before its gate takes a third")
    attn_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward")
    positions: PositionName = Field("rotary", description="rotary, a relative bias of distance, or none")
    qk_norm: bool = Field(False, description="normalise queries and keys")
    value_residual: bool = Field(True, description="later layers mix in the first layer's values")
    num_residual_streams: int = Field(1, ge=1, description="over 1: hyper-connections")
    grad_shrink_alpha: float = Field(0.1, gt=0, le=1, description="share of the gradient that reaches the embeddings")
    mask_prob: float = Field(0.15, ge=0, lt=1, description="forgetful causal masking: share of keys hidden in training")
    span_drop_prob: float = Field(
        0.0, ge=0, le=0.5, description="share of the drawn columns that training hides, in spans of 25 frames"
    )

    window_seconds: float | None = Field(
        None, gt=0, description="length that it is trained on: what is longer is made in windows that overlap by half"
    )

    has_condition: bool = Field(False, description="conditioned on text or on given embeddings")
    audio_text_condition: bool = Field(False, description="conditioned on the joint embedding of an audio conditioner")
    cond_as_self_attn_prefix: bool = Field(False, description="the condition as a prefix, not by cross attention")
    cond_drop_prob: float = Field(0.5, ge=0, le=1, description="share of rows trained without their condition")
    cond_dim: int | None = Field(None, ge=1, description="width of given embeddings; default: the text encoder's")
    text_encoder: TextEncoderName = Field(
        "t5", description="t5: a T5 checkpoint; minilm: a sentence encoder; bytes: a small encoder of our own"
    )
    t5_name: str = Field("google/t5-v1_1-base", description="a folder or a hub name, read when text first comes")

    @model_validator(mode="before")
    @classmethod
    def _words_of_older_scripts(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        values.pop("flash_attn", None)  # the fast kernel is always used
        bias = values.pop("rel_pos_bias", None)
        if bias is not None:
            values.setdefault("positions", "relative" if bias else "none")
        return values

    @model_validator(mode="after")
    def _heads_share_evenly(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads has to divide heads, and {self.kv_heads} does not divide {self.heads}")
        return self

    @property
    def is_conditioned(self) -> bool:
        return self.has_condition or self.audio_text_condition


class SemanticConfig(StageConfig):
    """Semantic tokens, by themselves."""

    num_semantic_tokens: int = Field(ge=1, description="size of the semantic vocabulary")
    unique_consecutive: bool = Field(True, description="a token that repeats is taken once")


class CoarseConfig(StageConfig):
    """The first codebooks of a codec, given semantic tokens."""

    num_semantic_tokens: int = Field(ge=1, description="size of the semantic vocabulary")
    codebook_size: int = Field(ge=1, description="codes in a codebook of the codec")
    num_coarse_quantizers: int = Field(ge=1, description="levels of the codec that are coarse")
    rq_groups: int = Field(1, ge=1, description="groups of the codec: a level has so many codebooks")
    unique_consecutive: bool = Field(True, description="a semantic token that repeats is taken once")
    frames_per_semantic: float | None = Field(
        None, gt=0, description="codec frames to a semantic token that is not made unique: both then share a clock"
    )
    semantic_along: bool = Field(
        False, description="every column also holds the semantic token of what it predicts; needs a clock"
    )
    pattern: PatternName = Field(
        "flatten", description="codes of a frame one after another, or side by side and delayed"
    )

    @model_validator(mode="after")
    def _clock_needs_durations(self) -> Self:
        if self.frames_per_semantic is not None and self.unique_consecutive:
            raise ValueError("frames_per_semantic needs unique_consecutive=false: tokens made unique have no durations")
        if self.semantic_along and (self.frames_per_semantic is None or self.positions != "rotary"):
            raise ValueError(
                "semantic_along needs unique_consecutive=false, frames_per_semantic and positions=rotary, which make a "
                "clock; set semantic_along=false to do without"
            )
        return self


class FineConfig(StageConfig):
    """The other codebooks of a codec, given the coarse ones."""

    codebook_size: int = Field(ge=1, description="codes in a codebook of the codec")
    num_coarse_quantizers: int = Field(ge=1, description="levels of the codec that are coarse")
    num_fine_quantizers: int = Field(ge=1, description="further levels that are modelled")
    rq_groups: int = Field(1, ge=1, description="groups of the codec: a level has so many codebooks")
    pattern: PatternName = Field(
        "flatten", description="codes of a frame one after another, or side by side and delayed"
    )
