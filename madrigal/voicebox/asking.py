"""What `sample` is asked for, brought to one form: lengths, the frames that are given, and an id for each frame.

- `cond` is a prompt, a wave or features. It comes first, and the rest is made to go on from it.
- With `cond_mask` [batch, frames], True = to be made, `cond` is a whole recording with holes. (A `context_mask`, as
  everywhere else here, says the opposite: True = given.)
- `ids` are of all frames of the result, the prompt's among them (-1 where one is not known). `texts`, `phoneme_ids` and
  `semantic_token_ids` are of what comes after the prompt. Texts are said by the wrapper's `text_to_semantic`, or by the
  symbols of its `duration_predictor`.
- `lengths` in frames, or `seconds`, are of the whole result. Without them it is as long as its ids say.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.voicebox.expand import at_frame_rate, expand
from madrigal.voicebox.filling import NOTHING_TO_MAKE
from madrigal.voicebox.frame_ids import fitted, known_frames, spread

if TYPE_CHECKING:
    from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper


class Asked(NamedTuple):
    """lengths int64 [batch]; context [batch, frames, dim_in], context_mask and ids [batch, frames], or None."""

    lengths: Tensor
    context: Tensor | None = None
    context_mask: Tensor | None = None
    ids: Tensor | None = None

    def given(self) -> dict[str, Any]:
        return {"context": self.context, "context_mask": self.context_mask, "ids": self.ids}


def asked_for(
    wrapper: "ConditionalFlowMatcherWrapper",
    *,
    cond: Tensor | None,
    cond_mask: Tensor | None,
    cond_lengths: Tensor | None,
    ids: Tensor | None,
    texts: Sequence[str] | None,
    phoneme_ids: Tensor | None,
    semantic_token_ids: Tensor | None,
    lengths: Tensor | Sequence[int] | int | None,
    seconds: Sequence[float] | float | None,
) -> Asked:
    """The words of `sample`, as this module explains them."""
    said = {"ids": ids, "texts": texts, "phoneme_ids": phoneme_ids, "semantic_token_ids": semantic_token_ids}
    words = {name: value for name, value in said.items() if value is not None}
    if len(words) > 1:
        raise UserError(f"What is to be said was given twice, as {' and '.join(words)}: give one of them.")
    if cond is None and cond_mask is not None:
        raise UserError("A cond_mask says what of a recording is made anew: give the recording as cond.")
    prompt = None if cond is None else wrapper.heard(cond[None] if cond.ndim == 1 else cond, cond_lengths)
    rows = _rows([*words.values(), *(() if prompt is None else prompt[:1])])
    wanted = _wanted(wrapper, lengths, seconds, rows)
    if prompt is not None and cond_mask is not None:
        if wanted is not None and not torch.equal(wanted, prompt[1].cpu()):
            raise UserError("A recording with holes keeps its length: leave out lengths and seconds.")
        wanted = prompt[1].cpu()
    rows = len(wanted) if rows is None and wanted is not None else rows
    # Frames that come before what the words are of.
    before = torch.zeros(rows or 0, dtype=torch.int64)
    if prompt is not None and cond_mask is None:
        before = prompt[1].cpu()
    if words and ids is None:
        made = _ids(wrapper, texts, phoneme_ids, semantic_token_ids, None if wanted is None else wanted - before)
        counts = (made != PAD).sum(1)
        ids, wanted = _after(made, counts, before), before + counts
    elif ids is not None and wanted is None:
        wanted = known_frames(ids.cpu())
    if wanted is None:
        raise UserError("How much is to be made? Give ids, texts, lengths in frames, or seconds.")
    if bool((wanted < 1).any()):
        raise UserError(NOTHING_TO_MAKE)
    if bool((wanted <= before).any()):
        raise UserError("The result would be no longer than the prompt: its length counts the prompt too.")
    size = int(wanted.max())
    ids = None if ids is None else fitted(ids, wanted, size)
    if prompt is None:
        return Asked(wanted, ids=ids)
    return Asked(wanted, *_given(*prompt, cond_mask, size), ids)


def _given(prompt: Tensor, lengths: Tensor, cond_mask: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
    """Context and context_mask of `size` frames."""
    given = mask_from_lengths(lengths, prompt.shape[1])
    if cond_mask is not None:
        if cond_mask.shape != given.shape:
            raise UserError(
                f"The cond_mask has the shape {list(cond_mask.shape)}, and cond has {list(given.shape)} frames."
            )
        given = given & ~cond_mask.to(given.device)
    more = max(0, size - prompt.shape[1])
    return F.pad(prompt, (0, 0, 0, more))[:, :size], F.pad(given, (0, more))[:, :size]


def _rows(given: Sequence[Any]) -> int | None:
    counts = {len(value) for value in given}
    if len(counts) > 1:
        raise UserError(f"There are {' and '.join(map(str, sorted(counts)))} rows of prompts and words: give as many.")
    return counts.pop() if counts else None


def _wanted(
    wrapper: "ConditionalFlowMatcherWrapper",
    lengths: Tensor | Sequence[int] | int | None,
    seconds: Sequence[float] | float | None,
    rows: int | None,
) -> Tensor | None:
    """Frames of each row, [batch], if they were told."""
    if lengths is not None and seconds is not None:
        raise UserError("The length was given twice, as lengths and as seconds: give one of them.")
    if seconds is not None:
        if wrapper.features is None:
            raise UserError("Seconds mean something to features alone: give the wrapper features=…, or ask by lengths.")
        many = torch.as_tensor(seconds, dtype=torch.float64) * wrapper.features.sample_rate / wrapper.features.hop
        lengths = many.round().long()
    if lengths is None:
        return None
    found = torch.as_tensor(lengths, dtype=torch.int64).cpu()
    if found.ndim == 0:
        found = found.expand(rows or 1)
    if rows not in (None, len(found)):
        raise UserError(f"{len(found)} lengths were given for {rows} rows: give one for each, or a single one.")
    return found


def _after(made: Tensor, counts: Tensor, before: Tensor) -> Tensor:
    """The ids of what comes after the prompts, each row behind its own."""
    size = int((before + counts).max())
    ids = torch.full((len(made), size), PAD, dtype=torch.int64)
    for row, (start, count) in enumerate(zip(before.tolist(), counts.tolist(), strict=True)):
        ids[row, start : start + count] = made[row, :count]
    return ids


def _ids(
    wrapper: "ConditionalFlowMatcherWrapper",
    texts: Sequence[str] | None,
    phoneme_ids: Tensor | None,
    semantic_token_ids: Tensor | None,
    frames: Tensor | None,
) -> Tensor:
    """Ids of frames [batch, frames], for as many frames as are wanted, or as the words take."""
    predictor, speaker = wrapper.duration_predictor, wrapper.text_to_semantic
    rate = getattr(getattr(speaker, "wav2vec", None), "frame_rate", None)
    is_semantic = semantic_token_ids is not None or (texts is not None and speaker is not None)
    if is_semantic and predictor is not None and predictor.symbols is not None:
        raise UserError(
            "The duration_predictor knows the symbols of texts, and no semantic tokens: give the wrapper one of these, "
            "or none, and lengths or seconds."
        )
    if texts is not None and speaker is not None:
        if predictor is None and frames is None and speaker.config.unique_consecutive:
            raise UserError(
                "The text_to_semantic writes a token once, however long it sounds: give lengths or seconds, or a "
                "duration_predictor of semantic tokens."
            )
        semantic_token_ids = speaker.generate(list(texts), source_type="text", target_type="speech").ids
    elif texts is not None:
        if predictor is None:
            raise UserError("Texts need a duration_predictor or a text_to_semantic: give the wrapper one, or ids.")
        if predictor.symbols is None:
            raise UserError("This duration_predictor knows ids alone: give phoneme_ids in the place of texts.")
        phoneme_ids, _ = predictor.symbols.batch(texts)
    symbols = phoneme_ids if phoneme_ids is not None else semantic_token_ids
    assert symbols is not None
    symbols = symbols.cpu()
    if predictor is not None:
        durations = predictor.predict(symbols, (symbols != PAD).sum(1), frames=frames).cpu()
        return expand(symbols, durations)
    if frames is not None:
        return spread(symbols, frames)
    if rate is None or wrapper.features is None or semantic_token_ids is None:
        raise UserError("Nobody knows how long these ids sound: give lengths or seconds, or a duration_predictor.")
    to_rate = wrapper.features.sample_rate / wrapper.features.hop
    return at_frame_rate(symbols, (symbols != PAD).sum(1), rate, to_rate)
