"""What the verbs share: options of the same name and meaning, a progress bar, JSON on the screen."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

import typer

from madrigal.errors import UserError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
LONGEST = 86_400
"""Seconds that can be asked for: a day."""
Device = Annotated[str, typer.Option(help="Where the stages run, such as cuda or cuda:1.")]


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were given."""
    return {name: value for name, value in options.items() if value is not None}


def refuse(options: Mapping[str, Any], kind: str, here: str) -> None:
    """An option that would not act is no option."""
    for name in given(options):
        raise UserError(f"--{name.replace('_', '-')} is for {kind}, and {here}: leave it out.")


class Bar:
    """A progress bar on a terminal, nothing elsewhere; inside it is a function of (done, total)."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._progress = Progress(console=console, disable=not console.is_terminal, transient=True)
        self._task = self._progress.add_task(label, total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __call__(self, done: float, total: float | None = None, *_: object) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def screen() -> Any:
    """A console for tables: as wide as the terminal, and without an edge where the output goes to a file or a pipe."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=1000)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
