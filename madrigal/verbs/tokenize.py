"""`tokenize`: the tokens of a set of recordings or pictures, once and for all."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.recordings import recordings_of
from madrigal.verbs.terminal import Bar, Json, print_json, refuse


def tokenize(
    manifest: Annotated[
        Path, typer.Argument(help="A manifest, a prepared folder, or a folder of recordings or pictures.")
    ],
    tokenizers: Annotated[
        list[str], typer.Option("--with", help="A tokenizer, a codec or a vqgan: a name, run or folder; once for each.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the tokens go; default: tokens beside the manifest.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: as many as cores.")] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", help="A Ray cluster's address, or local to start one here.")
    ] = None,
    image_size: Annotated[
        str | None, typer.Option(help="Pictures: pixels a side, or HEIGHTxWIDTH; default: as the vqgan was trained.")
    ] = None,
    cond_image_size: Annotated[
        str | None, typer.Option(help="Pictures: a lower resolution to make tokens of, too, for super-resolution.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn recordings or pictures into tokens on disk, for trainings to read.

    Started again it goes on where it was. A plain folder is prepared first, into prepared/NAME.

    Example: `madrigal tokenize prepared/recordings --with runs/tokenizer --with speech-16k`

    Example: `madrigal tokenize pictures --with runs/vqgan --image-size 64 -o tokens`
    """
    from madrigal.verbs.picture_tokens import is_vqgan, tokenize_pictures

    sizes = {"image_size": image_size, "cond_image_size": cond_image_size}
    if any(map(is_vqgan, tokenizers)):
        refuse({"workers": workers, "ray": ray}, "recordings", "a vqgan makes tokens of pictures")
        tokenize_pictures(manifest, tokenizers, out, as_json=as_json, **sizes)
        return
    refuse(sizes, "pictures", "no vqgan is among the tokenizers")
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
