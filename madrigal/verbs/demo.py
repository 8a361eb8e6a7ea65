"""`demo`: everything once, small."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the demo goes.")] = Path("demo"),
) -> None:
    """Speak a sentence; then train a tiny codec on rendered speech, resume it once, judge it, and write a page.

    Example: `madrigal demo -o demo`
    """
    from madrigal.demo import run_demo

    typer.echo(f"Open {run_demo(out)}")
