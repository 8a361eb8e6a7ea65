"""Recipes: YAML files that name a system, its model, its data and the plan, checked before anything runs."""

import difflib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from madrigal.errors import UserError

if TYPE_CHECKING:
    from madrigal.engine.plan import Plan

Config = TypeVar("Config", bound=BaseModel)
RECIPES = Path(__file__).parent.parent / "recipes"


def recipe_names() -> list[str]:
    """The shipped recipes, as `soundstream/cpu`."""
    return sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.rglob("*.yaml"))


def read_recipe(name: str | Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """A recipe by its shipped name or its file, with `key.path=value` overrides laid over it."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = RECIPES / f"{name}.yaml"
    if not path.exists():
        known = recipe_names()
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}."
        raise UserError(f"There is no recipe {str(name)!r}; {hint}")
    try:
        recipe = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"The recipe {path} is not valid YAML{_place(error)}; mend it there.") from error
    except OSError as error:
        raise UserError(f"The recipe {path} cannot be read: {error.strerror}.") from error
    if not isinstance(recipe, dict) or "system" not in recipe:
        raise UserError(f"The recipe {path} should be a mapping with the key 'system'.")
    for override in overrides or []:
        _override(recipe, override)
    return recipe


def _place(error: Exception) -> str:
    """Where the YAML went wrong, and how."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return " in UTF-8"
    return f" in line {mark.line + 1}, column {mark.column + 1} ({problem})"


def _override(recipe: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise UserError(f"{text!r} is no override: write key=value, for example plan.lr=1e-4.")
    *parents, last = key.split(".")
    place = recipe
    for parent in parents:
        if place.get(parent) is None:  # an empty section counts as none
            place[parent] = {}
        place = place[parent]
        if not isinstance(place, dict):
            raise UserError(f"The override {key}: {parent} is a value in this recipe and has nothing below it.")
    parsed, there = _parsed(value), place.get(last)
    # `data=FOLDER` fills the path of a mapping and leaves its other keys alone; a folder may be called 2024.
    if isinstance(there, dict) and (isinstance(parsed, str) or ("path" in there and isinstance(parsed, int | float))):
        parsed = {**there, "path": value}
    place[last] = parsed


def _parsed(text: str) -> Any:
    try:
        value = yaml.safe_load(text) if text else None
    except yaml.YAMLError:
        return text  # a path may begin with what YAML reserves
    if isinstance(value, str):
        try:
            return float(value)  # YAML 1.1 takes 1e-4 for a word
        except ValueError:
            return value
    return value


def build_config(kind: type[Config], values: dict[str, Any] | None, where: str) -> Config:
    """A checked config; an unknown key or a wrong type is told in one sentence, with the nearest key."""
    try:
        return kind(**({} if values is None else values))
    except ValidationError as error:
        raise UserError(explain(error, kind, where)) from error
    except TypeError as error:
        raise UserError(f"{where} should be a mapping of keys to values ({error}).") from error


def recorded(system: str, config: BaseModel, plan: "Plan", source: BaseModel | None) -> dict[str, Any]:
    """The recipe of a trainer that was built in Python, for the run's folder."""
    recipe = {"system": system, "model": config.model_dump(mode="json", exclude_defaults=True)}
    if source is not None:
        recipe["data"] = source.model_dump(mode="json", exclude_defaults=True)
    return {**recipe, "plan": plan.recorded()}


def known_keywords(function: Callable[..., Any], given: dict[str, Any], where: str) -> dict[str, Any]:
    """`given`, when `function` takes keywords of all these names; else the nearest one is told."""
    names = list(inspect.signature(function).parameters)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(names)}."
            raise UserError(f"{where} has no key {name!r}; {hint}")
    return given


def explain(error: ValidationError, kind: type[BaseModel], where: str) -> str:
    """The first problem of a validation error, as a sentence."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function", "literal")))
    if first["type"] == "extra_forbidden":
        return f"{where} has no key {key!r}; {_nearest(kind, first['loc'])}"
    if first["type"] == "missing":
        return f"{where} has no {key}, and needs one."
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    if not key:
        return f"{where}: {message}."
    return f"{where}: {key} is {first['input']!r}; {message[0].lower()}{message[1:]}."


def _nearest(kind: type[BaseModel], place: Sequence[int | str]) -> str:
    """What may have been meant by the unknown key at `place`: a key beside it, or one a level below."""
    *parents, last = map(str, place)
    for parent in parents:
        kind = _config_at(kind, parent) or kind
    beside = sorted(kind.model_fields)
    below = {
        name: f"{section}.{name}"
        for section in kind.model_fields
        if (config := _config_at(kind, section)) is not None
        for name in config.model_fields
    }
    # A key that is right but for its section is meant before one that only looks alike.
    near = [below[last]] if last in below else difflib.get_close_matches(last, beside, n=1)
    near = near or [below[name] for name in difflib.get_close_matches(last, below, n=1)]
    return f"did you mean {'.'.join([*parents, *near])}?" if near else f"the keys are {', '.join(beside)}."


def _config_at(kind: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The config that lies at `key` in `kind`, where one does."""
    field = kind.model_fields.get(key)
    found: Any = None if field is None else field.annotation
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None
