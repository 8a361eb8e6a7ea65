"""The third stage: the codec's other codebooks, given the coarse ones."""

from collections.abc import Sequence
from typing import ClassVar

from madrigal.audiolm.config import FineConfig
from madrigal.audiolm.packing import Section
from madrigal.audiolm.patterns import Pattern
from madrigal.audiolm.stage import StageTransformer


class FineTransformer(StageTransformer):
    """p(coarse, fine): rows [start, coarse …, start, fine …], as many frames of one as of the other.

    Both sections share a clock: the codes of a frame stand side by side, whichever codebook they are of. Options:
    `FineConfig`.
    """

    Config: ClassVar[type[FineConfig]] = FineConfig
    config: FineConfig

    @property
    def num_coarse(self) -> int:
        return self.config.num_coarse_quantizers * self.config.rq_groups

    @property
    def num_quantizers(self) -> int:
        """Codebooks of the codec that this stage draws."""
        return self.config.num_fine_quantizers * self.config.rq_groups

    def _sections(self) -> Sequence[Section]:
        config = self.config
        coarse, fine = (Pattern(config.pattern, n) for n in (self.num_coarse, self.num_quantizers))
        # A frame lasts as long in both, in whole ticks.
        ticks = (fine.columns_per_frame, coarse.columns_per_frame)
        return [
            Section("coarse", coarse, config.codebook_size, has_end=False, ticks=ticks[0]),
            Section("fine", fine, config.codebook_size, has_end=False, ticks=ticks[1]),
        ]
