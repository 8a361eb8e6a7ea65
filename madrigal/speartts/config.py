"""What can be chosen about the model; the same words are keyword arguments, recipe keys and overrides."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from madrigal.tokenizers.text import TextSpec

Modality = Literal["speech", "text"]
MODALITIES: tuple[Modality, Modality] = ("speech", "text")


class TextToSemanticConfig(BaseModel):
    """An encoder and a decoder over two vocabularies."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dim: int = Field(512, ge=8, multiple_of=2, description="width of both transformers")
    source_depth: int = Field(6, ge=1, description="layers of the encoder")
    target_depth: int = Field(6, ge=1, description="layers of the decoder")
    num_semantic_token_ids: int = Field(ge=1, description="size of the semantic vocabulary")
    num_text_token_ids: int = Field(ge=1, description="size of the text vocabulary; that of `text` where it is given")
    text: TextSpec | None = Field(None, description="how text becomes ids; null: only ids come in")
    text_pad_id: int | None = Field(
        None, ge=-1, description="a text id that is padding at the end of a row of padded ids, beside -1"
    )
    unique_consecutive: bool = Field(True, description="a semantic token that repeats is taken once")

    heads: int = Field(8, ge=1, description="query heads")
    dim_head: int = Field(64, ge=2, description="width of a head")
    target_kv_heads: int | None = Field(None, ge=1, description="key and value heads of the decoder; default: heads")
    ff_mult: float = Field(4, gt=0, description="width of the feed-forward, before its gate takes a third")
    attn_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward")

    target_early_exit_layer: int | None = Field(
        None, ge=1, description="a second head after so many decoder layers, for speculative decoding"
    )
    detach_early_exit_embed: bool = Field(False, description="that head learns alone, and changes nothing below it")

    cond_drop_prob: float = Field(0.0, ge=0, le=1, description="share of rows trained without their source")
    align_reg_loss_weight: float = Field(0.1, ge=0, description="of the alignment of rows without their source")
    align_reg_use_logsumexp_pool: bool = Field(
        True, description="pool over time by a soft maximum, else by the maximum"
    )
    align_reg_logsumexp_pool_temp: float = Field(0.1, gt=0, description="softness of that maximum")

    ctc_loss_weight: float = Field(
        0.0, ge=0, description="where speech is read: over 0 the encoder has a head that reads too (CTC)"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        kv_heads = self.target_kv_heads or self.heads
        if self.heads % kv_heads:
            raise ValueError(f"target_kv_heads has to divide heads, and {kv_heads} does not divide {self.heads}")
        if self.target_early_exit_layer is not None and self.target_early_exit_layer >= self.target_depth:
            raise ValueError(
                f"target_early_exit_layer is {self.target_early_exit_layer}, and has to lie below the decoder's "
                f"{self.target_depth} layers"
            )
        return self

    def size(self, modality: Modality) -> int:
        """Number of a modality's ids, the end not among them."""
        return self.num_semantic_token_ids if modality == "speech" else self.num_text_token_ids
