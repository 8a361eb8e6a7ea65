"""From a run of all parts, or from an exported folder, to a voice that is ready to speak; and the way into a folder."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.engine.learned import recipe_of
from madrigal.engine.pretrained import SHIPPED, moved
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.voicebox.aligner import Aligner
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.speech import VoiceboxSpeech
from madrigal.voicebox.vocoder.model import Vocoder
from madrigal.voicebox.voice import VOICES, voice_files

SHIPPED_VOICE = "voice-24k"
CONFIG = "config.json"
PARTS: dict[str, Any] = {"aligner": Aligner, "vocoder": Vocoder, "durations": DurationPredictor, "flow": VoiceBox}
"""What speech needs, by the names of the folders."""
STUDENT = "student"


class VoiceboxFolder(BaseModel):
    """The config.json of an exported folder, which holds a folder for each part, and voices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["voicebox"] = "voicebox"
    format: Literal[1] = 1
    say: Drawing = Field(default_factory=Drawing)


def is_voicebox(name: str | Path) -> bool:
    """Whether `name` is a run of a whole voicebox, an exported folder or a shipped voice."""
    if recipe_of(Path(name)).get("system") == "voicebox":
        return True
    return any(_config_of(folder).get("kind") == "voicebox" for folder in (Path(name), SHIPPED / str(name)))


def load_voicebox(
    name: str | Path = SHIPPED_VOICE, *, averaged: bool = True, device: str | torch.device = "cpu"
) -> VoiceboxSpeech:
    """The parts of a run, of an exported folder or of a shipped voice, ready to speak. It goes to no network."""
    folder, parts, drawing = _found(name)
    for part, path in parts.items():
        if not ((path / "checkpoints").is_dir() or (path / CONFIG).is_file()):
            raise UserError(
                f"The part {part} of {folder} is not there yet ({path}): go on with `madrigal train --run {folder} "
                "--resume`."
            )
    vocoder = Vocoder.from_pretrained(parts["vocoder"], averaged=averaged, discriminators=False)
    speech = VoiceboxSpeech(
        VoiceBox.from_pretrained(parts["flow"], averaged=averaged),
        features=vocoder.features(),
        durations=DurationPredictor.from_pretrained(parts["durations"], averaged=averaged),
        aligner=Aligner.from_pretrained(parts["aligner"], averaged=averaged),
        voices=voice_files(folder),
        drawing=drawing,
    )
    return moved(speech, device)


def export_voicebox(
    run: str | Path, target: str | Path, *, averaged: bool = True, half: bool = True, overwrite: bool = False
) -> Path:
    """Write all that speaks as one folder: a folder for each part, voices, config.json; in 16 bits if `half`."""
    folder, parts, drawing = _found(run)
    target = Path(target)
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; name a folder to write the voice into.")
    if (target / CONFIG).exists() and not overwrite:
        raise UserError(f"{target} holds a model already; name another folder, or replace it with --overwrite.")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".partial-") as partial:
        for part, path in parts.items():
            options = {"discriminators": False} if part == "vocoder" else {}
            model = PARTS[part].from_pretrained(path, averaged=averaged, **options)
            model.save_pretrained(Path(partial, part), half=half)
        if (folder / VOICES).is_dir():
            shutil.copytree(folder / VOICES, Path(partial, VOICES))
        Path(partial, CONFIG).write_text(VoiceboxFolder(say=drawing).model_dump_json(indent=2) + "\n")
        # The config last: a folder that has one is whole.
        for made in sorted(Path(partial).iterdir(), key=lambda path: path.name == CONFIG):
            if (target / made.name).is_dir():
                shutil.rmtree(target / made.name)
            made.replace(target / made.name)
    return target


def _found(name: str | Path) -> tuple[Path, dict[str, Path], Drawing]:
    """The folder of a voice, the folders of its parts, and how it draws."""
    folder = Path(name)
    said = recipe_of(folder)
    if said.get("system") == "voicebox":
        drawing = build_config(Drawing, said.get("say") or {}, f"{folder}: say")
        parts = {part: _part_of(folder, part, said.get(part)) for part in PARTS}
        if said.get(STUDENT) is not None:
            # It knows one way only, and has its teacher's guidance built in.
            parts["flow"], drawing = _part_of(folder, STUDENT, said[STUDENT]), Drawing()
        return folder, parts, drawing
    folder = folder if (folder / CONFIG).is_file() else SHIPPED / str(name)
    config = _config_of(folder)
    if config.get("kind") != "voicebox":
        shipped = f"The voice {SHIPPED_VOICE} is not a part of this version yet: name the run that speaks with --run."
        raise UserError(
            shipped
            if str(name) == SHIPPED_VOICE
            else f"{name} is no run of a voicebox, no exported one and no shipped voice."
        )
    try:
        return folder, {part: folder / part for part in PARTS}, VoiceboxFolder(**config).say
    except ValidationError as error:
        raise UserError(
            f"{folder / CONFIG} was written by another version of madrigal: export the run again."
        ) from error


def _part_of(run: Path, part: str, value: Any) -> Path:
    """Inside the run, or where its recipe says; beside it, should all have been moved together."""
    if not isinstance(value, str):
        return run / part
    beside = run.parent / Path(value).parent.name / Path(value).name
    return beside if not Path(value).exists() and beside.exists() else Path(value)


def _config_of(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
