"""From the joint embedding of sound and text to what conditions AudioLM's stages: codes, and tables of embeddings.

The codes are learned from sounds (`quantizer_training.py`), and asked for with texts when music is made. Each stage has
a table of its own, its namespace, which is learned with the stage and saved with it.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from madrigal.audiolm.condition import AudioConditionerBase
from madrigal.audiolm.loading import place_of
from madrigal.engine.learned import learned_by
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.layers.residual_quantizer import Quantized
from madrigal.layers.residual_vq import ResidualVQ
from madrigal.musiclm.mulan import MULAN, MuLaN, load_mulan
from madrigal.musiclm.windows import window_starts
from madrigal.tokenizers.fingerprint import fingerprint_of

NAMESPACES = ("semantic", "coarse", "fine")


class MuLaNEmbedQuantizerConfig(BaseModel):
    """How the joint embedding is coded, and how wide what each stage gets of it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["mulan-quantizer"] = "mulan-quantizer"
    dim_latent: int = Field(128, ge=1, description="width of the joint embedding; follows from the MuLaN")
    conditioning_dims: tuple[int, ...] = Field((256, 256, 256), description="width of each stage's table")
    rq_num_quantizers: int = Field(8, ge=1, description="codes of an embedding, each for what those before it left")
    rq_ema_decay: float = Field(0.9, ge=0, lt=1, description="how much of itself a code keeps in a step")
    codebook_size: int = Field(1024, ge=2, description="different codes of a level")
    namespaces: tuple[str, ...] = Field(NAMESPACES, description="a table of embeddings for each of these")
    window_seconds: float = Field(10.0, gt=0, description="how much of a recording one embedding is of")
    center: bool = Field(True, description="take the mean of all sounds from a sound, and of all texts from a text")

    @model_validator(mode="before")
    @classmethod
    def _one_width_for_all(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("conditioning_dims"), int):
            many = len(values.get("namespaces", NAMESPACES))
            return {**values, "conditioning_dims": (values["conditioning_dims"],) * many}
        return values

    @model_validator(mode="after")
    def _a_width_for_each(self) -> Self:
        if len(self.conditioning_dims) != len(self.namespaces):
            raise ValueError(f"{len(self.namespaces)} namespaces need as many conditioning_dims")
        if min(self.conditioning_dims, default=1) < 1:
            raise ValueError("conditioning_dims are widths: give numbers of 1 or more")
        if len(set(self.namespaces)) < len(self.namespaces) or not all(map(str.isidentifier, self.namespaces)):
            raise ValueError("namespaces are different names of letters, digits and underscores")
        return self


