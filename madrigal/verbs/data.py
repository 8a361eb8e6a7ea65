"""`prepare`: from a folder of recordings to a manifest."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.terminal import Bar, Json, print_json


def prepare(
    folder: Annotated[Path, typer.Argument(help="A folder of recordings, plain or in a known layout.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the manifest goes; default: prepared/NAME.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Files read at a time; default: twice the cores.")] = None,
    min_seconds: Annotated[float, typer.Option(min=0.0, help="Shorter files are rejected.")] = 0.1,
    full: Annotated[bool, typer.Option("--full", help="Decode every file, not only the doubtful ones.")] = False,
    as_json: Json = False,
) -> None:
    """Look through a folder of recordings and write its manifest.

    Files that cannot be used are listed in `rejected.jsonl` with the reason. The folder itself is never changed.

    Example: `madrigal prepare recordings -o prepared/recordings`
    """
    from madrigal.data.prepare import prepare as run

    target = out or Path("prepared") / folder.resolve().name
    with Bar("Reading") as bar:
        done = run(
            folder,
            target,
            workers=workers,
            min_seconds=min_seconds,
            check="full" if full else "doubtful",
            progress=bar,
        )
    if as_json:
        found = {"files": len(done.manifest), "seconds": done.manifest.seconds, "rejected": done.reasons}
        print_json({"manifest": str(done.manifest_path), **found})
    else:
        typer.echo(done.summary)
