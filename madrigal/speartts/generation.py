"""From a source to a target: what may be given, how it is decoded, and what comes back.

write       any source (texts, ids, waves) -> Generated, by drawing, by beam search or by speculative decoding
generate    the same, and on demand the shapes that older scripts ask for
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from madrigal.data.collate import join_tokens, mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seeds_of
from madrigal.engine.recipe import build_config, known_keywords
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling
from madrigal.speartts.beam import beam_search
from madrigal.speartts.config import MODALITIES, Modality
from madrigal.speartts.decoding import Generated, decode
from madrigal.speartts.pairs import Ids, ids_of
from madrigal.speartts.speculative import speculate

if TYPE_CHECKING:
    from madrigal.speartts.model import TextToSemantic

KEPT = 0.1
"""Share of the ids that is drawn from where nothing is said about it."""

Filter = str | Callable[..., Tensor] | None


@torch.no_grad()
def write(
    model: "TextToSemantic",
    source: Sequence[str] | Tensor,
    *,
    source_type: Modality,
    target_type: Modality,
    source_lengths: Tensor | None = None,
    source_mask: Tensor | None = None,
    max_length: int | Tensor = 2048,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    filter_logits_fn: Filter = None,
    filter_fn_kwargs: dict[str, Any] | None = None,
    cond_scale: float | None = None,
    seed: Sequence[int] | int = 0,
    beam_search_decode: bool = False,
    beam_size: int = 4,
    length_penalty: float = 1.0,
    spec_decode: bool = False,
    spec_decode_gamma: int = 5,
    spec_decode_lenience: float = 1.0,
) -> Generated:
    """A target for each source: texts, ids [batch, n] padded with -1, or waves [batch, samples] of any float type.

    `source_lengths` [batch] or `source_mask` [batch, n] say what is real of ids; lengths of waves count samples.
    `max_length` is one limit, or one for each row [batch]. Row r of `seed` s draws as a source alone with seed s + r.
    How tokens are drawn is said by `sampling`, or by the older words temperature, cond_scale and filter_logits_fn
    ("top_k" with thres or k, "top_p" with thres).
    """
    for modality in (source_type, target_type):
        if modality not in MODALITIES:
            raise UserError(f"There is no modality {modality!r}: a source and a target are speech or text.")
    if beam_search_decode and spec_decode:
        raise UserError("Choose beam_search_decode or spec_decode, not both.")
    older = {"temperature": temperature, "cond_scale": cond_scale}
    older = {name: value for name, value in older.items() if value is not None}
    sampling = _sampling(sampling, older, filter_logits_fn, filter_fn_kwargs, keeps_all=beam_search_decode)
    if sampling.cond_scale != 1.0 and not model.config.cond_drop_prob:
        raise UserError(
            f"A cond_scale of {sampling.cond_scale} leans away from the model without a source, and this one never "
            "learned without: train it with cond_drop_prob over 0, or leave cond_scale at 1."
        )
    given = source_ids(model, source, source_type, source_lengths, source_mask)
    limits = _limits(max_length, len(given.ids))
    with eval_mode(model), torch.inference_mode():
        encoded = model.encode(source_type, given.ids, given.lengths)
        if beam_search_decode:
            made = beam_search(
                model,
                target_type,
                encoded,
                limits,
                beam_size=beam_size,
                length_penalty=length_penalty,
                sampling=sampling,
            )
        else:
            draws: dict[str, Any] = {"sampling": sampling, "noise": RowNoise(seeds_of(seed, len(limits)))}
            if spec_decode:
                draws |= {"gamma": spec_decode_gamma, "lenience": spec_decode_lenience}
            made = (speculate if spec_decode else decode)(model, target_type, encoded, limits, **draws)
    made = made.copy()  # what inference mode made could not be trained on
    made.source, made.source_lengths = given.ids.to(model.device), given.lengths.to(model.device)
    return made


def generate(
    model: "TextToSemantic",
    source: Sequence[str] | Tensor,
    *,
    return_source: bool = False,
    return_target_mask: bool = False,
    **options: Any,
) -> Any:
    """What `write` makes of the same options, as `Generated`.

    Older scripts ask for tuples of tensors: `return_source` gives (source, ids), `return_target_mask` (ids, mask), and
    both give (source, ids, mask).
    """
    made = write(model, source, **known_keywords(write, options, "generate"))
    if not return_source and not return_target_mask:
        return made
    parts = (made.source, made.ids, made.mask)
    return parts[0 if return_source else 1 : 3 if return_target_mask else 2]


def source_ids(
    model: "TextToSemantic",
    source: Sequence[str] | Tensor,
    modality: Modality,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Ids:
    """A source as the model was taught to read it: real ids first in each row, and of speech no token twice."""
    if not isinstance(source, Tensor):
        return _text_ids(model, source, modality)
    if lengths is not None and mask is not None:
        raise UserError("Give source_lengths or source_mask, not both: each says what is real.")
    if not len(source):
        raise UserError("There is no source to generate from: give at least one row.")
    if source.is_floating_point():
        return _heard(model, source, modality, lengths)
    if source.ndim != 2:
        raise UserError(f"Ids of a source have the shape [batch, n], and these have {list(source.shape)}.")
    if mask is None:
        mask = source != PAD if lengths is None else mask_from_lengths(lengths.to(source.device), source.shape[1])
    elif mask.shape != source.shape:
        raise UserError(
            f"source_mask is {list(mask.shape)}, and the source {list(source.shape)}: give one for each id."
        )
    given = _to_front(source.long(), mask.to(source.device).bool())
    if modality == "speech":
        batch = {"semantic": given.ids, "semantic_lengths": given.lengths}
        return ids_of(batch, "speech", model.config, None)
    return given


def _text_ids(model: "TextToSemantic", texts: Sequence[str], modality: Modality) -> Ids:
    if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
        raise UserError("A source is a list of texts (at least one), or a tensor of ids or waves.")
    if modality != "text":
        raise UserError(f"The source holds texts, and source_type is {modality}: say source_type='text'.")
    if model.text_tokenizer is None:
        raise UserError("This model takes ids of text: build it with text={'kind': 'bytes'} to give it strings.")
    encode = model.text_tokenizer.encode
    return Ids(*join_tokens("text", [torch.tensor(encode(text), dtype=torch.int64) for text in texts]))


def _heard(model: "TextToSemantic", waves: Tensor, modality: Modality, lengths: Tensor | None) -> Ids:
    """Ids of waves [batch, samples] or [batch, 1, samples], by the model's semantic tokenizer."""
    if modality != "speech":
        raise UserError(f"The source holds waves, and source_type is {modality}: say source_type='speech'.")
    if model.wav2vec is None:
        raise UserError("Waves need a semantic tokenizer: give the model its wav2vec, or give semantic ids.")
    if waves.ndim not in (2, 3):
        raise UserError(f"Waves have the shape [batch, samples], and these have {list(waves.shape)}.")
    lengths = torch.full((len(waves),), waves.shape[-1]) if lengths is None else lengths
    batch = {"audio": waves.float() if waves.ndim == 3 else waves.float()[:, None], "lengths": lengths}
    return ids_of(batch, "speech", model.config, model.wav2vec)


