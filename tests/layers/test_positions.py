"""Where a token stands, as waves to add to its vector."""

import torch

from madrigal.layers.positions import SinusoidalPositions


def test_the_waves_of_a_span_are_those_of_its_positions() -> None:
    waves = SinusoidalPositions(8)
    for first, count in ((0, 5), (510, 4), (7, 0)):
        theirs = waves(torch.arange(first, first + count))
        torch.testing.assert_close(waves.span(first, count, torch.device("cpu")), theirs, rtol=0, atol=0)
