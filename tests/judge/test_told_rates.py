"""A row of Opus tells the rate that it really has: it cannot go as low as it may be asked to."""

import pytest

from madrigal.judge.report import System


@pytest.mark.parametrize(
    ("asked", "measured", "told"),
    [
        (3.0, 5.32, "Opus 5.3 kbps (asked for 3)"),
        (6.0, 6.4, "Opus 6 kbps"),
        (12.0, 11.2, "Opus 12 kbps"),
        (3.0, None, "Opus 3 kbps"),
    ],
)
def test_opus_is_told_by_what_it_takes(asked: float, measured: float | None, told: str) -> None:
    system = System(kind="opus", name="Opus", kbps=asked, measured_kbps=measured)
    assert system.told == told
    assert system.label == f"Opus {asked:g} kbps"


def test_a_codec_is_told_by_its_own_rate() -> None:
    assert System(kind="codec", name="Codec", kbps=3.0, measured_kbps=4.0).told == "Codec 3 kbps"
    assert System(kind="original", name="Original").told == "Original"
