"""How a flow is followed: options of the verbs that speak, edit and denoise with a voicebox."""

from typing import Annotated, Any

import typer

Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Intervals of the solver; more is slower and finer.")]
Method = Annotated[str | None, typer.Option("--method", help="The solver: euler, midpoint, heun or adaptive.")]
CondScale = Annotated[
    float | None, typer.Option("--cond-scale", min=0.0, help="Over 1: lean on the text and the voice.")
]
Sway = Annotated[
    float | None, typer.Option("--sway", min=-1.0, max=1.75, help="Under 0: more of the intervals near the noise.")
]
Bf16 = Annotated[
    bool | None, typer.Option("--bf16/--fp32", help="Compute in 16 bits: faster on a CPU that has them, else slower.")
]


def followed(**options: Any) -> dict[str, Any]:
    """Those that were given, checked: the others are as the model's own run says."""
    from madrigal.engine.recipe import build_config
    from madrigal.voicebox.drawing import Drawing

    given = {name: value for name, value in options.items() if value is not None}
    build_config(Drawing, given, "The solver")
    return given
