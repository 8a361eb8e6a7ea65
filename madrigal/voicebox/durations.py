"""How long each symbol lasts: learned from alignments, with the durations around a gap as context.

The network is the model of `model.py` over symbols in the place of frames, with one number for each: the logarithm of
its duration. Two kinds of it:

    regression    the symbols and the context in, the logarithms out, in one call
    flow          a flow from noise to the logarithms, as speech is made: other noise gives another rhythm

A speaker's pace comes with the durations of a prompt; without a prompt it is the corpus' own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.voicebox import keywords
from madrigal.voicebox.config import VoiceBoxConfig
from madrigal.voicebox.filling import fill
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.lasting import whole_frames
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.span_masks import span_masks
from madrigal.voicebox.symbols import Symbols, SymbolSpec

NETWORK = (
    "dim", "depth", "heads", "dim_head", "ff_mult", "conv_pos_embed_kernel_size", "num_register_tokens", "attn_qk_norm",
    "attn_dropout", "ff_dropout", "p_drop_prob", "frac_lengths_mask", "cond_drop_prob",
)  # fmt: skip
"""Options that the network has under the same names."""


class DurationPredictorConfig(BaseModel):
    """Options of `DurationPredictor`. A frame is `hop` samples, as in the alignments that it learns from."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["regression", "flow"] = Field("flow", description="one answer, or one of many by a flow")
    symbols: SymbolSpec | None = Field(None, description="how text becomes symbols; null: only ids come in")
    num_symbols: int = Field(ge=1, description="size of the vocabulary; that of `symbols` where it is given")
    sample_rate: int = Field(24000, ge=1, description="in Hz")
    hop: int = Field(256, ge=1, description="samples of a frame")

    dim_symbol_emb: int = Field(512, ge=1, description="width of a symbol's vector")
    dim: int = Field(512, ge=8, multiple_of=2, description="width of the transformer")
    depth: int = Field(10, ge=1, description="its layers")
    heads: int = Field(8, ge=1, description="its heads")
    dim_head: int = Field(64, ge=2, multiple_of=2, description="width of a head")
    ff_mult: float = Field(4, gt=0, description="width of the feed-forward, before its gate takes a third")
    conv_pos_embed_kernel_size: int = Field(31, ge=1, description="symbols that a symbol's place is heard from; odd")
    num_register_tokens: int = Field(4, ge=0, description="vectors beside the symbols that all of them see")
    attn_qk_norm: bool = Field(True, description="queries and keys are normed")
    attn_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward")
    p_drop_prob: float = Field(0.2, ge=0, le=1, description="share of rows trained with no duration given")
    frac_lengths_mask: tuple[float, float] = Field(
        (0.1, 1.0), description="in the others, the share of a row that is one span to be found"
    )
    cond_drop_prob: float = Field(
        0.0, ge=0, lt=1, description="flow: share of rows trained with neither durations nor symbols, for guidance"
    )

    @model_validator(mode="after")
    def _is_a_network(self) -> Self:
        self.network()
        return self

    def network(self) -> VoiceBoxConfig:
        """The options of the network."""
        same = {name: getattr(self, name) for name in NETWORK}
        return VoiceBoxConfig(
            dim_in=1, num_cond_tokens=self.num_symbols, dim_cond_emb=self.dim_symbol_emb, use_unet_skips=True, **same
        )

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.hop


class Found(NamedTuple):
    """The loss, and the number of symbols that it is the mean of."""

    loss: Tensor
    symbols: int


