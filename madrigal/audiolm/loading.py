"""From run folders to an AudioLM that is ready to generate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.pipeline import AudioLM
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.errors import UserError
from madrigal.tokenizers.loading import STAGE as TOKENIZER
from madrigal.tokenizers.loading import load_codec, load_tokenizer

STAGES: dict[str, Any] = {"semantic": SemanticTransformer, "coarse": CoarseTransformer, "fine": FineTransformer}


def load_audiolm(
    runs: Sequence[str | Path], *, tokenizer: str | None = None, codec: str | None = None, averaged: bool = True
) -> AudioLM:
    """The stages of one AudioLM run, or of the runs of its stages, with the tokenizer and codec they were trained on.

    `tokenizer` and `codec` are for stages whose tokenizer and codec have moved.
    """
    found = find_stages([Path(run) for run in runs])
    missing = [name for name in ("semantic", "coarse") if name not in found]
    if missing:
        raise UserError(
            f"There is no {' and no '.join(missing)} stage in {', '.join(map(str, runs))}: "
            "name an AudioLM run, or the runs of its stages."
        )
    said = _recipe(found["coarse"])
    stages = {name: STAGES[name].from_pretrained(path, averaged=averaged) for name, path in found.items()}
    return AudioLM(
        wav2vec=load_tokenizer(tokenizer or _tokenizer(found["coarse"], said)),
        codec=load_codec(codec or said.get("codec", "speech-16k")),
        semantic_transformer=stages["semantic"],
        coarse_transformer=stages["coarse"],
        fine_transformer=stages.get("fine"),
    )


def find_stages(runs: Sequence[Path]) -> dict[str, Path]:
    """The run of every stage, by its name."""
    found: dict[str, Path] = {}
    for run in runs:
        if not run.is_dir():
            raise UserError(f"There is no run {run}; name the folder that `madrigal train` wrote.")
        inside = {name: run / name for name in STAGES if (run / name / "checkpoints").is_dir()}
        system = _recipe(run).get("system")
        if not inside and system not in STAGES:
            raise UserError(f"{run} is no run of AudioLM or of one of its stages ({', '.join(STAGES)}).")
        for name, path in (inside or {str(system): run}).items():
            if name in found:
                raise UserError(f"There are two {name} stages: {found[name]} and {path}; name one of them.")
            found[name] = path
    return found


def _recipe(run: Path) -> dict[str, Any]:
    try:
        recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return recipe if isinstance(recipe, dict) else {}


def _tokenizer(coarse: Path, recipe: dict[str, Any]) -> str:
    """Where the recipe says, or beside the stage, should the whole run have been moved."""
    said = str(recipe.get("tokenizer", ""))
    beside = coarse.parent / TOKENIZER
    return str(beside) if not Path(said).exists() and beside.is_dir() else said
