"""Runs as the studio shows them: read from their folders, and from nothing else."""

import json
import os
import threading
import time
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from madrigal.engine.changes import changes
from madrigal.engine.checkpoint import checkpoints
from madrigal.engine.learned import recipe_of
from madrigal.engine.run import RunFolder, trained_by
from madrigal.studio.errors import ApiError, shown

OWN = frozenset({"checkpoints", "samples", "tokens", "data", "voices", "listening", "prepared"})
"""Folders of a run, or of the studio, that hold no runs."""
DEEPEST = 4
SIZE_SECONDS = 20.0
KINDS = {".wav": "audio", ".flac": "audio", ".png": "image", ".jpg": "image", ".txt": "text"}
MEDIA = {".wav": "audio/wav", ".flac": "audio/flac", ".png": "image/png", ".jpg": "image/jpeg", ".txt": "text/plain"}


MOST_FOLDERS = 5_000
"""So many are looked into: somebody's data may lie among the runs."""


def run_folders(root: Path) -> dict[str, Path]:
    """All runs below `root` by their names, which are their places in it, with slashes."""
    found: dict[str, Path] = {}
    looked = 0

    def look(folder: Path, depth: int) -> None:
        nonlocal looked
        looked += 1
        if looked > MOST_FOLDERS:
            return
        try:
            below = [entry for entry in os.scandir(folder) if entry.is_dir()]
        except OSError:
            return
        for entry in below:
            if entry.name in OWN or entry.name.startswith("."):
                continue
            path = Path(entry.path)
            if (path / "recipe.yaml").is_file():
                found[path.relative_to(root).as_posix()] = path
            if depth < DEEPEST:
                look(path, depth + 1)

    look(root, 1)
    return dict(sorted(found.items()))


