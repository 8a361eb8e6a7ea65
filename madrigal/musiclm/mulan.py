"""MuLaN (Huang et al., 2022): sound and text in one space, in which what belongs together is close.

get_audio_latents   waves [batch, samples]  -> [batch, dim_latent] of unit length
get_text_latents    captions                -> [batch, dim_latent] of unit length
contest             both -> the loss, and what it would be by chance
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from madrigal.engine.learned import recipe_of
from madrigal.engine.pretrained import Pretrained, moved
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.layers.contrastive import Contest, Gather, Gathered, MultiLayerContrastiveLoss, make_contrast
from madrigal.musiclm.audio_transformer import AudioConfig, AudioSpectrogramTransformer
from madrigal.musiclm.sentence_encoder import SentenceConfig, SentenceEncoder
from madrigal.musiclm.text_transformer import TextConfig, Texts, TextTransformer
from madrigal.tokenizers.fingerprint import fingerprint_of

MULAN = "mulan"
"""The folder of the MuLaN in a run of several parts."""

TextSide = Annotated[TextConfig | SentenceConfig, Field(discriminator="kind")]


class MuLaNConfig(BaseModel):
    """Options of `MuLaN`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["mulan"] = "mulan"
    audio: AudioConfig = Field(default_factory=AudioConfig, description="the audio transformer")
    text: TextSide = Field(default_factory=TextConfig, description="kind: transformer, our own, or pretrained")
    dim_latent: int = Field(128, ge=1, description="width of the space that both share")
    decoupled_contrastive_learning: bool = Field(True, description="a pair is no competitor of itself")
    hierarchical_contrastive_loss: bool = Field(False, description="the same contest in inner layers, too")
    hierarchical_contrastive_loss_layers: int | None = Field(
        None, ge=1, description="so many of them; none: all but the last of the shallower side"
    )
    sigmoid_contrastive_loss: bool = Field(False, description="SigLIP's loss in the place of the softmax")
    init_temp: float = Field(10.0, ge=1, description="what similarities are multiplied with at first")
    max_temp: float = Field(100.0, ge=1, description="and at the most")

    @model_validator(mode="before")
    @classmethod
    def _our_own_unless_said(cls, values: Any) -> Any:
        """A `text` that does not name its kind is our own."""
        if isinstance(values, dict) and isinstance(values.get("text"), dict):
            values = {**values, "text": {"kind": "transformer", **values["text"]}}
        return values

    @model_validator(mode="after")
    def _scale_has_room(self) -> Self:
        if self.init_temp > self.max_temp:
            raise ValueError(f"init_temp={self.init_temp} is more than max_temp={self.max_temp}")
        return self


def without_effect(given: Mapping[str, Any]) -> str:
    """Why one of the options that somebody has given would do nothing; "" where all act.

    A config cannot tell: one that was saved has all options, the defaults among them.
    """
    if given.get("hierarchical_contrastive_loss_layers") is not None and not given.get("hierarchical_contrastive_loss"):
        return "hierarchical_contrastive_loss_layers needs hierarchical_contrastive_loss=true"
    if given.get("sigmoid_contrastive_loss") and given.get("decoupled_contrastive_learning"):
        return "decoupled_contrastive_learning is of the softmax, and sigmoid_contrastive_loss has none; leave one out"
    return ""


class Pairs(NamedTuple):
    """Both sides of a batch: latents [batch, dim_latent] of unit length, pooled layers [layers, batch, width]."""

    audio: Tensor
    text: Tensor
    audio_layers: Tensor
    text_layers: Tensor


