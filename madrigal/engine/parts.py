"""Runs of several parts: each a run of its own in a folder of the run, one after another, each going on where it was.

A system names the parts and what each is given; what comes between two of them it does in `before`.
"""

import os
import shutil
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

from madrigal.data.manifest import MANIFEST, Manifest
from madrigal.data.source import Source, manifest_of
from madrigal.data.tokens import TOKENS as SHARDS
from madrigal.engine.changes import changes, told
from madrigal.engine.checkpoint import newest_whole, read_state
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.engine.run import NAME, RunFolder, replace_file
from madrigal.errors import UserError

TOKENS, DATA = "tokens", "data"
TRAIN, VALID = "train", "valid"


def name_of_part(value: Any) -> Any:
    """`coarse=RUN` on the command line falls upon the recipe of one to train, and takes its place.

    A folder is named from the root: a run is used from other places than the one it was trained in.
    """
    value = value["path"] if isinstance(value, dict) and "path" in value else value
    return str(Path(value).absolute()) if isinstance(value, str) and Path(value).is_dir() else value


class WholeRecipe(BaseModel):
    """A part names its own recipe, and what to change in it: `{recipe: semantic/cpu, plan: {…}}`.

    A part may also be a finished run's name, or nothing where it is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: ClassVar[str]
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]]
    """The parts of a run, in order, and the recipes that each may have; each is a run in a folder of this name."""
    one_by_one: ClassVar[str]
    """How to train the parts without the whole, for people with several processes."""
    leaves: ClassVar[dict[str, str]] = {}
    """A file that a part leaves in its folder when it is finished."""
    makes: ClassVar[tuple[str, ...]] = (TOKENS, DATA)
    """The folders beside the parts that a run makes for itself."""

    @model_validator(mode="after")
    def _parts_are_known(self) -> Self:
        """Before anything runs: hours later is too late to learn that a key of the last part is unknown."""
        for name in self.parts:
            self.part(name, Path("RUN"))
        return self

    @property
    def parts(self) -> list[str]:
        """The parts that are to be trained, in order."""
        return [name for name in self.kinds if isinstance(getattr(self, name), dict)]

    def part(self, name: str, run: Path) -> Any:
        """The recipe of one part of the run at `run`."""
        values = dict(getattr(self, name))
        if "recipe" in values:
            values = merged(read_recipe(values.pop("recipe")), values)
        data = values.get("data", {})
        given = self.given(name, run)
        given["data"] = {**(data if isinstance(data, dict) else {}), **given.get("data", {})}
        return build_config(self._kind(name, values.get("system")), {**values, **given}, f"The recipe's {name}")

    def _kind(self, name: str, system: Any) -> type[BaseModel]:
        """The recipe of a part by its `system`; the first where it names none of them, which then refuses it."""
        kinds = self.kinds[name]
        return next((kind for kind in kinds if system in get_args(kind.model_fields["system"].annotation)), kinds[0])

    def given(self, name: str, run: Path) -> dict[str, Any]:
        """What the whole says to a part: its data, and what other parts have made."""
        raise NotImplementedError

    def learns_from(self, name: str, run: Path) -> set[str]:
        """The places that a part has learned from once it has begun."""
        return _values(self.given(name, run))

    @property
    def sources(self) -> dict[str, Path]:
        """The sets of recordings, by the names of their prepared folders."""
        raise NotImplementedError

    def recordings(self, name: str, run: Path) -> str | None:
        """A set of recordings as the run has prepared it, or what it will be made from; None where it is not given."""
        prepared = run / DATA / name
        if name not in self.sources:
            return None
        return str(prepared if (prepared / MANIFEST).is_file() else self.sources[name])

    def at(self, name: str, run: Path) -> str:
        """Where a part is: the finished one that the recipe names, or the folder that it is trained in."""
        value = getattr(self, name)
        return value if isinstance(value, str) else str(run / name)

    def check(self, run: Path) -> None:
        """What can be wrong before anything is trained, as far as it takes a look at files."""

    def alone(self) -> None:
        """Refuse to train in one of several processes."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if processes > 1:
            raise UserError(
                f"A whole {self.title} trains in one process, and here are {processes}: train its parts one by one "
                f"({self.one_by_one}), each with as many as it may have."
            )


class SplitRecipe(WholeRecipe):
    """A whole that learns from one set of data, with or without a validation set of its own."""

    data: Source

    @property
    def sources(self) -> dict[str, Path]:
        given = {TRAIN: self.data.path, VALID: self.data.valid_path}
        return {name: path for name, path in given.items() if path is not None}

    def data_of(self, run: Path) -> dict[str, str]:
        """The `data` of a part: where the set is that the run at `run` has prepared."""
        paths = {"path": self.recordings(TRAIN, run), "valid_path": self.recordings(VALID, run)}
        return {key: path for key, path in paths.items() if path is not None}


