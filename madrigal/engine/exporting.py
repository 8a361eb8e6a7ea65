"""A folder of several models, written whole or not at all, and where its parts are."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from madrigal.engine.learned import recipe_of
from madrigal.errors import UserError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
PARTIAL = ".partial-"


@contextmanager
def written_whole(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write into; what lies in it then takes the place of what `target` holds under the same names."""
    check_target(target, overwrite=overwrite)
    unfinished = target / f"{PARTIAL}{CONFIG}"
    is_ours = isinstance(config_of(target).get("kind"), str) or unfinished.exists()
    if not is_ours and target.exists() and any(not path.name.startswith(PARTIAL) for path in target.iterdir()):
        raise UserError(f"{target} holds something that is no exported model; name a new folder, or an empty one.")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=PARTIAL) as partial:
        yield Path(partial)
        # The old config goes first and the new one comes last: a folder that has one is whole. In between another name
        # says whose it is.
        unfinished.touch()
        (target / CONFIG).unlink(missing_ok=True)
        for made in sorted(Path(partial).iterdir(), key=lambda path: path.name == CONFIG):
            if (target / made.name).is_dir():
                shutil.rmtree(target / made.name)
            made.replace(target / made.name)
        unfinished.unlink()


def check_target(target: Path, *, overwrite: bool) -> None:
    """A model is never written into a run, nor over another model unless that is asked for."""
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; name a folder to write the model into.")
    whole = target.resolve()
    run = next((folder for folder in (whole, *whole.parents) if "system" in recipe_of(folder)), None)
    if run is not None:
        what = "is a run" if run == whole else f"lies in the run {run}"
        raise UserError(f"{target} {what}, and nothing is exported into a run; name a folder elsewhere.")
    if any((target / name).exists() for name in (CONFIG, WEIGHTS)) and not overwrite:
        raise UserError(f"{target} holds a model already; name another folder, or replace it with --overwrite.")


def config_of(folder: Path) -> dict[str, Any]:
    """What the folder's config.json says; nothing where it cannot be read."""
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def part_of(run: Path, part: str, value: Any) -> Path:
    """Inside the run, or where its recipe says; beside it, should all have been moved together."""
    if not isinstance(value, str):
        return run / part
    beside = run.parent / Path(value).parent.name / Path(value).name
    return beside if not Path(value).exists() and beside.exists() else Path(value)
