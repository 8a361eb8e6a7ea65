"""What several tests of the judge share."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from synthetic import synthetic_voice

from madrigal.judge import packages


@pytest.fixture(scope="session")
def voice() -> np.ndarray:
    return synthetic_voice()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the packages of the given features look as if they were not installed."""

    def hide(*features: str) -> None:
        for feature in features:
            monkeypatch.setitem(sys.modules, packages.PACKAGES[feature].module, None)

    return hide
