"""A file that appears under its name only when it is complete."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from madrigal.errors import UserError


@contextmanager
def written_beside(target: Path, *, source: Path, overwrite: bool = False) -> Iterator[BinaryIO]:
    """A new binary file, open for reading and writing, that becomes `target` when the block ends well.

    If it does not, nothing is left behind. A full disk or a read-only folder becomes one sentence. `source` is what the
    file is made from and is never overwritten.
    """
    _check(target, source, overwrite)
    # Through a link the file is replaced that it points to.
    final = target.resolve()
    partial = final.with_name(f".{secrets.token_hex(8)}.part")
    try:
        file = partial.open("x+b")
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            file.close()
            _check(target, source, overwrite)
            os.replace(partial, final)
        except BaseException:
            # Closing writes what is buffered, which fails once more on a full disk.
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                partial.unlink()
            raise
    except OSError as error:
        raise UserError(f"{target} could not be written: {error.strerror or error}; give another place.") from error


def _check(target: Path, source: Path, overwrite: bool) -> None:
    try:
        if target.is_dir():
            raise UserError(f"{target} is a folder; give the name of a file to write.")
        if not target.parent.is_dir():
            raise UserError(f"{target} could not be written: there is no folder {target.parent}; make it first.")
        if not target.exists():
            return
        if source.exists() and target.samefile(source):
            raise UserError(f"{target} is the file to be read; give another name for the result.")
        if not target.is_file():
            raise UserError(f"{target} is no ordinary file; give the name of a file to write.")
    except OSError as error:
        raise UserError(f"{target} could not be written: {error.strerror or error}; give another name.") from error
    if not overwrite:
        raise UserError(f"{target} exists already; give another name, or add --overwrite (overwrite=True).")
