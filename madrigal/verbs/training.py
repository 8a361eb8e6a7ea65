"""`train` and `runs`: from a recipe to a run, and what runs there are."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from madrigal.errors import UserError
from madrigal.verbs.terminal import Json, Overwrite, print_json


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
    from madrigal.engine.run import RunFolder
    from madrigal.verbs.systems import load_recipe

    if list_recipes:
        typer.echo("\n".join(recipe_names()))
        return
    if run is None:
        raise UserError("Name the run's folder with --run, for example --run runs/codec.")
    if resume and overwrite:
        raise UserError("--resume goes on and --overwrite starts over: give one of them.")
    name, overrides = _recipe_and_overrides(arguments or [], run if resume else None)
    recipe = load_recipe(name, overrides)
    with _nothing_left_of_a_refused_run(run):
        trainer = recipe.trainer(run, resume=resume, overwrite=overwrite)
    if os.environ.get("RANK", "0") == "0" and Path(name) != run / "recipe.yaml":
        RunFolder(run).name_recipe(name if name in recipe_names() else Path(name).stem)
    trainer.train()


@contextmanager
def _nothing_left_of_a_refused_run(run: Path) -> Iterator[None]:
    """A run that cannot begin leaves no folders behind, unless they say which recordings were rejected."""
    new = [folder for folder in (run / "checkpoints", run, *run.parents) if not folder.exists()]
    try:
        yield
    except (UserError, OSError):
        rejected = any(file.stat().st_size for file in run.glob("data/*/rejected.jsonl"))
        if run in new and not rejected and os.environ.get("RANK", "0") == "0":
            shutil.rmtree(run, ignore_errors=True)
        for folder in new:
            with suppress(OSError):  # it is not empty, or was never made
                folder.rmdir()
        raise


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
        print_json(rows)
        return
    for row in rows:
        # A figure that was no finite number has no value.
        known = {name: "-" if value is None else f"{value:.4g}" for name, value in row["figures"].items()}
        figures = "  ".join(f"{name} {value}" for name, value in known.items())
        typer.echo(f"{row['run']}  {row['system']}  step {row['step']}/{row['num_train_steps']}  {figures}")
