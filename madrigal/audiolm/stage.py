"""What the three stages are: a causal transformer over packed rows, one head for each codebook."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.audiolm.condition import Condition, dropped
from madrigal.audiolm.config import StageConfig
from madrigal.audiolm.keywords import MODEL, without
from madrigal.audiolm.packing import Layout, Packed, Section, Stream
from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.layers.transformer import Transformer

CONDITIONER = "audio_conditioner."
SPAN = 25  # frames: half a second of a codec with 50 a second


class StageTransformer(nn.Module, Pretrained):
    """Embeds packed rows [batch, columns, width], and gives the hidden state of every column [batch, columns, dim]."""

    Config: ClassVar[type[StageConfig]]

    def __init__(
        self, config: StageConfig | None = None, *, audio_conditioner: nn.Module | None = None, **options: Any
    ) -> None:
        super().__init__()
        if config is None:
            options = without(options, MODEL, type(self).__name__)
            config = build_config(self.Config, options, type(self).__name__)
        self.config = config
        self.layout = self._layout()
        self.embedding = nn.Embedding(self.layout.num_rows, config.dim, padding_idx=self.layout.nothing)
        self.heads = nn.ModuleList(nn.Linear(config.dim, n, bias=False) for n in self.layout.head_classes)
        self.transformer = Transformer(
            config.dim,
            config.depth,
            heads=config.heads,
            dim_head=config.dim_head,
            kv_heads=config.kv_heads,
            positions=config.positions,
            ff_mult=config.ff_mult,
            attn_dropout=config.attn_dropout,
            ff_dropout=config.ff_dropout,
            cross_attend=config.is_conditioned and not config.cond_as_self_attn_prefix,
            dim_context=config.dim,
            qk_norm=config.qk_norm,
            value_residual=config.value_residual,
            grad_shrink_alpha=config.grad_shrink_alpha,
            residual_streams=config.num_residual_streams,
        )
        self.condition = Condition(config) if config.is_conditioned else None
        self._start_at_chance()
        self.audio_conditioner = audio_conditioner

    def _layout(self) -> Layout:
        return Layout(self._sections(), has_clock=self.config.positions == "rotary")

    def _sections(self) -> Sequence[Section]:
        raise NotImplementedError

    @torch.no_grad()
    def _start_at_chance(self) -> None:
        nn.init.normal_(self.embedding.weight, std=self.config.dim**-0.5)
        self.embedding.weight[self.layout.nothing] = 0.0
        for head in self.heads:
            nn.init.normal_(head.weight, std=0.1 * self.config.dim**-0.5)  # type: ignore[arg-type]

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def hidden(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        context: tuple[Tensor, Tensor] | None = None,
        forget: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """[batch, columns, width] -> [batch, columns, dim]. With a cache, context goes in with the first call only."""
        x: Tensor = self.embedding(ids)
        x = x.squeeze(2) if ids.shape[2] == 1 else x.sum(2)
        given: dict[str, Any] = {}
        if context is not None:
            names = ("prefix", "prefix_mask") if self.config.cond_as_self_attn_prefix else ("context", "context_mask")
            given = dict(zip(names, context, strict=True))
        return self.transformer(x, mask=mask, at=positions, forget=forget, cache=cache, **given)

    def losses(
        self, streams: Sequence[Stream], *, context: tuple[Tensor, Tensor] | None = None, training: bool
    ) -> dict[str, Tensor]:
        """Mean cross entropy of every section, in nats a token; what is hidden or dropped follows from `training`."""
        sums, counts = self.nll(streams, context=context, training=training)
        return {name: sums[name] / max(counts[name], 1) for name in sums}

    def nll(
        self, streams: Sequence[Stream], *, context: tuple[Tensor, Tensor] | None = None, training: bool
    ) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Summed cross entropy of every section, and the number of tokens that it was summed over."""
        packed = self.layout.pack(streams)
        context = self._context_for_training(context) if training else context
        hidden = self.hidden(
            self._dropped(packed) if training else packed.ids,
            positions=packed.positions,
            context=context,
            forget=self._forget(packed) if training else None,
        )
        sums: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        for s, section in enumerate(self.layout.sections):
            first = self.layout.first_head(s)
            parts = [self._nll(first + k, packed, hidden) for k in range(section.pattern.quantizers)]
            sums[section.name] = torch.stack([total for total, _ in parts]).sum()
            counts[section.name] = sum(count for _, count in parts)
        return sums, counts

    def _nll(self, head: int, packed: Packed, hidden: Tensor) -> tuple[Tensor, int]:
        """Only the columns that this head predicts are put through it."""
        row, column, slot = ((packed.heads == head) & (packed.targets != PAD)).nonzero(as_tuple=True)
        logits = self.heads[head](hidden[row, column])
        return F.cross_entropy(logits.float(), packed.targets[row, column, slot], reduction="sum"), len(row)

    def _forget(self, packed: Packed) -> Tensor | None:
        if self.config.mask_prob == 0:
            return None
        return torch.rand(packed.ids.shape[:2], device=self.device) < self.config.mask_prob

    def _dropped(self, packed: Packed) -> Tensor:
        """The packed ids, of which spans of the last section hold nothing.

        What lies just before tells a voice so well that nothing is learned of it from further back; but then what is
        drawn forgets the voice of its prompt with the first pause. Some rows lose much, some nothing.
        """
        if self.config.span_drop_prob == 0:
            return packed.ids
        batch, columns = packed.ids.shape[:2]
        pattern = self.layout.sections[-1].pattern
        span = SPAN * pattern.columns_per_frame
        rate = 2 * self.config.span_drop_prob * torch.rand(batch, 1, device=self.device)
        spans = torch.rand(batch, -(-columns // span) + 1, device=self.device) < rate
        # A row's spans begin anywhere, not always at the same columns.
        at = torch.arange(columns, device=self.device) + torch.randint(span, (batch, 1), device=self.device)
        drawn = packed.ids[..., 0] >= self.layout.first_row(len(self.layout.sections) - 1, 0)
        ids = packed.ids.clone()
        # What stands along a column is not drawn, and stays.
        ids[..., : pattern.width].masked_fill_((spans.gather(1, at // span) & drawn)[..., None], self.layout.nothing)
        return ids

    def _context_for_training(self, context: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        if context is None or self.config.cond_drop_prob == 0:
            return context
        return context[0], dropped(context[1], self.config.cond_drop_prob)

    def context(
        self,
        *,
        text: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor] | None:
        """What conditions the stage, or None where nothing does."""
        given = text is not None or text_embeds is not None
        if self.condition is None:
            if given:
                raise UserError(
                    f"{type(self).__name__} was built without a condition: "
                    "build it with has_condition=True, or drop the text."
                )
            return None
        if not given:
            return None
        made: tuple[Tensor, Tensor] = self.condition(text=text, text_embeds=text_embeds, text_mask=text_mask)
        return made

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling or recomputing."""
        return list(self.transformer.layers)

    def exported(self) -> dict[str, Tensor]:
        """Without what a conditioner keeps elsewhere, such as the model of sound and text that it asks."""
        elsewhere = tuple(CONDITIONER + name for name in getattr(self.audio_conditioner, "left_out", ()))
        return {name: tensor for name, tensor in super().exported().items() if not name.startswith(elsewhere)}

    def _take(self, weights: dict[str, Tensor], folder: Path) -> None:
        """A conditioner that is given takes back what was learned of it; what was frozen stays as it is given."""
        own = {name: t for name, t in self.exported().items() if name.startswith(CONDITIONER)}
        unknown = next((name for name in weights if name.startswith(CONDITIONER) and name not in own), None)
        if own and unknown is not None:
            raise UserError(f"{folder} was trained with another audio conditioner: the given one has no {unknown}.")
        super()._take({**own, **weights}, folder)

    @classmethod
    def init_and_load_from(cls, path: Any) -> Self:
        """The model in a checkpoint, a run or an exported folder."""
        return cls.from_pretrained(path)
