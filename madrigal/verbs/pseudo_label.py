"""`pseudo-label`: texts for recordings that have none, by a model that reads speech."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.recordings import recordings_of
from madrigal.verbs.terminal import Bar, Json, Overwrite, print_json


def pseudo_label(
    run: Annotated[Path, typer.Argument(help="A run of semantic-to-text, or of speartts.")],
    manifest: Annotated[Path, typer.Argument(help="A manifest, a prepared folder, or a folder of recordings.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the labelled manifest and its tokens.")],
    threshold: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Readings of less confidence are put aside.")
    ] = 0.5,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Let the decoder read, with so many hypotheses; 1: no search. Default: the CTC head of a run that has "
            "one, else 4.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Recordings that are read together.")] = 16,
    tokens: Annotated[
        Path | None, typer.Option(help="Where `madrigal tokenize` wrote; default: beside the manifest, or made now.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Where the semantic tokenizer is, if it has moved.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: as many as cores.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first recordings.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Read untranscribed speech into text, and keep what was read with confidence as pairs to learn from.

    Started again it goes on where it was. What does not pass is in rejected.jsonl.

    Example: `madrigal pseudo-label runs/read prepared/speech -o labelled --threshold 0.6`
    """
    from madrigal.data.manifest import Manifest
    from madrigal.engine.machine import prepare_process, usable_cores
    from madrigal.errors import UserError
    from madrigal.speartts.pseudo_label import pseudo_label as label
    from madrigal.speartts.pseudo_label import reading_run

    prepare_process()
    run = reading_run(run)  # a wrong name should not be found out after a large folder was looked through
    own = {manifest}
    if manifest.is_file():
        listed = Manifest.load(manifest)
        own = {listed.resolve(entry).parent for entry in listed}
    for folder in own:
        if out.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{out} lies in {folder}, the folder of the recordings: name one outside of it with -o.")
    recordings = recordings_of(manifest)
    if limit is not None:
        recordings = Manifest(recordings.root, recordings.entries[:limit])
    with Bar("Reading") as bar:
        done = label(
            run,
            recordings,
            out,
            threshold=threshold,
            beam_size=beam,
            batch_size=batch_size,
            tokens=tokens,
            tokenizer=tokenizer,
            workers=workers or usable_cores(),
            overwrite=overwrite,
            progress=bar,
        )
    if as_json:
        print_json({"folder": str(out), **done.figures})
        return
    typer.echo(done.summary)
