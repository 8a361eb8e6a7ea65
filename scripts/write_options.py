"""Writes docs/options.md: every key of a recipe with its type, its default and its own description."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from madrigal.audiolm.config import StageConfig
from madrigal.audiolm.source import TokenSource
from madrigal.audiolm.training import StagePlan
from madrigal.data.source import AudioSource
from madrigal.engine.plan import Plan
from madrigal.muse.maskgit_config import MaskGitConfig, TokenTransformerConfig
from madrigal.muse.maskgit_plan import MaskGitPlan
from madrigal.muse.maskgit_recipe import MaskGitRecipe, TokenCriticRecipe
from madrigal.muse.maskgit_source import CaptionedSource
from madrigal.muse.painting import Painting
from madrigal.musiclm.audio_transformer import AudioConfig
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizerConfig
from madrigal.musiclm.quantizer_recipe import MuLaNEmbedQuantizerRecipe
from madrigal.musiclm.sentence_encoder import SentenceConfig
from madrigal.musiclm.text_transformer import TextConfig
from madrigal.soundstream.objective import WEIGHT_ALIASES
from madrigal.speartts.config import TextToSemanticConfig
from madrigal.speartts.plans import SpearPlan
from madrigal.speartts.recipe import SpearRecipe
from madrigal.tokenizers.text import TextSpec
from madrigal.verbs.systems import SYSTEMS, named
from madrigal.voicebox.config import VoiceBoxConfig
from madrigal.voicebox.durations import DurationPredictorConfig
from madrigal.voicebox.durations_recipe import DurationsRecipe
from madrigal.voicebox.plans import FlowPlan
from madrigal.voicebox.recipe import FlowData, VoiceBoxRecipe
from madrigal.voicebox.symbols import SymbolSpec

MODELS: dict[type[BaseModel], type[BaseModel]] = {
    VoiceBoxRecipe: VoiceBoxConfig,
    DurationsRecipe: DurationPredictorConfig,
    MaskGitRecipe: MaskGitConfig,
    TokenCriticRecipe: TokenTransformerConfig,
    MuLaNEmbedQuantizerRecipe: MuLaNEmbedQuantizerConfig,
}
"""Models that a recipe builds when it knows what it is to learn from."""

PAGE = Path(__file__).parent.parent / "docs" / "options.md"

WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    Any: "anything",
    TextSpec: "[mapping](#model-text)",
    SymbolSpec: "[mapping](#model-symbols)",
    AudioConfig: "[mapping](#model-audio)",
    TextConfig: "[mapping](#model-text-of-mulan)",
    SentenceConfig: "[mapping](#model-text-of-mulan-pretrained)",
    TokenTransformerConfig: "[mapping](#transformers-over-tokens)",
    NoneType: "null",
}

HEAD = """# Options

Every key of every recipe. `scripts/write_options.py` (`make docs`) writes this page from the options themselves.

