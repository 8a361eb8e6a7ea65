"""The first stage: a language model of semantic tokens."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from madrigal.audiolm.config import SemanticConfig
from madrigal.audiolm.packing import Section, Stream
from madrigal.audiolm.patterns import Pattern
from madrigal.audiolm.stage import StageTransformer


class SemanticTransformer(StageTransformer):
    """p(semantic): rows [start, semantic …, end]. Options: `SemanticConfig`."""

    Config: ClassVar[type[SemanticConfig]] = SemanticConfig
    config: SemanticConfig

    def _sections(self) -> Sequence[Section]:
        return [Section("semantic", Pattern("flatten", 1), self.config.num_semantic_tokens, has_end=True)]


def semantic_stream(ids: Tensor, lengths: Tensor, ends: Tensor | None = None) -> Stream:
    """Semantic ids [batch, time] as a stream of one codebook."""
    return Stream(ids[..., None], lengths, ends)
