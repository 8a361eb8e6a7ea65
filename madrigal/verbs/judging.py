"""`evaluate`: how good a trained model is."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.errors import UserError
from madrigal.verbs.generate import TEMPERATURE, Device, Temperature, temperatures
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
    prompt_seconds: Annotated[float, typer.Option(min=0.2, help="AudioLM: length of the prompts.")] = 3.0,
    seconds: Annotated[float, typer.Option(min=0.2, help="AudioLM: length of the continuations.")] = 3.0,
    temperature: Temperature = TEMPERATURE,
    seed: Annotated[int, typer.Option(min=0, help="AudioLM: continuation i is drawn with seed + i.")] = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Judge a codec or an AudioLM on recordings that it has not heard: a table, a JSON file, a page to hear.

    Example: `madrigal evaluate runs/codec --data prepared/test --kbps 3,6`
    """
    if (Path(run) / "coarse").is_dir():
        _evaluate_audiolm(
            Path(run), data, out, limit, recogniser, prompt_seconds, seconds, temperature, seed, device, as_json=as_json
        )
        return
    _check_is_codec(Path(run))
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


def _evaluate_audiolm(
    run: Path,
    data: Path | None,
    out: Path | None,
    limit: int,
    recogniser: Path | None,
    prompt_seconds: float,
    seconds: float,
    temperature: str,
    seed: int,
    device: str,
    *,
    as_json: bool,
) -> None:
    """Perplexities of the stages, voices and words of continuations."""
    if data is None:
        raise UserError("Name recordings of speakers that the run has not heard with --data FOLDER.")
    from madrigal.audiolm_evaluation import evaluate_audiolm
    from madrigal.engine.recipe import build_config
    from madrigal.judge.continuation_page import show_continuations
    from madrigal.layers.sampling import Sampling

    degrees = temperatures(temperature)
    sampling = {s: build_config(Sampling, {"temperature": t}, "Sampling") for s, t in degrees.items()}
    with Bar("Judging") as bar:
        report, folder = evaluate_audiolm(
            run,
            data=data,
            out=out,
            limit=limit,
            prompt_seconds=prompt_seconds,
            seconds=seconds,
            sampling=sampling,
            seed=seed,
            recogniser=recogniser,
            device=device,
            progress=bar,
        )
    if as_json:
        typer.echo(report.to_json())
        return
    show_continuations(report, screen())
    typer.echo(f"Report: {folder / 'report.html'}")


def _check_is_codec(run: Path) -> None:
    """A run of something else has a recipe that says so."""
    if not (run / "recipe.yaml").is_file():
        return
    from madrigal.engine.recipe import read_recipe

    system = read_recipe(run / "recipe.yaml").get("system")
    if system != "soundstream":
        raise UserError(f"{run} is a run of {system}: evaluate takes a codec's run or a whole AudioLM run.")


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--kbps is {text!r}; write numbers with commas, for example 3,6,12.") from error
