"""One encoder-decoder for speech to speech, speech to text, text to speech and text to text.

    encode          ids of a source [batch, n] -> Encoded: hidden [batch, n, dim] and which of it is real
    decode_lower    ids of a target so far -> hidden [batch, t, dim], up to the early exit
    decode_upper    hidden -> hidden [batch, t, dim], the rest of the layers
    logits          hidden -> [batch, t, ids + 1], the last of which is the end

Each modality has one table of vectors, which its ids are embedded with and its logits are made from: its ids, and then
a row for the end. A target begins with a vector of its modality, which is no id. What an id's place in its row is, is
added to its vector: source and target go forward together, and the decoder finds its place in the source by that.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import Pretrained
from madrigal.errors import UserError
from madrigal.layers.cache import KeyValueCache
from madrigal.layers.multi_head import on_cpu
from madrigal.layers.norm import RMSNorm
from madrigal.layers.positions import SinusoidalPositions
from madrigal.layers.transformer import Transformer
from madrigal.speartts import keywords
from madrigal.speartts.config import MODALITIES, Modality, TextToSemanticConfig
from madrigal.speartts.ctc import CtcHead
from madrigal.speartts.freezing import Freezing
from madrigal.tokenizers.text import TextTokenizer, make_text_tokenizer

MASKED = torch.iinfo(torch.int32).min
"""Stands in a source where an id is hidden: a number that nobody gives as an id."""
START = 0.1
"""Weight of the norms before the heads at first: small logits, so that a new model is at chance."""


class Encoded(NamedTuple):
    """What the decoder sees of a source: hidden [batch, n, dim], and mask [batch, n], True = real."""

    hidden: Tensor
    mask: Tensor

    def without(self, rows: Tensor) -> "Encoded":
        """The same, with nothing to see for `rows` (bool [batch])."""
        return Encoded(self.hidden, self.mask & ~rows[:, None])

    def select(self, rows: Sequence[int] | Tensor) -> "Encoded":
        """Only these rows (numbers or a bool mask [batch]), in this order."""
        index = torch.as_tensor(rows, device=self.hidden.device)
        return Encoded(self.hidden[index], self.mask[index])

    @staticmethod
    def join(parts: Sequence["Encoded"]) -> "Encoded":
        """The rows of several sources of the same width, one after another."""
        return Encoded(torch.cat([part.hidden for part in parts]), torch.cat([part.mask for part in parts]))


class DecoderCache:
    """What the decoder remembers of a target; the layers below the exit may be ahead of those above it."""

    def __init__(self, lower: KeyValueCache, upper: KeyValueCache) -> None:
        self.lower, self.upper = lower, upper

    @property
    def length(self) -> int:
        """Positions that were decoded, the start included."""
        return max(self.lower.length, self.upper.length)

    def select(self, rows: Sequence[int] | Tensor) -> None:
        """Keep only these rows (numbers or a bool mask [batch]), in this order; a row may be taken twice."""
        for cache in (self.lower, self.upper):
            cache.select(rows)

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on."""
        for cache in (self.lower, self.upper):
            cache.truncate(min(length, cache.length))