class WholeTraining:
    """The parts in order. Each goes on where it was left."""

    def __init__(self, recipe: WholeRecipe, run: Path, *, resume: bool, overwrite: bool) -> None:
        recipe.alone()
        self.path = Path(run)
        self._whole = recipe
        file = self.path / "recipe.yaml"
        if file.exists() and not (resume or overwrite):
            raise UserError(
                f"{self.path} already holds a run: add --resume to go on, --overwrite to start over, or name another."
            )
        self._keep_recordings()
        recipe.check(self.path)
        # Before anything is written or removed: a mistyped folder must not cost a finished run.
        self.manifests = self._prepare(anew=overwrite)
        if overwrite:
            self.clear()
        self.path.mkdir(parents=True, exist_ok=True)
        self._former = file.read_text() if file.exists() else None
        if resume and self._former is not None:
            changed = changes(yaml.safe_load(self._former), recipe.model_dump(mode="json", exclude_none=True))
            if changed:
                tell(f"Not as before: {told(changed)}")
        replace_file(file, yaml.safe_dump(recipe.model_dump(mode="json", exclude_none=True), sort_keys=False))

    def before(self, name: str) -> None:
        """What has to be there when a part begins."""

    def after(self) -> None:
        """What is left to do when all parts are finished; it is called each time that they are found so."""

    def clear(self) -> None:
        """Remove what a run has made, part by part; a folder of the same name that is no run's stays."""
        (self.path / NAME).unlink(missing_ok=True)
        for name in self._whole.kinds:
            if (self.path / name / "checkpoints").is_dir():
                shutil.rmtree(self.path / name)
        for made in list((self.path / TOKENS).rglob(SHARDS)):
            shutil.rmtree(made.parent)

    def train(self) -> Self:
        """Train what is not finished yet; a part that is stopped stops the whole."""
        try:
            with RunFolder(self.path).held():
                for name in self._whole.parts:
                    self.before(name)
                    if not self._train_part(name):
                        return self
        except UserError:
            # What was asked for was refused: the run is still what it was.
            if self._former is not None:
                replace_file(self.path / "recipe.yaml", self._former)
            raise
        self.after()
        return self

    def _train_part(self, name: str) -> bool:
        """Whether the part is finished now."""
        run, recipe = self.path / name, self._whole.part(name, self.path)
        if _is_finished(run, recipe.plan, self._whole.leaves.get(name)):
            tell(f"{name}: {run} is finished")
            return True
        self._check_nobody_knows_it(name)
        tell(f"{name}: {run}")
        trainer = recipe.trainer(run, resume=(run / "checkpoints").is_dir())
        trainer.resumed_as = self.path
        self._former = None  # from here on the run is another one
        trainer.train()
        return bool(trainer.step >= trainer.num_train_steps)

    def _check_nobody_knows_it(self, name: str) -> None:
        """A part that learns on is another one, and whoever has learned from it does not know it any more."""
        later = self._whole.parts[self._whole.parts.index(name) + 1 :]
        for other in later:
            has_learned = newest_whole(self.path / other / "checkpoints") is not None
            if has_learned and str(self.path / name) in self._whole.learns_from(other, self.path):
                raise UserError(
                    f"{name} would be trained on, and {other} has learned from it as it is: leave {name} as it was, or "
                    f"start over in another run."
                )

    def _keep_recordings(self) -> None:
        """Recordings inside a folder that a run makes for itself would be taken for the run's own."""
        own = (*self._whole.kinds, *self._whole.makes)
        for path in self._whole.sources.values():
            inside = next((p for p in own if path.resolve().is_relative_to((self.path / p).resolve())), None)
            if inside is not None:
                raise UserError(
                    f"The recordings {path} lie in {self.path / inside}, where the run keeps its own files: "
                    "name another run, or move them."
                )

    def _prepare(self, *, anew: bool) -> dict[str, Manifest]:
        """The manifests of all sets of recordings, made once for all parts."""
        sources = self._whole.sources.items()
        return {name: manifest_of(path, self.path / DATA / name, anew=anew, say=tell) for name, path in sources}


def _is_finished(run: Path, plan: BaseModel, left: str | None) -> bool:
    """Whether a part has taken all its steps, if it takes steps, and left behind what a finished part leaves."""
    if isinstance(plan, Plan):
        newest, steps = newest_whole(run / "checkpoints"), plan.num_train_steps
        if newest is None or steps is None or read_state(newest)["step"] < steps:
            return False
    return left is None or (run / left).exists()


def _values(given: Any) -> set[Any]:
    """All that a mapping of mappings says."""
    if not isinstance(given, dict):
        return {given} if isinstance(given, str) else set()
    return set().union(*map(_values, given.values()))


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, mapping by mapping."""
    result = dict(base)
    for key, value in changes.items():
        there = result.get(key)
        result[key] = merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return result
