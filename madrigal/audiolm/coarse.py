"""The second stage: the codec's first codebooks, given semantic tokens."""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from madrigal.audiolm.config import CoarseConfig
from madrigal.audiolm.packing import Layout, Section
from madrigal.audiolm.patterns import Pattern
from madrigal.audiolm.stage import StageTransformer


class CoarseTransformer(StageTransformer):
    """p(semantic, coarse): rows [start, semantic …, start, coarse …, end]. Options: `CoarseConfig`."""

    Config: ClassVar[type[CoarseConfig]] = CoarseConfig
    config: CoarseConfig

    @property
    def num_quantizers(self) -> int:
        """Codebooks of the codec that this stage draws."""
        return self.config.num_coarse_quantizers * self.config.rq_groups

    def _layout(self) -> Layout:
        has_clock = self.config.positions == "rotary"
        return Layout(self._sections(), has_clock=has_clock, along=self.config.semantic_along)

    def _sections(self) -> Sequence[Section]:
        config = self.config
        pattern = Pattern(config.pattern, self.num_quantizers)
        # A semantic token may last one and a half frames: only a fraction keeps both on one clock of whole ticks.
        columns = Fraction(config.frames_per_semantic or 0).limit_denominator(1000) * pattern.columns_per_frame
        semantic, coarse = (columns.numerator, columns.denominator) if columns else (0, 0)
        return [
            Section("semantic", Pattern("flatten", 1), config.num_semantic_tokens, has_end=True, ticks=semantic),
            Section("coarse", pattern, config.codebook_size, has_end=True, ticks=coarse),
        ]