class TextToSemantic(Freezing, Pretrained):
    """Semantic ids and text ids [batch, time], padded with -1, in all directions."""

    Config: ClassVar[type[TextToSemanticConfig]] = TextToSemanticConfig
    config: TextToSemanticConfig
    wav2vec: Any
    text_tokenizer: TextTokenizer | None

    def __init__(self, config: TextToSemanticConfig | None = None, *, wav2vec: Any = None, **options: Any) -> None:
        super().__init__()
        if config is None:
            config = keywords.config_of(options, wav2vec)
        self.config = config
        # Not a part: it is frozen, learned by others and saved by others.
        self.__dict__["wav2vec"] = wav2vec
        self.text_tokenizer = None if config.text is None else make_text_tokenizer(config.text)
        sizes: dict[str, Any] = {
            "heads": config.heads,
            "dim_head": config.dim_head,
            "ff_mult": config.ff_mult,
            "attn_dropout": config.attn_dropout,
            "ff_dropout": config.ff_dropout,
        }
        self.encoder = Transformer(config.dim, config.source_depth, causal=False, **sizes)
        sizes |= {"kv_heads": config.target_kv_heads, "cross_attend": True}
        below = config.target_early_exit_layer or 0  # none: all layers are above
        self.lower = Transformer(config.dim, below, final_norm=False, **sizes)
        self.upper = Transformer(config.dim, config.target_depth - below, **sizes)
        self.early_norm = RMSNorm(config.dim) if below else None
        self.early_project = nn.Linear(config.dim, config.dim, bias=False) if below else None
        self.places = SinusoidalPositions(config.dim)
        self.tables = nn.ModuleDict({m: nn.Embedding(config.size(m) + 1, config.dim) for m in MODALITIES})
        self.starts = nn.ParameterDict({m: nn.Parameter(torch.empty(config.dim)) for m in MODALITIES})
        self.masks = nn.ParameterDict({"speech": nn.Parameter(torch.empty(config.dim))})
        self.ctc = CtcHead(config.dim, config.size("text")) if config.ctc_loss_weight else None
        self._start_at_chance()

    @torch.no_grad()
    def _start_at_chance(self) -> None:
        std = self.config.dim**-0.5
        for modality in MODALITIES:
            nn.init.normal_(self._table(modality), std=std)
            nn.init.normal_(self.starts[modality], std=std)
        nn.init.zeros_(self.masks["speech"])  # at first nothing is known of such a place but where it is
        for norm in (self.upper.norm, self.early_norm):
            if isinstance(norm, RMSNorm):
                nn.init.constant_(norm.weight, START)
        if self.early_project is not None:
            nn.init.eye_(self.early_project.weight)

    @property
    def device(self) -> torch.device:
        return self._table("speech").device

    @property
    def scale(self) -> float:
        """Vectors are as large as what their places add to them; as rows of the heads they are small."""
        return float(self.config.dim**0.5)

    @property
    def has_early_exit(self) -> bool:
        return self.early_norm is not None

    def end(self, modality: Modality) -> int:
        """The id of the end token: the one after the modality's own."""
        return self.config.size(modality)

    def encode(self, modality: Modality, ids: Tensor, lengths: Tensor | None = None) -> Encoded:
        """Ids [batch, n] padded with -1 -> what the decoder sees; without `lengths`, all that is not -1 is real.

        Places of speech that hold `MASKED` have a vector of their own.
        """
        ids = ids.to(self.device)
        mask = ids != PAD if lengths is None else mask_from_lengths(lengths.to(self.device), ids.shape[1])
        is_masked = mask & (ids == MASKED) & (modality in self.masks)
        embedded = self._embed(modality, ids, mask & ~is_masked)
        if bool(is_masked.any()):
            embedded = torch.where(is_masked[..., None], self.masks[modality] * self.scale, embedded)
        if not ids.shape[1]:
            return Encoded(embedded, mask)
        whole = _unless_whole(mask)
        embedded = embedded + self.places(_counted(ids.shape[1], whole, self.device))
        return Encoded(self.encoder(embedded, mask=whole), mask)

    def new_cache(self, batch: int, capacity: int | None = None) -> DecoderCache:
        """An empty memory for `batch` rows of a target; `capacity` counts the start too, and it grows by itself."""
        return DecoderCache(self.lower.new_cache(batch, capacity), self.upper.new_cache(batch, capacity))

    def decode_lower(
        self,
        modality: Modality,
        ids: Tensor | None,
        encoded: Encoded,
        cache: DecoderCache | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Ids [batch, t] of a target through the layers below the early exit -> hidden.

        Where a target begins (no cache, or an empty one) its start stands before the ids: hidden is [batch, 1 + t,
        dim], and without ids [batch, 1, dim]. In a cache that holds something the ids follow: [batch, t, dim]. `mask`
        is of the hidden states, True = real; what is not real is no position and nobody sees it.
        """
        begins = cache is None or cache.length == 0
        parts = []
        if begins:
            parts.append((self.starts[modality] * self.scale).expand(len(encoded.hidden), 1, -1))
        if ids is not None:
            ids = ids.to(self.device)
            parts.append(self._embed(modality, ids, ids != PAD))
        hidden = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        hidden = hidden + self._waves(hidden.shape[1], mask, None if begins else cache)
        if not self.has_early_exit:
            return hidden
        return self._decode(self.lower, hidden, encoded, None if cache is None else cache.lower, mask)

    def decode_upper(
        self, hidden: Tensor, encoded: Encoded, cache: DecoderCache | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Hidden states of `decode_lower` through the other layers, [batch, t, dim] -> the same shape."""
        return self._decode(self.upper, hidden, encoded, None if cache is None else cache.upper, mask)

    def logits(self, modality: Modality, hidden: Tensor, cache: DecoderCache | None = None) -> Tensor:
        """Hidden states of `decode_upper` [..., dim] -> [..., ids + 1], the end last.

        Single tokens [batch, 1, dim] are quicker with the cache that they were decoded with.
        """
        if cache is not None and hidden.shape[1] == 1 and on_cpu(hidden):
            return cache.upper.product(hidden.squeeze(1), self.tables[modality]).unsqueeze(1)
        return F.linear(hidden, self._table(modality))

    def early_logits(self, modality: Modality, hidden: Tensor) -> Tensor:
        """The same of hidden states of `decode_lower`, at the early exit."""
        if self.early_norm is None or self.early_project is None:
            raise UserError("This model has no early exit: build it with target_early_exit_layer.")
        return F.linear(self.early_norm(self.early_project(hidden)), self._table(modality))

    def generate(self, source: Any, **options: Any) -> Any:
        """Targets for sources; see `madrigal.speartts.generation.generate`."""
        from madrigal.speartts.generation import generate

        return generate(self, source, **options)

    def read(self, source: Tensor, **options: Any) -> Any:
        """The text of speech, by the CTC head; see `madrigal.speartts.generation.read`."""
        from madrigal.speartts.generation import read

        return read(self, source, **options)

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling or recomputing."""
        return [layer for stack in (self.encoder, self.lower, self.upper) for layer in stack.layers]

    def _decode(
        self, stack: Transformer, hidden: Tensor, encoded: Encoded, cache: KeyValueCache | None, mask: Tensor | None
    ) -> Tensor:
        if cache is not None and cache.context:
            return stack(hidden, mask=mask, cache=cache)  # the source is in the cache
        return stack(hidden, mask=mask, context=encoded.hidden, context_mask=_unless_whole(encoded.mask), cache=cache)

    def _waves(self, count: int, mask: Tensor | None, cache: DecoderCache | None) -> Tensor:
        """What the places of the next `count` hidden states add to them; `mask` is theirs."""
        # Without layers below the exit nothing is noted there.
        kept = None if cache is None else cache.lower if self.has_early_exit else cache.upper
        before: int | Tensor = 0
        if kept is not None:
            before = kept.length if kept.real is None else kept.real[:, : kept.length].sum(1, keepdim=True)
        if mask is None and isinstance(before, int):
            return self.places.span(before, count, self.device)
        return self.places(_counted(count, mask, self.device) + before)

    def _embed(self, modality: Modality, ids: Tensor, real: Tensor) -> Tensor:
        size = self.config.size(modality)
        known = ids.masked_fill(~real, 0)
        if known.numel():
            least, most = (int(value) for value in known.aminmax())
            if least < 0 or most >= size:
                wrong = most if most >= size else least
                raise UserError(
                    f"The {modality} ids hold {wrong}, and this model knows ids from 0 to {size - 1}: build it with "
                    f"{'num_semantic_token_ids' if modality == 'speech' else 'num_text_token_ids'} of what made them."
                )
        return F.embedding(known, self._table(modality)) * self.scale

    def _table(self, modality: Modality) -> Tensor:
        table: Tensor = self.tables[modality].weight  # type: ignore[assignment]
        return table


def _unless_whole(mask: Tensor) -> Tensor | None:
    """No mask where there is nothing to hide: attention is quicker without."""
    return None if bool(mask.all()) else mask


def _counted(size: int, mask: Tensor | None, device: torch.device) -> Tensor:
    """Real places before each one, [size] or, where rows differ, [batch, size]."""
    return torch.arange(size, device=device) if mask is None else mask.cumsum(1) - mask.long()
