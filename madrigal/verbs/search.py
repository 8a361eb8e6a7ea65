"""`search`: the recordings of a folder that sound like a description, or like another recording."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.errors import UserError
from madrigal.verbs.terminal import LONGEST, Bar, Json, print_json


def search(
    folder: Annotated[Path, typer.Argument(help="A folder of audio.")],
    text: Annotated[str | None, typer.Argument(help="What to look for, in words.")] = None,
    run: Annotated[str, typer.Option("--run", help="A run of mulan or of musiclm, or an exported one.")] = "runs/mulan",
    like: Annotated[Path | None, typer.Option("--like", help="An audio file: what sounds like it.")] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many.")] = 10,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=LONGEST, help="Longer files are heard in pieces of this length.")
    ] = 10.0,
    index: Annotated[
        Path | None, typer.Option("--index", help="Where the index is kept; default: FOLDER/.madrigal.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where the model runs, such as cuda.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Find recordings by a description, by an example, or by both. Each file is heard once; then its index is kept.

    Example: `madrigal search music "slow sad piano" --run runs/mulan`
    """
    if not (text or "").strip() and like is None:
        raise UserError('Say what to look for: madrigal search FOLDER "slow sad piano", or --like FILE.')
    if like is not None and not like.is_file():
        raise UserError(f"There is no file {like} to compare with; check --like.")

    import torch

    from madrigal.engine.machine import prepare_process
    from madrigal.musiclm.embedding import embedding_of_file, embeddings_of_texts
    from madrigal.musiclm.mulan import load_mulan
    from madrigal.musiclm.search_index import SearchIndex, check_folder

    check_folder(folder)  # before a model is loaded for nothing
    prepare_process()
    mulan = load_mulan(run, device=device)
    with Bar("Listening") as bar:
        found = SearchIndex.of(folder, mulan, piece_seconds=seconds, keep_in=index, progress=bar)
    query = torch.zeros(mulan.dim_latent)
    if (text or "").strip():
        query += embeddings_of_texts(mulan, [text or ""])[0]
    if like is not None:
        query += embedding_of_file(mulan, like, piece_seconds=seconds)
    results = found.nearest(torch.nn.functional.normalize(query, dim=0), n)
    for path, reason in found.unreadable.items():
        typer.echo(f"left out: {path} ({reason})", err=True)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "files": len(found),
                "embedded": found.added,
                "unreadable": found.unreadable,
                "results": [result._asdict() for result in results],
            }
        )
        return
    typer.echo("\n".join(f"{result.score:+.3f}  {folder / result.path}" for result in results))
