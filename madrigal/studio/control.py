"""Trainings that the studio starts, stops and resumes: processes of their own, which outlive it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import yaml

from madrigal.engine.recipe import read_recipe, recipe_names
from madrigal.engine.run import LOCK, trained_by
from madrigal.engine.run import NAME as RECIPE_NAME
from madrigal.errors import UserError
from madrigal.studio.errors import ApiError, shown
from madrigal.studio.runs import OWN, Runs
from madrigal.studio.settings import MEGABYTE, StudioSettings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}(/[A-Za-z0-9][A-Za-z0-9._-]{0,60}){0,2}")
OVERRIDE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*=[^\n\r\0]*")
COMMENT = re.compile(r"\s#")
LOG = "training.log"
SEEN_SECONDS = 30.0
"""So long is waited for a training to begin, or to be refused by its own words."""


class Control:
    """Starts and stops trainings in the folder of the runs."""

    def __init__(self, settings: StudioSettings, runs: Runs) -> None:
        self._settings, self._runs = settings, runs
        self._lock = threading.Lock()

    def check_allowed(self) -> None:
        if not self._settings.control:
            raise ApiError(
                403, "Trainings are not controlled from here: start the studio with --control.", code="no_control"
            )

    def start(self, recipe: str, name: str, overrides: list[str]) -> dict[str, Any]:
        """A new run, from a recipe that comes with madrigal."""
        self.check_allowed()
        if recipe not in recipe_names():
            raise ApiError(400, f"There is no recipe {shown(recipe)}.", code="recipe_not_found", param="recipe")
        if not NAME.fullmatch(name):
            raise ApiError(
                400,
                "A run's name has letters, digits, dots, hyphens and underscores, with slashes between its parts.",
                code="invalid_name",
                param="name",
            )
        self._check_place(name)
        changed = [self._checked(override) for override in overrides]
        try:
            read_recipe(recipe, changed)
        except (UserError, RecursionError) as error:
            raise ApiError(400, str(error), code="invalid_override", param="overrides") from error
        folder = self._settings.folder / name
        with self._lock:
            if folder.exists():
                raise ApiError(409, f"There is something named {name} already.", code="run_exists", param="name")
            folder.mkdir(parents=True)
        return self._begin(name, folder, [recipe, *changed])

    def _check_place(self, name: str) -> None:
        """Not among what belongs to a run, or to the studio."""
        parts = name.split("/")
        taken = [part for part in parts if part in OWN]
        runs = self._runs.folders()
        taken += [above for end in range(1, len(parts)) if (above := "/".join(parts[:end])) in runs]
        if taken:
            raise ApiError(
                400,
                f"A run cannot lie in {taken[0]}, which holds something else; choose another name.",
                code="invalid_name",
                param="name",
            )

    def resume(self, name: str) -> dict[str, Any]:
        self.check_allowed()
        folder = self._runs.find(name)
        row = self._runs.row(name)
        if not row["can_resume"]:
            why = f"it is {row['state']}" if row["parent"] is None else f"it is a part of {row['parent']}"
            raise ApiError(409, f"{name} cannot be resumed: {why}.", code="not_resumable")
        return self._begin(name, folder, ["--resume"])

    def stop(self, name: str) -> dict[str, Any]:
        """Ask it to save and leave; it does when its step is done."""
        self.check_allowed()
        folder = self._runs.find(name)
        pid = self._runs.process_of(name, folder)
        if not pid:
            raise ApiError(409, f"{name} is not training here.", code="not_training")
        row = self._runs.row(name)  # one that has only just been started is not there any more when it is stopped
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError as error:
            raise ApiError(409, f"{name} could not be stopped.", code="not_training") from error
        return row

    def _begin(self, name: str, folder: Path, words: list[str]) -> dict[str, Any]:
        """A process in a session of its own: what happens to the studio does not happen to it."""
        command = [sys.executable, "-m", "madrigal.cli", "train", *words, "--run", str(folder.absolute())]
        is_new = not (folder / "recipe.yaml").exists()
        with (folder / LOG).open("ab") as log:
            begin = log.tell()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
            )
        self._runs.started[name] = process.pid
        words_said: Future[str] = Future()
        waiting = (name, folder, process, is_new, begin, words_said)
        threading.Thread(target=self._wait, args=waiting, daemon=True).start()
        until = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < until and not words_said.done():
            if trained_by(folder) is not None:
                break
            time.sleep(0.05)
        if words_said.done() and process.returncode == -signal.SIGTERM:
            raise ApiError(409, f"{name} was stopped before it began.", code="stopped")
        if words_said.done() and process.returncode != 0:
            raise ApiError(400, f"The training was refused: {words_said.result()}", code="training_refused")
        return self._runs.row(name)

    def _wait(
        self,
        name: str,
        folder: Path,
        process: "subprocess.Popen[bytes]",
        is_new: bool,
        begin: int,
        words_said: "Future[str]",
    ) -> None:
        """Until it ends, so that it is not left as a zombie; one that never began leaves its name to others."""
        process.wait()
        sentence = _last_line(folder / LOG, begin)
        if is_new and not (folder / "recipe.yaml").exists():
            _clear(folder)
        self._runs.started.pop(name, None)
        words_said.set_result(sentence)

    def _checked(self, override: str) -> str:
        """An override whose paths, if it has any, lie where data may lie."""
        if len(override) > 2000 or not OVERRIDE.fullmatch(override):
            raise ApiError(
                400, f"{shown(override)} is no override: write key=value.", code="invalid_override", param="overrides"
            )
        key, _, value = override.partition("=")
        if key.split(".")[0] == "data" and (place := self._data(value)) is not None:
            return f"{key}={place}"
        try:
            _check_plain(value)
            texts = list(_strings(yaml.safe_load(value)))
            if key == "data" or key.endswith("path"):
                texts.append(value)  # a folder's name may be a number
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ApiError(
                400,
                f"{shown(override)} cannot be read: write words, numbers, lists or mappings, without tags, aliases and "
                "comments.",
                code="invalid_override",
                param="overrides",
            ) from error
        for text in texts:
            if _is_path(text) and not self._is_inside(Path(text)):
                raise ApiError(
                    400,
                    f"{shown(text)} is in none of the folders that were named with --data-root.",
                    code="outside_data_roots",
                    param="overrides",
                )
        return override

    def _data(self, value: str) -> Path | None:
        """A folder of data by its name in a data root."""
        if not value or value.startswith(("{", "[", "/", "~")):
            return None
        for root in self._settings.data_roots:
            place = (root / value).resolve()
            if place.exists() and place.is_relative_to(root.resolve()):
                return place
        return None

    def _is_inside(self, path: Path) -> bool:
        roots = [*self._settings.data_roots, self._settings.folder]
        return any(path.resolve().is_relative_to(root.resolve()) for root in roots)


def _check_plain(value: str) -> None:
    """What is looked at has to be what a training reads."""
    if COMMENT.search(value):
        raise ValueError("a recipe takes a folder as it is written, with what is a comment elsewhere")
    for event in yaml.parse(value, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("a few aliases can stand for more than a machine holds")
        if getattr(event, "tag", None) is not None:
            raise ValueError("a tag makes something else of words, bytes for instance")


def _strings(value: Any) -> Iterator[str]:
    """All words in a value, those in lists and mappings too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _strings(key)
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif not isinstance(value, int | float | None):  # a date
        raise ValueError(f"no recipe holds a {type(value).__name__}")


def _is_path(text: str) -> bool:
    try:
        return "/" in text or "\\" in text or text.startswith(("~", ".")) or Path(text).exists()
    except (OSError, ValueError):
        return True


def _last_line(log: Path, begin: int) -> str:
    """Why a training was refused, by its own words, which are those from `begin` on."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            lines = file.read(MEGABYTE).decode(errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line for line in lines if line.startswith("madrigal: ")]
    return said[-1].removeprefix("madrigal: ") if said else "its log tells more."


def _clear(folder: Path) -> None:
    """What a training that never began leaves in the folder that was made for it: log, lock, lists of its data."""
    try:
        for file in (folder / LOG, folder / LOCK, folder / RECIPE_NAME):
            file.unlink(missing_ok=True)
        if not any(file.stat().st_size for file in folder.glob("data/*/rejected.jsonl")):
            shutil.rmtree(folder / "data", ignore_errors=True)
        for place in (folder / "checkpoints", folder):
            if place.exists():
                place.rmdir()
    except OSError:
        pass  # it holds something worth keeping
