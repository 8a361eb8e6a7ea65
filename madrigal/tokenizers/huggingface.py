"""HuBERT, WavLM and wav2vec 2.0 checkpoints of transformers as semantic tokenizers.

Centroids come from `madrigal train kmeans/…`; no pickled scikit-learn model is ever read.
"""

from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.tokenizers.foreign import foreign_config, foreign_model
from madrigal.tokenizers.hidden_layer import HiddenLayerConfig, HiddenLayerTokenizer


class HuggingFaceConfig(HiddenLayerConfig):
    """Options of `HuggingFaceTokenizer`."""

    kind: Literal["huggingface"] = "huggingface"
    normalise: bool = Field(False, description="bring each recording to mean 0 and deviation 1, as large models want")
    window_seconds: float = Field(20.0, gt=0, description="longer recordings are encoded in pieces of this length")
    samples_per_token: int = Field(320, ge=1, description="product of the strides of the model's convolutions")


class HuggingFaceTokenizer(HiddenLayerTokenizer):
    """Output [batch, time, dim] of one transformer layer; layers behind it are not kept."""

    Config: ClassVar[type[HuggingFaceConfig]] = HuggingFaceConfig
    config: HuggingFaceConfig

    def __init__(self, config: HuggingFaceConfig) -> None:
        known = foreign_config(config.checkpoint) or {}
        strides = known.get("conv_stride")
        if strides:
            config = config.model_copy(update={"samples_per_token": prod(strides)})
        super().__init__(config, feature_dim=known.get("hidden_size"))
        self._heard: list[Tensor] = []

    @property
    def downsample_factor(self) -> int:
        return self.config.samples_per_token

    @property
    def window(self) -> tuple[int, int]:
        return max(1, round(self.config.window_seconds * self.frame_rate)), round(self.frame_rate)

    def features(self, wave: Tensor) -> Tensor:
        backbone: Any = self.loaded
        if self.config.normalise:
            wave = (wave - wave.mean(-1, keepdim=True)) / (wave.var(-1, keepdim=True, correction=0) + 1e-7).sqrt()
        # The convolutions hear more than a token: with this much silence around, a token comes out for each.
        around = _receptive_field(backbone.config) - self.downsample_factor
        self._heard.clear()
        backbone(F.pad(wave, (around // 2, around - around // 2)))
        return self._heard.pop()

    def _load(self) -> nn.Module:
        layer = self.config.layer
        model = foreign_model("AutoModel", self.config.checkpoint, "a HuBERT, WavLM or wav2vec2 tokenizer")
        depth = len(getattr(getattr(model, "encoder", None), "layers", ()))
        if not hasattr(model.config, "conv_stride") or depth < layer:
            raise UserError(
                f"{self.config.checkpoint} is a {model.config.model_type} of {depth} layers; "
                f"a speech encoder with at least {layer} is needed."
            )
        if prod(model.config.conv_stride) != self.downsample_factor:
            raise UserError(
                f"{self.config.checkpoint} makes a token of {prod(model.config.conv_stride)} samples: "
                f"set samples_per_token to that, it is {self.downsample_factor}."
            )
        self._set_feature_dim(model.config.hidden_size)
        model.encoder.layers = model.encoder.layers[:layer]
        # Taken from the layer itself: what follows the last layer of a model differs between the families.
        model.encoder.layers[-1].register_forward_hook(self._hear)
        return model

    def _hear(self, module: nn.Module, given: Any, found: Any) -> None:
        self._heard.append(found[0] if isinstance(found, tuple) else found)


def _receptive_field(config: Any) -> int:
    """Samples that one output of the convolutions hears."""
    field = 1
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        field = (field - 1) * stride + kernel
    return field


def HubertWithKmeans(
    checkpoint_path: str | Path,
    kmeans_path: str | Path | None = None,
    target_sample_hz: int = 16000,
    seq_len_multiple_of: int | None = None,
    output_layer: int = 9,
    codebook_size: int = 500,
) -> HuggingFaceTokenizer:
    """A HuBERT checkpoint (a folder of transformers or a hub name) with centroids of `madrigal train kmeans/…`.

    `kmeans_path` is the run that fitted them, or a safetensors file with `centroids` [codebook_size, dim]; without it
    the tokenizer still has to be fitted.
    """
    centroids = None if kmeans_path is None else _centroids(Path(kmeans_path))
    if centroids is not None:
        codebook_size = len(centroids)
    tokenizer = HuggingFaceTokenizer(
        HuggingFaceConfig(
            checkpoint=str(checkpoint_path),
            layer=output_layer,
            target_sample_hz=target_sample_hz,
            codebook_size=codebook_size,
            feature_dim=None if centroids is None else centroids.shape[1],
        )
    )
    tokenizer.seq_len_multiple_of = seq_len_multiple_of
    return tokenizer if centroids is None else tokenizer.with_centroids(centroids)


def FairseqVQWav2Vec(
    checkpoint_path: str | Path,
    target_sample_hz: int = 16000,
    seq_len_multiple_of: int | None = None,
    kmeans_path: str | Path | None = None,
    output_layer: int = 9,
) -> HuggingFaceTokenizer:
    """In the place of vq-wav2vec, whose files only fairseq reads: a wav2vec 2.0 checkpoint with centroids."""
    return HubertWithKmeans(checkpoint_path, kmeans_path, target_sample_hz, seq_len_multiple_of, output_layer)


def _centroids(path: Path) -> Tensor:
    file = path / "model.safetensors" if path.is_dir() else path
    try:
        found = load_file(file).get("centroids")
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path} holds no centroids in safetensors (pickled k-means models are not read): "
            "fit them with `madrigal train kmeans/…`."
        ) from error
    if found is None or found.ndim != 2:
        raise UserError(f"{path} has no tensor `centroids` of the shape [clusters, dim].")
    return found.to(torch.float32)
