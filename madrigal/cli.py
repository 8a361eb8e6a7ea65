"""The `madrigal` command: its verbs, and how it tells a mistake.

Heavy imports wait inside the verbs, so that `--help` answers at once.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer

from madrigal import __version__
from madrigal.__main__ import STOPPED
from madrigal.engine.machine import keep_memory
from madrigal.errors import UserError

VERBS = {
    "prepare": "madrigal.verbs.data:prepare",
    "tokenize": "madrigal.verbs.tokenize:tokenize",
    "align": "madrigal.verbs.align:align",
    "train": "madrigal.verbs.training:train",
    "pseudo-label": "madrigal.verbs.pseudo_label:pseudo_label",
    "generate": "madrigal.verbs.generate:generate",
    "say": "madrigal.verbs.say:say",
    "edit": "madrigal.verbs.edit:edit",
    "denoise": "madrigal.verbs.edit:denoise",
    "compress": "madrigal.verbs.codec:compress",
    "decompress": "madrigal.verbs.codec:decompress",
    "search": "madrigal.verbs.search:search",
    "evaluate": "madrigal.verbs.judging:evaluate",
    "export": "madrigal.verbs.models:export",
    "runs": "madrigal.verbs.training:runs",
    "studio": "madrigal.verbs.studio:studio",
    "demo": "madrigal.verbs.demo:demo",
}
"""In the order of the help text: name to `module:function`."""

app = typer.Typer(
    name="madrigal",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"madrigal {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    """Trains, runs and judges generative models of sound and image."""


for verb, place in VERBS.items():
    module, _, function = place.partition(":")
    app.command(verb)(getattr(import_module(module), function))

# Wherever this version of typer keeps its click: the common ancestor of wrong options and missing arguments.
Complaint: Any = typer.BadParameter.__mro__[2]


def main(arguments: list[str] | None = None) -> None:
    """Run the command: 0 for success, 2 with one sentence for a mistake, a traceback only with --debug."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    arguments = arguments or ["--help"]
    # Before torch is loaded: what it allocates from the start should be kept.
    keep_memory()
    with _noticing_ctrl_c() as was_stopped:
        try:
            status = app(args=arguments, prog_name="madrigal", standalone_mode=False)
        except (typer.Abort, KeyboardInterrupt):
            status = STOPPED
        except Exception as error:
            if was_stopped():  # an import that was broken off has its own words for it
                status = STOPPED
            elif isinstance(error, Complaint):
                sys.exit(_tell(_of_the_words(error.format_message(), arguments)))
            elif isinstance(error, (UserError, OSError)) and not debug:
                sys.exit(_tell(str(error) if isinstance(error, UserError) else _of_the_system(error)))
            else:
                raise
    if status:  # typer gives back what it was left with, Ctrl-C among it
        if status == STOPPED:
            typer.echo("madrigal: stopped.", err=True)
        sys.exit(status)


@contextmanager
def _noticing_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C came, whatever became of its KeyboardInterrupt."""
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    before: Any = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # not the main thread: the program that owns it handles signals
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, before)


def _tell(sentence: str) -> int:
    typer.echo(f"madrigal: {' '.join(sentence.split())}", err=True)
    return 2


def _of_the_words(message: str, arguments: list[str]) -> str:
    """What is wrong with the command's words, and whose help tells more."""
    verb = f" {arguments[0]}" if arguments[0] in VERBS else ""
    return f"{message}{'' if message[-1:] in '.?' else '.'} See madrigal{verb} --help."


def _of_the_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; look at the place, its permissions and whether the disk is full."


if __name__ == "__main__":
    main()
