"""The recipe of a k-means fit over the features of any kind of tokenizer."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.source import AudioSource
from madrigal.tokenizers.huggingface import HuggingFaceConfig
from madrigal.tokenizers.kmeans import KmeansPlan, KmeansTrainer
from madrigal.tokenizers.loading import tokenizer_class
from madrigal.tokenizers.mel_kmeans import MelKmeansConfig
from madrigal.tokenizers.semantic import SemanticTokenizer
from madrigal.tokenizers.whisper import WhisperConfig


class TrainedEncoderConfig(BaseModel):
    """The encoder of a masked-prediction run, to be clustered anew."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["masked-prediction"]
    checkpoint: Path = Field(description="a masked-prediction run, finished or not, or an exported folder")
    codebook_size: int = Field(500, ge=2, description="clusters, that is, different tokens")


Features = Annotated[
    MelKmeansConfig | HuggingFaceConfig | WhisperConfig | TrainedEncoderConfig, Field(discriminator="kind")
]


class KmeansRecipe(BaseModel):
    """`system: kmeans`, the tokenizer that gives the features, the data and the plan of the fit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["kmeans"]
    model: Features = Field(default_factory=MelKmeansConfig)
    data: AudioSource
    plan: KmeansPlan = Field(default_factory=KmeansPlan)

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> KmeansTrainer:
        """The tokenizer without centroids, and what fits them in the folder `run`."""
        return KmeansTrainer(
            self._tokenizer(),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            recipe=self.model_dump(mode="json"),
            resume=resume,
            overwrite=overwrite,
        )

    def _tokenizer(self) -> SemanticTokenizer:
        kind = tokenizer_class(self.model.kind)
        if not isinstance(self.model, TrainedEncoderConfig):
            tokenizer: SemanticTokenizer = kind(self.model)
            return tokenizer
        trained = kind.from_pretrained(self.model.checkpoint)
        again: SemanticTokenizer = kind(trained.config.model_copy(update={"codebook_size": self.model.codebook_size}))
        weights = {name: tensor for name, tensor in trained.exported().items() if name != "centroids"}
        again.load_state_dict(weights, strict=False)
        return again.eval()