class CodeTable(nn.Module):
    """One stage's embeddings [levels, codes, dim] of the codes."""

    def __init__(self, levels: int, size: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(levels, size, dim) * dim**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [batch, levels] -> [batch, levels, dim]."""
        return self.weight[torch.arange(ids.shape[1], device=ids.device), ids]


class MuLaNEmbedQuantizer(AudioConditionerBase, Pretrained):
    """Waves [batch, samples] at the MuLaN's rate, or texts, to [batch, levels, dim] of a stage's table."""

    Config: ClassVar[type[BaseModel]] = MuLaNEmbedQuantizerConfig
    left_out = ("mulan.", "readouts.")
    config: MuLaNEmbedQuantizerConfig
    rq_groups, channels, frame_rate = 1, 1, 1.0
    """As a codec has them: one frame a second, whose window begins there."""

    def __init__(
        self,
        mulan: Any,
        conditioning_dims: Sequence[int] | int | None = None,
        *,
        config: MuLaNEmbedQuantizerConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if config is None:
            dims = {} if conditioning_dims is None else {"conditioning_dims": conditioning_dims}
            given = {**options, **dims, "dim_latent": mulan.dim_latent}
            config = build_config(MuLaNEmbedQuantizerConfig, given, type(self).__name__)
        if config.dim_latent != mulan.dim_latent:
            raise UserError(
                f"This quantizer is for embeddings of width {config.dim_latent}, and the MuLaN's have "
                f"{mulan.dim_latent}: name the MuLaN that it was trained with."
            )
        self.config = config
        self.mulan: Any = mulan.requires_grad_(False).eval()
        self.rq = ResidualVQ(
            dim=config.dim_latent,
            codebook_size=config.codebook_size,
            num_quantizers=config.rq_num_quantizers,
            ema_decay=config.rq_ema_decay,
            quantize_dropout=False,
        )
        named = dict(zip(config.namespaces, config.conditioning_dims, strict=True))
        levels, size = config.rq_num_quantizers, config.codebook_size
        self.tables = nn.ModuleDict({name: CodeTable(levels, size, dim) for name, dim in named.items()})
        # Only the quantizer's own training asks what a table says of the embedding.
        self.readouts = nn.ModuleDict({n: nn.Linear(d, config.dim_latent, bias=False) for n, d in named.items()})
        self.means: Tensor
        self.register_buffer("means", torch.zeros(2, config.dim_latent))
        self._namespace: str | None = None

    def forward(
        self,
        *,
        wavs: Tensor | None = None,
        lengths: Tensor | None = None,
        texts: list[str] | None = None,
        ids: Tensor | None = None,
        namespace: str | None = None,
    ) -> Tensor:
        """Embeddings [batch, levels, dim] of waves [batch, samples], of texts, or of codes [batch, levels].

        `lengths` [batch] says what of each wave is no padding.
        """
        if sum(given is not None for given in (wavs, texts, ids)) != 1:
            raise UserError("Give the quantizer one thing: wavs, texts or ids.")
        if ids is None:
            ids = self.ids_of(wavs=wavs, lengths=lengths, texts=texts)
        table: Tensor = self.tables[self._known(namespace)](ids)
        return table

    def train(self, mode: bool = True) -> Self:
        """Its MuLaN stays as it is: nobody trains it here, and with dropout a sound would have codes by chance."""
        super().train(mode)
        self.mulan.eval()
        return self

    def set_default_namespace(self, namespace: str) -> None:
        """Whose table is meant where a call does not say it."""
        self._namespace = self._known(namespace)

    def _known(self, namespace: str | None) -> str:
        name = str(namespace or self._namespace)
        if name not in self.tables:
            known = ", ".join(self.tables)
            raise UserError(f"Say whose embeddings are wanted: namespace is {name!r}, and there are {known}.")
        return name

    def width_of(self, namespace: str) -> int:
        """Of the embeddings of a namespace."""
        return dict(zip(self.config.namespaces, self.config.conditioning_dims, strict=True))[self._known(namespace)]

    @torch.no_grad()
    def ids_of(
        self, *, wavs: Tensor | None = None, lengths: Tensor | None = None, texts: list[str] | None = None
    ) -> Tensor:
        """Codes [batch, levels] of waves, of which `lengths` [batch] says what is no padding, or of texts."""
        if wavs is not None:
            return self.codes_of(self.mulan.get_audio_latents(wavs.to(self.device), lengths))
        return self.codes_of(self.mulan.get_text_latents(texts).to(self.device), text=True)

    @torch.no_grad()
    def codes_of(self, latents: Tensor, *, text: bool = False) -> Tensor:
        """Codes [batch, levels] of joint embeddings [batch, dim], of sounds or of texts."""
        if not self.rq.initialized:
            raise UserError("This quantizer has no codes yet: train it with `madrigal train mulan-quantizer/…`.")
        return self.quantize(self.placed(latents, text=text)).codes[:, 0]

    def placed(self, latents: Tensor, *, text: bool = False) -> Tensor:
        """Joint embeddings [batch, dim] as they are coded: sounds and texts around one centre, at unit length.

        Sounds and texts of a contrastive model lie in two places of the sphere, and each knows its own kind.
        """
        if not self.config.center:
            return latents
        return F.normalize(latents - self.means[int(text)], dim=-1)

    def quantize(self, placed: Tensor, *, collect: bool = False) -> Quantized:
        """[batch, dim] -> codes [batch, 1, levels] and the embedding that they stand for [batch, 1, dim]."""
        made: Quantized = self.rq(placed[:, None], collect=collect)
        return made

    # As a maker of tokens: the codes of a recording, second by second.

    @property
    def kind(self) -> str:
        return self.config.kind

    @property
    def device(self) -> torch.device:
        return self.means.device

    @property
    def target_sample_hz(self) -> int:
        return int(self.mulan.sample_rate)

    @property
    def codebook_size(self) -> int:
        return self.config.codebook_size

    @property
    def num_quantizers(self) -> int:
        return self.config.rq_num_quantizers

    @torch.no_grad()
    def tokenize(self, wave: Tensor) -> Tensor:
        """A recording [1, 1, samples] -> codes [1, seconds, levels] of the windows that begin at each second."""
        starts, size = window_starts(wave.shape[-1], self.target_sample_hz, self.config.window_seconds)
        found = {start: self.ids_of(wavs=wave[0, :, start : start + size]) for start in dict.fromkeys(starts)}
        return torch.cat([found[start] for start in starts])[None]

    def fingerprint(self) -> str:
        """16 hex digits that change with anything that could change a code, the MuLaN's weights among them."""
        options = self.config.model_dump(mode="json", exclude={"conditioning_dims", "namespaces", "rq_ema_decay"})
        weights = {name: tensor for name, tensor in self.exported().items() if not name.startswith(_LEARNED_LATER)}
        return fingerprint_of({**options, "mulan": self.mulan.fingerprint()}, weights)

    # As a part of a stage.

    def for_stage(self, namespace: str) -> Self:
        """A copy for a stage to learn and save its own table of; all else is frozen. It shares the MuLaN."""
        own = type(self)(self.mulan, config=self.config).to(self.device)
        own.load_state_dict(self.state_dict())
        own.requires_grad_(False)
        own.tables[self._known(namespace)].requires_grad_(True)
        own.set_default_namespace(namespace)
        return own.eval()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copies share the MuLaN, which nobody changes."""
        own = type(self)(self.mulan, config=self.config).to(self.device)
        own.load_state_dict(self.state_dict())
        for mine, theirs in zip(own.parameters(), self.parameters(), strict=True):
            mine.requires_grad_(theirs.requires_grad)
        own._namespace = self._namespace
        return own

    @classmethod
    def from_pretrained(cls, name: str | Path, *, averaged: bool = True, mulan: Any = None, **options: Any) -> Self:
        """Of a run or an exported folder, with the MuLaN that it names, that lies beside it or that is given.

        That is the averaged one always, for the codes were learned of it.
        """
        made_with = learned_by(Path(name)).get(MULAN)
        mulan = _mulan_of(Path(name), made_with) if mulan is None else mulan
        if made_with is not None and mulan.fingerprint() != made_with:
            raise UserError(
                f"{name} was trained with another MuLaN ({made_with}, and this one is {mulan.fingerprint()}): give it "
                "that one back, or train the quantizer anew."
            )
        return super().from_pretrained(name, averaged=averaged, mulan=mulan, **options)

    @classmethod
    def _rebuild(cls, config: BaseModel, **options: Any) -> Self:
        assert isinstance(config, MuLaNEmbedQuantizerConfig)
        return cls(options["mulan"], config=config)

    def save_pretrained(self, folder: str | Path, *, half: bool = False) -> Path:
        """In full always: codes follow from these numbers."""
        return super().save_pretrained(folder)


_LEARNED_LATER = ("tables.", "rq.usage", "rq.codebooks.mass")
"""What of the state says nothing of a code."""


def _mulan_of(path: Path, made_with: str | None) -> MuLaN:
    """The MuLaN of a quantizer; a folder that was exported has it beside it.

    In a copy of a run it is beside it too, should the one that the recipe names have been trained on since.
    """
    beside = path.parent / MULAN
    said = place_of(path, MULAN)
    if not said and not beside.is_dir():
        raise UserError(f"{path} does not say what its MuLaN is: put it beside it, in {beside}.")
    found = load_mulan(said or beside)
    if said and made_with is not None and beside.is_dir() and found.fingerprint() != made_with:
        with suppress(UserError):  # something else of this name
            other = load_mulan(beside)
            return other if other.fingerprint() == made_with else found
    return found
