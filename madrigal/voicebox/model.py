"""The model: which way the frames of a noisy recording have to move to become speech.

    condition   context, ids -> Condition: what is the same at every time of a flow, computed once
    flow        x [batch, frames, dim_in], times [batch], Condition -> flow [batch, frames, dim_in]
    forward     both

A frame's input is the sum of what is known of it: its noisy features, its features where they are given, and its id.
The transformer's norms adapt to the flow's time, and to the voice of the given frames where `voice_dim` asks for it.
"""

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import Pretrained
from madrigal.errors import UserError
from madrigal.layers.norm import Adapted, adapted_to
from madrigal.layers.products import Linear
from madrigal.layers.transformer import Transformer
from madrigal.voicebox import keywords
from madrigal.voicebox.config import VoiceBoxConfig
from madrigal.voicebox.frame_layers import FramePositions, TimeVector, VoiceVector


class Condition(NamedTuple):
    """What a flow is conditioned on: frames [batch, frames, dim], voice [batch, width], mask [batch, frames]."""

    frames: Tensor
    voice: Tensor | None
    mask: Tensor | None

    def then(self, other: "Condition") -> "Condition":
        """The rows of both, one after another."""
        return Condition(
            torch.cat((self.frames, other.frames)), _joined(self.voice, other.voice), _joined(self.mask, other.mask)
        )


