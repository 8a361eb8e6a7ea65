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
from madrigal.audiolm.whole_recipe import STAGES, StagesRecipe
from madrigal.data.source import Source
from madrigal.engine.parts import name_of_part
from madrigal.musiclm.mulan_recipe import MuLaNRecipe
from madrigal.musiclm.quantizer_recipe import MuLaNEmbedQuantizerRecipe
from madrigal.soundstream.recipe import SoundStreamRecipe
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe
from madrigal.tokenizers.loading import load_conditioner
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.mel_codec_recipe import MelCodecRecipe


class MusicLMRecipe(StagesRecipe):
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

    system: Literal["musiclm"]
    data: Source = Field(description="recordings with captions")
    mulan: str | dict[str, Any] = Field(description="a finished MuLaN, or the recipe of one to train")
    quantizer: str | dict[str, Any] = Field(description="a finished quantizer, or the recipe of one to train")
    codec: str | dict[str, Any] = Field(description="a finished codec, or the recipe of one to train")

    _these_too = field_validator("mulan", "quantizer", mode="before")(name_of_part)

    def given(self, name: str, run: Path) -> dict[str, Any]:
        values = super().given(name, run)
        if name == "quantizer":
            values["mulan"] = self.at("mulan", run)
        if name in STAGES:
            values["conditioner"] = self.at("quantizer", run)
        return values

    def makers(self, run: Path) -> list[Any]:
        return [*super().makers(run), load_conditioner(self.at("quantizer", run))]
