"""Whose tokens a stage has learned: fingerprints in its recipe, so that it is never given another's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from madrigal.audiolm.source import TokenSource
from madrigal.engine.learned import Fingerprints, LearnedRecipe, learned_by
from madrigal.engine.plan import Plan
from madrigal.errors import UserError


class TokenRecipe(LearnedRecipe):
    """The recipe of what learns tokens: a model, its data and the plan."""

    model: dict[str, Any] = Field(default_factory=dict)
    data: TokenSource
    plan: Plan


def fingerprints_of(tokenizer: Any, codec: Any, conditioner: Any = None) -> Fingerprints:
    """Those of the tokenizer, the codec and the audio conditioner, as far as there are any."""
    tools = {"tokenizer": tokenizer, "codec": codec, "conditioner": conditioner}
    return {name: tool.fingerprint() for name, tool in tools.items() if hasattr(tool, "fingerprint")}


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