A key is written `model.codebook_size=512` on the command line, under `model:` in a recipe's YAML, and
`codebook_size=512` in Python: the keys of `model` are keyword arguments of the model, those of `plan` of its trainer.
A recipe names its `system`; what each system has of its own follows after what several have.
"""

SHARED: dict[str, type[BaseModel]] = {
    "plan": Plan,
    "data": AudioSource,
    "data of the stages": TokenSource,
    "model of the stages": StageConfig,
    "plan of the stages": StagePlan,
    "model of text and speech": TextToSemanticConfig,
    "model text": TextSpec,
    "plan of text and speech": SpearPlan,
    "model symbols": SymbolSpec,
    "data of the flow": FlowData,
    "plan of the flow": FlowPlan,
    "model audio": AudioConfig,
    "model text of mulan": TextConfig,
    "model text of mulan, pretrained": SentenceConfig,
    "transformers over tokens": TokenTransformerConfig,
    "data of pictures with captions": CaptionedSource,
    "plan of MaskGit": MaskGitPlan,
    "painting": Painting,
}
"""Sections that several systems share, by the name that they have on the page."""

WORDS_OF: dict[str, str] = {
    "plan": "The `plan` of every training on the engine. Either `num_train_steps` or `num_train_epochs` is needed.",
    "data": "The recordings of `soundstream`, `kmeans` and `masked-prediction`; `data=FOLDER` is short for "
    "`data.path=FOLDER`.",
    "data of the stages": "The `data` of `semantic`, `coarse` and `fine`: recordings, or tokens made of them.",
    "model of the stages": "What the three transformers of AudioLM have in common. A recipe fills in what follows from "
    "its tokenizer, its codec and its data: `num_semantic_tokens`, `codebook_size`, `rq_groups`, `frames_per_semantic` "
    "and `window_seconds`.",
    "plan of the stages": "What their plans have beyond the others.",
    "model of text and speech": "The model of `speech-speech`, `semantic-to-text` and `text-to-semantic`: "
    "`TextToSemantic`. A recipe fills in what follows from its tokenizer, its texts and what it starts from: "
    "`num_semantic_token_ids`, `num_text_token_ids` and the sizes.",
    "model text": "Its `model.text`: how text becomes ids; [text.md](text.md).",
    "plan of text and speech": "What their plans have beyond the others.",
    "model symbols": "An aligner's `model.symbols`: how text becomes symbols; [voicebox.md](voicebox.md).",
    "data of the flow": "The `data` of `voicebox-flow` and `voicebox-distill`: recordings, and what was found in them.",
    "plan of the flow": "What their plans have beyond the others.",
    "model audio": "The `model.audio` of `mulan`: `AudioSpectrogramTransformer`; [musiclm.md](musiclm.md).",
    "model text of mulan": "Its `model.text`: `TextTransformer`.",
    "model text of mulan, pretrained": "Its `model.text` where the `kind` is `pretrained`: an encoder that others have "
    "trained.",
    "transformers over tokens": "The `model.transformer` and the `model.token_critic` of `maskgit`, and the `model` of "
    "`token-critic`. A recipe fills in `num_tokens`, `num_cond_tokens` and `num_classes`; there `text_encoder` may "
    "also be `auto`: minilm where it is installed, bytes elsewhere.",
    "data of pictures with captions": "The `data` of `maskgit` and `token-critic`.",
    "plan of MaskGit": "What their plans have beyond the others.",
    "painting": "How pictures are made: `generate` of a `muse` recipe, and options of `MaskGit.generate` and "
    "`Muse.generate`.",
    "soundstream": "The codec: `SoundStream` and `SoundStreamTrainer`; [soundstream.md](soundstream.md) says what the "
    "options are for.",
    "mel-codec": "A codec of log-mels for language models: `MelCodec`, `MelCodecTrainer`; "
    "[tokenizers.md](tokenizers.md#a-codec-of-log-mels).",
    "kmeans": "A tokenizer by k-means over features of a kind; [tokenizers.md](tokenizers.md).",
    "masked-prediction": "A tokenizer that is trained: `MaskedPrediction`; [tokenizers.md](tokenizers.md).",
    "semantic": "The first stage of [AudioLM](audiolm.md): `SemanticTransformer`, `SemanticTransformerTrainer`.",
    "coarse": "The second stage of AudioLM: `CoarseTransformer`, `CoarseTransformerTrainer`.",
    "fine": "The third stage of AudioLM: `FineTransformer`, `FineTransformerTrainer`.",
    "audiolm": "Tokenizer, tokens and stages in one run. A part is changed by its name: `semantic.plan.lr=1e-4`.",
    "speech-speech": "Pretraining on speech alone: `SpeechSpeechPretrainer`; [speartts.md](speartts.md).",
    "semantic-to-text": "Reading speech into text: `SemanticToTextTrainer`.",
    "text-to-semantic": "Speaking: `TextToSemanticTrainer`, on real pairs and on those that were labelled.",
    "speartts": "All parts of [text to speech](speartts.md) in one run. A part is changed by its name: "
    "`speak.plan.lr=1e-4`; it may also be the name of a finished run.",
    "aligner": "Which symbol of a text is said when: `Aligner`, `AlignerTrainer`; [voicebox.md](voicebox.md).",
    "vocoder": "Sound from log-mels: `Vocoder`, `VocoderTrainer`.",
    "durations": "How long each symbol of a text takes: `DurationPredictor`, `DurationPredictorTrainer`.",
    "voicebox-flow": "The model that speaks and fills in: `VoiceBox`, `VoiceBoxTrainer`. A recipe fills in what "
    "follows from its features and its alignments: `dim_in` and `num_cond_tokens`.",
    "voicebox-distill": "A student that needs fewer steps: `VoiceBoxDistiller`.",
    "voicebox": "All parts of [a voice](voicebox.md) in one run. A part is changed by its name: `flow.plan.lr=1e-4`; "
    "it may also be the name of a finished run.",
    "mulan": "Sound and text in one space: `MuLaN`, `MuLaNTrainer`; [musiclm.md](musiclm.md).",
    "vqgan": "The tokenizer of [Muse](muse.md): `VQGanVAE`, `VQGanVAETrainer`. `lookup_free_quantization`, `encdec_…` "
    "and `vq_…` are understood in Python, too.",
    "maskgit": "What makes pictures, or makes them larger: `MaskGit`, `MaskGitTransformer`, `MaskGitTrainer`; "
    "[muse.md](muse.md#maskgit).",
    "token-critic": "A critic for a finished MaskGit: `TokenCritic`, `TokenCriticTrainer`.",
    "muse": "All parts of [pictures from text](muse.md) in one run. A part is changed by its name: "
    "`base.plan.lr=1e-4`; it may also be the name of a finished run.",
    "mulan-quantizer": "Codes of that space, which condition the stages: `MuLaNEmbedQuantizer`, "
    "`MuLaNEmbedQuantizerTrainer`. A recipe fills in what follows from its MuLaN: `dim_latent`.",
    "musiclm": "All parts of [music from text](musiclm.md) in one run. A part is changed by its name: "
    "`coarse.plan.lr=1e-4`; all but the stages may also be the name of a finished run.",
}


def page() -> str:
    """The whole text of docs/options.md."""
    parts = [HEAD]
    for name, kind in SHARED.items():
        keys = _own(kind, kind.model_fields, but=kind)
        parts.append(f"## {name}\n\n{WORDS_OF[name]}\n\n{_table(keys)}")
    for system in SYSTEMS:
        parts.append(f"## {system}\n\n{WORDS_OF[system]}\n")
        for section, kind in sections(system).items():
            for title, keys in _groups(system, section, kind):
                parts.append(f"### {system} {title}\n\n{_table(keys)}")
        if system == "soundstream":
            aliases = ", ".join(f"`{old}` for `{new}`" for old, new in WEIGHT_ALIASES.items())
            parts.append(f"Older names of single weights are understood too: {aliases}.\n")
    return "\n".join(parts)


def sections(system: str) -> dict[str, type[BaseModel]]:
    """What holds the keys of each section of a system's recipe; "" are the keys beside the sections."""
    recipe = named(SYSTEMS[system].recipe)
    found: dict[str, type[BaseModel]] = {"": recipe}
    for name, field in recipe.model_fields.items():
        kind = field.annotation
        if name == "model" and hasattr(recipe, "transformer"):
            kind = recipe.transformer.Config  # checked there, and built when its tokenizer and codec are known
        if name == "model" and issubclass(recipe, SpearRecipe):
            kind = TextToSemanticConfig
        if name == "model" and recipe in MODELS:
            kind = MODELS[recipe]
        for one in get_args(get_args(kind)[0]) if get_origin(kind) is Annotated else get_args(kind) or [kind]:
            if isinstance(one, type) and issubclass(one, BaseModel):
                several = get_origin(kind) in (Union, UnionType, Annotated)
                found[f"{name} of {_kind(one)}" if several else name] = one
    return found


