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
Guidance = Annotated[
    str | None,
    typer.Option("--cond-scale", help="Over 1: lean on the text; where there are stages, also semantic,coarse,fine."),
]
Recall = Annotated[
    str | None,
    typer.Option(
        "--recall",
        help="Share, below 1, that the prompt has in what is drawn: one or three; default: 0,0.5,0.5, of music 0.",
    ),
]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Draw among the k likeliest.")]
TopP = Annotated[
    float | None, typer.Option("--top-p", min=0.0, max=1.0, help="Draw among the likeliest of this share.")
]


def samplings(
    temperature: str, cond_scale: str | None = None, recall: str | None = None, **common: Any
) -> "dict[str, Sampling]":
    """The sampling of every stage: its own temperature, guidance and recall, and what all have in common."""
    from madrigal.engine.recipe import build_config
    from madrigal.layers.sampling import Sampling

    own = {
        "temperature": per_stage("--temperature", temperature),
        "cond_scale": per_stage("--cond-scale", cond_scale or "1"),
        "recall": per_stage("--recall", recall or "0", "0,0.5,0.5", below=1),
    }
    return {
        stage: build_config(Sampling, {**common, **{name: of[stage] for name, of in own.items()}}, "Sampling")
        for stage in STAGES
    }


def per_stage(option: str, text: str, example: str = "0.8,0.9,0.8", *, below: float = inf) -> dict[str, float]:
    """One number for all stages, or three."""
    given = _numbers(text)
    if len(given) == 1:
        given *= len(STAGES)
    if len(given) != len(STAGES) or max(given) >= below:
        span = "from 0 on" if below == inf else f"from 0 to below {below:g}"
        raise UserError(f"{option} is {text!r}; write one number {span}, or three with commas, such as {example}.")
    return dict(zip(STAGES, given, strict=True))


def one_scale(cond_scale: str | None) -> float | None:
    """Guidance of what has no stages."""
    given = _numbers(cond_scale or "1")
    if len(given) != 1:
        raise UserError(f"--cond-scale is {cond_scale!r}; write one number from 0 on.")
    return None if cond_scale is None else given[0]


def _numbers(text: str) -> list[float]:
    """Numbers from 0 on, with commas between them; none where one of them is no such number."""
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        return []
    return given if all(0 <= number < inf for number in given) else []
