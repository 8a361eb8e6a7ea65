"""Words that older scripts have for the model and its trainers, in the words used here.

What has a meaning is translated. What chose between things of which there is one now is taken as that one; all else
is refused in a sentence that says what to use.
"""

from typing import Any

from madrigal.audiolm.keywords import without
from madrigal.data.tokens import PAD
from madrigal.engine.keywords import renamed
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.speartts.config import TextToSemanticConfig
from madrigal.tokenizers.text import TextSpec, make_text_tokenizer

Options = dict[str, Any]

NOTHING_TO_CHOOSE = ("attn_flash",)
"""The fast kernel is always used."""

SETTLED: dict[str, tuple[Any, str]] = {
    "semantic_pad_id": (PAD, "padding is always -1"),
    "autoset_semantic_eos_id": (True, "every row ends with an end of its own"),
    "autoset_text_eos_id": (True, "every row ends with an end of its own"),
    "use_openai_tokenizer": (False, "give text={'kind': 'bpe'} for a tokenizer that learns from your texts"),
    "tokenizer_encode": (None, "give text={'kind': 'bytes'}, or another kind, or ids in place of strings"),
}
PAIRS: dict[str, tuple[Any, str]] = {
    "dataset_delimiter_id": (-1, "pairs are stored as pairs, with nothing between them")
}
PLAN = {"num_warmup_steps": "warmup_steps", "log_every": "log_losses_every"}


def config_of(options: Options, wav2vec: Any) -> TextToSemanticConfig:
    """The config that keyword arguments make; sizes follow from the tokenizers where these are given."""
    options = {name: value for name, value in options.items() if name not in NOTHING_TO_CHOOSE}
    for name, (value, instead) in SETTLED.items():
        if options.pop(name, value) not in (value, None):
            raise UserError(f"TextToSemantic has {name}={value} only: {instead}.")
    if options.get("num_semantic_token_ids") is None and wav2vec is not None:
        options["num_semantic_token_ids"] = wav2vec.codebook_size
    if options.get("text") is not None:
        options["text"] = _spec(options["text"])
        size = make_text_tokenizer(options["text"]).size
        if options.get("num_text_token_ids") not in (None, size):
            raise UserError(f"The text tokenizer has {size} ids: leave out num_text_token_ids, or give {size}.")
        options["num_text_token_ids"] = size
    return build_config(TextToSemanticConfig, options, "TextToSemantic")


def _spec(text: Any) -> TextSpec:
    return text if isinstance(text, TextSpec) else build_config(TextSpec, text, "TextToSemantic's text")


def trainer_words(options: Options, where: str) -> Options:
    """A trainer's keywords, with the plan's names for the older ones."""
    return renamed(without(options, PAIRS, where), PLAN, where)


def check_tokenizer(wav2vec: Any, config: TextToSemanticConfig) -> None:
    """Ids of another vocabulary would train the model on noise."""
    size = getattr(wav2vec, "codebook_size", None)
    if size is not None and size != config.num_semantic_token_ids:
        raise UserError(
            f"The tokenizer's codebook_size is {size}, and the model's num_semantic_token_ids is "
            f"{config.num_semantic_token_ids}: build it with num_semantic_token_ids={size}."
        )
