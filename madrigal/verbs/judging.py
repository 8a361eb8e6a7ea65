"""`evaluate`: how good a trained model is."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.errors import UserError
from madrigal.verbs.generate import TEMPERATURE as CONTINUING
from madrigal.verbs.generate import Device, temperatures
from madrigal.verbs.say import TEMPERATURE as SPEAKING
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
    voice: Annotated[
        Path | None, typer.Option("--voice", help="Speech from text: an audio file of the voice to speak in.")
    ] = None,
    temperature: Annotated[
        str | None, typer.Option(help="For all stages, or semantic,coarse,fine; default: as generate and say.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Continuation or sentence i is drawn with seed + i.")] = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Judge a codec, an AudioLM or speech from text on recordings that it has not heard: a table, a JSON file, a page.

    Example: `madrigal evaluate runs/codec --data prepared/test --kbps 3,6`
    """
    system = _system(Path(run))
    if voice is not None and system != "speartts":
        raise UserError(f"--voice is for a run of speartts, and {run} is none: leave it out.")
    if system == "speartts":
        _evaluate_speech(
            Path(run), data, out, limit, recogniser, voice, temperature or SPEAKING, seed, device, as_json=as_json
        )
        return
    if (Path(run) / "coarse").is_dir():
        _evaluate_audiolm(
            Path(run),
            data,
            out,
            limit,
            recogniser,
            prompt_seconds,
            seconds,
            temperature or CONTINUING,
            seed,
            device,
            as_json=as_json,
        )
        return
    if system not in (None, "soundstream"):
        raise UserError(f"{run} is a run of {system}: evaluate takes a run of a codec, of audiolm or of speartts.")
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


def _evaluate_speech(
    run: Path,
    data: Path | None,
    out: Path | None,
    limit: int,
    recogniser: Path | None,
    voice: Path | None,
    temperature: str,
    seed: int,
    device: str,
    *,
    as_json: bool,
) -> None:
    """Errors of recognisers and likeness of voices, of speech from text."""
    if data is None:
        raise UserError("Name recordings with texts that the run has not seen with --data FOLDER.")
    if voice is not None and not voice.is_file():
        raise UserError(f"There is no file {voice} to take a voice from; check --voice.")
    from madrigal.engine.recipe import build_config
    from madrigal.judge.speech_page import show_spoken
    from madrigal.layers.sampling import Sampling
    from madrigal.speartts_evaluation import evaluate_speech

    degrees = temperatures(temperature)
    with Bar("Judging") as bar:
        report, folder = evaluate_speech(
            run,
            data=data,
            voice=voice,
            out=out,
            limit=limit,
            sampling={s: build_config(Sampling, {"temperature": t}, "Sampling") for s, t in degrees.items()},
            seed=seed,
            recogniser=recogniser,
            device=device,
            progress=bar,
        )
    if as_json:
        typer.echo(report.to_json())
        return
    show_spoken(report, screen())
    typer.echo(f"Report: {folder / 'report.html'}")


def _system(run: Path) -> str | None:
    """What the recipe of a run says that it is of; a shipped codec or an exported folder has none."""
    if not (run / "recipe.yaml").is_file():
        return None
    from madrigal.engine.recipe import read_recipe

    return str(read_recipe(run / "recipe.yaml").get("system"))


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--kbps is {text!r}; write numbers with commas, for example 3,6,12.") from error
