"""One recipe for music from text.

    mulan      sound and text in one space
    quantizer  codes of that space, which condition the stages
    tokenizer  semantic tokens
    codec      acoustic tokens
    tokens/    what the last three make of the recordings
    semantic, coarse, fine  the stages of AudioLM

`fine` may be left out; any part but the stages may be the name of a finished run.
"""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from madrigal.audiolm.recipe import CoarseRecipe, FineRecipe, SemanticRecipe
from madrigal.audiolm.whole_recipe import check_levels_wanted, tokenize_all
from madrigal.data.source import Source
from madrigal.engine.parts import TOKENS, WholeRecipe, WholeTraining, name_of_part
from madrigal.musiclm.mulan_recipe import MuLaNRecipe
from madrigal.musiclm.quantizer_recipe import MuLaNEmbedQuantizerRecipe
from madrigal.soundstream.recipe import SoundStreamRecipe
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe
from madrigal.tokenizers.loading import load_codec, load_conditioner, load_tokenizer
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.mel_codec_recipe import MelCodecRecipe

STAGES = ("semantic", "coarse", "fine")


class MusicLMRecipe(WholeRecipe):
    """`system: musiclm`."""

    title: ClassVar[str] = "MusicLM"
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]] = {
        "mulan": (MuLaNRecipe,),
        "quantizer": (MuLaNEmbedQuantizerRecipe,),
        "tokenizer": (KmeansRecipe, MaskedPredictionRecipe),
        "codec": (MelCodecRecipe, SoundStreamRecipe),
        "semantic": (SemanticRecipe,),
        "coarse": (CoarseRecipe,),
        "fine": (FineRecipe,),
    }
    one_by_one: ClassVar[str] = "mulan, mulan-quantizer, kmeans, mel-codec, tokenize, semantic, coarse, fine"
    leaves: ClassVar[dict[str, str]] = {"tokenizer": "model.safetensors"}

    system: Literal["musiclm"]
    data: Source = Field(description="recordings with captions")
    mulan: str | dict[str, Any] = Field(description="a finished MuLaN, or the recipe of one to train")
    quantizer: str | dict[str, Any] = Field(description="a finished quantizer, or the recipe of one to train")
    tokenizer: str | dict[str, Any] = Field(description="a finished tokenizer, or the recipe of one to train")
    codec: str | dict[str, Any] = Field(description="a finished codec, or the recipe of one to train")
    semantic: dict[str, Any] = Field(description="the semantic stage")
    coarse: dict[str, Any] = Field(description="the coarse stage")
    fine: dict[str, Any] | None = Field(None, description="left out where the coarse stage draws all codebooks")
    workers: int = Field(1, ge=1, description="processes that tokenize")

    _a_name_is_enough = field_validator("mulan", "quantizer", "tokenizer", "codec", mode="before")(name_of_part)

    @property
    def sources(self) -> dict[str, Path]:
        given = {"train": self.data.path, "valid": self.data.valid_path}
        return {name: path for name, path in given.items() if path is not None}

    def given(self, name: str, run: Path) -> dict[str, Any]:
        keys = {"path": self.recordings("train", run), "valid_path": self.recordings("valid", run)}
        values: dict[str, Any] = {"data": {key: path for key, path in keys.items() if path is not None}}
        if name == "quantizer":
            values["mulan"] = self.at("mulan", run)
        if name in STAGES:
            values["data"]["tokens"] = str(run / TOKENS)
            values["conditioner"] = self.at("quantizer", run)
        if name in ("semantic", "coarse"):
            values["tokenizer"] = self.at("tokenizer", run)
        if name in ("coarse", "fine"):
            values["codec"] = self.at("codec", run)
        return values

    def check(self, run: Path) -> None:
        """Before hours of training: that the codec has all the levels that the stages draw."""
        last = self.part("coarse" if self.fine is None else "fine", run).model
        if isinstance(self.codec, str):
            check_levels_wanted(last, load_codec(self.codec), self.codec)

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "MusicLMTraining":
        """Everything in the folder `run`, one part after another."""
        return MusicLMTraining(self, run, resume=resume, overwrite=overwrite)


class MusicLMTraining(WholeTraining):
    """The parts in order, and the tokens of the recordings before the first stage learns from them."""

    def __init__(self, recipe: MusicLMRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        self.recipe = recipe
        super().__init__(recipe, run, resume=resume, overwrite=overwrite)

    def before(self, name: str) -> None:
        """Shards that are there already are only looked at."""
        if name not in STAGES:
            return
        makers = [
            load_tokenizer(self.recipe.at("tokenizer", self.path)),
            load_codec(self.recipe.at("codec", self.path)),
            load_conditioner(self.recipe.at("quantizer", self.path)),
        ]
        tokenize_all(self.manifests, makers, self.path / TOKENS, workers=self.recipe.workers)
