"""One recipe for a voice: who says what when, sound from features, how long, and the flow that speaks.

    aligner      which symbol of a text is said in which frame
    alignments/  what it finds in the recordings
    vocoder      features to sound
    durations    how long each symbol of a text takes
    flow         features for text and voice
    student      the same in fewer steps
    voices/      a few seconds of every speaker, to be named with --voice

`student` may be left out; any part may be the name of a finished run.
"""

import shutil
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from madrigal.data.source import Source
from madrigal.engine.parts import DATA, TRAIN, SplitRecipe, WholeTraining, name_of_part
from madrigal.engine.pretrained import SHIPPED
from madrigal.engine.progress import tell
from madrigal.errors import UserError
from madrigal.voicebox.aligner import Aligner
from madrigal.voicebox.aligner_recipe import AlignerRecipe
from madrigal.voicebox.aligning import align_manifest
from madrigal.voicebox.alignments import ALIGNMENTS
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.durations_recipe import DurationsRecipe
from madrigal.voicebox.features import load_features
from madrigal.voicebox.finding import find_alignments
from madrigal.voicebox.loading import features_of
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.recipe import DistillRecipe, VoiceBoxRecipe
from madrigal.voicebox.vocoder.recipe import VocoderRecipe
from madrigal.voicebox.voice import ENDING, VOICES
from madrigal.voicebox.voice_making import write_voices

ALIGNED = "alignments"


class VoiceboxWholeRecipe(SplitRecipe):
    """`system: voicebox`."""

    title: ClassVar[str] = "Voicebox"
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]] = {
        "aligner": (AlignerRecipe,),
        "vocoder": (VocoderRecipe,),
        "durations": (DurationsRecipe,),
        "flow": (VoiceBoxRecipe,),
        "student": (DistillRecipe,),
    }
    one_by_one: ClassVar[str] = "aligner, align, vocoder, durations, voicebox-flow, voicebox-distill"
    makes: ClassVar[tuple[str, ...]] = (ALIGNED, DATA, VOICES)

    system: Literal["voicebox"]
    data: Source = Field(description="recordings with their texts, and with speakers where there are several")
    aligner: str | dict[str, Any] = Field(description="a finished aligner, or the recipe of one to train")
    vocoder: str | dict[str, Any] = Field(
        description="a finished vocoder, the recipe of one to train, or a codec, whose latents are made"
    )
    durations: str | dict[str, Any] = Field(description="a finished duration predictor, or the recipe of one to train")
    flow: str | dict[str, Any] = Field(description="a finished model, or the recipe of one to train")
    student: str | dict[str, Any] | None = Field(None, description="a model that learns the flow's way in fewer steps")
    alignments: Path | None = Field(None, description="alignments that several runs share; default: the run's own")
    voices: int = Field(32, ge=0, description="speakers whose voices are kept to be named with --voice, at the most")
    say: Drawing = Field(default_factory=Drawing, description="how the finished voice follows its flow")

    @field_validator(*kinds, mode="before")
    @classmethod
    def _a_name_is_enough(cls, value: Any) -> Any:
        return name_of_part(value)

    def given(self, name: str, run: Path) -> dict[str, Any]:
        values: dict[str, Any] = {"data": self.data_of(run)}
        if name in ("durations", "flow", "student"):
            values["data"]["alignments"] = str(self.alignments_of(run))
        if name in ("flow", "student"):
            values["features"] = self.at("vocoder", run)
        if name == "student":
            values["teacher"] = self.at("flow", run)
        return values

    def alignments_of(self, run: Path) -> Path:
        return run / ALIGNED if self.alignments is None else self.alignments

    def check(self, run: Path) -> None:
        """Before anything is trained: frames of one length, or the flow would learn nothing of what it is told."""
        aligner, vocoder = self._frames("aligner", run), self._frames("vocoder", run)
        if aligner is not None and vocoder is not None and aligner != vocoder:
            raise UserError(
                f"The aligner counts frames of {aligner[1]} samples at {aligner[0]} Hz, and the vocoder of "
                f"{vocoder[1]} at {vocoder[0]} Hz: give both the same, as with aligner.model.sample_rate={vocoder[0]} "
                f"aligner.model.hop={vocoder[1]}."
            )

    def _frames(self, name: str, run: Path) -> tuple[int, int] | None:
        """Rate and hop of the aligner or the vocoder; None where it is not on this machine."""
        value, is_aligner = getattr(self, name), name == "aligner"
        if isinstance(value, dict):
            config = self.part(name, run).model
            return (config.sample_rate if is_aligner else config.target_sample_hz), config.hop
        if not (Path(value).is_dir() or (SHIPPED / value).is_dir()):
            return None
        # Read whole: what is none is told now, and not when the first parts are trained.
        config = Aligner.from_pretrained(value).config if is_aligner else load_features(value)
        return config.sample_rate, config.hop

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "VoiceboxTraining":
        """Everything in the folder `run`, one part after another."""
        return VoiceboxTraining(self, run, resume=resume, overwrite=overwrite)


class VoiceboxTraining(WholeTraining):
    """The parts in order; the alignments before somebody learns from them, and voices when all is learned."""

    def __init__(self, recipe: VoiceboxWholeRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        self.recipe = recipe
        super().__init__(recipe, run, resume=resume, overwrite=overwrite)

    def before(self, name: str) -> None:
        """Alignments that are there already are only looked at."""
        if name in ("durations", "flow", "student"):
            self._align()

    def _align(self) -> None:
        folder = self.recipe.alignments_of(self.path)
        aligner = Aligner.from_pretrained(self.recipe.at("aligner", self.path))
        for manifest in self.manifests.values():
            made = align_manifest(aligner, manifest, folder)
            if made.written:
                tell(f"{ALIGNED}: {made.summary}")

    def after(self) -> None:
        """Voices, once: what was put there by hand stays."""
        folder, manifest = self.path / VOICES, self.manifests[TRAIN]
        if not self.recipe.voices or any(folder.glob(f"*{ENDING}")):
            return
        flow = VoiceBox.from_pretrained(self.recipe.at("flow", self.path))
        features = features_of(self.recipe.at("vocoder", self.path), flow)
        aligner = Aligner.from_pretrained(self.recipe.at("aligner", self.path))
        alignments = find_alignments(self.recipe.alignments_of(self.path), manifest)
        names = write_voices(
            folder, manifest, alignments, features, silence=aligner.symbols.silence, most=self.recipe.voices
        )
        tell(f"{VOICES}: {', '.join(names)}")

    def clear(self) -> None:
        super().clear()
        for made in list((self.path / ALIGNED).glob(f"*/{ALIGNMENTS}")):
            shutil.rmtree(made.parent)
        for voice in (self.path / VOICES).glob(f"*{ENDING}"):
            voice.unlink()
