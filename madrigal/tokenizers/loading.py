"""Find what a name means: a tokenizer or a codec, in a folder, a run, a run of several stages, or on the hub."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madrigal.engine.pretrained import SHIPPED, locate
from madrigal.errors import UserError

if TYPE_CHECKING:
    from madrigal.tokenizers.semantic import SemanticTokenizer

KINDS = {
    "mel-kmeans": ("madrigal.tokenizers.mel_kmeans", "MelKmeans"),
    "masked-prediction": ("madrigal.tokenizers.masked_prediction", "MaskedPrediction"),
    "huggingface": ("madrigal.tokenizers.huggingface", "HuggingFaceTokenizer"),
    "whisper": ("madrigal.tokenizers.whisper", "WhisperTokenizer"),
}
CONDITIONERS = {"mulan-quantizer": ("madrigal.musiclm.loading", "load_embed_quantizer")}
"""What makes tokens of the whole of a sound, and what loads it: by name, for it lives in rooms that build upon this."""

STAGE = "tokenizer"
"""The folder of the tokenizer's run in a run of several stages."""


def tokenizer_class(kind: str) -> Any:
    """The class of a kind of semantic tokenizer."""
    module, name = KINDS[kind]
    return getattr(import_module(module), name)


def load_tokenizer(name: str | Path) -> "SemanticTokenizer":
    """A semantic tokenizer that is ready to use, of whatever kind the folder or run at `name` holds."""
    path = Path(name)
    if (path / STAGE).is_dir() and not (path / "config.json").exists():
        path = path / STAGE
    is_hub_name = str(name).count("/") == 1 and not path.parent.is_dir()
    if not (path.exists() or (SHIPPED / str(name)).is_dir() or is_hub_name):
        raise UserError(
            f"There is no tokenizer {str(name)!r}: name a run of kmeans or masked-prediction, or an "
            "exported folder; where a run names one that has moved, --tokenizer says where it is now."
        )
    folder = locate(path if path.exists() else name)
    kind = _kind(folder)
    if kind not in KINDS:
        raise UserError(f"{folder} holds no semantic tokenizer; train one with `madrigal train kmeans/cpu`.")
    tokenizer: SemanticTokenizer = tokenizer_class(kind).from_pretrained(folder)
    if not tokenizer.is_fitted:
        raise UserError(f"The tokenizer in {folder} has no centroids yet: finish its run with --resume.")
    return tokenizer


def is_conditioner(name: str | Path) -> bool:
    """Whether the folder or run at `name` holds an audio conditioner."""
    return Path(name).is_dir() and _kind(locate(name)) in CONDITIONERS


def load_conditioner(name: str | Path) -> Any:
    """The audio conditioner in a run, a run of several parts, or an exported folder."""
    module, function = CONDITIONERS["mulan-quantizer"]
    return getattr(import_module(module), function)(name)


def _kind(folder: Path) -> str | None:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / 'config.json'} cannot be read ({error}); name another tokenizer.") from error
    kind = config.get("kind") if isinstance(config, dict) else None
    return kind if isinstance(kind, str) else None


def load_codec(name: str | Path) -> Any:
    """A codec by its shipped name, run, folder or hub name: SoundStream, EnCodec or DAC behind one interface."""
    from madrigal.tokenizers.codecs import load_codec as load

    return load(name)
