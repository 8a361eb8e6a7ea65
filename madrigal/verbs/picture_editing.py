"""A picture made anew inside a mask, around its edges or here and there: what `edit` does with a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.picture_making import asked_for, check_files, check_texts, drawn, is_picture, size_of
from madrigal.verbs.terminal import Bar, print_json

if TYPE_CHECKING:
    from torch import Tensor

    from madrigal.muse.editing import Edit
    from madrigal.muse.muse import Muse

Mask = Annotated[
    Path | None, typer.Option("--mask", help="Picture: a picture of its size; what is white there is made anew.")
]
Expand = Annotated[
    str | None, typer.Option("--expand", help="Picture: pixels to go on by at LEFT,TOP,RIGHT,BOTTOM, as 0,0,32,0.")
]
Vary = Annotated[
    float | None,
    typer.Option("--vary", min=0.0, max=1.0, help="Picture: a share of it that is made anew, here and there."),
]
MOST = 16
"""A picture may have so many times the pixels that a run was trained with."""


def edit(
    source: Path,
    out: Path,
    *,
    mask: Path | None,
    expand: str | None,
    vary: float | None,
    text: str | None,
    negative: str | None,
    class_name: str | None,
    size: str | None,
    run: Path | None,
    seed: int,
    how: dict[str, Any],
    device: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Change a picture; pixels that are not to be made stay as they are."""
    if sum(way is not None for way in (mask, expand, vary)) != 1:
        raise UserError("Say what to make of the picture: --mask mask.png, --expand 0,0,32,0 or --vary 0.5.")
    if run is None:
        raise UserError("Name the run that makes pictures with --run.")
    if not is_picture(out):
        raise UserError(f"{out} is no picture's name; name a .png file with -o.")
    check_files([out], overwrite=overwrite)
    check_texts(text, negative)
    options, wanted = drawn(how), size_of(size)

    from madrigal.engine.machine import prepare_process
    from madrigal.muse.loading import load_muse
    from madrigal.muse.pictures import to_pil

    prepare_process()
    picture = opened(source, wanted)
    muse = load_muse(run, device=device)
    asked = asked_for(muse, run, text, negative, class_name)
    change = _change(muse, picture, mask, expand, vary, wanted, seed)
    _check_size(muse, change)
    with Bar("Painting"):
        made = muse.generate(edit=change, seed=seed, **asked, **options)
    made = made if vary is not None else change.laid(made)
    out.parent.mkdir(parents=True, exist_ok=True)
    to_pil(made)[0].save(out)
    share = float(change.mask.float().mean())
    if as_json:
        print_json({"file": str(out), "size": [made.shape[-1], made.shape[-2]], "made": round(share, 4), "seed": seed})
    else:
        typer.echo(str(out))


def opened(path: Path, size: tuple[int, int] | None) -> "Tensor":
    """A picture [1, 3, height, width], brought to a size (height, width) where one is given."""
    from PIL import Image

    from madrigal.data.images import open_picture
    from madrigal.muse.pictures import from_pil

    image = open_picture(path)
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return from_pil(image)[None]


def _change(
    muse: "Muse",
    picture: "Tensor",
    mask: Path | None,
    expand: str | None,
    vary: float | None,
    size: tuple[int, int] | None,
    seed: int,
) -> "Edit":
    from madrigal.muse.editing import around, inside, varied

    if mask is not None:
        return inside(picture, opened(mask, size)[:, 0] > 0.5)
    if expand is not None:
        return around(picture, **_sides(expand), factor=muse.cell)
    return varied(picture, vary or 0.0, factor=muse.cell, seeds=[seed])


def _sides(text: str) -> dict[str, int]:
    sides = text.split(",")
    if len(sides) != 4 or not all(side.strip().isdigit() for side in sides):
        raise UserError(f"--expand is {text!r}; write pixels as LEFT,TOP,RIGHT,BOTTOM, for example 0,0,32,0.")
    return dict(zip(("left", "top", "right", "bottom"), map(int, sides), strict=True))


def _check_size(muse: "Muse", change: "Edit") -> None:
    (height, width), (high, wide) = change.size, muse.last.config.image_size
    if height % muse.cell or width % muse.cell or height * width > MOST * high * wide:
        raise UserError(
            f"The picture would be {width}x{height}, and this run makes {wide}x{high} in cells of {muse.cell} pixels: "
            f"bring it to a size that fits, for example with --size {wide}x{high}."
        )
