"""`evaluate`: how good a trained model is."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.errors import UserError
from madrigal.verbs.terminal import Bar, Json, screen


def evaluate(
    run: Annotated[str, typer.Argument(help="A run, a checkpoint, an exported folder or a shipped codec's name.")],
    data: Annotated[
        Path | None, typer.Option(help="A folder or manifest to judge on; default: the run's own held-out files.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the report; default: RUN/evaluation.")
    ] = None,
    kbps: Annotated[
        str | None, typer.Option(help="Rates to judge, with commas; default: a quarter, half and all of the codec's.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Utterances at the most.")] = 100,
    opus: Annotated[bool, typer.Option(help="Judge Opus at the same rates beside it.")] = True,
    recogniser: Annotated[
        Path | None, typer.Option(help="A CTranslate2 Whisper folder for the word error rate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge a codec on recordings that it was not trained on: a table, a JSON file, a picture and a page to hear.

    Example: `madrigal evaluate runs/codec --data prepared/test --kbps 3,6`
    """
    from madrigal.evaluation import evaluate_run
    from madrigal.judge.table import show

    with Bar("Judging") as bar:
        report, folder = evaluate_run(
            run,
            data=data,
            out=out,
            rates=None if kbps is None else _rates(kbps),
            limit=limit,
            opus=opus,
            recogniser=recogniser,
            progress=bar,
        )
    if as_json:
        typer.echo(report.to_json())
        return
    show(report, screen())
    typer.echo(f"Report: {folder / 'report.html'}")


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--kbps is {text!r}; write numbers with commas, for example 3,6,12.") from error