class Recipes:
    """Recipes of runs; one that has not changed is not read again."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, dict[str, Any]]] = {}

    def of(self, run: Path) -> dict[str, Any]:
        try:
            changed = (run / "recipe.yaml").stat().st_mtime_ns
        except OSError:
            return {}
        known = self._known.get(run)
        if known is None or known[0] != changed:
            known = self._known[run] = (changed, recipe_of(run))
        return known[1]


class Runs:
    """The runs of a folder, with what was read of their figures kept, for they are asked for again and again."""

    def __init__(self, root: Path, *, control: bool = False) -> None:
        self.root, self.control = root, control
        self.recipes = Recipes()
        self._sizes: dict[Path, tuple[float, int]] = {}
        self.started: dict[str, int] = {}
        """Processes that this studio has started, by run: they may not have got as far as the run's lock."""
        self._figures: OrderedDict[Path, _Figures] = OrderedDict()
        self._lock = threading.Lock()

    def folders(self) -> dict[str, Path]:
        """All runs, and those that have only just been started."""
        begun = {name: self.root / name for name in list(self.started)}
        return dict(sorted({**begun, **run_folders(self.root)}.items()))

    def process_of(self, name: str, path: Path) -> int | None:
        """Who trains the run, or the whole that it is a part of, now."""
        return trained_by(path) or self.started.get(name)

    def find(self, name: str) -> Path:
        """The folder of a run that is listed."""
        folders = self.folders()
        if name not in folders:
            raise ApiError(404, f"There is no run {shown(name)}.", code="run_not_found", param="run")
        return folders[name]

    def rows(self) -> list[dict[str, Any]]:
        folders = self.folders()
        return [self._row(name, path, folders) for name, path in folders.items()]

    def row(self, name: str) -> dict[str, Any]:
        path, folders = self.find(name), self.folders()
        run, environment = RunFolder(path), _json(path / "environment.json")
        steps = [(step_of(folder), folder) for folder in checkpoints(run.checkpoints)]
        return {
            **self._row(name, path, folders),
            "recipe_text": _text(run.recipe),
            "environment": environment,
            "checkpoints": [
                {"step": step, "size_bytes": size_of(folder)} for step, folder in steps if step is not None
            ],
            "metrics": self.figures(path).names,
        }

    def _row(self, name: str, path: Path, folders: dict[str, Path]) -> dict[str, Any]:
        recipe, run = self.recipes.of(path), RunFolder(path)
        plan = recipe.get("plan")
        parents = [other for other in folders if name.startswith(other + "/")]
        parts = [folders[other] for other in folders if other.startswith(name + "/")]
        figures = self.figures(path)
        total = plan.get("num_train_steps") if isinstance(plan, dict) else None
        step = figures.last_step
        state = self._state(name, path, parts, recipe, step, total)
        parent = max(parents, key=len, default=None)
        return {
            "id": name,
            "system": str(recipe["system"]) if "system" in recipe else None,
            "recipe": self._recipe_name(name, path, parent, folders),
            "state": state,
            "step": step,
            "total_steps": total if isinstance(total, int) else None,
            "loss": figures.loss,
            "updated": _updated(run, parts),
            "size_bytes": self._size(path),
            "parent": parent,
            "has_samples": bool(sample_steps(path)),
            "can_resume": state == "stopped" and parent is None,
            "can_stop": bool(self.process_of(name, path)),
            "controllable": self.control,
        }

    def _recipe_name(self, name: str, path: Path, parent: str | None, folders: dict[str, Path]) -> str | None:
        """Which recipe the run began with: its own, or that which the whole names for this part of it."""
        if (own := RunFolder(path).recipe_name) is not None or parent is None:
            return own
        part = self.recipes.of(folders[parent]).get(name.removeprefix(f"{parent}/"))
        named = part.get("recipe") if isinstance(part, dict) else None
        return named if isinstance(named, str) else None

    def _state(self, name: str, path: Path, parts: list[Path], recipe: dict[str, Any], step: int, total: object) -> str:
        if name in self.started or any(trained_by(place) is not None for place in (path, *parts)):
            return "training"
        if parts and not (path / "checkpoints").is_dir():
            wanted = [self.recipes.of(part).get("plan") for part in parts]
            ends = [plan.get("num_train_steps") if isinstance(plan, dict) else None for plan in wanted]
            steps = [self.figures(part).last_step for part in parts]
            trained = [key for key, value in recipe.items() if isinstance(value, dict) and "recipe" in value]
            done = all(isinstance(end, int) and step >= end for step, end in zip(steps, ends, strict=True) if end)
            return "finished" if done and len(parts) >= len(trained) else "stopped"
        if isinstance(total, int) and step >= total:
            return "finished"
        return "stopped" if recipe else "unknown"

    def _size(self, path: Path) -> int:
        """Of all files; counted again after a while, for there may be many."""
        now, known = time.monotonic(), self._sizes.get(path)
        if known is None or now - known[0] > SIZE_SECONDS:
            known = self._sizes[path] = (now, size_of(path))
        return known[1]

    def figures(self, path: Path) -> "_Figures":
        """What `metrics.jsonl` holds; only what is new is read again."""
        file = path / "metrics.jsonl"
        with self._lock:
            known = self._figures.pop(file, None) or _Figures()
            known = known.read_on(file)
            self._figures[file] = known
            while len(self._figures) > 256:
                self._figures.popitem(last=False)
            return known

    def series(self, name: str, names: list[str] | None, since: int, points: int) -> dict[str, Any]:
        """Some of the curves of a run, thinned."""
        figures = self.figures(self.find(name))
        known = figures.names
        wanted = known if names is None else [one for one in names if one in known]
        curves = {one: _thinned([p for p in figures.curve(one) if p[0] > since], points) for one in wanted}
        return {"series": curves, "last_step": figures.last_step}

    def samples(self, name: str) -> list[dict[str, Any]]:
        """What can be heard, seen or read of a run, newest first."""
        from urllib.parse import quote

        path = self.find(name)
        steps = []
        for step, folder in sorted(sample_steps(path).items(), reverse=True):
            items = []
            for file in listed_files(folder):
                group, _, role = file.stem.partition("-")
                url = f"/api/runs/{quote(name, safe='')}/samples/{step}/{quote(file.name)}"
                items.append(
                    {
                        "name": file.name,
                        "kind": KINDS[file.suffix],
                        "url": url,
                        "group": group,
                        "role": role or "sample",
                    }
                )
            steps.append({"step": step, "items": items})
        return steps

    def sample(self, name: str, step: int, file_name: str) -> Path:
        """One file of a run's samples, out of their listing."""
        folder = sample_steps(self.find(name)).get(step)
        for file in [] if folder is None else listed_files(folder):
            if file.name == file_name:
                return file
        raise ApiError(404, f"There is no sample {shown(file_name)} at step {step}.", code="sample_not_found")

    def diff(self, left: str, right: str) -> list[dict[str, Any]]:
        """The keys in which two recipes differ."""
        found = changes(self.recipes.of(self.find(left)), self.recipes.of(self.find(right)))
        return [{"key": key, "left": _said(a), "right": _said(b)} for key, (a, b) in found.items()]


