"""Whose tokens a stage has learned: fingerprints in its recipe, so that it is never given another's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from madrigal.errors import UserError

FINGERPRINTS = "fingerprints"
"""The key of a run's recipe that training writes; it is no option."""

Fingerprints = dict[str, str]


def fingerprints_of(tokenizer: Any, codec: Any) -> Fingerprints:
    """Those of the tokenizer and the codec, as far as there are any."""
    tools = {"tokenizer": tokenizer, "codec": codec}
    return {name: tool.fingerprint() for name, tool in tools.items() if hasattr(tool, "fingerprint")}


def recipe_of(run: Path) -> dict[str, Any]:
    """What a run's recipe says, or nothing where it cannot be read."""
    try:
        recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return recipe if isinstance(recipe, dict) else {}


def learned_by(run: Path) -> Fingerprints:
    """The fingerprints in a run's recipe; one that an older version wrote has none."""
    return recipe_of(run).get(FINGERPRINTS) or {}


def check_resumed(run: Path, here: Fingerprints) -> None:
    """A run goes on with the tokens that it began with."""
    for name, before in learned_by(run).items():
        if here.get(name, before) != before:
            raise UserError(
                f"{run} was trained with another {name} ({before}, and now {here[name]}): "
                "give it that one, or start over with --overwrite."
            )


def check_together(stages: Mapping[str, Path], here: Fingerprints) -> None:
    """Stages that are to work together have learned the same tokens, and those of the given tokenizer and codec."""
    for name, given in here.items():
        for stage, run in stages.items():
            found = learned_by(run).get(name, given)
            if found != given:
                others = [other for other, at in stages.items() if learned_by(at).get(name, found) != found]
                beside = f"the {others[0]} stage with another one" if others else f"this {name} is {given}"
                raise UserError(
                    f"The {stage} stage {run} was trained with the {name} {found}, and {beside}: "
                    f"name stages of one {name}, and that {name}."
                )
