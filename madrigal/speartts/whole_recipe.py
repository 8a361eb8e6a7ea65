"""One recipe for text to speech with few transcripts: tokens, pretraining, reading, labels, speaking, and the voice.

    tokenizer   semantic tokens, learned from speech alone
    pretrain    speech to speech: the model learns what speech is
    read        speech to text, on the few transcribed recordings
    labels/     what `read` makes of the untranscribed ones
    speak       text to speech, on transcribed and labelled recordings
    coarse, fine    semantic tokens to sound

`pretrain` and `read` may be left out; any part may be the name of a finished run.
"""

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from madrigal.audiolm.learned import check_together, fingerprints_of
from madrigal.audiolm.recipe import CoarseRecipe, FineRecipe
from madrigal.audiolm.whole_recipe import check_levels_wanted
from madrigal.data.manifest import Manifest
from madrigal.data.source import Source
from madrigal.engine.checkpoint import newest_whole
from madrigal.engine.learned import learned_by, recipe_of
from madrigal.engine.parts import DATA, TOKENS, WholeRecipe, WholeTraining, name_of_part
from madrigal.engine.pretrained import locate
from madrigal.engine.progress import tell
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.speartts.labels import SETTINGS, OtherLabels
from madrigal.speartts.pseudo_label import THRESHOLD, pseudo_label
from madrigal.speartts.recipe import SemanticToTextRecipe, SpeechSpeechRecipe, TextToSemanticRecipe, texts_to_learn
from madrigal.speartts.source import check_texts
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe
from madrigal.tokenizers.loading import STAGE as TOKENIZER
from madrigal.tokenizers.loading import load_codec, load_tokenizer
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.text import TextSpec, has_to_learn, make_text_tokenizer
from madrigal.tokenizers.tokenizing import tokenize_manifest

LABELS = "labels"
TRANSCRIBED, SPEECH, VALID = "transcribed", "speech", "valid"
ACOUSTIC = ("coarse", "fine")


