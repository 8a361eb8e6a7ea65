"""From a source to a target: what may be given, how it is decoded, and what comes back.

write       any source (texts, ids, waves) -> Generated, by drawing, by beam search or by speculative decoding
read        speech -> Generated, by the encoder's CTC head, without the decoder
generate    the same, and on demand the shapes that older scripts ask for
"""

from collections.abc import Callable, Sequence
from functools import partial
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
from madrigal.speartts.pairs import Ids, heard, ids_of, only, real_text
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
    tokenizer: Any = None,
    max_length: int | Tensor = 2048,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    filter_logits_fn: Filter = None,
    filter_fn_kwargs: dict[str, Any] | None = None,
    cond_scale: float | None = None,
    seed: Sequence[int] | int | None = None,
    beam_search_decode: bool = False,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    spec_decode: bool = False,
    spec_decode_gamma: int | None = None,
    spec_decode_lenience: float | None = None,
) -> Generated:
    """A target for each source: texts, ids [batch, n] padded with -1, or waves [batch, samples] of any float type.

    `source_lengths` [batch] or `source_mask` [batch, n] say what is real of ids; lengths of waves count samples.
    Waves are heard by `tokenizer`, or else by the model's own.
    `max_length` is one limit, or one for each row [batch]. Row r of `seed` s draws as a source alone with seed s + r.
    How tokens are drawn is said by `sampling`, or by the older words temperature, cond_scale and filter_logits_fn
    ("top_k" with thres or k, "top_p" with thres). Autocast plays no part: what is written does not depend on rounding.
    """
    for modality in (source_type, target_type):
        if modality not in MODALITIES:
            raise UserError(f"There is no modality {modality!r}: a source and a target are speech or text.")
    if beam_search_decode and spec_decode:
        raise UserError("Choose beam_search_decode or spec_decode, not both.")
    drawing = _given(
        not beam_search_decode, "beam_search_decode, which draws nothing", temperature=temperature, seed=seed
    )
    searching = _given(beam_search_decode, "no beam_search_decode", beam_size=beam_size, length_penalty=length_penalty)
    drafting = _given(
        spec_decode,
        "no spec_decode",
        spec_decode_gamma=spec_decode_gamma,
        spec_decode_lenience=spec_decode_lenience,
    )
    older = {name: value for name, value in drawing.items() if name != "seed"}
    if cond_scale is not None:
        older["cond_scale"] = cond_scale
    sampling = _sampling(sampling, older, filter_logits_fn, filter_fn_kwargs, keeps_all=beam_search_decode)
    if sampling.recall:
        raise UserError("recall is for stages that go on from a prompt: text and speech are written from the start.")
    if sampling.cond_scale != 1.0 and not model.config.cond_drop_prob:
        raise UserError(
            f"A cond_scale of {sampling.cond_scale} leans away from the model without a source, and this one never "
            "learned without: train it with cond_drop_prob over 0, or leave cond_scale at 1."
        )
    given = source_ids(model, source, source_type, source_lengths, source_mask, tokenizer)
    limits = _limits(max_length, len(given.ids))
    # Under autocast a token would hang on how many are read at a time.
    with eval_mode(model), torch.inference_mode(), torch.autocast(model.device.type, enabled=False):
        encoded = model.encode(source_type, given.ids, given.lengths)
        if beam_search_decode:
            made = beam_search(model, target_type, encoded, limits, sampling=sampling, **searching)
        else:
            draws: dict[str, Any] = {
                "sampling": sampling,
                "noise": RowNoise(seeds_of(drawing.get("seed", 0), len(limits))),
            }
            draws |= {name.removeprefix("spec_decode_"): value for name, value in drafting.items()}
            made = (speculate if spec_decode else decode)(model, target_type, encoded, limits, **draws)
    return _with_source(made, given, model)


