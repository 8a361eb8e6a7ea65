"""The `madrigal` command.

Heavy imports wait inside the verbs, so that `--help` answers at once.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.engine.machine import keep_memory
from madrigal.errors import UserError

app = typer.Typer(
    name="madrigal",
    help="Trains, runs and judges generative models of sound and image.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

# Wherever this version of typer keeps its click: the common ancestor of wrong options and missing arguments.
Complaint: Any = typer.BadParameter.__mro__[2]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Codec = Annotated[
    str, typer.Option("--codec", help="A shipped codec's name, a run, a checkpoint, an exported folder or a hub name.")
]


@app.command()
def prepare(
    folder: Annotated[Path, typer.Argument(help="A folder of recordings, plain or in a known layout.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the manifest goes; default: prepared/NAME.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Files read at a time; default: twice the cores.")] = None,
    min_seconds: Annotated[float, typer.Option(min=0.0, help="Shorter files are rejected.")] = 0.1,
    full: Annotated[bool, typer.Option("--full", help="Decode every file, not only the doubtful ones.")] = False,
    as_json: Json = False,
) -> None:
    """Look through a folder of recordings and write its manifest.

    Files that cannot be used are listed in `rejected.jsonl` with the reason. The folder itself is never changed.

    Example: `madrigal prepare recordings -o prepared/recordings`
    """
    from madrigal.data.prepare import prepare as run

    target = out or Path("prepared") / folder.resolve().name
    with _bar("Reading") as update:
        done = run(
            folder,
            target,
            workers=workers,
            min_seconds=min_seconds,
            check="full" if full else "doubtful",
            progress=update,
        )
    if as_json:
        found = {"files": len(done.manifest), "seconds": done.manifest.seconds, "rejected": done.reasons}
        _print_json({"manifest": str(done.manifest_path), **found})
    else:
        typer.echo(done.summary)


@app.command()
def train(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="RECIPE [KEY=VALUE]...", help="A recipe, and what to change in it.")
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="The run's folder, such as runs/codec.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
    overwrite: Overwrite = False,
    list_recipes: Annotated[bool, typer.Option("--list", help="List the recipes and leave.")] = False,
) -> None:
    """Train a model from a recipe, stop and go on at will.

    With --resume the recipe may be left out: the run has its own. SIGINT and SIGTERM save and leave.

    Example: `madrigal train soundstream/cpu data=recordings plan.lr=1e-4 --run runs/codec`
    """
    from madrigal.engine.recipe import recipe_names

    if list_recipes:
        typer.echo("\n".join(recipe_names()))
        return
    if run is None:
        raise UserError("Name the run's folder with --run, for example --run runs/codec.")
    if resume and overwrite:
        raise UserError("--resume goes on and --overwrite starts over: give one of them.")
    name, overrides = _recipe_and_overrides(arguments or [], run if resume else None)
    recipe = _load_recipe(name, overrides)
    recipe.trainer(run, resume=resume, overwrite=overwrite).train()


@app.command()
def compress(
    source: Annotated[Path, typer.Argument(help="An audio file of any length.")],
    target: Annotated[Path, typer.Argument(help="The .mgl file to write.")],
    kbps: Annotated[float, typer.Option(help="Thousands of bits per second, all channels together.")] = 6.0,
    codec: Codec = "speech-16k",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Compress a recording with a neural codec.

    Example: `madrigal compress speech.wav speech.mgl --kbps 6`
    """
    from madrigal.soundstream.compression import compress as run

    model = _codec(codec)
    with _bar("Compressing") as update:
        done = run(model, source, target, kbps=kbps, codec_name=codec, overwrite=overwrite, progress=update)
    if as_json:
        _print_json({"seconds": done.seconds, "bytes": done.bytes, "kbps": done.kbps, "file": str(target)})
    else:
        typer.echo(f"{done.seconds:.1f} s -> {done.bytes} bytes, {done.kbps:.2f} kbps: {target}")


@app.command()
def decompress(
    source: Annotated[Path, typer.Argument(help="A .mgl file.")],
    target: Annotated[Path, typer.Argument(help="The audio file to write: wav or flac.")],
    codec: Codec = "speech-16k",
    overwrite: Overwrite = False,
) -> None:
    """Turn a compressed recording back into audio, with the codec that compressed it.

    Example: `madrigal decompress speech.mgl speech.wav`
    """
    from madrigal.soundstream.compression import decompress as run

    model = _codec(codec)
    with _bar("Decompressing") as update:
        run(model, source, target, overwrite=overwrite, progress=update)
    typer.echo(f"{target}")


