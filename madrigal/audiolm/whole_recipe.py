"""One recipe for all of AudioLM: a tokenizer, the tokens, and the three stages, each a run inside the run."""

import os
import shutil
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from madrigal.audiolm.recipe import CoarseRecipe, FineRecipe, SemanticRecipe
from madrigal.data.manifest import MANIFEST, Manifest
from madrigal.data.source import Source, manifest_of
from madrigal.data.tokens import TOKENS as SHARDS
from madrigal.engine.checkpoint import newest_whole, read_state
from madrigal.engine.progress import tell
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.engine.run import replace_file
from madrigal.errors import UserError
from madrigal.tokenizers.loading import STAGE as TOKENIZER
from madrigal.tokenizers.loading import load_codec, load_tokenizer
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.tokenizing import tokenize_manifest

TOKENS, DATA = "tokens", "data"
PARTS: dict[str, type[BaseModel]] = {
    TOKENIZER: MaskedPredictionRecipe,
    "semantic": SemanticRecipe,
    "coarse": CoarseRecipe,
    "fine": FineRecipe,
}
"""The parts of a run, in order; each is a run of its own in a folder of this name."""
OWN = (*PARTS, TOKENS, DATA)
"""The folders that a run makes for itself."""


class AudioLMRecipe(BaseModel):
    """`system: audiolm`: a part names its own recipe, and what to change in it: `{recipe: semantic/cpu, plan: {…}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["audiolm"]
    data: Source
    codec: str = Field("speech-16k", description="a codec: a shipped name, a run, an exported folder or a hub name")
    tokenizer: str | dict[str, Any] = Field(description="a finished tokenizer, or the recipe of one to train")
    semantic: dict[str, Any] = Field(description="the semantic stage")
    coarse: dict[str, Any] = Field(description="the coarse stage")
    fine: dict[str, Any] | None = Field(None, description="left out where the coarse stage draws all codebooks")
    workers: int = Field(1, ge=1, description="processes that tokenize")

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _a_name_is_enough(cls, value: Any) -> Any:
        """`tokenizer=NAME` on the command line falls upon the recipe of one to train, and takes its place."""
        return value["path"] if isinstance(value, dict) and "path" in value else value

    @model_validator(mode="after")
    def _parts_are_known(self) -> Self:
        """Before anything runs: hours later is too late to learn that a key of the last stage is unknown."""
        for name in self.parts:
            self.part(name, Path("RUN"))
        return self

    @property
    def parts(self) -> list[str]:
        """The parts that are to be trained, in order."""
        return [name for name in PARTS if isinstance(getattr(self, name), dict)]

    def part(self, name: str, run: Path) -> Any:
        """The recipe of one part of the run at `run`."""
        values = dict(getattr(self, name))
        if "recipe" in values:
            values = _merged(read_recipe(values.pop("recipe")), values)
        values["data"] = {**_data(values), **self._recordings(run)}
        if name != TOKENIZER:
            values["data"]["tokens"] = str(run / TOKENS)
        if name in ("semantic", "coarse"):
            values["tokenizer"] = self.tokenizer if isinstance(self.tokenizer, str) else str(run / TOKENIZER)
        if name in ("coarse", "fine"):
            values["codec"] = self.codec
        return build_config(PARTS[name], values, f"The recipe's {name}")

    def _recordings(self, run: Path) -> dict[str, str]:
        """The manifests that the run has prepared, or what they will be made from."""
        given = {"train": self.data.path, "valid": self.data.valid_path}
        made = {name: run / DATA / name for name, path in given.items() if path is not None}
        keys = {"train": "path", "valid": "valid_path"}
        return {keys[n]: str(path if (path / MANIFEST).is_file() else given[n]) for n, path in made.items()}

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "AudioLMTraining":
        """Everything in the folder `run`, one part after another."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if processes > 1:
            raise UserError(
                f"A whole AudioLM trains in one process, and here are {processes}: train its parts one by one "
                "(masked-prediction, tokenize, semantic, coarse, fine), each with as many as it may have."
            )
        return AudioLMTraining(self, run, resume=resume, overwrite=overwrite)


