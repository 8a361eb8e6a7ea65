"""Recordings and pictures as verbs are given them: a manifest, a prepared folder, or a plain folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from madrigal.data.manifest import Manifest, PictureManifest
    from madrigal.data.source import AnyListing
else:
    AnyListing = TypeVar("AnyListing")


def recordings_of(path: Path) -> "Manifest":
    """The manifest at `path`, or that of a plain folder, which is looked through again each time.

    It goes to prepared/NAME, and never over the manifest of another folder of that name.
    """
    from madrigal.data.manifest import Manifest
    from madrigal.data.source import manifest_of

    return _listed(path, Manifest, manifest_of, "recordings")


def pictures_of(path: Path) -> "PictureManifest":
    """The same for pictures."""
    from madrigal.data.manifest import PictureManifest
    from madrigal.data.picture_source import pictures_of

    return _listed(path, PictureManifest, pictures_of, "pictures")


def _listed(path: Path, kind: type[AnyListing], listing: Callable[..., AnyListing], what: str) -> AnyListing:
    from madrigal.data.manifest import MANIFEST
    from madrigal.errors import UserError

    prepared_in = Path("prepared") / path.resolve().name
    # Not resolved files: a folder may hold links to what lies elsewhere.
    roots = [path.resolve(), Path(os.path.normpath(path.absolute()))]
    is_plain = path.is_dir() and not (path / MANIFEST).is_file()
    if is_plain and (prepared_in / MANIFEST).is_file():
        there = kind.load(prepared_in)
        files = [Path(os.path.normpath(there.resolve(entry).absolute())) for entry in there]
        other = next((file for file in files if not any(map(file.is_relative_to, roots))), None)
        if other is not None:
            raise UserError(
                f"{prepared_in} holds the manifest of other {what} ({other}): run `madrigal prepare {path} -o "
                "FOLDER` with another folder, and name that."
            )
    return listing(path, prepared_in, anew=True, say=lambda sentence: typer.echo(sentence, err=True))