class MuLaN(nn.Module, Pretrained):
    """A pair of encoders, and the contest that they are trained by."""

    Config: ClassVar[type[MuLaNConfig]] = MuLaNConfig
    config: MuLaNConfig

    def __init__(
        self,
        audio_transformer: AudioSpectrogramTransformer,
        text_transformer: TextTransformer | SentenceEncoder,
        *,
        config: MuLaNConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        sides = {"audio": audio_transformer.config, "text": text_transformer.config}
        if config is None:
            if idle := without_effect(options):
                raise UserError(f"MuLaN's options cannot be used: {idle}.")
            config = build_config(MuLaNConfig, {**options, **sides}, "MuLaN")
        config = self.config = config.model_copy(update=sides)
        self.audio, self.text = audio_transformer, text_transformer
        self.dim_latent = config.dim_latent
        self.audio_to_latents = nn.Linear(self.audio.dim, config.dim_latent)
        self.text_to_latents = nn.Linear(self.text.dim, config.dim_latent)
        losses: dict[str, Any] = {
            "decoupled_contrastive_learning": config.decoupled_contrastive_learning,
            "sigmoid_contrastive_loss": config.sigmoid_contrastive_loss,
            "init_temp": config.init_temp,
            "max_temp": config.max_temp,
        }
        self.contrast = make_contrast(**losses)
        self.inner: MultiLayerContrastiveLoss | None = None
        self.inner_layers: tuple[list[int], list[int]] = ([], [])
        if config.hierarchical_contrastive_loss:
            depths = self.audio.depth, self.text.depth
            layers = config.hierarchical_contrastive_loss_layers or max(1, min(depths) - 1)
            self.inner_layers = spread_layers(depths[0], layers), spread_layers(depths[1], layers)
            sizes: dict[str, Any] = {
                "audio_dim": self.audio.dim,
                "text_dim": self.text.dim,
                "dim_latent": config.dim_latent,
            }
            self.inner = MultiLayerContrastiveLoss(**sizes, layers=layers, **losses)

    @classmethod
    def of(cls, config: MuLaNConfig) -> Self:
        """Built from its options alone."""
        text = SentenceEncoder(config.text) if isinstance(config.text, SentenceConfig) else TextTransformer(config.text)
        return cls(AudioSpectrogramTransformer(config.audio), text, config=config)

    @classmethod
    def _rebuild(cls, config: BaseModel, **options: Any) -> Self:
        assert isinstance(config, MuLaNConfig)
        return cls.of(config)

    @property
    def sample_rate(self) -> int:
        return self.config.audio.sample_rate

    @property
    def target_sample_hz(self) -> int:
        return self.sample_rate

    @property
    def downsample_factor(self) -> int:
        return 1

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling, or recomputing in backward."""
        own = [self.audio.transformer]
        if isinstance(self.text, TextTransformer):
            own.append(self.text.transformer)
        return [layer for transformer in own for layer in transformer.layers]

    def fingerprint(self) -> str:
        """16 hex digits of all that a latent depends on: of a sentence encoder the weights, wherever they lie."""
        weights = {name: tensor for name, tensor in self.exported().items() if not name.startswith(TRAINING_ONLY)}
        options = self.config.model_dump(mode="json")
        if isinstance(self.text, SentenceEncoder):
            del options["text"]["name"]
            weights |= {f"text.model.{name}": tensor for name, tensor in self.text.weights().items()}
        return fingerprint_of(options, weights)

    def get_audio_latents(self, wavs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Waves [batch, samples] at `sample_rate` -> [batch, dim_latent]; `lengths` [batch] says what is no padding."""
        found = self.audio.encode(wavs, lengths, augment=False)
        return F.normalize(self.audio_to_latents(found.pooled).float(), dim=-1)

    def get_text_latents(self, texts: Texts | None = None, raw_texts: list[str] | None = None) -> Tensor:
        """Captions, or ids [batch, time] -> [batch, dim_latent]."""
        found = self.text.encode(given_texts(texts, raw_texts))
        return F.normalize(self.text_to_latents(found.pooled).float(), dim=-1)

    def forward(
        self,
        wavs: Tensor,
        texts: Texts | None = None,
        raw_texts: list[str] | None = None,
        *,
        lengths: Tensor | None = None,
        return_latents: bool = False,
        return_similarities: bool = False,
        return_pairwise_similarities: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The loss of a batch; or its latents, its similarities [batch], or those of all pairs [batch, batch]."""
        texts = given_texts(texts, raw_texts)
        if return_latents or return_similarities or return_pairwise_similarities:
            audio, text = self.get_audio_latents(wavs, lengths), self.get_text_latents(texts)
            if return_latents:
                return audio, text
            return (audio * text).sum(-1) if return_similarities else audio @ text.T
        return self.contest(wavs, texts, lengths=lengths).loss

    def contest(
        self,
        wavs: Tensor,
        texts: Texts,
        *,
        lengths: Tensor | None = None,
        seeds: Tensor | None = None,
        augment: bool | None = None,
        gather: Gather = Gathered,
        chunk_size: int | None = None,
    ) -> Contest:
        """The loss of the pairs, as `contest_of` says; encoded at once, or with a `chunk_size` in chunks.

        In chunks the encoders keep nothing for backward but their latents: when the gradients of these are known, chunk
        after chunk is encoded again (gradient caching, Gao et al., 2021). The loss and its gradients are those of the
        whole batch, and the memory is a chunk's.
        """
        rows = len(wavs)
        if len(texts) != rows:
            raise UserError(f"{rows} waves have {len(texts)} texts; give each its own.")
        seeds = torch.randint(2**62, (rows,)) if seeds is None else seeds
        size = chunk_size or rows
        if size >= rows:
            return self.contest_of(self.pairs(wavs, texts, lengths, seeds, augment), self.labels(texts), gather=gather)
        chunks = []
        for start in range(0, rows, size):
            part = slice(start, start + size)
            real = None if lengths is None else lengths[part]
            chunks.append(
                checkpoint(self.pairs, wavs[part], texts[part], real, seeds[part], augment, use_reentrant=False)
            )
        whole = Pairs(*(torch.cat(parts, dim=-2) for parts in zip(*chunks, strict=True)))
        return self.contest_of(whole, self.labels(texts), gather=gather)

    def labels(self, texts: Texts) -> Tensor:
        """Int64 [batch], the same for what the text side reads as the same."""
        return labels_of(self.text.rows(texts))

    def contest_of(self, pairs: Pairs, labels: Tensor, *, gather: Gather = Gathered) -> Contest:
        """The loss of encoded pairs, against those of all processes by `gather`; the inner layers' is added to it."""
        labels = labels.to(pairs.audio.device)
        contest = self.contrast.contest(pairs.audio, pairs.text, labels=labels, gather=gather)
        if self.inner is None:
            return contest
        inner = self.inner.contest(pairs.audio_layers, pairs.text_layers, labels=labels, gather=gather)
        return Contest(contest.loss + inner.loss, contest.chance + inner.chance)

    def pairs(
        self,
        wavs: Tensor,
        texts: Texts,
        lengths: Tensor | None = None,
        seeds: Tensor | None = None,
        augment: bool | None = False,
    ) -> Pairs:
        """Both sides of a batch, encoded."""
        audio = self.audio.encode(wavs, lengths, seeds=seeds, augment=augment)
        text = self.text.encode(texts)
        return Pairs(
            F.normalize(self.audio_to_latents(audio.pooled).float(), dim=-1),
            F.normalize(self.text_to_latents(text.pooled).float(), dim=-1),
            audio.layers[self.inner_layers[0]],
            text.layers[self.inner_layers[1]],
        )


TRAINING_ONLY = ("contrast.", "inner.")
"""Parts that no latent depends on."""


def load_mulan(place: str | Path, *, averaged: bool = True, device: str | torch.device = "cpu") -> MuLaN:
    """Of a run, a checkpoint, an exported folder or a hub name, ready to embed; of a whole MusicLM, its own MuLaN."""
    return moved(MuLaN.from_pretrained(_part_of(Path(place)) or place, averaged=averaged), device)


def _part_of(whole: Path) -> str | Path | None:
    """Where the MuLaN of a run of several parts is; None where `whole` is something else."""
    if (whole / MULAN).is_dir():
        return whole / MULAN
    said = recipe_of(whole)
    return said[MULAN] if said.get("system") == "musiclm" and isinstance(said.get(MULAN), str) else None


def given_texts(texts: Texts | None, raw_texts: list[str] | None) -> Texts:
    """The one of both that is given."""
    if (texts is None) == (raw_texts is None):
        raise UserError("Give MuLaN either texts or raw_texts.")
    given: Texts = texts if texts is not None else raw_texts  # type: ignore[assignment]
    if isinstance(given, str):
        return [given]  # one text, and not one for each of its letters
    if not len(given):
        raise UserError("Give MuLaN at least one text.")
    return given


def labels_of(rows: Sequence[str] | Sequence[list[int]]) -> Tensor:
    """Int64 [batch], the same for the same text or the same ids on whatever process."""
    digests = [hashlib.blake2b(str(row).encode(), digest_size=8).digest() for row in rows]
    return torch.tensor([int.from_bytes(digest, "little") >> 1 for digest in digests])


def spread_layers(depth: int, layers: int) -> list[int]:
    """So many of 0 … depth - 1, evenly spread, the last one only where all are wanted."""
    if layers > depth:
        raise UserError(
            f"hierarchical_contrastive_loss_layers={layers} is more than the {depth} layers that a side of MuLaN has."
        )
    return list(range(depth)) if layers == depth else [(i + 1) * depth // (layers + 1) - 1 for i in range(layers)]
