"""A run is a folder; everything that shows a run reads this folder and nothing else.

runs/NAME/
  recipe.yaml        resolved: the run can be repeated from it alone
  recipe.name        what that recipe was called, where the run was started by a command
  recipe.step-….yaml what it was up to that step, where the run was resumed with another
  environment.json   versions and machine
  metrics.jsonl      one line a logged step
  samples/step-…/    things to hear, look at or read
  checkpoints/step-…/
  training.lock      held by the process that trains it, and free when that is gone, however it went
"""

import errno
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import yaml

try:
    import fcntl
except ImportError:  # no POSIX: nobody can tell who trains a run
    fcntl = None  # type: ignore[assignment]

from madrigal.engine.checkpoint import checkpoint_name, checkpoints, newest_whole, read_state
from madrigal.errors import UserError

LOCK, NAME = "training.lock", "recipe.name"


class RunFolder:
    """The places of a run and the few files that are not checkpoints."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.recipe = self.path / "recipe.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.samples = self.path / "samples"

    @property
    def has_checkpoint(self) -> bool:
        return bool(checkpoints(self.checkpoints))

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Make the folder; a run that is there already is refused unless the user said how to take it."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"The run folder {self.path} is a file; name another one with --run.")
        if not (resume or overwrite) and (self.has_checkpoint or self.metrics.exists()):
            found = checkpoints(self.checkpoints)
            where = f"at {found[-1].name}" if found else "without a checkpoint"
            raise UserError(
                f"{self.path} already holds a run {where}: add --resume (resume=True) to go on, "
                "--overwrite (overwrite=True) to start over, or name another run."
            )
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK):
                raise PermissionError("it is read-only")
        except OSError as error:
            raise UserError(
                f"The run folder {self.path} cannot be written ({error.strerror or error}); "
                "name another one with --run."
            ) from error

    def clear(self) -> None:
        """Remove the run that was there, and nothing else that lies in the folder."""
        with writing(self.path):
            for part in (self.checkpoints, self.samples):
                if part.exists():
                    shutil.rmtree(part)
            for file in (self.metrics, self.recipe, self.path / NAME, *self.path.glob("recipe.step-*.yaml")):
                file.unlink(missing_ok=True)
            self.checkpoints.mkdir()

    def write_recipe(
        self, recipe: dict[str, Any], environment: dict[str, Any], *, former: tuple[int, dict[str, Any]] | None = None
    ) -> None:
        """Write what the run is made by; `former` is what it was made by up to a step, and stays beside it."""
        if former is not None:
            step, old = former
            replace_file(self.path / f"recipe.{checkpoint_name(step)}.yaml", _as_yaml(old))
        replace_file(self.recipe, _as_yaml(recipe))
        replace_file(self.path / "environment.json", json.dumps(environment, indent=2) + "\n")

    @property
    def recipe_name(self) -> str | None:
        """What the recipe was called that the run began with."""
        try:
            return (self.path / NAME).read_text().strip()[:200] or None
        except (OSError, ValueError):
            return None

    def name_recipe(self, name: str) -> None:
        replace_file(self.path / NAME, name + "\n")

    def log(self, step: int, values: dict[str, float]) -> None:
        """Append one line to `metrics.jsonl`; what is no finite number is null there, as JSON knows no other word."""
        figures = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = {"step": step, "time": round(time.time(), 3), **figures}
        with writing(self.metrics), self.metrics.open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def last_figures(self) -> dict[str, Any]:
        """The last whole line of `metrics.jsonl`; a killed process may have left half a line after it."""
        lines = self.metrics.read_text().splitlines() if self.metrics.exists() else []
        return next((figures for line in reversed(lines) if (figures := _figures(line))), {"step": 0})

    def forget_after(self, step: int) -> None:
        """Drop the lines of steps that a resumed run is about to take again."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text().splitlines()
        kept = [line + "\n" for line in lines if (figures := _figures(line)) and figures["step"] <= step]
        replace_file(self.metrics, "".join(kept))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, others can see that this process trains the run; a second one is refused."""
        if fcntl is None:
            yield
            return
        place = self.path / LOCK
        with self._locked(place) as file:
            file.truncate(0)
            file.write(f"{os.getpid()} {_here()}\n")
            file.flush()
            try:
                yield
            finally:
                place.unlink(missing_ok=True)

    def _locked(self, place: Path) -> TextIO:
        """The lock's file, held. One that its last holder has removed meanwhile is the lock of nothing."""
        for tries_left in range(20, -1, -1):
            with writing(place):
                file = place.open("a+")
            try:
                # Of the process alone: what it forks does not hold it, and a kill lets it go.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, place):
                    return file
                file.close()
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    return file  # a file system without locks
                file.close()
                if not tries_left:
                    who = trained_by(self.path) or "on another machine"
                    raise UserError(
                        f"{self.path} is being trained by another process ({who}): wait for it, "
                        "stop it, or name another run."
                    ) from error
                time.sleep(0.05)  # somebody may only have looked
        raise UserError(f"{place} is removed again and again; end whatever does so.")

    def checkpoint(self, which: str = "best") -> Path:
        """The folder of the `best` or the `newest` whole checkpoint, or of a step number."""
        found = checkpoints(self.checkpoints)
        if not found:
            raise UserError(f"{self.path} holds no checkpoint; train first, or name another run.")
        if which.isdigit():
            wanted = self.checkpoints / checkpoint_name(int(which))
            if wanted not in found:
                raise UserError(
                    f"{self.path} has no checkpoint of step {which}; it has {', '.join(p.name for p in found)}."
                )
            return wanted
        newest = newest_whole(self.checkpoints)
        if newest is None:
            raise UserError(f"No checkpoint in {self.checkpoints} is whole; train again, or name another run.")
        best = read_state(newest).get("best") if which == "best" else None
        if best and (self.checkpoints / checkpoint_name(best["step"])).exists():
            return self.checkpoints / checkpoint_name(best["step"])
        return newest


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk or a lost permission becomes one sentence that names `path`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} could not be written ({error.strerror or error}); "
            "make room or choose another --run folder, then go on with --resume."
        ) from error


