"""From run folders to an AudioLM that is ready to generate."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.learned import check_together, fingerprints_of
from madrigal.audiolm.pipeline import AudioLM
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.engine.learned import kind_of, recipe_of
from madrigal.engine.pretrained import moved
from madrigal.errors import UserError
from madrigal.tokenizers.loading import STAGE as TOKENIZER
from madrigal.tokenizers.loading import load_codec, load_conditioner, load_tokenizer

QUANTIZER = "quantizer"
"""The folder of the audio conditioner's run in a run of several parts."""

STAGES: dict[str, Any] = {"semantic": SemanticTransformer, "coarse": CoarseTransformer, "fine": FineTransformer}


def load_audiolm(
    runs: Sequence[str | Path],
    *,
    tokenizer: str | None = None,
    codec: str | None = None,
    audio_conditioner: nn.Module | None = None,
    averaged: bool = True,
    device: str | torch.device = "cpu",
) -> AudioLM:
    """The stages of one AudioLM run, or of the runs of its stages, with the tokenizer and codec they were trained on.

    `tokenizer` and `codec` are for stages whose tokenizer and codec have moved. Every stage that was trained with an
    audio conditioner gets a copy of `audio_conditioner`, or of the one that its recipe names, with what it has learned.
    """
    found = find_stages(runs)
    missing = [name for name in ("semantic", "coarse") if name not in found]
    if missing:
        raise UserError(
            f"There is no {' and no '.join(missing)} stage in {', '.join(map(str, runs))}: "
            "name an AudioLM run, or the runs of its stages."
        )
    wav2vec, heard_by = load_tools(found, tokenizer, codec)
    if audio_conditioner is None and (place := place_of(found["semantic"], "conditioner", QUANTIZER)):
        audio_conditioner = load_conditioner(place)
    check_together(found, fingerprints_of(None, None, audio_conditioner))
    stages = {name: load_stage(name, path, audio_conditioner, averaged) for name, path in found.items()}
    model = AudioLM(
        wav2vec=wav2vec,
        codec=heard_by,
        semantic_transformer=stages["semantic"],
        coarse_transformer=stages["coarse"],
        fine_transformer=stages.get("fine"),
    )
    return moved(model, device)


def load_tools(found: Mapping[str, Path], tokenizer: str | None, codec: str | None) -> tuple[Any, Any]:
    """The tokenizer and the codec of the coarse stage, or those that are named, checked against all stages."""
    wav2vec = load_tokenizer(tokenizer or tokenizer_of(found["coarse"]))
    heard_by = load_codec(codec or place_of(found["coarse"], "codec") or "speech-16k")
    check_together(found, fingerprints_of(wav2vec, heard_by))
    return wav2vec, heard_by


def load_stage(name: str, run: Path, audio_conditioner: nn.Module | None = None, averaged: bool = True) -> Any:
    """One of the three stages from its run."""
    stage = STAGES[name].from_pretrained(run, averaged=averaged)
    if audio_conditioner is None or not stage.config.audio_text_condition:
        return stage
    return STAGES[name].from_pretrained(run, averaged=averaged, audio_conditioner=deepcopy(audio_conditioner))


def find_parts(runs: Sequence[str | Path] | str | Path, parts_of: Callable[[Path], dict[str, Path]]) -> dict[str, Path]:
    """The run of every part by its name; `parts_of` gives those of one run."""
    found: dict[str, Path] = {}
    for run in map(Path, [runs] if isinstance(runs, str | Path) else runs):
        if not run.is_dir():
            raise UserError(f"There is no run {run}; name the folder that `madrigal train` wrote.")
        for name, path in parts_of(run).items():
            if name in found:
                raise UserError(f"There are two {name} stages: {found[name]} and {path}; name one of them.")
            found[name] = path
    return found


def find_stages(runs: Sequence[str | Path]) -> dict[str, Path]:
    """The run of every stage by its name, of one AudioLM run or of the runs of its stages."""
    return find_parts(runs, _stages_of)


def _stages_of(run: Path) -> dict[str, Path]:
    inside = {name: run / name for name in STAGES if (run / name / "checkpoints").is_dir()}
    system = recipe_of(run).get("system")
    if not inside and system not in STAGES:
        raise UserError(
            f"{run} is {kind_of(run)}, of which nothing can be generated: name a run of audiolm or of its stages "
            f"({', '.join(STAGES)}), of musiclm or of muse."
        )
    return inside or {str(system): run}


def tokenizer_of(stage: Path) -> str:
    """Where the tokenizer of a stage is."""
    return place_of(stage, TOKENIZER)


def place_of(stage: Path, key: str, folder: str | None = None) -> str:
    """Where the recipe of a run says that a part is; beside it, should the whole run have been moved; "" for none."""
    said = str(recipe_of(stage).get(key) or "")
    beside = stage.parent / (folder or key)
    return str(beside) if said and not Path(said).exists() and beside.is_dir() else said