class AudioLMTraining:
    """The parts in order. Each goes on where it was left."""

    def __init__(self, recipe: AudioLMRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        self.recipe, self.path = recipe, Path(run)
        file = self.path / "recipe.yaml"
        if file.exists() and not (resume or overwrite):
            raise UserError(
                f"{self.path} already holds a run: add --resume to go on, --overwrite to start over, or name another."
            )
        self._keep_recordings()
        self._check_codec()
        # Before anything is written or removed: a mistyped folder must not cost a finished run.
        self.manifests = self._prepare(anew=overwrite)
        if overwrite:
            self._clear()
        self.path.mkdir(parents=True, exist_ok=True)
        replace_file(file, yaml.safe_dump(recipe.model_dump(mode="json", exclude_none=True), sort_keys=False))

    def _keep_recordings(self) -> None:
        """Recordings inside a folder that a run makes for itself would be taken for the run's own."""
        source = self.recipe.data
        for path in (source.path, source.valid_path):
            if path is None:
                continue
            inside = next((p for p in OWN if path.resolve().is_relative_to((self.path / p).resolve())), None)
            if inside is not None:
                raise UserError(
                    f"The recordings {path} lie in {self.path / inside}, where the run keeps its own files: "
                    "name another run, or move them."
                )

    def _check_codec(self) -> None:
        """Before the tokenizer is trained: that takes longer than to learn that the codec is too small."""
        codec = load_codec(self.recipe.codec)
        last = self.recipe.part("coarse" if self.recipe.fine is None else "fine", self.path).model
        wanted = last.get("num_coarse_quantizers", 0) + last.get("num_fine_quantizers", 0)
        if wanted > codec.num_quantizers:
            raise UserError(
                f"The stages draw {wanted} levels, and the codec {self.recipe.codec} has {codec.num_quantizers}: "
                "lower num_coarse_quantizers or num_fine_quantizers."
            )

    def _clear(self) -> None:
        """Remove what a run has made, part by part; a folder of the same name that is no run's stays."""
        for name in PARTS:
            if (self.path / name / "checkpoints").is_dir():
                shutil.rmtree(self.path / name)
        for made in (self.path / TOKENS).glob(f"*/*/{SHARDS}"):
            shutil.rmtree(made.parent)

    def train(self) -> Self:
        """Train what is not finished yet; a part that is stopped stops the whole."""
        for name in self.recipe.parts:
            if name != TOKENIZER:
                self._tokenize(self.manifests)
            run, recipe = self.path / name, self.recipe.part(name, self.path)
            if _is_finished(run, recipe.plan.num_train_steps):
                tell(f"{name}: {run} is finished")
                continue
            tell(f"{name}: {run}")
            trainer = recipe.trainer(run, resume=(run / "checkpoints").is_dir())
            trainer.resumed_as = self.path
            trainer.train()
            if trainer.step < trainer.num_train_steps:
                break
        return self

    def _prepare(self, *, anew: bool) -> dict[str, Manifest]:
        """The manifests of training and validation, made once for all parts."""
        given = {"train": self.recipe.data.path, "valid": self.recipe.data.valid_path}
        return {n: manifest_of(p, self.path / DATA / n, anew=anew, say=tell) for n, p in given.items() if p is not None}

    def _tokenize(self, manifests: dict[str, Manifest]) -> None:
        """Shards that are there already are only looked at."""
        tokenizer = self.recipe.tokenizer
        makers = [
            load_tokenizer(tokenizer if isinstance(tokenizer, str) else self.path / TOKENIZER),
            load_codec(self.recipe.codec),
        ]
        for name, manifest in manifests.items():
            for made in tokenize_manifest(manifest, makers, self.path / TOKENS / name, workers=self.recipe.workers):
                if made.written:
                    tell(made.summary)


def _is_finished(run: Path, steps: int | None) -> bool:
    """Whether a part has taken all its steps, and left behind what a finished part leaves."""
    newest = newest_whole(run / "checkpoints")
    if newest is None or steps is None or read_state(newest)["step"] < steps:
        return False
    return run.name != TOKENIZER or (run / "model.safetensors").exists()


def _data(values: dict[str, Any]) -> dict[str, Any]:
    data = values.get("data", {})
    return dict(data) if isinstance(data, dict) else {}


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, mapping by mapping."""
    merged = dict(base)
    for key, value in changes.items():
        there = merged.get(key)
        merged[key] = _merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return merged
