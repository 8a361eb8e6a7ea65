"""`tokenize` for pictures: what a vqgan makes of them, in one size or two."""

from pathlib import Path
from typing import Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.recordings import pictures_of
from madrigal.verbs.terminal import print_json


def is_vqgan(name: str) -> bool:
    """Whether `name` is a run of a vqgan, a checkpoint of one, or an exported folder of one."""
    from madrigal.engine.exporting import config_of
    from madrigal.engine.learned import recipe_of

    folder = Path(name)
    return recipe_of(folder).get("system") == "vqgan" or config_of(folder).get("kind") == "vqgan"


def tokenize_pictures(
    pictures: Path,
    tokenizers: list[str],
    out: Path | None,
    *,
    image_size: str | None,
    cond_image_size: str | None,
    as_json: bool,
) -> None:
    """Make them, and say where they are."""
    from madrigal.muse.tokenizing import tokenize_pictures as run
    from madrigal.muse.vae import VQGanVAE
    from madrigal.muse_evaluation import trained_size

    if len(tokenizers) > 1:
        raise UserError("Name one vqgan: what it makes of pictures lies in a folder of its own.")
    vae = VQGanVAE.from_pretrained(tokenizers[0], discriminators=False)
    size = _size(image_size) or trained_size(Path(tokenizers[0]))
    if size is None:
        raise UserError(f"{tokenizers[0]} does not say the size of its pictures: name it with --image-size.")
    listed = pictures_of(pictures)
    target = out or listed.root / "tokens"
    tokens = run(listed, vae, target, image_size=size, cond_image_size=_size(cond_image_size))
    shapes: dict[str, Any] = {name: list(array.shape[1:]) for name, array in tokens.arrays.items()}
    if as_json:
        print_json({"folder": str(target), "pictures": len(tokens), "tokens": shapes})
        return
    told = ", ".join(f"{name} {shape[0]} x {shape[1]}" for name, shape in shapes.items())
    typer.echo(f"{len(tokens)} of {len(listed)} pictures, {told} -> {target}")


def _size(text: str | None) -> tuple[int, int] | None:
    """64, or 48x64: height and width."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise UserError(f"{text!r} is no size of a picture: write 64, or 48x64 for height and width.")
    return int(sides[0]), int(sides[-1])