@dataclass
class _Figures:
    """The figures of a run by name, up to a place in the file that they were read from.

    Several requests may look at them while another reads on.
    """

    inode: int = 0
    place: int = 0
    last_step: int = 0
    values: "dict[str, tuple[array[int], array[float]]]" = field(default_factory=dict)
    """Steps, and what it was at them."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def names(self) -> list[str]:
        with self.lock:
            return list(self.values)

    @property
    def loss(self) -> dict[str, Any] | None:
        """The figure that says most: the validation's where there is one, else the loss."""
        known = self.names
        names = [name for name in known if name.startswith("valid/") and name.endswith("loss")]
        names += [name for name in known if name.endswith("loss")] + known
        return {"name": names[0], "value": self.curve(names[0])[-1][1]} if names else None

    def curve(self, name: str) -> list[tuple[int, float]]:
        """[(step, value)]."""
        with self.lock:
            return list(zip(*self.values[name], strict=True))

    def read_on(self, file: Path) -> "_Figures":
        try:
            with file.open("rb") as opened:
                found = os.fstat(opened.fileno())
                if found.st_ino != self.inode or found.st_size < self.place:
                    self = _Figures(inode=found.st_ino)  # another file: the run has gone back some steps
                opened.seek(self.place)
                fresh = opened.read()
        except OSError:
            return _Figures()
        whole = fresh.rfind(b"\n") + 1  # a line may be half written
        self.place += whole
        for line in fresh[:whole].splitlines():
            self._take(line)
        return self

    def _take(self, line: bytes) -> None:
        try:
            figures = json.loads(line)
            step = int(figures.pop("step"))
            numbers = {
                name: float(value)
                for name, value in figures.items()
                if name != "time" and isinstance(value, int | float) and not isinstance(value, bool)
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return
        if not 0 <= step < 2**63:
            return
        with self.lock:
            self.last_step = max(step, self.last_step)
            for name, value in numbers.items():
                steps, values = self.values.setdefault(name, (array("q"), array("d")))
                steps.append(step)
                values.append(value)


def sample_steps(path: Path) -> dict[int, Path]:
    """The folders of samples by step."""
    try:
        found = [
            (step_of(Path(entry.path)), Path(entry.path)) for entry in os.scandir(path / "samples") if entry.is_dir()
        ]
    except OSError:
        return {}
    return {step: folder for step, folder in found if step is not None}


def listed_files(folder: Path) -> list[Path]:
    """The files of a folder of samples that can be shown; links are not followed."""
    try:
        return sorted(
            Path(entry.path)
            for entry in os.scandir(folder)
            if entry.is_file(follow_symlinks=False) and Path(entry.name).suffix in KINDS
        )
    except OSError:
        return []


def step_of(folder: Path) -> int | None:
    """Of `step-00000400`."""
    number = folder.name.removeprefix("step-")
    return int(number) if folder.name.startswith("step-") and number.isascii() and number.isdigit() else None


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total


def _updated(run: RunFolder, parts: list[Path]) -> float:
    times = [0.0]
    for path in (run.metrics, run.recipe, *(part / "metrics.jsonl" for part in parts)):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return round(max(times), 3)


def _thinned(curve: list[tuple[int, float]], points: int) -> list[tuple[int, float]]:
    """At most so many points, evenly, the first and the last among them."""
    if len(curve) <= points:
        return curve
    last = len(curve) - 1
    return [curve[round(i * last / (points - 1))] for i in range(points)] if points > 1 else [curve[-1]]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:1_000_000]
    except OSError:
        return ""


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(value: Any) -> str:
    if isinstance(value, dict | list):
        return yaml.safe_dump(value, default_flow_style=True).strip()
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
