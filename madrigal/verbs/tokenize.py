"""`tokenize`: the tokens of a set of recordings, once and for all."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.recordings import recordings_of
from madrigal.verbs.terminal import Bar, Json, print_json


def tokenize(
    manifest: Annotated[Path, typer.Argument(help="A manifest, a prepared folder, or a folder of recordings.")],
    tokenizers: Annotated[
        list[str], typer.Option("--with", help="A tokenizer or a codec: a name, run or folder; once for each.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the tokens go; default: tokens beside the manifest.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: as many as cores.")] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", help="A Ray cluster's address, or local to start one here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn recordings into tokens on disk, for trainings to read.

    Started again it goes on where it was. A plain folder is prepared first, into prepared/NAME.

    Example: `madrigal tokenize prepared/recordings --with runs/tokenizer --with speech-16k`
    """
    from madrigal.engine.machine import usable_cores
    from madrigal.tokenizers.token_making import load
    from madrigal.tokenizers.tokenizing import tokenize_manifest

    for name in tokenizers:
        load(name)  # a wrong name should not be found out after a large folder was looked through
    # A plain folder is looked through again each time, or recordings that are new in it would be passed over.
    recordings = recordings_of(manifest)
    with Bar("Tokenizing") as bar:
        done = tokenize_manifest(
            recordings,
            tokenizers,
            out or recordings.root / "tokens",
            workers=workers or usable_cores(),
            ray=ray,
            progress=bar,
        )
    if as_json:
        print_json([{"folder": str(each.shards.folder), **each.figures} for each in done])
        return
    for each in done:
        typer.echo(each.summary)
