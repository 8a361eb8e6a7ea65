"""Tokenizers over a layer of a model that somebody else has trained: it stays where it is, the centroids are ours."""

from pathlib import Path
from typing import ClassVar, Self

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.semantic import SemanticTokenizer, TokenizerConfig


class HiddenLayerConfig(TokenizerConfig):
    """A checkpoint, and which of its layers is clustered."""

    checkpoint: str = Field(description="a local folder or file, or a hub name")
    layer: int = Field(9, ge=1, description="the layer whose output is clustered, counted from 1")
    feature_dim: int | None = Field(None, ge=1, description="width of that output; known once the checkpoint is read")
    checkpoint_fingerprint: str | None = Field(None, description="of the weights that the centroids were fitted on")

    @field_validator("checkpoint")
    @classmethod
    def _absolute(cls, value: str) -> str:
        """A tokenizer is used from other folders than the one it was made in."""
        return str(Path(value).resolve()) if Path(value).exists() else value


class HiddenLayerTokenizer(SemanticTokenizer):
    """Loads its `backbone` on first use and saves only the centroids; other weights than those it knows are refused."""

    left_out: ClassVar[tuple[str, ...]] = ("backbone.",)
    training_only: ClassVar[tuple[str, ...]] = ("checkpoint",)
    config: HiddenLayerConfig

    def __init__(self, config: HiddenLayerConfig, *, feature_dim: int | None) -> None:
        super().__init__(config, feature_dim=config.feature_dim or feature_dim or 0)
        self.backbone: nn.Module | None = None

    def _load(self) -> nn.Module:
        """The model up to the layer."""
        raise NotImplementedError

    @property
    def loaded(self) -> nn.Module:
        """The backbone, read from its place when it is first asked for."""
        if self.backbone is None:
            backbone = self._load()
            found = fingerprint_of({}, backbone.state_dict())
            if self.config.checkpoint_fingerprint not in (None, found):
                raise UserError(
                    f"The weights in {self.config.checkpoint} are not those that these centroids were fitted on: "
                    "put the old ones back, or fit again with `madrigal train kmeans/…`."
                )
            self.backbone = backbone.to(self.device)
            self.config = self.config.model_copy(update={"checkpoint_fingerprint": found})
        return self.backbone

    def fingerprint(self) -> str:
        self.loaded  # noqa: B018  # its weights' fingerprint is among the options
        return super().fingerprint()

    def save_pretrained(self, folder: str | Path, *, half: bool = False) -> Path:
        self.loaded  # noqa: B018
        return super().save_pretrained(folder, half=half)

    @torch.no_grad()
    def _set_feature_dim(self, dim: int) -> None:
        """A checkpoint on the hub tells its width only when it is read."""
        if self.feature_dim == 0:
            self.feature_dim = dim
            self.centroids = self.centroids.new_zeros(self.codebook_size, dim)
        if self.feature_dim != dim:
            raise UserError(
                f"{self.config.checkpoint} gives features of {dim} values; expected were {self.feature_dim}."
            )
        self.config = self.config.model_copy(update={"feature_dim": dim})

    def with_centroids(self, centroids: Tensor) -> Self:
        """The same tokenizer with centroids [codebook_size, feature_dim] that were fitted elsewhere."""
        if tuple(centroids.shape) != tuple(self.centroids.shape):
            raise UserError(
                f"The centroids have the shape {list(centroids.shape)}; this tokenizer needs "
                f"{list(self.centroids.shape)}."
            )
        self.centroids.copy_(centroids)
        return self
