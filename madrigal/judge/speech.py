"""Measures that know what speech is: STOI, PESQ and ViSQOL, each from its own optional package.

One signature, (reference, degraded, rate); NaN where a measure is not defined. A degraded wave that is silent gets
the worst score, so that a dead codec cannot hide.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from madrigal.judge import packages
from madrigal.judge.signals import Wave, mono, resample

SPEECH_RATE = 16_000


def _speech(reference: Any, degraded: Any, rate: int) -> tuple[Wave, Wave]:
    """Both waves as the speech measures take them: one channel at 16 kHz."""
    first, second = (resample(mono(wave)[None], rate, SPEECH_RATE)[0] for wave in (reference, degraded))
    return first, second


def _silence(reference: Wave, degraded: Wave, worst: float) -> float | None:
    """The score where a wave is silent: undefined for the reference, the worst for the degraded; else None."""
    if not reference.any():
        return math.nan
    return None if degraded.any() else worst


def stoi(reference: Any, degraded: Any, rate: int) -> float:
    """Short-time objective intelligibility, 0 to 1."""
    module = packages.load("stoi")
    clean, heard = _speech(reference, degraded, rate)
    if (score := _silence(clean, heard, worst=0.0)) is not None:
        return score
    with warnings.catch_warnings():
        # pystoi warns and gives 1e-5 where too few frames hold speech: that is no measurement.
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(module.stoi(clean, heard, SPEECH_RATE))
        except (RuntimeWarning, ValueError, IndexError):
            return math.nan


def pesq(reference: Any, degraded: Any, rate: int) -> float:
    """Wide-band PESQ (P.862.2) at 16 kHz, 1 to 4.64."""
    module = packages.load("pesq")
    clean, heard = _speech(reference, degraded, rate)
    if (score := _silence(clean, heard, worst=1.0)) is not None:
        return score
    try:
        return float(module.pesq(SPEECH_RATE, clean, heard, "wb"))
    except (ValueError, RuntimeError):  # too short, or no utterance found
        return math.nan


@contextmanager
def _native_errors_hidden() -> Iterator[None]:
    """Keep what C++ code prints on standard error (which Python cannot filter) off the user's terminal."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@lru_cache(maxsize=1)
def _visqol_api() -> tuple[Any, str]:
    module = packages.load("visqol")
    # The report names the mapping; the package would print the same as a warning in every process.
    logging.getLogger("visqol").setLevel(logging.ERROR)
    api = module.VisqolApi()
    try:
        with _native_errors_hidden():
            api.create(mode="speech", use_lattice_model=True)
        return api, "lattice"
    except ImportError:
        api.create(mode="speech", use_lattice_model=False)
        return api, "polynomial"


def visqol_mapping() -> str:
    """How similarity becomes a score: "lattice" as the original program does, or "polynomial" without its runtime.

    The polynomial gives higher scores: figures of the two must not be compared with each other.
    """
    return _visqol_api()[1]


def visqol(reference: Any, degraded: Any, rate: int) -> float:
    """ViSQOL in speech mode at 16 kHz, 1 to 5."""
    api = _visqol_api()[0]
    clean, heard = _speech(reference, degraded, rate)
    if (score := _silence(clean, heard, worst=1.0)) is not None:
        return score
    try:
        result = api.measure_from_arrays(clean.astype(np.float64), heard.astype(np.float64), SPEECH_RATE)
        return float(result.moslqo)
    except (ValueError, IndexError, RuntimeError, ZeroDivisionError):  # shorter than one patch
        return math.nan
