"""Writes docs/options.md: every key of a recipe with its type, its default and its own description."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from madrigal.data.source import AudioSource
from madrigal.soundstream.config import WEIGHT_ALIASES, SoundStreamConfig
from madrigal.soundstream.recipe import SoundStreamRecipe
from madrigal.soundstream.trainer import SoundStreamPlan

PAGE = Path(__file__).parent.parent / "docs" / "options.md"

WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    Any: "anything",
    NoneType: "null",
}

HEAD = """# Options

Every key of a recipe. `scripts/write_options.py` (`make docs`) writes this page from the options themselves.

A key is written `model.codebook_size=512` on the command line, under `model:` in a recipe's YAML, and
`codebook_size=512` in Python: the keys of `model` are keyword arguments of `SoundStream`, those of `plan` of
`SoundStreamTrainer`. `system` is `soundstream`.
"""


def page() -> str:
    """The whole text of docs/options.md."""
    aliases = ", ".join(f"`{old}` for `{new}`" for old, new in WEIGHT_ALIASES.items())
    model = f"Options of `SoundStream`; [soundstream.md](soundstream.md) says what they are for.\n\n{_tables('model')}"
    return "\n".join(
        [
            HEAD,
            f"## model\n\n{model}",
            f"Older names of single weights are understood too: {aliases}.\n",
            f"## data\n\nThe recordings; `data=FOLDER` is short for `data.path=FOLDER`.\n\n{_tables('data')}",
            f"## plan\n\nThe training. Either `num_train_steps` or `num_train_epochs` is needed.\n\n{_tables('plan')}",
        ]
    )


def options() -> dict[str, dict[str, FieldInfo]]:
    """The keys of a recipe by their section."""
    sections: dict[str, type[BaseModel]] = {"model": SoundStreamConfig, "data": AudioSource, "plan": SoundStreamPlan}
    found = SoundStreamRecipe.model_fields
    assert {name for name in found if name != "system"} == set(sections)
    assert all(found[name].annotation is kind for name, kind in sections.items())
    return {name: kind.model_fields for name, kind in sections.items()}


def _tables(section: str) -> str:
    """One table for each group of options that a comment heads in the source."""
    keys = options()[section]
    tables = []
    for heading, names in _groups(section, list(keys)):
        rows = [f"| `{name}` | {_type(keys[name])} | {_default(keys[name])} | {_text(keys[name])} |" for name in names]
        title = f"### {heading[0].upper()}{heading[1:]}\n\n" if heading else ""
        tables.append(title + "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n")
    return "\n".join(tables)


def _groups(section: str, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Headings and their keys; only the model has so many options that its source groups them."""
    if section != "model":
        yield "", names
        return
    found: dict[str, list[str]] = {}
    heading = ""
    for line in inspect.getsource(SoundStreamConfig).splitlines():
        if comment := re.match(r"    # (.+)", line):
            heading = comment[1]
        elif (key := re.match(r"    (\w+):", line)) and key[1] in names:
            found.setdefault(heading, []).append(key[1])
    assert [name for group in found.values() for name in group] == names
    yield from found.items()


def _text(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(field: FieldInfo) -> str:
    return _named(field.annotation, field.metadata).replace("|", "\\|")


def _named(kind: Any, limits: list[Any]) -> str:
    """A type in words, for people who write YAML."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        more = [limit for given in parts[1:] for limit in getattr(given, "metadata", [given])]
        return _named(parts[0], [*more, *limits])
    if origin is Literal:
        return _either([f"`{value}`" for value in parts])
    if origin in (Union, UnionType):
        flat = [inner for part in parts for inner in (get_args(part) if get_origin(part) is Literal else [part])]
        return _either([f"`{p}`" if isinstance(p, str) else _named(p, limits) for p in flat if not _is_python_only(p)])
    if origin is tuple:
        count, inner = ("list", parts[:1]) if parts[-1] is Ellipsis else (f"list of {len(parts)}", parts)
        word = _named(inner[0], [])
        return f"{count}: ({word})" if " or " in word else f"{count}: {word}"
    if origin is dict:
        return f"mapping to {_named(parts[1], [])}"
    bounds = "" if kind is NoneType else _bounds(limits)
    return WORDS[kind] + (f" {bounds}" if bounds else "")


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _is_python_only(kind: Any) -> bool:
    return kind is type or get_origin(kind) is Callable


def _bounds(limits: list[Any]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    values = [(sign, getattr(limit, name, None)) for limit in limits for name, sign in signs.items()]
    return ", ".join(f"{sign} {value}" for sign, value in values if value is not None)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"Wrote {PAGE}")
