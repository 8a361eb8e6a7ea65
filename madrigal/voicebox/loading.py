"""From a run of all parts, or from an exported folder, to a voice that is ready to speak; and the way into a folder."""

import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.engine.exporting import CONFIG, config_of, part_of, written_whole
from madrigal.engine.learned import recipe_of
from madrigal.engine.pretrained import SHIPPED, Pretrained, moved
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.tokenizers.codecs import load_codec
from madrigal.tokenizers.mel_features import Features
from madrigal.voicebox.aligner import Aligner
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.features import load_features
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.speech import VoiceboxSpeech
from madrigal.voicebox.vocoder.model import Vocoder, is_vocoder
from madrigal.voicebox.voice import VOICES, voice_files

SHIPPED_VOICE = "voice-24k"
PARTS: dict[str, Any] = {"aligner": Aligner, "vocoder": Vocoder, "durations": DurationPredictor, "flow": VoiceBox}
"""What speech needs, by the names of the folders. In the vocoder's place there may be a codec, by its name too."""
STUDENT = "student"


class VoiceboxFolder(BaseModel):
    """The config.json of an exported folder, which holds a folder for each part, and voices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["voicebox"] = "voicebox"
    format: Literal[1] = 1
    say: Drawing = Field(default_factory=Drawing)
    voice: str | None = Field(None, description="who speaks where no voice is named")
    like: str | None = Field(None, description="the shipped voice whose parts it has, but for those that lie here")


def is_voicebox(name: str | Path) -> bool:
    """Whether `name` is a run of a whole voicebox, an exported folder or a shipped voice."""
    if recipe_of(Path(name)).get("system") == "voicebox":
        return True
    return any(config_of(folder).get("kind") == "voicebox" for folder in (Path(name), SHIPPED / str(name)))


def load_voicebox(
    name: str | Path = SHIPPED_VOICE, *, averaged: bool = True, device: str | torch.device = "cpu"
) -> VoiceboxSpeech:
    """The parts of a run, of an exported folder or of a shipped voice, ready to speak. It goes to no network."""
    found = _found(name)
    found.check()
    flow = VoiceBox.from_pretrained(found.parts["flow"], averaged=averaged)
    speech = VoiceboxSpeech(
        flow,
        features=features_of(found.parts["vocoder"], flow, averaged=averaged),
        durations=DurationPredictor.from_pretrained(found.parts["durations"], averaged=averaged),
        aligner=Aligner.from_pretrained(found.parts["aligner"], averaged=averaged),
        voices=found.voices(),
        drawing=found.drawing,
    )
    return moved(speech, device)


def features_of(name: str | Path, flow: VoiceBox, *, averaged: bool = True) -> Features:
    """Of a vocoder, or of a codec with the statistics that the flow has learned its latents by."""
    if is_vocoder(name):
        return Vocoder.from_pretrained(name, averaged=averaged, discriminators=False).features()
    features = load_features(name)
    if not bool(flow.std.any()):
        raise UserError(
            f"The flow has not learned what is usual of the latents of {name}: train it with features={name}."
        )
    if flow.config.dim_in == features.dim:  # else the parts do not fit, and that is told
        features.take_statistics(flow.mean, flow.std)
    return features


def weight_of(name: str | Path, speech: VoiceboxSpeech) -> float:
    """Megabytes on the disk of all that speaks, as it is exported; of a run that is not, those of its weights so."""
    found = _found(name)
    if (found.folder / CONFIG).is_file():
        places = {found.folder, *(Path(place) for place in found.parts.values())}
        files = {file for place in places for file in place.rglob("*") if file.is_file()}
        return sum(file.stat().st_size for file in files) / 1e6
    numbers = speech.state_dict().values()
    return sum(t.numel() * (2 if t.is_floating_point() and t.ndim > 1 else t.element_size()) for t in numbers) / 1e6


def export_voicebox(
    run: str | Path, target: str | Path, *, averaged: bool = True, half: bool = True, overwrite: bool = False
) -> Path:
    """Write all that speaks as one folder: a folder for each part, voices, config.json; in 16 bits if `half`."""
    found, target = _found(run), Path(target)
    found.check()
    with written_whole(target, overwrite=overwrite) as partial:
        for part, place in found.parts.items():
            _export_part(part, place, partial / part, averaged=averaged, half=half)
        if (found.folder / VOICES).is_dir():
            shutil.copytree(found.folder / VOICES, partial / VOICES)
        else:
            (partial / VOICES).mkdir()  # it takes the place of older ones, which belong to other weights
        told = VoiceboxFolder(say=found.drawing, voice=next(iter(found.voices()), None))
        (partial / CONFIG).write_text(told.model_dump_json(indent=2) + "\n")
    return target


def _export_part(part: str, place: str | Path, target: Path, *, averaged: bool, half: bool) -> None:
    if part != "vocoder":
        PARTS[part].from_pretrained(place, averaged=averaged).save_pretrained(target, half=half)
    elif is_vocoder(place):
        vocoder = Vocoder.from_pretrained(place, averaged=averaged, discriminators=False)
        vocoder.save_pretrained(target, half=half)
    else:
        codec = load_codec(place)
        if not isinstance(codec, Pretrained):
            raise UserError(f"The codec {place} cannot be exported: it is somebody else's, and stays where it is.")
        # In full: voices know the codec by its weights.
        codec.save_pretrained(target)


class _Folder(NamedTuple):
    """The folder of a voice, where its parts are, how it draws, and who speaks where nobody is named."""

    folder: Path
    parts: dict[str, str | Path]
    drawing: Drawing
    voice: str | None = None

    def check(self) -> None:
        """All parts are there; a name that is no folder may be a codec's."""
        for part, place in self.parts.items():
            path = Path(place)
            if isinstance(place, Path) and not ((path / "checkpoints").is_dir() or (path / CONFIG).is_file()):
                raise UserError(
                    f"The part {part} of {self.folder} is not there yet ({path}): go on with `madrigal train --run "
                    f"{self.folder} --resume`."
                )

    def voices(self) -> dict[str, Path]:
        """By name, the one that speaks where none is named first."""
        files = voice_files(self.folder)
        first = {self.voice: files[self.voice]} if self.voice in files else {}
        return {**first, **files}


