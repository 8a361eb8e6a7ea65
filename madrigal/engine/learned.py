"""What a run has learned from: fingerprints in its recipe, so that it never goes on with something else."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

from madrigal.errors import UserError

FINGERPRINTS = "fingerprints"
"""The key of a run's recipe that training writes; it is no option."""

Fingerprints = dict[str, str]


class LearnedRecipe(BaseModel):
    """A recipe with `data` and a `plan`, whose run notes what it has learned from and can be followed again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _what_a_run_learned_is_no_option(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if k != FINGERPRINTS} if isinstance(values, dict) else values

    def resolved(self, **found: Any) -> dict[str, Any]:
        """What a run keeps of its recipe, with all that was `found` out, such as options of the model."""
        own: Any = self
        named = self.model_dump(mode="json", exclude={"model", "plan", "data"}, exclude_none=True)
        data = own.data.model_dump(mode="json", exclude_defaults=True)
        return {**named, **found, "data": data, "plan": own.plan.recorded()}


def recipe_of(run: Path) -> dict[str, Any]:
    """What a run's recipe says, or nothing where it cannot be read."""
    try:
        recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return recipe if isinstance(recipe, dict) else {}


def kind_of(run: Path) -> str:
    """What a folder is, for a sentence that refuses it: "a run of mulan"."""
    system = recipe_of(run).get("system")
    return f"a run of {system}" if isinstance(system, str) else "no run of anything"


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
