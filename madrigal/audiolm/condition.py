"""From text or given embeddings to what a stage attends to, and the same without the condition."""

from torch import Tensor, nn

from madrigal.audiolm.config import StageConfig
from madrigal.tokenizers.text_condition import TextCondition, dropped
from madrigal.tokenizers.text_encoders import make_text_encoder

__all__ = ["AudioConditionerBase", "Condition", "dropped", "without_gradients"]


class AudioConditionerBase(nn.Module):
    """What conditions the stages on sound in training and on words later: a joint embedding of both, such as MuLaN's.

    It keeps embeddings of its own for each `namespace` (semantic, coarse, fine), and gives [batch, items, cond_dim] for
    waves [batch, samples], for texts, or for codes of what it heard [batch, items], where it has such codes. Any object
    that is called like this will do. One that says its `target_sample_hz` is given waves at that rate, and one that
    takes `lengths` [batch] is told what of each wave is no padding.
    """

    def forward(
        self,
        *,
        wavs: Tensor | None = None,
        lengths: Tensor | None = None,
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


class Condition(TextCondition):
    """Texts or embeddings [batch, items, cond_dim] to ([batch, items, dim], mask [batch, items])."""

    def __init__(self, config: StageConfig) -> None:
        encoder = make_text_encoder(config.text_encoder, config.t5_name, dim=config.dim)
        super().__init__(encoder, config.dim, cond_dim=config.cond_dim)
