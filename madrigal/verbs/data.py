"""`prepare`: from a folder of recordings or pictures to a manifest."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.terminal import Bar, Json, given, print_json, refuse


def prepare(
    folder: Annotated[Path, typer.Argument(help="A folder of recordings or pictures, plain or in a known layout.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the manifest goes; default: prepared/NAME.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Files read at a time; default: twice the cores.")] = None,
    min_seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Shorter recordings are rejected; default: 0.1.")
    ] = None,
    full: Annotated[
        bool | None, typer.Option("--full", help="Decode every recording, not only the doubtful ones.")
    ] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Take the pictures of a folder that holds recordings, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Look through a folder of recordings, or of pictures with or without captions, and write its manifest.

    Files that cannot be used are listed in `rejected.jsonl` with the reason. The folder itself is never changed.

    Example: `madrigal prepare recordings -o prepared/recordings`
    """
    from madrigal.data.layouts import holds_pictures
    from madrigal.data.manifest import Manifest
    from madrigal.data.prepare import prepare as run
    from madrigal.data.prepare import prepare_pictures

    target = out or Path("prepared") / folder.resolve().name
    of_recordings = given({"min_seconds": min_seconds, "full": full or None})
    with Bar("Reading") as bar:
        if pictures or (folder.is_dir() and holds_pictures(folder)):
            refuse(of_recordings, "recordings", f"{folder} holds pictures")
            done = prepare_pictures(folder, target, workers=workers, progress=bar)
        else:
            options = given({"min_seconds": min_seconds})
            done = run(folder, target, workers=workers, check="full" if full else "doubtful", progress=bar, **options)
    if as_json:
        seconds = {"seconds": done.manifest.seconds} if isinstance(done.manifest, Manifest) else {}
        found = {"files": len(done.manifest), **seconds, "rejected": done.reasons}
        print_json({"manifest": str(done.manifest_path), **found})
    else:
        typer.echo(done.summary)
