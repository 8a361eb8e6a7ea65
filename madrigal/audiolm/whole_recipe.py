"""One recipe for all of AudioLM: a tokenizer, the tokens, and the three stages, each a run inside the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from madrigal.audiolm.recipe import CoarseRecipe, FineRecipe, SemanticRecipe
from madrigal.data.manifest import Manifest
from madrigal.data.source import Source
from madrigal.engine.parts import TOKENS, WholeRecipe, WholeTraining, name_of_part
from madrigal.engine.progress import tell
from madrigal.errors import UserError
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe
from madrigal.tokenizers.loading import STAGE as TOKENIZER
from madrigal.tokenizers.loading import load_codec, load_tokenizer
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.tokenizing import tokenize_manifest


class AudioLMRecipe(WholeRecipe):
    """`system: audiolm`."""

    title: ClassVar[str] = "AudioLM"
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]] = {
        TOKENIZER: (MaskedPredictionRecipe, KmeansRecipe),
        "semantic": (SemanticRecipe,),
        "coarse": (CoarseRecipe,),
        "fine": (FineRecipe,),
    }
    one_by_one: ClassVar[str] = "masked-prediction, tokenize, semantic, coarse, fine"
    leaves: ClassVar[dict[str, str]] = {TOKENIZER: "model.safetensors"}

    system: Literal["audiolm"]
    data: Source
    codec: str = Field("speech-16k", description="a codec: a shipped name, a run, an exported folder or a hub name")
    tokenizer: str | dict[str, Any] = Field(description="a finished tokenizer, or the recipe of one to train")
    semantic: dict[str, Any] = Field(description="the semantic stage")
    coarse: dict[str, Any] = Field(description="the coarse stage")
    fine: dict[str, Any] | None = Field(None, description="left out where the coarse stage draws all codebooks")
    workers: int = Field(1, ge=1, description="processes that tokenize")

    _a_name_is_enough = field_validator("tokenizer", mode="before")(name_of_part)

    @property
    def sources(self) -> dict[str, Path]:
        given = {"train": self.data.path, "valid": self.data.valid_path}
        return {name: path for name, path in given.items() if path is not None}

    def given(self, name: str, run: Path) -> dict[str, Any]:
        keys = {"path": self.recordings("train", run), "valid_path": self.recordings("valid", run)}
        values: dict[str, Any] = {"data": {key: path for key, path in keys.items() if path is not None}}
        if name != TOKENIZER:
            values["data"]["tokens"] = str(run / TOKENS)
        if name in ("semantic", "coarse"):
            values["tokenizer"] = self.at(TOKENIZER, run)
        if name in ("coarse", "fine"):
            values["codec"] = self.codec
        return values

    def check(self, run: Path) -> None:
        """Before the tokenizer is trained: that takes longer than to learn that the codec is too small."""
        last = self.part("coarse" if self.fine is None else "fine", run).model
        check_levels_wanted(last, load_codec(self.codec), self.codec)

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "AudioLMTraining":
        """Everything in the folder `run`, one part after another."""
        return AudioLMTraining(self, run, resume=resume, overwrite=overwrite)


class AudioLMTraining(WholeTraining):
    """The parts in order, and the tokens of the recordings as soon as there is a tokenizer."""

    def __init__(self, recipe: AudioLMRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        self.recipe = recipe
        super().__init__(recipe, run, resume=resume, overwrite=overwrite)

    def before(self, name: str) -> None:
        """Shards that are there already are only looked at."""
        if name == TOKENIZER:
            return
        makers = [load_tokenizer(self.recipe.at(TOKENIZER, self.path)), load_codec(self.recipe.codec)]
        tokenize_all(self.manifests, makers, self.path / TOKENS, workers=self.recipe.workers)


def tokenize_all(manifests: Mapping[str, Manifest], makers: Sequence[Any], out: Path, *, workers: int) -> None:
    """The tokens of every set of recordings, in a folder of its name; what is made now is told."""
    for which, manifest in manifests.items():
        for made in tokenize_manifest(manifest, makers, out / which, workers=workers):
            if made.written:
                tell(made.summary)


def check_levels_wanted(last: dict[str, Any], codec: Any, name: str) -> None:
    """`last` are the options of the last stage, which say how many levels are drawn in all."""
    wanted = last.get("num_coarse_quantizers", 0) + last.get("num_fine_quantizers", 0)
    if wanted > codec.num_quantizers:
        raise UserError(
            f"The stages draw {wanted} levels, and the codec {name} has {codec.num_quantizers}: "
            "lower num_coarse_quantizers or num_fine_quantizers."
        )
