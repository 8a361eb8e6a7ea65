"""How much the terms of a loss count: a key of a model's config, checked by the names of the terms."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0)]


class WeighedConfig(BaseModel):
    """Options of a model that is trained by several terms, each with a weight."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    default_loss_weights: ClassVar[Mapping[str, float]] = {}
    """The terms that there are, and how much each counts."""
    weight_aliases: ClassVar[Mapping[str, str]] = {}
    """Older names of single weights, accepted as keywords and kept in `loss_weights`."""

    loss_weights: dict[str, Weight] = Field(
        default_factory=dict,
        description="by term; those left out keep their default, and weight 0 is not computed",
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_loss_weights(cls, options: Any) -> Any:
        """Fills `loss_weights` from the older keywords and with the defaults."""
        if not isinstance(options, dict):
            return options
        options = dict(options)
        named = dict(options.pop("loss_weights", None) or {})
        for alias, term in cls.weight_aliases.items():
            if alias not in options:
                continue
            weight = options.pop(alias)
            if named.setdefault(term, weight) != weight:
                raise ValueError(
                    f"{alias}={weight} contradicts loss_weights['{term}']={named[term]}; give one of them."
                )
        for term in named:
            if term not in cls.default_loss_weights:
                near = difflib.get_close_matches(str(term), cls.default_loss_weights, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"the terms are {', '.join(cls.default_loss_weights)}."
                raise ValueError(f"There is no loss term '{term}'; {hint}")
        return {**options, "loss_weights": {**cls.default_loss_weights, **named}}