def options() -> dict[str, dict[str, FieldInfo]]:
    """All keys by system and section: `soundstream.model` and so on."""
    return {
        f"{system}.{section}".rstrip("."): _keys(system, section, kind)
        for system in SYSTEMS
        for section, kind in sections(system).items()
    }


def _keys(system: str, section: str, kind: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a section; a kind that there is one of is its section's name, and the sections are no keys."""
    only = section and "kind" in kind.model_fields and len(get_args(kind.model_fields["kind"].annotation)) == 1
    left_out = set() if section else {"system", *(name.split(" ")[0] for name in sections(system))}
    return {
        name: field for name, field in kind.model_fields.items() if name not in left_out | ({"kind"} if only else set())
    }


def _kind(config: type[BaseModel]) -> str:
    """The kind of tokenizer that a config is of."""
    return str(get_args(config.model_fields["kind"].annotation)[0])


def _groups(system: str, section: str, kind: type[BaseModel]) -> Iterator[tuple[str, dict[str, FieldInfo]]]:
    """Titles and keys of the tables of a section, without what it shares; comments in the source head the groups."""
    keys = _own(kind, _keys(system, section, kind))
    title = section or "recipe"
    heads: dict[str, str] = {}
    for base in kind.__mro__[: kind.__mro__.index(BaseModel)]:
        heading = ""
        for line in inspect.getsource(base).splitlines():
            if comment := re.fullmatch(r"    # ([^.]+)", line):  # a sentence is no heading
                heading = comment[1]
            elif key := re.match(r"    (\w+):", line):
                heads[key[1]] = heads.get(key[1]) or heading  # an option that is changed stays where it was
    for heading in dict.fromkeys(heads[name] for name in heads if name in keys):
        group = {name: field for name, field in keys.items() if heads[name] == heading}
        yield f"{title}: {heading}" if heading else title, group


def _own(
    kind: type[BaseModel], keys: Mapping[str, FieldInfo], but: type[BaseModel] | None = None
) -> dict[str, FieldInfo]:
    """Those of the keys that are not listed, with this default, among the ones that several systems have."""
    shared = [one.model_fields for one in SHARED.values() if issubclass(kind, one) and one is not but]
    listed = {(name, _default(field)) for fields in shared for name, field in fields.items()}
    return {name: field for name, field in keys.items() if (name, _default(field)) not in listed}


def _table(keys: Mapping[str, FieldInfo]) -> str:
    rows = [f"| `{name}` | {_type(field)} | {_default(field)} | {_text(field)} |" for name, field in keys.items()]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _text(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_unset=True)
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(field: FieldInfo) -> str:
    return _named(field.annotation, field.metadata).replace("|", "\\|")


def _named(kind: Any, limits: list[Any]) -> str:
    """A type in words, for people who write YAML."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        more = [limit for given in parts[1:] for limit in getattr(given, "metadata", [given])]
        return _named(parts[0], [*more, *limits])
    if origin is Literal:
        return _either([f"`{value}`" for value in parts])
    if origin in (Union, UnionType):
        flat = [inner for part in parts for inner in (get_args(part) if get_origin(part) is Literal else [part])]
        return _either([f"`{p}`" if isinstance(p, str) else _named(p, limits) for p in flat if not _is_python_only(p)])
    if origin is tuple:
        count, inner = ("list", parts[:1]) if parts[-1] is Ellipsis else (f"list of {len(parts)}", parts)
        word = _named(inner[0], [])
        return f"{count}: ({word})" if " or " in word else f"{count}: {word}"
    if origin is dict:
        return f"mapping to {_named(parts[1], [])}"
    bounds = "" if kind is NoneType else _bounds(limits)
    return WORDS[kind] + (f" {bounds}" if bounds else "")


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _is_python_only(kind: Any) -> bool:
    return kind is type or get_origin(kind) is Callable


def _bounds(limits: list[Any]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    values = [(sign, getattr(limit, name, None)) for limit in limits for name, sign in signs.items()]
    return ", ".join(f"{sign} {value}" for sign, value in values if value is not None)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"Wrote {PAGE}")
