"""What differs between two recipes or configs."""

from collections.abc import Iterator
from typing import Any

Changes = dict[str, tuple[Any, Any]]
UNSET = "unset"


def changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Changes:
    """The keys, with dots, whose values differ, with both values."""
    return {key: pair for key, pair in _pairs(old, new, prefix) if pair[0] != pair[1]}


def _pairs(old: dict[str, Any], new: dict[str, Any], prefix: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key, UNSET), new.get(key, UNSET)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _pairs(before, after, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", (before, after)


def told(changed: Changes) -> str:
    """`plan.seed 0 -> 1, plan.batch_size 4 -> 8`."""
    return ", ".join(f"{key} {old} -> {new}" for key, (old, new) in changed.items())