def _found(name: str | Path) -> _Folder:
    folder = Path(name)
    said = recipe_of(folder)
    if said.get("system") == "voicebox":
        drawing = build_config(Drawing, said.get("say") or {}, f"{folder}: say")
        parts = {part: _part_of(folder, part, said.get(part)) for part in PARTS}
        if said.get(STUDENT) is not None:
            # It knows one way only, and has its teacher's guidance built in; what it is computed with is free.
            parts["flow"] = _part_of(folder, STUDENT, said[STUDENT])
            drawing = Drawing(bf16=drawing.bf16, duration_steps=drawing.duration_steps)
        return _Folder(folder, parts, drawing)
    folder = folder if (folder / CONFIG).is_file() else SHIPPED / str(name)
    config = config_of(folder)
    if config.get("kind") != "voicebox":
        shipped = (
            f"The voice {SHIPPED_VOICE} is not in this installation: install madrigal anew, or name a run with --run."
        )
        raise UserError(
            shipped
            if str(name) == SHIPPED_VOICE
            else f"{name} is no run of a voicebox, no exported one and no shipped voice."
        )
    try:
        told = VoiceboxFolder(**config)
        kept = folder if told.like is None else SHIPPED / told.like
        own = {part: (folder if (folder / part).is_dir() else kept) / part for part in PARTS}
        return _Folder(folder, {**own}, told.say, told.voice)
    except ValidationError as error:
        raise UserError(
            f"{folder / CONFIG} was written by another version of madrigal: export the run again."
        ) from error


def _part_of(run: Path, part: str, value: Any) -> str | Path:
    """Where a part is; a vocoder's place may be taken by a name that is no folder: that of a codec."""
    place = part_of(run, part, value)
    return value if part == "vocoder" and isinstance(value, str) and not place.exists() else place