class Labels(BaseModel):
    """How the untranscribed recordings are read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threshold: float = Field(THRESHOLD, ge=0, le=1, description="readings of less confidence are left out")
    beam_size: int | None = Field(
        None,
        ge=1,
        description="hypotheses of the decoder's search, 1: its likeliest letter each time; null: a reader with a CTC "
        "head reads by that, another one with 4",
    )
    batch_size: int = Field(16, ge=1, description="recordings that are read together")


class SpearTTSRecipe(WholeRecipe):
    """`system: speartts`."""

    title: ClassVar[str] = "SPEAR-TTS"
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]] = {
        TOKENIZER: (MaskedPredictionRecipe, KmeansRecipe),
        "pretrain": (SpeechSpeechRecipe,),
        "read": (SemanticToTextRecipe,),
        "speak": (TextToSemanticRecipe,),
        "coarse": (CoarseRecipe,),
        "fine": (FineRecipe,),
    }
    one_by_one: ClassVar[str] = (
        "masked-prediction, tokenize, speech-speech, semantic-to-text, pseudo-label, text-to-semantic, coarse, fine"
    )
    leaves: ClassVar[dict[str, str]] = {TOKENIZER: "model.safetensors"}
    makes: ClassVar[tuple[str, ...]] = (TOKENS, DATA, LABELS)

    system: Literal["speartts"]
    data: Source = Field(description="recordings with their texts; a few minutes are enough")
    speech: Path | None = Field(
        None, description="recordings without texts, the more the better; default: those of data"
    )
    codec: str = Field("speech-16k", description="a codec: a shipped name, a run, an exported folder or a hub name")
    tokenizer: str | dict[str, Any] = Field(description="a finished tokenizer, or the recipe of one to train")
    pretrain: str | dict[str, Any] | None = Field(None, description="speech to speech; null: the others start anew")
    read: str | dict[str, Any] | None = Field(None, description="speech to text; null: nothing is labelled")
    labels: Labels = Field(default_factory=Labels)
    speak: str | dict[str, Any] = Field(description="text to semantic tokens")
    coarse: str | dict[str, Any] = Field(description="the coarse stage")
    fine: str | dict[str, Any] | None = Field(None, description="left out where the coarse stage draws all codebooks")
    tokens: Path | None = Field(None, description="a folder of tokens that several runs share; default: the run's own")
    workers: int = Field(1, ge=1, description="processes that tokenize and label")

    _a_name_is_enough = field_validator(*kinds, mode="before")(name_of_part)

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_read(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("labels are what read makes: leave them out with read=null")
        return value

    @model_validator(mode="after")
    def _labels_need_speech(self) -> Self:
        if self.read is not None and self.speech is None:
            raise ValueError("read labels untranscribed recordings, and there are none: name them with speech=FOLDER")
        return self

    @property
    def sources(self) -> dict[str, Path]:
        given = {TRANSCRIBED: self.data.path, SPEECH: self.speech, VALID: self.data.valid_path}
        return {name: path for name, path in given.items() if path is not None}

    @property
    def heard(self) -> str:
        """The recordings that parts learn from which need no text."""
        return TRANSCRIBED if self.speech is None else SPEECH

    def given(self, name: str, run: Path) -> dict[str, Any]:
        needs_text = name in ("read", "speak")
        paths = {
            "path": self.recordings(TRANSCRIBED if needs_text else self.heard, run),
            "valid_path": self.recordings(VALID, run),
        }
        values: dict[str, Any] = {"data": {key: path for key, path in paths.items() if path is not None}}
        if name == TOKENIZER:
            return values
        values["data"]["tokens"] = str(self.tokens_of(run))
        if name != "fine":
            values["tokenizer"] = self.at(TOKENIZER, run)
        if name in ACOUSTIC:
            values["codec"] = self.codec
        if needs_text:
            values["start"] = None if self.pretrain is None else self.at("pretrain", run)
        if name == "speak" and self.read is not None:
            values["data"]["generated"] = str(run / LABELS)
        return values

    def learns_from(self, name: str, run: Path) -> set[str]:
        """The labels that speak learns are what read made of the recordings."""
        labelled = {self.at("read", run)} if name == "speak" and self.read is not None else set()
        return super().learns_from(name, run) | labelled

    def tokens_of(self, run: Path) -> Path:
        return run / TOKENS if self.tokens is None else self.tokens

    def check(self, run: Path) -> None:
        """Before anything is trained: what would be found out hours later."""
        last = next((name for name in reversed(ACOUSTIC) if isinstance(getattr(self, name), dict)), None)
        if last is not None:
            check_levels_wanted(self.part(last, run).model, load_codec(self.codec), self.codec)
        wanted = self._is_unique("coarse", run)
        for name in ("pretrain", "read", "speak"):
            found = self._is_unique(name, run)
            if None not in (wanted, found) and found != wanted:
                raise UserError(
                    f"{name} has model.unique_consecutive={found}, and coarse has {wanted}: give both the same, for "
                    "the one makes the tokens that the other says."
                )
        self._check_texts(run)
        parts = {name: getattr(self, name) for name in self.kinds if name != TOKENIZER}
        finished = {name: Path(value) for name, value in parts.items() if isinstance(value, str)}
        for name, path in finished.items():
            self._check_system(name, path)
        self._check_learned(finished, run)

    def _check_texts(self, run: Path) -> None:
        """What is read in phonemes can be said only by a speaker that takes these phonemes."""
        for spec in self.texts(run):
            make_text_tokenizer(spec)  # a package that is missing is told now
        if self.read is None:
            return
        read, speak = self.text_of("read", run), self.text_of("speak", run)
        if read is not None and speak is not None and read.kind == "phonemes" and read != speak:
            raise UserError(
                "read writes phonemes, which are no text that another kind could read again: give speak the model.text "
                "of read, or let read take another kind."
            )

    def texts(self, run: Path) -> list[TextSpec]:
        """How the parts that are to learn texts take them, where nothing has to be learned for that first."""
        specs = [self.text_of(name, run) for name in ("read", "speak") if isinstance(getattr(self, name), dict)]
        return [spec for spec in specs if spec is not None and not has_to_learn(spec)]

    def text_of(self, name: str, run: Path) -> TextSpec | None:
        """How text becomes ids in a part, as far as it is said; None where it is not on this machine."""
        value = getattr(self, name)
        if isinstance(value, dict):
            said = self.part(name, run).model.get("text")
            if said is None and name != "pretrain" and self.pretrain is not None:
                return self.text_of("pretrain", run)  # it is taken over with the weights
            return build_config(TextSpec, said or {}, f"The recipe's {name}.model.text")
        config = _config(value)
        return None if config is None else build_config(TextSpec, config.get("text") or {}, f"The text of {value}")

    def _check_system(self, name: str, path: Path) -> None:
        """A finished part has learned what the part does, as far as its recipe says."""
        wanted = [system for kind in self.kinds[name] for system in get_args(kind.model_fields["system"].annotation)]
        found = recipe_of(path).get("system")
        if found is not None and found not in wanted:
            raise UserError(f"{name}={path} is a run of {found}: name one of {' or '.join(wanted)}.")

    def _check_learned(self, finished: dict[str, Path], run: Path) -> None:
        """Finished parts have learned the tokens that the others will learn."""
        learned = {name: learned_by(path) for name, path in finished.items()}
        trained = self.at(TOKENIZER, run)
        is_there = isinstance(self.tokenizer, str) or Path(trained, self.leaves[TOKENIZER]).is_file()
        if any("tokenizer" in known for known in learned.values()):
            if is_there:
                check_together(finished, fingerprints_of(load_tokenizer(trained), None))
            else:
                name = next(name for name, known in learned.items() if "tokenizer" in known)
                raise UserError(
                    f"{name}={finished[name]} has learned the tokens of a tokenizer, and this run is to train another "
                    f"one: name that one with tokenizer=…, or leave out {name}=…"
                )
        if any("codec" in known for known in learned.values()):
            check_together(finished, fingerprints_of(None, load_codec(self.codec)))

    def _is_unique(self, name: str, run: Path) -> bool | None:
        """Whether a part takes a repeated token once; None where it is left out, or not on this machine."""
        value = getattr(self, name)
        if isinstance(value, dict):
            said = self.part(name, run).model.get("unique_consecutive")
            if said is None and name in ("read", "speak") and self.pretrain is not None:
                return self._is_unique("pretrain", run)  # it is taken over with the weights
            return True if said is None else bool(said)
        config = _config(value)
        return None if config is None else bool(config.get("unique_consecutive", True))

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "SpearTTSTraining":
        """Everything in the folder `run`, one part after another."""
        return SpearTTSTraining(self, run, resume=resume, overwrite=overwrite)


def _config(part: str | None) -> dict[str, Any] | None:
    """The options of a finished part's model; None where it is left out, or not on this machine."""
    if part is None or not Path(part).is_dir():
        return None
    return dict(json.loads((locate(part) / "config.json").read_text()))


