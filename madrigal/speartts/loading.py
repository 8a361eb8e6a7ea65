"""From run folders to a TextToSpeech that is ready to speak."""

from collections.abc import Sequence
from pathlib import Path

import torch

from madrigal.audiolm.loading import find_parts, load_stage, load_tools
from madrigal.engine.learned import kind_of, recipe_of
from madrigal.engine.pretrained import moved
from madrigal.errors import UserError
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.speech import TextToSpeech

PARTS = {"text-to-semantic": "speak", "coarse": "coarse", "fine": "fine"}
"""What speech needs: the system of each part, and its name in a run of all."""


def load_text_to_speech(
    runs: Sequence[str | Path] | str | Path,
    *,
    tokenizer: str | None = None,
    codec: str | None = None,
    averaged: bool = True,
    device: str | torch.device = "cpu",
) -> TextToSpeech:
    """The parts of one speartts run, or of the runs of its parts, with the tokenizer and codec they were trained on.

    `tokenizer` and `codec` are for those that have moved.
    """
    found = find_parts(runs, _parts_of)
    missing = [name for name in ("text-to-semantic", "coarse") if name not in found]
    if missing:
        raise UserError(
            f"There is no {' and no '.join(missing)} in {_named(runs)}: name a run of speartts, or the "
            "runs of text-to-semantic, coarse and fine."
        )
    wav2vec, heard_by = load_tools(found, tokenizer, codec)
    model = TextToSpeech(
        TextToSemantic.from_pretrained(found["text-to-semantic"], averaged=averaged),
        coarse_transformer=load_stage("coarse", found["coarse"], averaged=averaged),
        fine_transformer=load_stage("fine", found["fine"], averaged=averaged) if "fine" in found else None,
        wav2vec=wav2vec,
        codec=heard_by,
    )
    return moved(model, device)


def _named(runs: Sequence[str | Path] | str | Path) -> str:
    return str(runs) if isinstance(runs, str | Path) else ", ".join(map(str, runs))


def _parts_of(run: Path) -> dict[str, Path]:
    """The runs of the parts of a run, by their systems."""
    said = recipe_of(run)
    system = said.get("system")
    if system in PARTS:
        return {str(system): run}
    if system != "speartts":
        raise UserError(
            f"{run} is {kind_of(run)}, which does not speak: name a run of voicebox or speartts, or of the parts of "
            f"speartts ({', '.join(PARTS)})."
        )
    named = {part: said.get(name) for part, name in PARTS.items() if said.get(name) is not None}
    parts = {part: Path(value) if isinstance(value, str) else run / PARTS[part] for part, value in named.items()}
    for part, path in parts.items():
        if (path / "checkpoints").is_dir() or (path / "config.json").is_file():
            continue
        if isinstance(named[part], str):
            raise UserError(
                f"The part {PARTS[part]} of {run} is the run {path}, which is not there any more, or not seen from "
                "this folder: put it back, or name the runs of all parts with --run."
            )
        raise UserError(
            f"The part {PARTS[part]} of {run} is not there yet ({path}): go on with `madrigal train --run {run} "
            "--resume`."
        )
    return parts
