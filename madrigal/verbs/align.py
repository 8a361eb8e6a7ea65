"""`align`: which symbol of its text is said when, for every recording of a manifest."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.recordings import recordings_of
from madrigal.verbs.terminal import Bar, Json, print_json


def align(
    run: Annotated[Path, typer.Argument(help="A run of aligner, or an exported folder.")],
    manifest: Annotated[Path, typer.Argument(help="A manifest, a prepared folder, or a folder of recordings.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where they go; default: alignments beside the manifest.")
    ] = None,
    textgrid: Annotated[
        Path | None, typer.Option("--textgrid", help="A folder for a TextGrid of each recording, to look at in Praat.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the aligner runs, such as cuda or cuda:1.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Find when each symbol of a text is said, for durations and speech to be learned from.

    Started again it goes on where it was. A plain folder is prepared first, into prepared/NAME.

    Example: `madrigal align runs/aligner prepared/recordings -o alignments`
    """
    from madrigal.engine.pretrained import moved
    from madrigal.voicebox.aligner import Aligner
    from madrigal.voicebox.aligning import align_manifest
    from madrigal.voicebox.textgrid import write_textgrids

    aligner = moved(Aligner.from_pretrained(run), device)
    recordings = recordings_of(manifest)
    with Bar("Aligning") as bar:
        done = align_manifest(aligner, recordings, out or recordings.root / "alignments", progress=bar)
    if textgrid is not None:
        entries = [entry for entry in recordings if entry.path in done.alignments]
        rows = [done.alignments.row(entry.path) for entry in entries]
        write_textgrids(textgrid, entries, rows, aligner.symbols, done.alignments.info)
    if as_json:
        print_json({"folder": str(done.alignments.folder), **done.figures})
        return
    typer.echo(done.summary)