class VoiceBox(nn.Module, Pretrained):
    """Noisy features [batch, frames, dim_in] at a time of the flow -> the flow there, of the same shape."""

    Config: ClassVar[type[VoiceBoxConfig]] = VoiceBoxConfig
    config: VoiceBoxConfig
    audio_enc_dec: Any
    mean: Tensor
    std: Tensor

    def __init__(self, config: VoiceBoxConfig | None = None, **options: Any) -> None:
        super().__init__()
        # Not a part: it is frozen, learned by others and saved by others.
        self.__dict__["audio_enc_dec"] = options.get("audio_enc_dec")
        if config is None or options:
            config = keywords.config_of(options, config)
        self.config = config
        dim, width = config.dim, config.time_hidden_dim or config.dim
        self.from_noisy = Linear(config.dim_in, dim)
        self.from_context = nn.Linear(config.dim_in, dim, bias=False)
        # Features are about zero in the mean: without this a given frame of zeros would look like one to be made.
        self.given = nn.Parameter(torch.zeros(dim))
        self.table: nn.Embedding | None = None
        if config.condition_on_text and config.num_cond_tokens is not None:
            self.table = nn.Embedding(config.num_cond_tokens + 1, config.dim_cond_emb)
            self.from_ids = nn.Linear(config.dim_cond_emb, dim, bias=False)
        self.positions = FramePositions(dim, config.conv_pos_embed_kernel_size)
        together = config.frames_per_token
        self.join = nn.Linear(together * dim, dim, bias=False) if together > 1 else None
        self.time = TimeVector(width)
        self.voice = VoiceVector(config.dim_in, config.voice_dim, width) if config.voice_dim else None
        self.registers = nn.Parameter(torch.randn(config.num_register_tokens, dim) * 0.02)
        self.transformer = Transformer(
            dim,
            config.depth,
            heads=config.heads,
            dim_head=config.dim_head,
            causal=False,
            ff_mult=config.ff_mult,
            attn_dropout=config.attn_dropout,
            ff_dropout=config.ff_dropout,
            qk_norm=config.attn_qk_norm,
            cond_dim=width,
            skips=config.use_unet_skips,
        )
        # What the features were normalised by, for features that cannot tell; no deviation = nobody has told it yet.
        self.register_buffer("mean", torch.zeros(config.dim_in))
        self.register_buffer("std", torch.zeros(config.dim_in))
        self.to_flow = Linear(dim, together * config.dim_in)
        nn.init.zeros_(self.to_flow.weight)  # at first the best guess of the flow is its mean
        nn.init.zeros_(self.to_flow.bias)

    @property
    def device(self) -> torch.device:
        return self.registers.device

    @property
    def null(self) -> int:
        """The row of the table for a frame whose id is not known: the one after the ids' own."""
        return int(self.config.num_cond_tokens or 0)

    def forward(
        self,
        x: Tensor,
        *,
        times: Tensor | float,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        drop_context: Tensor | None = None,
        drop_ids: Tensor | None = None,
    ) -> Tensor:
        """The flow at x [batch, frames, dim_in] and `times` [batch] (or one for all), of the shape of x.

        `context` [batch, frames, dim_in] holds features, of which `context_mask` [batch, frames] says which are given;
        None = nothing is. `ids` [batch, frames], PAD where one is not known. `mask` [batch, frames], True = real.
        `drop_context`, `drop_ids`: bool [batch], rows for which these are as if they had not been given.
        """
        given = self.condition(
            x.shape[:2],
            context=context,
            context_mask=context_mask,
            ids=ids,
            mask=mask,
            drop_context=drop_context,
            drop_ids=drop_ids,
        )
        return self.flow(x, times, given)

    def forward_with_cond_scale(
        self, x: Tensor, *, times: Tensor | float, cond_scale: float = 1.0, **given: Any
    ) -> Tensor:
        """The flow, moved away from what it would be with nothing given, by one batch of twice the rows."""
        return self.guided_flow(x, times, self.guiding(x.shape[:2], cond_scale, **given), cond_scale)

    def condition(
        self,
        shape: tuple[int, ...],
        *,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        drop_context: Tensor | None = None,
        drop_ids: Tensor | None = None,
    ) -> Condition:
        """What is given of a batch of `shape` (rows, frames); the rest as in `forward`."""
        check_context(context, context_mask)
        if mask is not None and bool(mask.all()):
            mask = None  # attention is quicker without
        seen = None if context_mask is None or mask is None else context_mask & mask
        seen = context_mask if seen is None else seen
        if seen is not None and drop_context is not None:
            seen = seen & ~drop_context[:, None]
        frames = self._of_ids(ids, shape, drop_ids)
        if context is not None and seen is not None:
            context = context.masked_fill(~seen[..., None], 0.0)
            frames = frames + self.from_context(context) + self.given * seen[..., None]
        voice = None if self.voice is None else self.voice(context, seen, shape[0])
        return Condition(frames.expand(*shape, -1), voice, mask)

    def moments(self, times: Tensor, condition: Condition) -> list[Adapted]:
        """What can be made beforehand of `times` [count] that a flow will be asked for, each in the place of its time.

        A moment is the same for all frames, and a layer has many weights for it: here they are read once for all times.
        """
        return adapted_to(self.transformer, self._led_by(self.time(times.to(self.device))[:, None], condition))

    def flow(self, x: Tensor, times: Tensor | float | Adapted, condition: Condition) -> Tensor:
        """The flow at x [batch, frames, dim_in] and `times` [batch] (or one for all), with a condition for each row.

        In place of times there may be one of their `moments`.
        """
        moment: Tensor | Adapted
        if isinstance(times, dict):
            moment = times
        else:
            rows = torch.as_tensor(times, dtype=torch.float32, device=x.device).expand(len(x))
            moment = self._led_by(self.time(rows), condition)
        hidden = self.from_noisy(x) + condition.frames
        hidden = hidden + self.positions(hidden, condition.mask)
        hidden, mask = self._tokens(hidden, condition.mask)
        hidden = self.transformer(
            hidden,
            mask=mask,
            prefix=self.registers.expand(len(x), -1, -1) if len(self.registers) else None,
            cond=moment,
        )
        return self.to_flow(hidden).float().unflatten(-1, (-1, self.config.dim_in)).flatten(1, 2)[:, : x.shape[1]]

    def guided_flow(
        self, x: Tensor, times: Tensor | float | Adapted, condition: Condition, cond_scale: float
    ) -> Tensor:
        """`nothing` + cond_scale * (`condition` - `nothing`), by a condition with the rows of the one and of the other.

        With a `cond_scale` of 1 there is no guidance, and no nothing.
        """
        if cond_scale == 1.0:
            return self.flow(x, times, condition)
        if not isinstance(times, dict):
            times = torch.as_tensor(times, dtype=torch.float32, device=x.device).expand(len(x)).repeat(2)
        conditional, unconditional = self.flow(torch.cat((x, x)), times, condition).chunk(2)
        return torch.lerp(unconditional, conditional, cond_scale)

    def guiding(self, shape: tuple[int, ...], cond_scale: float, **given: Any) -> Condition:
        """The condition for `guided_flow`; `given` are the keywords of `condition`."""
        condition = self.condition(shape, **given)
        return condition if cond_scale == 1.0 else condition.then(self.condition(shape, mask=given.get("mask")))

    def _led_by(self, moments: Tensor, condition: Condition) -> Tensor:
        """What the norms adapt to, [..., batch, width]."""
        return F.silu(moments if condition.voice is None else moments + condition.voice)

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling or recomputing."""
        return list(self.transformer.layers)

    def _tokens(self, hidden: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Frames [batch, frames, dim] as tokens of `frames_per_token`; the last one may hold fewer."""
        if self.join is None:
            return hidden, mask
        together, more = self.config.frames_per_token, -hidden.shape[1] % self.config.frames_per_token
        if mask is not None:
            hidden = hidden.masked_fill(~mask[..., None], 0.0)
            mask = F.pad(mask, (0, more)).unflatten(1, (-1, together)).any(2)
        return self.join(F.pad(hidden, (0, 0, 0, more)).unflatten(1, (-1, together)).flatten(2)), mask

    def _of_ids(self, ids: Tensor | None, shape: tuple[int, ...], dropped: Tensor | None) -> Tensor:
        """What the ids say of each frame: [batch, frames, dim], or one frame for all where nothing is known."""
        if self.table is None:
            if ids is not None:
                raise UserError("This model has condition_on_text=False and takes no ids.")
            return self.registers.new_zeros(1, 1, self.config.dim)
        if ids is None:
            return self.from_ids(self.table.weight[self.null])[None, None]
        if ids.shape != torch.Size(shape):
            raise UserError(
                f"The ids have the shape {list(ids.shape)}, and there are {list(shape)} rows and frames: give "
                "each frame an id, -1 where none is known."
            )
        least, most = (int(value) for value in ids.aminmax()) if ids.numel() else (0, 0)
        if least < PAD or most >= self.null:
            raise UserError(
                f"The ids hold {most if most >= self.null else least}, and this model knows ids from 0 to "
                f"{self.null - 1}: build it with num_cond_tokens of what made them."
            )
        unknown = ids == PAD if dropped is None else (ids == PAD) | dropped[:, None]
        return self.from_ids(self.table(ids.masked_fill(unknown, self.null)))


def check_context(context: Tensor | None, context_mask: Tensor | None) -> None:
    """One without the other says nothing."""
    if (context is None) != (context_mask is None):
        raise UserError("A context comes with its context_mask, which says what of it is given.")


def _joined(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat((first, second))