@app.command()
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

    with _bar("Judging") as update:
        report, folder = evaluate_run(
            run,
            data=data,
            out=out,
            rates=None if kbps is None else _rates(kbps),
            limit=limit,
            opus=opus,
            recogniser=recogniser,
            progress=update,
        )
    if as_json:
        typer.echo(report.to_json())
        return
    show(report)
    typer.echo(f"Report: {folder / 'report.html'}")


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="A run or a checkpoint.")],
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    online: Annotated[bool, typer.Option("--online", help="The last weights, not their average.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a trained model as config.json and model.safetensors, for `from_pretrained`.

    Example: `madrigal export runs/codec codecs/mine`
    """
    from madrigal.soundstream.codec import SoundStream

    model = SoundStream.from_pretrained(run, averaged=not online, discriminators=False)
    if (target / "config.json").exists() and not overwrite:
        raise UserError(f"{target} holds a model already; name another folder, or replace it with --overwrite.")
    typer.echo(str(model.save_pretrained(target)))


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds the runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder: system, step, last figures.

    Example: `madrigal runs`
    """
    from madrigal.engine.run import summaries

    rows = summaries(folder)
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        figures = "  ".join(f"{name} {value:.4g}" for name, value in row["figures"].items())
        typer.echo(f"{row['run']}  {row['system']}  step {row['step']}/{row['num_train_steps']}  {figures}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the demo goes.")] = Path("demo"),
) -> None:
    """Render speech, train a tiny codec on it, resume it once, judge it, and write a page to hear and look at.

    Example: `madrigal demo -o demo`
    """
    from madrigal.demo import run_demo

    typer.echo(f"Open {run_demo(out)}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command: 0 for success, 2 with one sentence for a mistake, a traceback only with --debug."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    arguments = arguments or ["--help"]
    # Before torch is loaded: what it allocates from the start should be kept.
    keep_memory()
    try:
        app(args=arguments, prog_name="madrigal", standalone_mode=False)
    except Complaint as error:
        message = error.format_message()
        sys.exit(_tell(f"{message}{'' if message[-1:] in '.?' else '.'} See madrigal --help."))
    except (UserError, OSError) as error:
        if debug:
            raise
        sys.exit(_tell(str(error) if isinstance(error, UserError) else _of_the_system(error)))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)


def _tell(sentence: str) -> int:
    typer.echo(f"madrigal: {' '.join(sentence.split())}", err=True)
    return 2


def _of_the_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; look at the place, its permissions and whether the disk is full."


def _recipe_and_overrides(arguments: list[str], resumed: Path | None) -> tuple[str, list[str]]:
    names = [a for a in arguments if "=" not in a]
    overrides = [a for a in arguments if "=" in a]
    if len(names) > 1:
        raise UserError(f"One recipe at a time: {' and '.join(names)} were given.")
    if names:
        return names[0], overrides
    if resumed is not None and (resumed / "recipe.yaml").exists():
        return str(resumed / "recipe.yaml"), overrides
    if resumed is not None:
        raise UserError(f"There is no run in {resumed} to go on with: check --run, or name a recipe to start one.")
    raise UserError("Name a recipe, for example soundstream/cpu; `madrigal train --list` shows them.")


def _load_recipe(name: str, overrides: list[str]) -> Any:
    from importlib import import_module

    from madrigal.engine.recipe import build_config, read_recipe

    values = read_recipe(name, overrides)
    systems = {"soundstream": ("madrigal.soundstream.recipe", "SoundStreamRecipe")}
    system = values["system"]
    if not isinstance(system, str) or system not in systems:
        raise UserError(f"There is no system {system!r}; there is {', '.join(systems)}.")
    module, kind = systems[system]
    return build_config(getattr(import_module(module), kind), values, f"The recipe {name}")


def _codec(name: str) -> Any:
    from madrigal.engine.machine import prepare_process
    from madrigal.soundstream.codec import SoundStream

    prepare_process()
    return SoundStream.from_pretrained(name, discriminators=False).eval()


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--kbps is {text!r}; write numbers with commas, for example 3,6,12.") from error


class _bar:
    """A progress bar on a terminal, nothing elsewhere; gives a function of (done, total)."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._progress = Progress(console=console, disable=not console.is_terminal, transient=True)
        self._task = self._progress.add_task(label, total=None)

    def __enter__(self) -> Any:
        self._progress.start()
        return self._update

    def _update(self, done: float, total: float | None = None, *_: object) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
