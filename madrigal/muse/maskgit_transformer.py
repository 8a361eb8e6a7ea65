"""The transformer over a picture's tokens, which sees all of them at once, and what it is conditioned on.

    condition   texts, embeddings or classes -> Context: computed once for all steps of a generation
    embed       ids [batch, rows, columns], Context -> [batch, tokens, dim]
    to_out      -> logits [batch, tokens, num_tokens], or one number a token for a critic

Low-resolution tokens lie upon the grid of those that are to be made, each on the cells that it covers, and are added
there. So their order means something, and a picture may have any shape.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.layers.norm import RMSNorm
from madrigal.layers.transformer import Transformer
from madrigal.muse.context import Context, Lead, led
from madrigal.muse.grids import GridPositions, as_grid, upon
from madrigal.muse.maskgit_config import TokenTransformerConfig
from madrigal.tokenizers.text_condition import TextCondition
from madrigal.tokenizers.text_encoders import make_text_encoder

IGNORED = -1
"""A label that nobody is asked for."""


class TokenTransformer(nn.Module):
    """Ids [batch, rows, columns] -> `dim_out` numbers a token. With `has_mask`, one more id stands for a mask."""

    Config: ClassVar[type[TokenTransformerConfig]] = TokenTransformerConfig

    def __init__(
        self,
        config: TokenTransformerConfig | None = None,
        *,
        dim_out: int | None = None,
        has_mask: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        config = config or build_config(self.Config, options, type(self).__name__)
        self.config, dim = config, config.dim
        self.mask_id = config.num_tokens
        self.tokens = nn.Embedding(config.num_tokens + int(has_mask), dim)
        nn.init.normal_(self.tokens.weight, std=0.5)
        self.positions = GridPositions(dim)
        self.low_tokens: nn.Embedding | None = None
        if config.num_cond_tokens is not None:
            self.low_tokens = nn.Embedding(config.num_cond_tokens, dim)
            nn.init.normal_(self.low_tokens.weight, std=0.5)
        self.text, self.classes = _text_condition(config), None
        if config.num_classes is not None:
            self.classes = nn.Embedding(config.num_classes, dim)
        self.from_past = nn.Sequential(RMSNorm(dim), nn.Linear(dim, dim, bias=False)) if config.self_cond else None
        self.transformer = Transformer(
            dim,
            config.depth,
            heads=config.heads,
            dim_head=config.dim_head,
            causal=False,
            positions="none",
            ff_mult=config.ff_mult,
            attn_dropout=config.attn_dropout,
            ff_dropout=config.ff_dropout,
            cross_attend=config.is_conditioned,
            qk_norm=config.qk_norm,
        )
        self.to_out = nn.Linear(dim, dim_out or config.num_tokens, bias=False)
        nn.init.normal_(self.to_out.weight, std=0.02)

    @property
    def device(self) -> torch.device:
        return self.tokens.weight.device

    # What it is conditioned on.

    def condition(
        self,
        *,
        texts: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
        classes: Tensor | list[int] | None = None,
    ) -> Context | None:
        """Texts, their embeddings [batch, items, width] or classes [batch]; None where nothing conditions it."""
        given = [name for name, value in (("texts", texts), ("text_embeds", text_embeds)) if value is not None]
        given += [] if classes is None else ["classes"]
        if not self.config.is_conditioned:
            if given:
                raise UserError(f"The model was built with text_encoder=none and takes no {given[0]}: leave them out.")
            return None
        if len(given) != 1:
            wanted = "classes" if self.classes is not None else "texts or text_embeds"
            raise UserError(f"The model is conditioned on {wanted}; it was given {' and '.join(given) or 'none'}.")
        if self.classes is not None:
            return Context(*self._of_classes(classes))
        if self.text is None or classes is not None:
            raise UserError("The model is conditioned on texts, not on classes: give texts.")
        return Context(*self.text(text=texts, text_embeds=text_embeds, text_mask=text_mask))

    def _of_classes(self, classes: Tensor | list[int] | None) -> tuple[Tensor, Tensor]:
        assert self.classes is not None
        if classes is None:
            raise UserError("The model is conditioned on classes, not on texts: give classes.")
        numbers = torch.as_tensor(classes, device=self.device).long()
        size = self.classes.num_embeddings
        if numbers.ndim != 1 or (len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < size):
            raise UserError(f"Classes are numbers from 0 to {size - 1}, one for each picture.")
        return self.classes(numbers)[:, None], torch.ones(len(numbers), 1, dtype=torch.bool, device=self.device)

    # What it makes of tokens.

    def embed(
        self,
        ids: Tensor,
        context: Context | None = None,
        *,
        cond_ids: Tensor | None = None,
        past: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Ids [batch, rows, columns] -> [batch, rows * columns, dim].

        `cond_ids` [batch, some rows, some columns] are low-resolution tokens. `past` is what it made a step before.
        With `wanted` [batch, tokens], those that are True there alone, one after another, [tokens, dim].
        """
        _, rows, columns = ids.shape
        self._check(ids, cond_ids)
        x = self.tokens(ids.flatten(1)) + self.positions(rows, columns)
        if self.low_tokens is not None and cond_ids is not None:
            x = x + self.low_tokens(upon(cond_ids, rows, columns).flatten(1))
        if past is not None and self.from_past is not None:
            x = x + self.from_past(past)
        items, mask = (None, None) if context is None else context
        out: Tensor = self.transformer(x, context=items, context_mask=mask, wanted=wanted)
        return out

    def _check(self, ids: Tensor, cond_ids: Tensor | None) -> None:
        tokens = ids.shape[1] * ids.shape[2]
        if self.config.seq_len is not None and tokens > self.config.seq_len:
            raise UserError(f"A picture of {tokens} tokens was asked for, and seq_len is {self.config.seq_len}.")
        if (cond_ids is None) != (self.low_tokens is None):
            what = "no low-resolution tokens" if cond_ids is None else "low-resolution tokens"
            raise UserError(
                f"The model was built with num_cond_tokens={self.config.num_cond_tokens}, and given {what}."
            )

    def forward(
        self,
        x: Tensor,
        *,
        texts: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
        classes: Tensor | list[int] | None = None,
        conditioning_token_ids: Tensor | None = None,
        self_cond_embed: Tensor | None = None,
        cond_drop_prob: float = 0.0,
        labels: Tensor | None = None,
        ignore_index: int = IGNORED,
        return_embed: bool = False,
    ) -> Any:
        """Ids [batch, rows, columns] (or [batch, tokens] of squares) -> logits [batch, tokens, num_tokens].

        With `labels` of the ids' shape the loss; with `return_embed` also what `self_cond_embed` is in the next call.
        """
        context = self.condition(texts=texts, text_embeds=text_embeds, text_mask=text_mask, classes=classes)
        context = None if context is None else context.dropped(cond_drop_prob)
        low = None if conditioning_token_ids is None else as_grid(conditioning_token_ids)
        embed = self.embed(as_grid(x), context, cond_ids=low, past=self_cond_embed)
        out = self.to_out(embed)
        if labels is not None:
            return F.cross_entropy(out.flatten(0, 1), labels.flatten(), ignore_index=ignore_index)
        return (out, embed) if return_embed else out

    def forward_with_cond_scale(self, x: Tensor, *, cond_scale: float = 3.0, **options: Any) -> Tensor:
        """Logits led by the condition; the options are those of `forward`."""
        return self._led(x, cond_scale, {}, **options)

    def forward_with_neg_prompt(
        self,
        x: Tensor,
        *,
        negative_texts: list[str] | None = None,
        neg_text_embed: Tensor | None = None,
        cond_scale: float = 3.0,
        **options: Any,
    ) -> Tensor:
        """Logits led by the condition and away from another."""
        return self._led(x, cond_scale, {"texts": negative_texts, "text_embeds": neg_text_embed}, **options)

    def _led(
        self,
        x: Tensor,
        cond_scale: float,
        negative: dict[str, Any],
        *,
        conditioning_token_ids: Tensor | None = None,
        self_cond_embed: Tensor | None = None,
        **given: Any,
    ) -> Tensor:
        low = None if conditioning_token_ids is None else as_grid(conditioning_token_ids)
        against = self.condition(**negative) if negative else None
        lead = Lead(self.condition(**given), against, cond_scale)
        return led(self, as_grid(x), lead, cond_ids=low, past=self_cond_embed)[0]


