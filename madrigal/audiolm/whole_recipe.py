"""One recipe for all of AudioLM, and what it shares with others that end in its stages.

A tokenizer, the tokens, and the three stages: each a run inside the run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from madrigal.audiolm.recipe import CoarseRecipe, FineRecipe, SemanticRecipe
from madrigal.data.manifest import Manifest
from madrigal.engine.parts import TOKENS, SplitRecipe, WholeTraining, name_of_part
from madrigal.engine.progress import tell
from madrigal.errors import UserError
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe
from madrigal.tokenizers.loading import STAGE as TOKENIZER
from madrigal.tokenizers.loading import load_codec, load_tokenizer
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.tokenizing import tokenize_manifest

STAGES = ("semantic", "coarse", "fine")


class StagesRecipe(SplitRecipe):
    """A whole that ends in AudioLM's stages, which learn from the tokens of its recordings."""

    leaves: ClassVar[dict[str, str]] = {TOKENIZER: "model.safetensors"}

    codec: str | dict[str, Any]
    tokenizer: str | dict[str, Any] = Field(description="a finished tokenizer, or the recipe of one to train")
    semantic: dict[str, Any] = Field(description="the semantic stage")
    coarse: dict[str, Any] = Field(description="the coarse stage")
    fine: dict[str, Any] | None = Field(None, description="left out where the coarse stage draws all codebooks")
    workers: int = Field(1, ge=1, description="processes that tokenize")

    _a_name_is_enough = field_validator(TOKENIZER, "codec", mode="before")(name_of_part)

    def given(self, name: str, run: Path) -> dict[str, Any]:
        values: dict[str, Any] = {"data": self.data_of(run)}
        if name in STAGES:
            values["data"]["tokens"] = str(run / TOKENS)
        if name in ("semantic", "coarse"):
            values[TOKENIZER] = self.at(TOKENIZER, run)
        if name in ("coarse", "fine"):
            values["codec"] = self.at("codec", run)
        return values

    def makers(self, run: Path) -> list[Any]:
        """What makes the tokens, all of it finished."""
        return [load_tokenizer(self.at(TOKENIZER, run)), load_codec(self.at("codec", run))]

    def check(self, run: Path) -> None:
        """Before hours of training: that a codec which is there has all the levels that the stages draw."""
        if isinstance(self.codec, str):
            last = self.part("coarse" if self.fine is None else "fine", run).model
            check_levels_wanted(last, load_codec(self.codec), self.codec)

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "StagesTraining":
        """Everything in the folder `run`, one part after another."""
        return StagesTraining(self, run, resume=resume, overwrite=overwrite)


class StagesTraining(WholeTraining):
    """The parts in order, and the tokens of the recordings before a stage learns from them."""

    def __init__(self, recipe: StagesRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        self.recipe = recipe
        super().__init__(recipe, run, resume=resume, overwrite=overwrite)

    def before(self, name: str) -> None:
        """Shards that are there already are only looked at."""
        if name in STAGES:
            tokenize_all(self.manifests, self.recipe.makers(self.path), self.path / TOKENS, workers=self.recipe.workers)


class AudioLMRecipe(StagesRecipe):
    """`system: audiolm`."""

    title: ClassVar[str] = "AudioLM"
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]] = {
        TOKENIZER: (MaskedPredictionRecipe, KmeansRecipe),
        "semantic": (SemanticRecipe,),
        "coarse": (CoarseRecipe,),
        "fine": (FineRecipe,),
    }
    one_by_one: ClassVar[str] = "masked-prediction, tokenize, semantic, coarse, fine"

    system: Literal["audiolm"]
    codec: str = Field("speech-16k", description="a codec: a shipped name, a run, an exported folder or a hub name")


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
