"""From text or given embeddings to what a stage attends to, and the same without the condition."""

from typing import Any

import torch
from torch import Tensor, nn

from madrigal.audiolm.config import StageConfig
from madrigal.errors import UserError
from madrigal.tokenizers.text_encoders import make_text_encoder


class AudioConditionerBase(nn.Module):
    """What conditions the stages on sound in training and on words later: a joint embedding of both, such as MuLaN's.

    It keeps embeddings of its own for each `namespace` (semantic, coarse, fine), and gives [batch, items, cond_dim] for
    waves [batch, samples], for texts, or for codes of what it heard [batch, items], where it has such codes. Any object
    that is called like this will do. One that says its `target_sample_hz` is given waves at that rate.
    """

    def forward(
        self,
        *,
        wavs: Tensor | None = None,
        texts: list[str] | None = None,
        ids: Tensor | None = None,
        namespace: str | None = None,
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has to say what its embeddings are")


def without_gradients(module: nn.Module) -> list[nn.Module]:
    """The largest parts of a module whose parameters, of which there are some, take no gradient."""
    parameters = list(module.parameters())
    if not parameters:
        return []
    if not any(parameter.requires_grad for parameter in parameters):
        return [module]
    return [part for child in module.children() for part in without_gradients(child)]


class Condition(nn.Module):
    """Texts or embeddings [batch, items, cond_dim] to ([batch, items, dim], mask [batch, items]).

    A row without a condition has a mask that is False everywhere; that is what dropping a condition means, in training
    and in guidance alike.
    """

    def __init__(self, config: StageConfig) -> None:
        super().__init__()
        encoder = make_text_encoder(config.text_encoder, config.t5_name, dim=config.dim)
        # One that is not trained is no part of the model: neither in its checkpoints nor in its optimizer.
        self.trained_encoder = encoder if encoder.is_trainable else None
        self._other = [encoder]
        self.cond_dim = config.cond_dim or encoder.dim
        self.to_context = nn.Linear(self.cond_dim, config.dim, bias=False)

    def forward(
        self,
        *,
        text: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if text_embeds is None:
            if text is None:
                raise UserError("This stage is conditioned: give it text or text_embeds.")
            text_embeds, text_mask = self._encoder()(text)
        if text_embeds.ndim == 2:
            text_embeds = text_embeds[:, None]
        if text_embeds.shape[-1] != self.cond_dim:
            raise UserError(f"The condition has width {text_embeds.shape[-1]}, but this stage takes {self.cond_dim}.")
        weight = self.to_context.weight
        mask = text_embeds.abs().sum(-1) > 0 if text_mask is None else text_mask
        return self.to_context(text_embeds.to(weight.device)), mask.to(weight.device)

    def _encoder(self) -> Any:
        encoder = self._other[0]
        if not encoder.is_trainable:
            encoder.to(self.to_context.weight.device)
        return encoder.encode


def dropped(mask: Tensor, probability: float) -> Tensor:
    """The mask with each row's condition dropped by chance, from the global generator."""
    keep = torch.rand(mask.shape[0], device=mask.device) >= probability
    return mask & keep[:, None]