@torch.no_grad()
def read(
    model: "TextToSemantic", source: Tensor, *, source_lengths: Tensor | None = None, tokenizer: Any = None
) -> Generated:
    """The text of each source: ids [batch, n] padded with -1, or waves [batch, samples]."""
    if model.ctc is None:
        raise UserError("This model has no CTC head: train it with ctc_loss_weight over 0, or let the decoder read.")
    given = source_ids(model, source, "speech", source_lengths, None, tokenizer)
    with eval_mode(model), torch.inference_mode(), torch.autocast(model.device.type, enabled=False):
        encoded = model.encode("speech", given.ids, given.lengths)
        made = model.ctc.read(encoded.hidden, encoded.mask.sum(1))
    return _with_source(made, given, model)


def _with_source(made: Generated, given: Ids, model: "TextToSemantic") -> Generated:
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
    tokenizer: Any = None,
) -> Ids:
    """A source as the model was taught to read it: real ids first in each row, and of speech no token twice.

    Waves are heard by `tokenizer`, or else by the model's own.
    """
    if not isinstance(source, Tensor):
        return _text_ids(model, source, modality)
    if lengths is not None and mask is not None:
        raise UserError("Give source_lengths or source_mask, not both: each says what is real.")
    if not len(source):
        raise UserError("There is no source to generate from: give at least one row.")
    if source.is_floating_point():
        return _heard(model, source, modality, lengths, model.wav2vec if tokenizer is None else tokenizer)
    if source.ndim != 2:
        raise UserError(f"Ids of a source have the shape [batch, n], and these have {list(source.shape)}.")
    if lengths is not None:
        mask = mask_from_lengths(lengths.to(source.device), source.shape[1])
    elif mask is None:
        mask = real_text(source, model.config.text_pad_id) if modality == "text" else source != PAD
    elif mask.shape != source.shape:
        raise UserError(
            f"source_mask is {list(mask.shape)}, and the source {list(source.shape)}: give one for each id."
        )
    given = only(source.long(), mask.to(source.device).bool())
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


def _heard(model: "TextToSemantic", waves: Tensor, modality: Modality, lengths: Tensor | None, tokenizer: Any) -> Ids:
    if modality != "speech":
        raise UserError(f"The source holds waves, and source_type is {modality}: say source_type='speech'.")
    if tokenizer is None:
        raise UserError("Waves need a semantic tokenizer: give the model its wav2vec, or give semantic ids.")
    return ids_of(heard(waves, lengths), "speech", model.config, tokenizer)


def _limits(max_length: int | Tensor, rows: int) -> Tensor:
    limits = torch.as_tensor(max_length, dtype=torch.int64)
    limits = limits.expand(rows) if limits.ndim == 0 else limits
    if limits.shape != (rows,) or int(limits.min()) < 1:
        raise UserError(f"max_length is 1 or more, one number or one for each of the {rows} rows; it is {max_length}.")
    return limits


def _given(acts: bool, without: str, **options: Any) -> dict[str, Any]:
    """The options that were given; where they cannot act, none may be."""
    given = {name: value for name, value in options.items() if value is not None}
    if given and not acts:
        names = " and ".join(given)
        raise UserError(f"{names} cannot act here, with {without}: leave out {names}.")
    return given


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
    while isinstance(function, partial):
        if function.args:
            raise UserError(
                "filter_logits_fn is a partial with values that have no names: give them by name, as thres=."
            )
        values, function = {**function.keywords, **values}, function.func
    if function is None:
        function = "top_k"
    name = function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)
    if name not in ("top_k", "top_p"):
        raise UserError(f"filter_logits_fn is top_k or top_p, not {name}; for anything else give a Sampling.")
    count = values.pop("k", None) if name == "top_k" else None
    share = values.pop("thres", KEPT if name == "top_k" else 0.9)
    if values:
        raise UserError(f"filter_fn_kwargs of {name} holds {next(iter(values))}; it takes thres, and k for top_k.")
    if name == "top_p":
        return {"top_p": share}
    return {"filter_thres": 1 - share} if count is None else {"top_k": count}
