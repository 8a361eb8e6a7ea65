"""Words that older scripts have for stages, their wrappers and a generation, in the words used here.

What has a meaning is translated. What chose between things of which there is one now may be given as that one; all else
is refused in a sentence that says what to use.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from madrigal.audiolm.packing import Stream
from madrigal.data.audio import resample
from madrigal.data.tokens import PAD
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.recipe import build_config, known_keywords
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling

Options = dict[str, Any]
Made = TypeVar("Made")

SAMPLING = ("temperature", "filter_thres", "cond_scale")
PADDING = {"pad_id": (PAD, "padding is always -1")}
GENERATION: dict[str, tuple[Any, str]] = {
    "use_kv_cache": (True, "keys and values are always kept"),
    "include_eos_in_output": (False, "a row ends where its -1 begin"),
    "reconstruct_wave": (False, "give the codes to the codec's decode_from_codebook_indices, or call AudioLM"),
    "mask_out_generated_fine_tokens": (False, "call AudioLM, which takes this word"),
}
MODEL = {
    **PADDING,
    "project_semantic_logits": (True, "train with semantic_cross_entropy_loss_weight=0"),
    "project_coarse_logits": (True, "train with coarse_cross_entropy_loss_weight=0"),
}
TRAINER: dict[str, tuple[Any, str]] = {
    "dataset_normalize": (False, "recordings are heard as they are: normalise them before"),
}
CALL: dict[str, tuple[Any, str]] = {"return_loss": (True, "the transformer's own methods give logits")}


def without(options: Options, settled: dict[str, tuple[Any, str]], where: str) -> Options:
    """The options without those that have one value only, and a sentence where one of these has another."""
    for name, (value, instead) in settled.items():
        if options.get(name, value) not in (value, None):
            raise UserError(f"{where} has {name}={value} only, not {options[name]}: {instead}.")
    return {name: value for name, value in options.items() if name not in settled}


def loss_weights(options: Options, config: Any, where: str) -> dict[str, float]:
    """The weights among a wrapper's options; what the stage decides may be repeated."""
    options = without(options, PADDING, where)
    for name in ("unique_consecutive", "mask_prob"):
        said = options.pop(name, None)
        if said is not None and said != getattr(config, name, said):
            raise UserError(f"{where}: build the stage with {name}={said}; it has {getattr(config, name)}.")
    ending = "_cross_entropy_loss_weight"
    unknown = [name for name in options if name not in (f"semantic{ending}", f"coarse{ending}")]
    if unknown:
        raise UserError(f"{where} has no option {unknown[0]}; it takes transformer, wav2vec, codec and loss_weights.")
    return {name.removesuffix(ending): float(weight) for name, weight in options.items()}


def stream_of(ids: Tensor, quantizers: int) -> Stream:
    """Padded ids [batch, frames, quantizers], or [batch, frames * quantizers] with a frame's ids one after another."""
    if ids.ndim == 2:
        if ids.shape[1] % quantizers:
            raise UserError(f"{ids.shape[1]} ids are no whole frames of {quantizers} codebooks; give whole frames.")
        ids = ids.unflatten(1, (-1, quantizers))
    return Stream(ids, (ids[..., 0] != PAD).sum(1))


def batch_words(wrapper: Any, given: Options) -> Options:
    """The ids of a call by their names in a batch."""
    batch = without(given, CALL, type(wrapper).__name__)
    stage = wrapper.transformer
    if "semantic_token_ids" in batch:
        batch["semantic"] = batch.pop("semantic_token_ids")
    counts = {"token_ids": None, "coarse_token_ids": "coarse", "fine_token_ids": "fine"}
    widths = {section.name: section.pattern.quantizers for section in stage.layout.sections}
    whole = widths.get("coarse", 0) + widths.get("fine", 0)
    ids = [
        stream_of(batch.pop(name), widths.get(section or "", whole)).codes
        for name, section in counts.items()
        if batch.get(name) is not None
    ]
    return {**batch, "acoustic": torch.cat(ids, -1)} if ids else batch


def generation_words(wrapper: Any, given: Options, where: str) -> Options:
    """A generation's options, with a `Sampling`, streams and the context in the place of older words."""
    options = without(given, GENERATION, where)
    drawn = {name: options.pop(name) for name in SAMPLING if name in options}
    if drawn and options.get("sampling") is not None:
        raise UserError(f"Give {where} a Sampling, or {', '.join(drawn)}, not both.")
    if drawn:
        options["sampling"] = build_config(Sampling, drawn, where)
    widths = {section.name: section.pattern.quantizers for section in wrapper.transformer.layout.sections}
    for older, (name, section) in _STREAMS.items():
        if section in widths and options.get(older) is not None:
            options[name] = stream_of(options.pop(older), widths[section])
    if "max_time_steps" in options:
        options["frames"] = options.pop("max_time_steps")
    rate = options.pop("prime_wave_input_sample_hz", None)
    if options.get("prime_wave") is not None:
        options |= wrapper.prompt_of(options.pop("prime_wave"), rate)
    return options


_STREAMS = {
    "semantic_token_ids": ("semantic", "semantic"),
    "coarse_token_ids": ("coarse", "coarse"),
    "prime_coarse_token_ids": ("prompt", "coarse"),
    "prime_fine_token_ids": ("prompt", "fine"),
}


def heard_by(tool: Any, wave: Tensor, rate: int | None) -> Tensor:
    """A prompt's waves [batch, samples] at the rate and with the channels of a tokenizer or codec."""
    wave = wave[None] if wave.ndim == 1 else wave
    wave = resample(wave, rate or tool.target_sample_hz, tool.target_sample_hz)
    return wave if wave.ndim == 3 else wave[:, None].expand(-1, getattr(tool, "channels", 1), -1)


def takes_older_words(generate: Callable[..., Made]) -> Callable[..., Made]:
    """A wrapper's `generate` that also takes text, a prompt of sound, and the words of older scripts."""

    @wraps(generate)
    def with_words(wrapper: Any, **given: Any) -> Made:
        where = f"{type(wrapper).__name__}.generate"
        options = generation_words(wrapper, given, where)
        read = {name: options.pop(name) for name in ("text", "text_embeds", "text_mask") if name in options}
        if any(value is not None for value in read.values()):
            with torch.no_grad(), eval_mode(wrapper.transformer):
                options["context"] = wrapper.condition(**read)
            if wrapper.namespace == "semantic":
                options["batch_size"] = len(options["context"][0])
        return generate(wrapper, **known_keywords(generate.__get__(wrapper), options, where))

    return with_words