class DurationPredictor(nn.Module, Pretrained):
    """Symbols [batch, symbols] -> durations in frames, int64 [batch, symbols]."""

    Config: ClassVar[type[DurationPredictorConfig]] = DurationPredictorConfig
    config: DurationPredictorConfig

    def __init__(self, config: DurationPredictorConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = config = config or _config_of(options)
        self.symbols: Symbols | None = None if config.symbols is None else Symbols(config.symbols)
        if self.symbols is not None and self.symbols.size != config.num_symbols:
            raise UserError(
                f"The symbols of DurationPredictor are {self.symbols.size}, and num_symbols is {config.num_symbols}: "
                f"leave it out, or give {self.symbols.size}."
            )
        self.network = VoiceBox(config.network())
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(1.5))
        self.register_buffer("std", torch.tensor(0.7))

    @property
    def device(self) -> torch.device:
        return self.mean.device

    @torch.no_grad()
    def fit(self, durations: Tensor) -> None:
        """Take mean and deviation of the logarithms from durations [n] of the data."""
        logs = durations.float().log()
        self.mean.copy_(logs.mean())
        self.std.copy_(logs.std().clamp(min=0.05))

    def forward(self, symbols: Tensor, durations: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The loss of durations [batch, symbols] of which some span is to be found and the rest is given."""
        lengths = (durations > 0).sum(1) if lengths is None else lengths
        return self.outcome(symbols, durations, lengths, training=self.training).loss

    def outcome(self, symbols: Tensor, durations: Tensor, lengths: Tensor, *, training: bool) -> Found:
        """The loss on the symbols that are to be found; what is hidden is drawn by torch's generator."""
        x1, config = self._logs(durations), self.config
        if config.kind == "flow":
            matcher = ConditionalFlowMatcherWrapper(self.network)
            return Found(*matcher.outcome(x1, lengths, symbols, training=training))
        real = mask_from_lengths(lengths, symbols.shape[1])
        hidden = span_masks(
            lengths, symbols.shape[1], fractions=config.frac_lengths_mask, whole_prob=config.p_drop_prob
        )
        found = self._regressed(symbols, x1, real & ~hidden, real)
        count = hidden.sum()
        return Found(((found - x1)[..., 0].abs() * hidden).sum() / count.clamp(min=1), int(count))

    @torch.no_grad()
    def predict(
        self,
        symbols: Tensor,
        lengths: Tensor | None = None,
        *,
        context_durations: Tensor | None = None,
        rate: float = 1.0,
        frames: Sequence[int] | Tensor | int | None = None,
        seconds: Sequence[float] | float | None = None,
        seed: int | Sequence[int] | None = 0,
        **options: Any,
    ) -> Tensor:
        """Durations int64 [batch, symbols] of symbols [batch, symbols], 0 behind a row's end.

        `context_durations` [batch, symbols] are given where they are above 0, and stay. `rate` 2 speaks twice as fast
        where nothing is given. `frames` or `seconds` say how long a row lasts in all, to the frame. `seed` and
        `options` (steps, method, sway, cond_scale) are those of `filling.fill`, for kind=flow.
        """
        lengths = (symbols != -1).sum(1) if lengths is None else lengths
        symbols, lengths = symbols.to(self.device), lengths.to(self.device)
        if not 0 < rate < 100:
            raise UserError(f"rate is {rate}; give 1 for the usual pace, or a number near it.")
        size, padded = int(lengths.max()), symbols.shape[1]
        symbols = symbols[:, :size]
        known = torch.zeros_like(symbols) if context_durations is None else context_durations[:, :size].to(self.device)
        known = known.clamp(min=0) * mask_from_lengths(lengths, size)
        with eval_mode(self):
            logs = self._predicted(symbols, lengths, known, seed, options)
        # Nobody speaks a thousand times slower than everybody: a wild guess must not fill the memory.
        wished = (logs[..., 0] * self.std + self.mean).clamp(max=float(self.mean + 6 * self.std)).exp() / rate
        totals = self._totals(frames, seconds, len(symbols))
        return F.pad(whole_frames(wished, lengths, known=known, totals=totals), (0, padded - size))

    def _predicted(
        self, symbols: Tensor, lengths: Tensor, known: Tensor, seed: int | Sequence[int] | None, options: dict[str, Any]
    ) -> Tensor:
        """Normed logarithms [batch, symbols, 1]."""
        context, given = self._logs(known), known > 0
        if self.config.kind == "flow":
            return fill(
                self.network, lengths, context=context, context_mask=given, ids=symbols, seed=seed, **options
            ).features
        if options:
            raise UserError(f"{next(iter(options))} is an option of kind=flow, and this predictor's is regression.")
        return self._regressed(symbols, context, given, mask_from_lengths(lengths, symbols.shape[1]))

    def _regressed(self, symbols: Tensor, context: Tensor, given: Tensor, mask: Tensor) -> Tensor:
        nothing = torch.zeros_like(context)
        return self.network(nothing, times=0.0, context=context, context_mask=given, ids=symbols, mask=mask)

    def _logs(self, durations: Tensor) -> Tensor:
        """Normed logarithms [batch, symbols, 1]; of no duration that of one frame."""
        return ((durations.clamp(min=1).float().log() - self.mean) / self.std)[..., None]

    def _totals(
        self, frames: Sequence[int] | Tensor | int | None, seconds: Sequence[float] | float | None, rows: int
    ) -> list[int] | None:
        if frames is not None and seconds is not None:
            raise UserError("frames and seconds both say how long it lasts: give one of them.")
        if seconds is not None:
            each = [seconds] * rows if isinstance(seconds, int | float) else list(seconds)
            return [round(one * self.config.frame_rate) for one in each]
        if frames is None:
            return None
        return [int(frames)] * rows if isinstance(frames, int) else [int(one) for one in frames]

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling or recomputing."""
        return self.network.blocks()


OLDER = {"num_phoneme_tokens": "num_symbols", "dim_phoneme_emb": "dim_symbol_emb"}
SETTLED: dict[str, tuple[Any, str]] = {
    **keywords.MODEL,
    "conv_pos_embed_groups": (None, "every channel has a filter of its own"),
    "tokenizer": (None, "give symbols={'text': {'kind': 'phonemes'}}, or another kind"),
    "aligner_kwargs": (None, "an Aligner is trained for itself, and durations are learned from what it finds"),
}


def _config_of(options: dict[str, Any]) -> DurationPredictorConfig:
    """The config that keyword arguments make; without a number of symbols they are English phonemes."""
    options = {name: value for name, value in options.items() if name not in keywords.NOTHING_TO_CHOOSE}
    options = keywords.without(options, SETTLED, "DurationPredictor")
    for older, name in OLDER.items():
        if (value := options.pop(older, None)) is not None:
            options.setdefault(name, value)
    heard_by = options.pop("audio_enc_dec", None)
    if heard_by is not None:
        options = {"sample_rate": heard_by.sample_rate, "hop": heard_by.hop, **options}
    if options.get("num_symbols") is None:
        spec = options.get("symbols") or SymbolSpec()
        spec = spec if isinstance(spec, SymbolSpec) else build_config(SymbolSpec, spec, "DurationPredictor's symbols")
        options |= {"symbols": spec, "num_symbols": Symbols(spec).size}
    return build_config(DurationPredictorConfig, options, "DurationPredictor")