class MaskGitTransformer(TokenTransformer):
    """Tokens, some of them masked -> logits of what each of them is."""


class TokenCritic(TokenTransformer):
    """Tokens -> one number for each: the higher, the less it belongs there."""

    def __init__(self, config: TokenTransformerConfig | None = None, **options: Any) -> None:
        super().__init__(config, dim_out=1, has_mask=False, **options)


class SelfCritic(nn.Module):
    """The same as a `TokenCritic`, by a head on the transformer that makes the tokens."""

    net: Any

    def __init__(self, net: MaskGitTransformer) -> None:
        super().__init__()
        self.__dict__["net"] = net  # no part of it: it has a place of its own
        self.to_out = nn.Linear(net.config.dim, 1)

    def condition(self, **given: Any) -> Context | None:
        condition: Context | None = self.net.condition(**given)
        return condition

    def embed(
        self, ids: Tensor, context: Context | None = None, *, cond_ids: Tensor | None = None, past: Tensor | None = None
    ) -> Tensor:
        embed: Tensor = self.net.embed(ids, context, cond_ids=cond_ids, past=past)
        return embed


def _text_condition(config: TokenTransformerConfig) -> TextCondition | None:
    if config.text_encoder == "embeds":
        return TextCondition(None, config.dim, cond_dim=config.cond_dim)
    if config.text_encoder in ("none", "classes"):
        return None
    encoder = make_text_encoder(config.text_encoder, config.t5_name, dim=config.dim)  # type: ignore[arg-type]
    return TextCondition(encoder, config.dim, remembers=True)
