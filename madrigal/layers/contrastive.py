"""Contrastive losses: of all pairs of a batch, those that belong together should be the most alike.

The negatives of a row are the rows of all processes. How they are gathered, with gradients, is given with every call: a
loss does not know where it runs. Two of the same label, such as the same caption, are no negatives to each other.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Gathered(NamedTuple):
    """The rows of all processes [rows of all, …], where one's own begin, and how many processes there are."""

    rows: Tensor
    first: int = 0
    processes: int = 1


Gather = Callable[[Tensor], Gathered]
"""Rows [rows, …] -> those of all processes; gradients find their way back to whose they are."""


class Contest(NamedTuple):
    """A loss, and what it would be of a model that knows nothing: ln(batch) of a softmax without equal labels."""

    loss: Tensor
    chance: Tensor


class Contrast(nn.Module):
    """What the losses share: [rows, dim] or [layers, rows, dim] of unit length, a learned scale for each layer.

    The scale (the inverse of a temperature) starts at `init_temp` and stays between 1 and `max_temp`.
    """

    def __init__(self, *, layers: int = 1, init_temp: float = 10.0, max_temp: float = 100.0) -> None:
        super().__init__()
        if not 1 <= init_temp <= max_temp:
            raise ValueError(f"init_temp={init_temp} must lie between 1 and max_temp={max_temp}.")
        self.temperatures = nn.Parameter(torch.full((layers, 1, 1), math.log(init_temp)))
        self.highest = math.log(max_temp)

    def forward(self, audio_latents: Tensor, text_latents: Tensor) -> Tensor:
        """The loss of one process that is alone."""
        return self.contest(audio_latents, text_latents).loss

    def contest(
        self,
        audio_latents: Tensor,
        text_latents: Tensor,
        *,
        labels: Tensor | None = None,
        gather: Gather = Gathered,
    ) -> Contest:
        """Averaged over the processes, this loss is that of one process that has all rows. `labels` int64 [rows]."""
        kind = audio_latents.device.type
        with torch.autocast(kind, enabled=False):  # differences of a hundredth decide
            own = [x.float() if x.ndim == 3 else x.float()[None] for x in (audio_latents, text_latents)]
            rows = own[0].shape[1]
            everyone = gather(torch.stack(own).permute(2, 0, 1, 3))  # one message for both sides and all layers
            audio, text = everyone.rows.permute(1, 2, 0, 3)
            own_places = torch.arange(everyone.first, everyone.first + rows, device=audio.device)
            positive = F.one_hot(own_places, audio.shape[1]).bool()
            same = torch.zeros_like(positive)
            if labels is not None:
                same = (labels[:, None] == gather(labels).rows) & ~positive
            losses, chances = self._rows(own[0], own[1], audio, text, positive, same)
            share = everyone.processes / audio.shape[1]
            return Contest(losses.sum(-1).mean() * share, chances.sum(-1).mean() * share)

    def scale(self) -> Tensor:
        """[layers, 1, 1]. A scale that was driven out of its bounds comes back, so that it can still learn."""
        self.temperatures.data.clamp_(0.0, self.highest)
        return self.temperatures.clamp(0.0, self.highest).exp()

    def _rows(
        self, own_audio: Tensor, own_text: Tensor, audio: Tensor, text: Tensor, positive: Tensor, same: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses [layers, rows] and what they are by chance [rows]; `positive` and `same` are [rows, rows of all]."""
        raise NotImplementedError


class SoftmaxContrastiveLearning(Contrast):
    """InfoNCE both ways: which of all texts belongs to a sound, and which of all sounds to a text.

    Decoupled (Yeh et al., 2021), the positive is no competitor of itself, so that small batches learn faster.
    """

    def __init__(
        self,
        *,
        layers: int = 1,
        decoupled_contrastive_learning: bool = False,
        init_temp: float = 10.0,
        max_temp: float = 100.0,
    ) -> None:
        super().__init__(layers=layers, init_temp=init_temp, max_temp=max_temp)
        self.decoupled_contrastive_learning = decoupled_contrastive_learning

    def _rows(
        self, own_audio: Tensor, own_text: Tensor, audio: Tensor, text: Tensor, positive: Tensor, same: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden = same | positive if self.decoupled_contrastive_learning else same
        visible = (~hidden).sum(-1)
        losses = torch.zeros(own_audio.shape[:2], device=audio.device)
        scale = self.scale()
        for rows, columns in ((own_audio, text), (own_text, audio)):
            scores = rows @ columns.transpose(1, 2) * scale
            # Finite, or a row without any negative would have no gradient but nan.
            shown = scores.masked_fill(hidden, torch.finfo(scores.dtype).min / 2)
            losses = losses + 0.5 * (shown.logsumexp(-1) - scores[:, positive])
        return torch.where(visible > 0, losses, 0.0), visible.clamp(min=1).log()


class SigmoidContrastiveLearning(Contrast):
    """SigLIP (Zhai et al., 2023): every pair of a sound and a text is asked alone whether it belongs together."""

    def __init__(
        self, *, layers: int = 1, init_temp: float = 10.0, init_bias: float = -10.0, max_temp: float = 100.0
    ) -> None:
        super().__init__(layers=layers, init_temp=init_temp, max_temp=max_temp)
        self.bias = nn.Parameter(torch.full((layers, 1, 1), float(init_bias)))

    def _rows(
        self, own_audio: Tensor, own_text: Tensor, audio: Tensor, text: Tensor, positive: Tensor, same: Tensor
    ) -> tuple[Tensor, Tensor]:
        scores = own_audio @ text.transpose(1, 2) * self.scale() + self.bias
        losses = -F.logsigmoid(torch.where(positive, scores, -scores)).masked_fill(same, 0.0)
        # The best that one number for all pairs can do: the share of those that belong together.
        visible = (~same).sum(-1).float()
        others = (visible - 1).clamp(min=0)
        chance = visible.log() + others * (visible.log() - others.clamp(min=1).log())
        return losses.sum(-1), chance


class MultiLayerContrastiveLoss(nn.Module):
    """The same contest in several layers (ViCHA, Shukor et al., 2022), each with latents of its own.

    Layers come pooled: audio [layers, rows, audio_dim] and text [layers, rows, text_dim].
    """

    def __init__(
        self,
        *,
        audio_dim: int,
        text_dim: int,
        dim_latent: int,
        layers: int,
        decoupled_contrastive_learning: bool = False,
        sigmoid_contrastive_loss: bool = False,
        init_temp: float = 10.0,
        max_temp: float = 100.0,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.audio = _LayerLatents(audio_dim, dim_latent, layers)
        self.text = _LayerLatents(text_dim, dim_latent, layers)
        self.contrast = make_contrast(
            layers=layers,
            decoupled_contrastive_learning=decoupled_contrastive_learning,
            sigmoid_contrastive_loss=sigmoid_contrastive_loss,
            init_temp=init_temp,
            max_temp=max_temp,
        )

    def forward(self, *, audio_layers: Tensor, text_layers: Tensor) -> Tensor:
        """The loss of one process that is alone."""
        return self.contest(audio_layers, text_layers).loss

    def contest(
        self, audio_layers: Tensor, text_layers: Tensor, *, labels: Tensor | None = None, gather: Gather = Gathered
    ) -> Contest:
        """As `Contrast.contest`, the mean over the layers."""
        return self.contrast.contest(self.audio(audio_layers), self.text(text_layers), labels=labels, gather=gather)


class _LayerLatents(nn.Module):
    """Pooled layers [layers, rows, dim] -> latents of unit length [layers, rows, dim_latent]."""

    def __init__(self, dim: int, dim_latent: int, layers: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(layers, 1, dim))
        self.weight = nn.Parameter(torch.randn(layers, dim, dim_latent) * dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(layers, 1, dim_latent))

    def forward(self, pooled: Tensor) -> Tensor:
        normed = F.layer_norm(pooled, pooled.shape[-1:]) * self.gamma
        return F.normalize(torch.baddbmm(self.bias.to(normed.dtype), normed, self.weight), dim=-1)


def make_contrast(
    *,
    layers: int = 1,
    decoupled_contrastive_learning: bool = False,
    sigmoid_contrastive_loss: bool = False,
    init_temp: float = 10.0,
    max_temp: float = 100.0,
) -> Contrast:
    """The loss that these options name."""
    if sigmoid_contrastive_loss:
        return SigmoidContrastiveLearning(layers=layers, init_temp=init_temp, max_temp=max_temp)
    return SoftmaxContrastiveLearning(
        layers=layers,
        decoupled_contrastive_learning=decoupled_contrastive_learning,
        init_temp=init_temp,
        max_temp=max_temp,
    )
