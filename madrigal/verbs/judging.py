"""`evaluate`: how good a trained model is."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.following import CondScale, Method, Steps, Sway, followed
from madrigal.verbs.generate import TEMPERATURE as CONTINUING
from madrigal.verbs.sampling import PromptScale, TopK, TopP, samplings
from madrigal.verbs.say import TEMPERATURE as SPEAKING
from madrigal.verbs.terminal import Bar, Device, Json, screen

if TYPE_CHECKING:
    from madrigal.judge.record import SavedReport


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
        str | None,
        typer.Option(
            "--voice", help="Speech from text: an audio file to speak like; a voicebox takes its recordings' speakers."
        ),
    ] = None,
    holes: Annotated[int, typer.Option(min=0, help="voicebox: recordings of which a part is cut out and mended.")] = 50,
    steps: Steps = None,
    method: Method = None,
    cond_scale: CondScale = None,
    sway: Sway = None,
    temperature: Annotated[
        str | None, typer.Option(help="For all stages, or semantic,coarse,fine; default: as generate and say.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    prompt_scale: PromptScale = None,
    seed: Annotated[int, typer.Option(min=0, help="Continuation or sentence i is drawn with seed + i.")] = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Judge a codec, an AudioLM or speech from text on recordings that it has not heard: a table, a JSON file, a page.

    Example: `madrigal evaluate runs/codec --data prepared/test --kbps 3,6`
    """
    system, path = _system(Path(run)), Path(run)
    if voice is not None and system not in ("speartts", "voicebox"):
        raise UserError(f"--voice is for a run of speartts or of voicebox, and {run} is neither: leave it out.")
    options: dict[str, Any] = {"data": data, "out": out, "limit": limit, "recogniser": recogniser}
    drawing: dict[str, Any] = {"seed": seed, "device": device}
    flowing = {"steps": steps, "method": method, "cond_scale": cond_scale, "sway": sway}
    draws = {"top_k": top_k, "top_p": top_p, "prompt_scale": prompt_scale}
    if system != "voicebox":
        _refuse(flowing, run, "voicebox")
    if system in ("speartts", "voicebox") and data is None:
        raise UserError("Name recordings with texts that the run has not seen with --data FOLDER.")
    if system == "voicebox":
        _refuse({"temperature": temperature, **draws}, run, "a model of tokens")
        from madrigal.judge.speech_page import show_spoken
        from madrigal.voicebox_evaluation import evaluate_voicebox

        options |= {"voice": voice, "holes": holes, "options": followed(**flowing)}
        _judge(evaluate_voicebox, path, {**drawing, **options}, show_spoken, as_json=as_json)
    elif system == "speartts":
        if voice is not None and not Path(voice).is_file():
            raise UserError(f"There is no file {voice} to take a voice from; check --voice.")
        from madrigal.judge.speech_page import show_spoken
        from madrigal.speartts_evaluation import evaluate_speech

        drawing["sampling"] = samplings(temperature or SPEAKING, **draws)
        prompt = None if voice is None else Path(voice)
        _judge(evaluate_speech, path, {"voice": prompt, **drawing, **options}, show_spoken, as_json=as_json)
    elif (path / "coarse").is_dir():
        if data is None:
            raise UserError("Name recordings of speakers that the run has not heard with --data FOLDER.")
        from madrigal.audiolm_evaluation import evaluate_audiolm
        from madrigal.judge.continuation_page import show_continuations

        drawing["sampling"] = samplings(temperature or CONTINUING, **draws)
        options |= {"prompt_seconds": prompt_seconds, "seconds": seconds}
        _judge(evaluate_audiolm, path, {**drawing, **options}, show_continuations, as_json=as_json)
    elif system == "vocoder":
        _refuse({"temperature": temperature, **draws}, run, "a model of tokens")
        _refuse({"kbps": kbps}, run, "a codec")
        from madrigal.evaluation import evaluate_vocoder
        from madrigal.judge.table import show

        _judge(evaluate_vocoder, run, options, show, as_json=as_json)
    elif system not in (None, "soundstream"):
        raise UserError(
            f"{run} is a run of {system}: evaluate takes one of a codec, a vocoder, audiolm, speartts or voicebox."
        )
    else:
        if any(given is not None for given in (temperature, *draws.values())):
            raise UserError(f"{run} is a codec, which draws nothing: leave out --temperature, --top-k and --top-p.")
        from madrigal.evaluation import evaluate_run
        from madrigal.judge.table import show

        rates = None if kbps is None else _rates(kbps)
        _judge(evaluate_run, run, {"rates": rates, "opus": opus, **options}, show, as_json=as_json)


def _judge(
    evaluation: "Callable[..., tuple[SavedReport, Path]]",
    run: str | Path,
    options: dict[str, Any],
    show: Callable[..., None],
    *,
    as_json: bool,
) -> None:
    """Make the report, and print it as JSON or show it."""
    with Bar("Judging") as bar:
        report, folder = evaluation(run, **options, progress=bar)
    if as_json:
        typer.echo(report.to_json())
        return
    show(report, screen())
    typer.echo(f"Report: {folder / 'report.html'}")


def _system(run: Path) -> str | None:
    """What the recipe of a run says that it is of; a shipped codec or an exported one has none."""
    if not (run / "recipe.yaml").is_file():
        from madrigal.voicebox.loading import is_voicebox

        return "voicebox" if is_voicebox(run) else None
    from madrigal.engine.recipe import read_recipe

    return str(read_recipe(run / "recipe.yaml").get("system"))


def _refuse(options: dict[str, Any], run: str, kind: str) -> None:
    """An option that would not act is no option."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name.replace('_', '-')} is for {kind}, and {run} is none: leave it out.")


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--kbps is {text!r}; write numbers with commas, for example 3,6,12.") from error
