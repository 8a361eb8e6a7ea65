"""How tokens are drawn: options of the verbs that make sound, and what they say of each stage."""

from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError

if TYPE_CHECKING:
    from madrigal.layers.sampling import Sampling

STAGES = ("semantic", "coarse", "fine")
Temperature = Annotated[
    str, typer.Option("--temperature", help="For all stages, or semantic,coarse,fine; 0 takes the likeliest.")
]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Draw among the k likeliest.")]
TopP = Annotated[
    float | None, typer.Option("--top-p", min=0.0, max=1.0, help="Draw among the likeliest of this share.")
]


def samplings(temperature: str, **common: Any) -> "dict[str, Sampling]":
    """The sampling of every stage: its own temperature, and what all have in common."""
    from madrigal.engine.recipe import build_config
    from madrigal.layers.sampling import Sampling

    return {
        stage: build_config(Sampling, {**common, "temperature": degree}, "Sampling")
        for stage, degree in temperatures(temperature).items()
    }


def temperatures(text: str) -> dict[str, float]:
    """One number for all stages, or three."""
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        given = []
    if len(given) == 1:
        given *= len(STAGES)
    if len(given) != len(STAGES) or not all(0 <= degree < inf for degree in given):
        raise UserError(
            f"--temperature is {text!r}; write one number from 0 on, or three with commas, such as 0.8,0.9,0.8."
        )
    return dict(zip(STAGES, given, strict=True))
