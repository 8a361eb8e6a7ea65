"""Who judges music: ears that were trained on recordings whose instrument, tempo, register and mode are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from madrigal.errors import UserError
from madrigal.judge.frechet import components, frechet_distance
from madrigal.judge.music_classifier import InstrumentClassifier, features_of
from madrigal.judge.music_descriptors import MODES, Described, NearestCentre, describe
from madrigal.judge.music_features import Vector
from madrigal.judge.signals import as_channels

AXES = 16
MEASURES = ("instrument", "tempo", "register", "mode")


@dataclass(frozen=True)
class Known:
    """Recordings that judges are trained on: features [clips, dims], what was described, and what is true of them."""

    features: Vector
    described: Sequence[Described]
    attributes: Sequence[Mapping[str, str]]

    @classmethod
    def of(cls, waves: Sequence[Any], rate: int, attributes: Sequence[Mapping[str, str]]) -> Known:
        for number, wave in enumerate(waves, start=1):
            check_numbers(wave, f"Recording {number} of those that the judges are to learn from")
        return cls(features_of(waves, rate), [describe(wave, rate) for wave in waves], attributes)

    def labels(self, name: str) -> list[str]:
        return [row.get(name, "") for row in self.attributes]


def check_numbers(wave: Any, what: str) -> None:
    """Refuse waves with samples that are no numbers: nothing can be heard in them."""
    if not np.isfinite(as_channels(wave)).all():
        raise UserError(f"{what} has samples that are not finite numbers, and cannot be judged: make or take another.")


class Judges:
    """The instrument by a classifier, tempo and register by the nearest centre, the mode by its key."""

    def __init__(self, known: Known, *, seed: int = 0) -> None:
        self.known = known
        instruments = known.labels("instrument")
        told = [i for i, one in enumerate(known.described) if one.sounds and instruments[i]]
        self.classifier = InstrumentClassifier.fit(known.features[told], [instruments[i] for i in told], seed=seed)
        beats = [float(np.log2(one.beats)) for one in known.described]
        self.centres = {
            "tempo": NearestCentre(beats, known.labels("tempo")),
            "register": NearestCentre([one.pitch for one in known.described], known.labels("register")),
        }
        self.axes = components(known.features, AXES)[1].T

    def names(self, measure: str) -> list[str]:
        """What a clip can be taken for; of fewer than two, there is nothing to tell."""
        if measure == "instrument":
            return self.classifier.names
        return list(MODES) if measure == "mode" else list(self.centres[measure].centres)

    def hear(self, features: Vector, described: Sequence[Described]) -> dict[str, list[str]]:
        """What every clip is taken for, by measure; "" where there is nothing to hear."""
        instruments = self.classifier.predict(features)
        return {
            "instrument": [name if one.sounds else "" for name, one in zip(instruments, described, strict=True)],
            "tempo": [self.centres["tempo"](float(np.log2(one.beats))) for one in described],
            "register": [self.centres["register"](one.pitch) for one in described],
            "mode": [one.mode for one in described],
        }

    def distances(self, features: Vector, others: Vector) -> dict[str, float]:
        """Frechet's, in what the classifier makes of clips and in the principal axes of their statistics."""
        inner = [self.classifier.embed(part) for part in (features, others)]
        plain = [part @ self.axes for part in (features, others)]
        # Units in which the recordings that are known differ by one.
        inner = [part / self.classifier.embed(self.known.features).std() for part in inner]
        plain = [part / (self.known.features @ self.axes).std() for part in plain]
        return {"classifier": frechet_distance(*inner), "log-mels": frechet_distance(*plain)}