def _to_front(ids: Tensor, real: Tensor) -> Ids:
    """Each row's real ids in their order, and -1 behind them."""
    lengths = real.sum(dim=1)
    size = int(lengths.max())
    front = (~real).long().argsort(dim=1, stable=True)[:, :size]
    return Ids(ids.gather(1, front).masked_fill(~mask_from_lengths(lengths, size), PAD), lengths)


def _limits(max_length: int | Tensor, rows: int) -> Tensor:
    limits = torch.as_tensor(max_length, dtype=torch.int64)
    limits = limits.expand(rows) if limits.ndim == 0 else limits
    if limits.shape != (rows,) or int(limits.min()) < 1:
        raise UserError(f"max_length is 1 or more, one number or one for each of the {rows} rows; it is {max_length}.")
    return limits


def _sampling(
    given: Sampling | None,
    older: dict[str, Any],
    filter_fn: Filter,
    filter_kwargs: dict[str, Any] | None,
    keeps_all: bool,
) -> Sampling:
    """The older words as a `Sampling`. Where no filter is named drawing has one, unless it `keeps_all`."""
    if filter_fn is not None or filter_kwargs:
        older = {**older, **_filter(filter_fn, dict(filter_kwargs or {}))}
    elif given is None and not keeps_all:
        older = {**older, "filter_thres": 1 - KEPT}
    if given is not None and older:
        raise UserError(f"Give generate a Sampling, or {', '.join(older)}, not both.")
    return given or build_config(Sampling, older, "generate")


def _filter(function: Filter, values: dict[str, Any]) -> dict[str, Any]:
    """What the filters of older scripts keep, given by their names or as functions of these names."""
    name = function if isinstance(function, str) else getattr(function, "__name__", "top_k")
    if name not in ("top_k", "top_p"):
        raise UserError(f"filter_logits_fn is top_k or top_p, not {name}; for anything else give a Sampling.")
    count = values.pop("k", None) if name == "top_k" else None
    share = values.pop("thres", KEPT if name == "top_k" else 0.9)
    if values:
        raise UserError(f"filter_fn_kwargs of {name} holds {next(iter(values))}; it takes thres, and k for top_k.")
    if name == "top_p":
        return {"top_p": share}
    return {"filter_thres": 1 - share} if count is None else {"top_k": count}