class SpearTTSTraining(WholeTraining):
    """The parts in order; the tokens as they are needed, and the labels before somebody learns from them."""

    def __init__(self, recipe: SpearTTSRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        self.recipe = recipe
        super().__init__(recipe, run, resume=resume, overwrite=overwrite)

    def _prepare(self, *, anew: bool) -> dict[str, Manifest]:
        """Also a look at the texts: that there are none should not be found out after pretraining."""
        manifests = super()._prepare(anew=anew)
        if {"read", "speak"} & set(self.recipe.parts) and not any(entry.text for entry in manifests[TRANSCRIBED]):
            raise UserError(
                f"None of the recordings of {self.recipe.data.path} has a text: write NAME.txt beside NAME.wav, or "
                "give a manifest with texts as data."
            )
        spec = None if self.recipe.pretrain is None else self.recipe.text_of("pretrain", self.path)
        if "pretrain" in self.recipe.parts and spec is not None and has_to_learn(spec):
            heard = manifests[self.recipe.heard]
            texts_to_learn(spec, [entry.text for entry in heard if entry.text], heard.root)
        for spec in self.recipe.texts(self.path):
            check_texts(manifests[TRANSCRIBED], make_text_tokenizer(spec), self.recipe.data.path)
        return manifests

    def before(self, name: str) -> None:
        """Tokens and labels that are there already are only looked at."""
        if name == TOKENIZER:
            return
        if name in ACOUSTIC:
            self._tokenize(load_codec(self.recipe.codec), [self.recipe.heard, VALID])
        if name != "fine":
            self._tokenize(load_tokenizer(self.recipe.at(TOKENIZER, self.path)), [TRANSCRIBED, SPEECH, VALID])
        if name == "speak" and self.recipe.read is not None:
            self._label()

    def _label(self) -> None:
        """The run's own labels are made anew where their settings have changed, until somebody has learned them."""
        labels, speak = self.path / LABELS, self.path / "speak"
        tell(f"labels: {labels}")
        try:
            labelled = pseudo_label(
                self.recipe.at("read", self.path),
                self.manifests[SPEECH],
                labels,
                **self.recipe.labels.model_dump(),
                tokens=self.recipe.tokens_of(self.path),
                workers=self.recipe.workers,
                overwrite=newest_whole(speak / "checkpoints") is None,
            )
        except OtherLabels as error:
            raise UserError(
                f"The part speak has learned from {labels}, which {error.difference}: go on with the former options of "
                f"labels and read, or move {speak} away, which is then trained anew on new labels."
            ) from error
        tell(labelled.summary)

    def _tokenize(self, maker: Any, sets: list[str]) -> None:
        for which in sets:
            if which not in self.manifests:
                continue
            folder = self.recipe.tokens_of(self.path)
            for made in tokenize_manifest(self.manifests[which], [maker], folder, workers=self.recipe.workers):
                if made.written:
                    tell(made.summary)

    def clear(self) -> None:
        super().clear()
        if (self.path / LABELS / SETTINGS).is_file():
            shutil.rmtree(self.path / LABELS)
