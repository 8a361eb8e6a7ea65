"""What can be chosen about MaskGit; the same words are keyword arguments, recipe keys and overrides."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from madrigal.muse.schedules import ScheduleName, schedule_name

ConditionName = Literal["none", "classes", "embeds", "t5", "minilm", "bytes"]
Size = tuple[int, int]
Side = Annotated[int, Field(ge=1, strict=True)]  # strict: `true` is no number of pixels


def as_size(value: Any) -> Any:
    """`64` is short for a picture of 64 by 64; else (height, width)."""
    return (value, value) if isinstance(value, int) else value


class TokenTransformerConfig(BaseModel):
    """A transformer over a picture's tokens, and what conditions it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    num_tokens: int = Field(ge=2, description="size of the codebook that the tokens are from")
    seq_len: int | None = Field(None, ge=1, description="the most tokens that a picture may have; none: any number")
    dim: int = Field(512, ge=8, multiple_of=4, description="width of the transformer")
    depth: int = Field(6, ge=1, description="layers")
    heads: int = Field(8, ge=1, description="heads")
    dim_head: int = Field(64, ge=2, multiple_of=2, description="width of a head")
    ff_mult: float = Field(4, gt=0, description="width of the feed-forward, before its gate takes a third")
    attn_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward")
    qk_norm: bool = Field(True, description="normalise queries and keys")
    self_cond: bool = Field(False, description="it is shown what it made of the tokens a step before")

    text_encoder: ConditionName = Field(
        "t5",
        description="what conditions it: none; classes; embeds that are given; or a text, by t5, minilm (a sentence "
        "encoder) or bytes (a small encoder that learns with it)",
    )
    t5_name: str = Field("google/t5-v1_1-base", description="a folder or a hub name, read when a text first comes")
    cond_dim: int | None = Field(None, ge=1, description="width of given embeds")
    num_classes: int | None = Field(None, ge=1, description="number of classes, where they condition it")
    num_cond_tokens: int | None = Field(
        None, ge=2, description="size of the codebook of the low-resolution tokens; none: there are no such tokens"
    )

    @model_validator(mode="before")
    @classmethod
    def _words_of_older_scripts(cls, values: Any) -> Any:
        # The fast kernel is always used.
        return {k: v for k, v in values.items() if k != "flash"} if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.num_classes is not None) != (self.text_encoder == "classes"):
            raise ValueError("num_classes and text_encoder=classes belong together; give both, or none of them")
        if self.text_encoder == "embeds" and self.cond_dim is None:
            raise ValueError("cond_dim is missing; say how wide the given embeds are")
        if self.cond_dim is not None and self.text_encoder != "embeds":
            raise ValueError("cond_dim is the width of given embeds; leave it out, or set text_encoder=embeds")
        return self

    @property
    def is_conditioned(self) -> bool:
        return self.text_encoder != "none"

    @property
    def reads_text(self) -> bool:
        return self.text_encoder in ("t5", "minilm", "bytes")


class MaskGitConfig(BaseModel):
    """The transformer, its critic, and what is masked while it learns."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["maskgit"] = "maskgit"
    image_size: tuple[Side, Side] = Field(description="height and width of a picture; one number for a square")
    cond_image_size: tuple[Side, Side] | None = Field(
        None,
        description="size of the low-resolution picture that it makes larger; none: it makes pictures from nothing",
    )
    transformer: TokenTransformerConfig = Field(description="what finds masked tokens")
    token_critic: TokenTransformerConfig | None = Field(
        None, description="a second transformer that tells which tokens do not belong; none: there is no such critic"
    )
    self_token_critic: bool = Field(False, description="or: a head on the same transformer tells it")
    noise_schedule: ScheduleName = Field("cosine", description="how many tokens are masked: cosine, arccos or linear")
    cond_drop_prob: float = Field(0.5, ge=0, le=1, description="share of rows trained without their condition")
    self_cond_prob: float = Field(0.9, ge=0, le=1, description="share of batches that are shown a first try")
    no_mask_token_prob: float = Field(
        0.0, ge=0, lt=1, description="share of the tokens to be found that are left as they are"
    )
    critic_loss_weight: float = Field(1.0, ge=0, description="how much the critic's loss counts")
    class_names: tuple[str, ...] | None = Field(
        None, description="the captions that are classes, in their order; training writes them"
    )

    @field_validator("image_size", "cond_image_size", mode="before")
    @classmethod
    def _one_number_is_a_square(cls, value: Any) -> Any:
        return as_size(value)

    @field_validator("noise_schedule", mode="before")
    @classmethod
    def _schedules_have_names(cls, value: Any) -> Any:
        return schedule_name(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.self_token_critic and self.token_critic is not None:
            raise ValueError("there are two critics, token_critic and self_token_critic; choose one of them")
        if (self.cond_image_size is None) != (self.transformer.num_cond_tokens is None):
            raise ValueError("cond_image_size and the transformer's num_cond_tokens belong together; give both")
        if self.class_names is not None and len(self.class_names) != self.transformer.num_classes:
            raise ValueError("class_names has to name every class of the transformer's num_classes")
        return self
