"""Recordings as verbs are given them: a manifest, a prepared folder, or a plain folder."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from madrigal.data.manifest import Manifest


def recordings_of(path: Path) -> "Manifest":
    """The manifest at `path`, or that of a plain folder, which is looked through again each time.

    It goes to prepared/NAME, and never over the manifest of another folder of that name.
    """
    from madrigal.data.manifest import MANIFEST, Manifest
    from madrigal.data.source import manifest_of
    from madrigal.errors import UserError

    prepared_in = Path("prepared") / path.resolve().name
    # Not resolved files: a folder may hold links to what lies elsewhere.
    roots = [path.resolve(), Path(os.path.normpath(path.absolute()))]
    is_plain = path.is_dir() and not (path / MANIFEST).is_file()
    if is_plain and (prepared_in / MANIFEST).is_file():
        there = Manifest.load(prepared_in)
        files = [Path(os.path.normpath(there.resolve(entry).absolute())) for entry in there]
        other = next((file for file in files if not any(map(file.is_relative_to, roots))), None)
        if other is not None:
            raise UserError(
                f"{prepared_in} holds the manifest of other recordings ({other}): run `madrigal prepare {path} -o "
                "FOLDER` with another folder, and name that."
            )
    return manifest_of(path, prepared_in, anew=True, say=lambda sentence: typer.echo(sentence, err=True))
