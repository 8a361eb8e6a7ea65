"""What a batch holds for this model: rows of ids, from semantic tokens, waves, text or ids of text.

A dataset may give dicts, or tuples as older scripts do: (speech, text), where whole numbers are ids, other numbers are
a wave, and a string is read by the model's text tokenizer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from madrigal.audiolm.tokens import semantic_of
from madrigal.data.collate import collate, join_tokens, mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.config import Modality, TextToSemanticConfig
from madrigal.tokenizers.text import TextTokenizer

Batch = dict[str, Any]
FIELDS = ("semantic", "audio", "text", "text_ids")
"""What an item may hold; datasets of different kinds are learned from together, so all else is left."""


class Ids(NamedTuple):
    """Rows of ids [batch, time], -1 behind their `lengths` [batch]."""

    ids: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, ids: Tensor) -> "Ids":
        """Rows that are padded with -1."""
        return cls(ids, (ids != PAD).sum(1))

    def rows(self) -> list[Tensor]:
        """Each row without its padding."""
        return [row[:length] for row, length in zip(self.ids, self.lengths.tolist(), strict=True)]


def only(ids: Tensor, kept: Tensor) -> Ids:
    """The ids [batch, n] that are True in `kept`, moved to the front of each row in their order, and -1 behind them."""
    lengths = kept.sum(1)
    size = int(lengths.max()) if len(lengths) else 0
    front = (~kept).long().argsort(dim=1, stable=True)[:, :size]
    return Ids(ids.gather(1, front).masked_fill(~mask_from_lengths(lengths, size), PAD), lengths)


def real_text(ids: Tensor, pad_id: int | None) -> Tensor:
    """Bool [batch, n]: what is text of padded ids; -1 never is, and `pad_id` is padding where only padding follows."""
    real = ids != PAD
    if pad_id is None:
        return real
    is_other = real & (ids != pad_id)
    return real & (is_other.flip(1).cumsum(1).flip(1) > 0)


def heard(waves: Tensor, lengths: Tensor | None = None) -> Batch:
    """Waves [batch, samples] or [batch, 1, samples] of any floating point type as a batch; `lengths` count samples."""
    if waves.ndim not in (2, 3):
        raise UserError(f"Waves have the shape [batch, samples], and these have {list(waves.shape)}.")
    if lengths is None:
        lengths = torch.full((len(waves),), waves.shape[-1], device=waves.device)
    return {"audio": waves.float() if waves.ndim == 3 else waves.float()[:, None], "lengths": lengths}


def ids_of(batch: Batch, modality: Modality, config: TextToSemanticConfig, wav2vec: Any) -> Ids:
    """A batch's rows of one modality."""
    if modality == "text":
        if "text_ids" not in batch:
            raise UserError("The batches hold no text: give each recording a text, or train speech to speech.")
        return Ids(batch["text_ids"], batch["text_lengths"])
    stream = semantic_of(batch, wav2vec, codebook_size=config.num_semantic_token_ids, unique=config.unique_consecutive)
    return Ids(stream.codes[..., 0], stream.lengths)


def collate_pairs(items: Sequence[Any], tokenizer: TextTokenizer | None) -> Batch:
    """Items to a batch: "semantic" or "audio", and "text_ids", each with lengths; "text" stays where it was given."""
    rows = [_named(item) for item in items]
    texts = [row.pop("text_ids", None) for row in rows]
    for number, (ids, row) in enumerate(zip(texts, rows, strict=True)):
        if ids is None and "text" in row:
            texts[number] = _encoded(row["text"], tokenizer)
    if not all("text" in row for row in rows):  # some were given as ids
        rows = [{name: part for name, part in row.items() if name != "text"} for row in rows]
    batch = collate(rows)
    if any(ids is not None for ids in texts):
        batch["text_ids"], batch["text_lengths"] = join_tokens("text", texts)
    return batch


def _encoded(text: str, tokenizer: TextTokenizer | None) -> Tensor:
    if tokenizer is None:
        raise UserError("This model takes ids of text: build it with text={'kind': 'bytes'} to give it strings.")
    return torch.tensor(tokenizer.encode(text), dtype=torch.int64)


def _named(item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return {name: item[name] for name in FIELDS if name in item}
    parts = item if isinstance(item, tuple | list) else (item,)
    named: dict[str, Any] = {}
    for number, part in enumerate(parts):
        if isinstance(part, str):
            named["text"] = part
        elif number == 0:
            speech = torch.as_tensor(part)
            named["audio" if speech.is_floating_point() else "semantic"] = speech
        else:
            named["text_ids"] = torch.as_tensor(part)
    return named


def with_text(dataset: Any) -> tuple[Any, int]:
    """The recordings that have a text, and the number of those that have none."""
    chosen = [index for index, entry in enumerate(dataset.entries) if entry.text]
    return (dataset, 0) if len(chosen) == len(dataset) else (Subset(dataset, chosen), len(dataset) - len(chosen))


def mixed(real: Dataset[Any], generated: Dataset[Any], ratio: float | None) -> Dataset[Any]:
    """Both together; `ratio` is the share of generated pairs, and the smaller set is then gone through more often."""
    both: ConcatDataset[Any] = ConcatDataset([real, generated])
    if ratio is None:
        return both
    own, other = len(real), len(generated)  # type: ignore[arg-type]
    if not own:
        raise UserError(f"A generated_ratio of {ratio} leaves a share to real pairs, and there are none: leave it out.")
    whole = max(own / (1 - ratio), other / ratio)
    counts = round(whole * (1 - ratio)), round(whole * ratio)
    indices = [index % own for index in range(counts[0])] + [own + index % other for index in range(counts[1])]
    return Subset(both, indices)


class MockDataset(Dataset[Tensor]):
    """Waves of noise, [1024] samples each, to try things with."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        return torch.randn(1024, generator=torch.Generator().manual_seed(range(self.length)[index]))