def trained_by(path: Path) -> int | None:
    """The process that trains the run in this folder now; None where there is none, 0 where its number says nothing
    here: it is another machine's or container's, or it has not written yet who it is.
    """
    if fcntl is None:
        return None
    try:
        with (path / LOCK).open("r") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                number, _, where = file.read().strip().partition(" ")
                return int(number) if where == _here() else 0
    except (OSError, ValueError):
        pass
    return None


def _is_at(file: TextIO, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except FileNotFoundError:
        return False


def _here() -> str:
    """Where the number of a process stands for that process: this machine, and this container on it."""
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def replace_file(path: Path, text: str) -> None:
    """Write `text` so that a kill leaves either the old file or the new one."""
    partial = path.with_name(f".partial-{path.name}")
    try:
        with writing(path):
            partial.write_text(text)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _as_yaml(recipe: dict[str, Any]) -> str:
    return yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True)


def _figures(line: str) -> dict[str, Any] | None:
    """A line of `metrics.jsonl`; None for one that a killed process cut short."""
    with suppress(ValueError):
        figures = json.loads(line, parse_constant=lambda _: None)
        if isinstance(figures, dict) and isinstance(figures.get("step"), int):
            return figures
    return None


def summaries(folder: Path) -> list[dict[str, Any]]:
    """What can be said of each run in `folder` from its files alone."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; name the folder that holds your runs.")
    found = []
    for path in sorted(p.parent for p in folder.glob("*/recipe.yaml")):
        parts = sorted(p.parent for p in path.glob("*/recipe.yaml"))
        if parts and not (path / "checkpoints").is_dir():
            found += summaries(path)  # a run of several parts is what its parts are
            continue
        run = RunFolder(path)
        recipe = _recipe(run.recipe)
        last = run.last_figures()
        figures = {k: v for k, v in last.items() if k.startswith("valid/") or k.endswith("loss")}
        found.append(
            {
                "run": str(path),
                "system": recipe.get("system"),
                "step": last["step"],
                "num_train_steps": recipe.get("plan", {}).get("num_train_steps"),
                "figures": figures,
            }
        )
    return found


def _recipe(path: Path) -> dict[str, Any]:
    """A run's recipe as far as it can be read: one damaged run must not hide the others."""
    try:
        recipe = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    whole = isinstance(recipe, dict) and isinstance(recipe.get("plan", {}), dict)
    return dict(recipe) if whole else {}
