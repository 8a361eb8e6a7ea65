"""From a run of all parts, or from an exported folder, to music from text; and the way into a folder."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict

from madrigal.audiolm.loading import QUANTIZER, STAGES, load_audiolm, load_stage
from madrigal.audiolm.pipeline import AudioLM
from madrigal.engine.exporting import written_whole
from madrigal.engine.learned import recipe_of
from madrigal.engine.pretrained import Pretrained, moved
from madrigal.errors import UserError
from madrigal.musiclm.mulan import MULAN
from madrigal.musiclm.music import MusicLM
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer
from madrigal.tokenizers.foreign import foreign_config
from madrigal.tokenizers.loading import load_codec, load_tokenizer

CONFIG = "config.json"
TOKENIZER, CODEC = "tokenizer", "codec"


class MusicLMFolder(BaseModel):
    """The config.json of an exported folder, which holds a folder for each part."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["musiclm"] = "musiclm"
    format: Literal[1] = 1


def load_embed_quantizer(place: str | Path, *, averaged: bool = True) -> MuLaNEmbedQuantizer:
    """The quantizer of a run, of a run of all parts or of an exported folder, with its MuLaN."""
    path = Path(place)
    if not path.is_dir():
        raise UserError(f"There is no quantizer {place}; name a run of mulan-quantizer or an exported folder.")
    inside = _quantizer_of(path)
    if inside != path:
        return load_embed_quantizer(inside, averaged=averaged)
    return MuLaNEmbedQuantizer.from_pretrained(path, averaged=averaged)


def is_musiclm(name: str | Path) -> bool:
    """Whether `name` is a run of a whole MusicLM or an exported folder."""
    path = Path(name)
    if recipe_of(path).get("system") == "musiclm":
        return True
    config = foreign_config(path) if (path / CONFIG).is_file() else None
    return (config or {}).get("kind") == "musiclm"


def load_musiclm(run: str | Path, *, averaged: bool = True, device: str | torch.device = "cpu") -> MusicLM:
    """The parts of a run or of an exported folder, ready to make music. It goes to no network.

    `averaged` is of the stages alone: these have learned with the averaged MuLaN and quantizer.
    """
    path = Path(run)
    if not is_musiclm(path):
        raise UserError(f"{run} is neither a run of musiclm nor an exported one.")
    quantizer = load_embed_quantizer(path)
    if (path / CONFIG).is_file():
        audio_lm = _exported_audiolm(path, quantizer)
    else:
        audio_lm = load_audiolm([path], audio_conditioner=quantizer, averaged=averaged)
    return moved(MusicLM(audio_lm, quantizer), device)


def _quantizer_of(path: Path) -> Path:
    """In a run of all parts, or where its recipe says that a finished one is; elsewhere `path` itself."""
    inside = path / QUANTIZER
    if inside.is_dir() or not is_musiclm(path):
        return inside if inside.is_dir() else path
    said = recipe_of(path).get(QUANTIZER)
    return Path(said) if isinstance(said, str) else inside


def _exported_audiolm(path: Path, quantizer: MuLaNEmbedQuantizer) -> AudioLM:
    stages = {name: load_stage(name, path / name, quantizer) for name in STAGES if (path / name).is_dir()}
    return AudioLM(
        wav2vec=load_tokenizer(path / TOKENIZER),
        codec=load_codec(path / CODEC),
        **{f"{name}_transformer": stage for name, stage in stages.items()},
    )


def export_musiclm(run: str | Path, target: str | Path, *, averaged: bool = True, overwrite: bool = False) -> Path:
    """Write all that makes music as one folder: a folder for each part, and config.json."""
    target, music = Path(target), load_musiclm(run, averaged=averaged)
    with written_whole(target, overwrite=overwrite) as partial:
        for name, part in _parts(music).items():
            if not isinstance(part, Pretrained):
                raise UserError(
                    f"The {name} of {run} cannot be exported: it is somebody else's, and stays where it is."
                )
            part.save_pretrained(Path(partial, name))
        Path(partial, CONFIG).write_text(MusicLMFolder().model_dump_json(indent=2) + "\n")
    return target


def _parts(music: MusicLM) -> dict[str, Any]:
    lm, quantizer = music.audio_lm, music.mulan_embed_quantizer
    stages = {name: getattr(lm, f"{name}_transformer") for name in STAGES}
    parts = {MULAN: quantizer.mulan, QUANTIZER: quantizer, TOKENIZER: lm.wav2vec, CODEC: lm.codec, **stages}
    return {name: part for name, part in parts.items() if part is not None}
