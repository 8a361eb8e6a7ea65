"""Pictures from texts, from classes or from nothing: what `generate` does with a run that makes pictures."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.music import is_sound
from madrigal.verbs.terminal import Bar, given, print_json

if TYPE_CHECKING:
    from PIL.Image import Image

    from madrigal.muse.maskgit_config import MaskGitConfig
    from madrigal.muse.muse import Muse

PICTURES = "pictures"
TOGETHER = 16
"""Pictures that are made at once."""

Negative = Annotated[str | None, typer.Option("--negative", help="Pictures: what should not be seen.")]
PictureSteps = Annotated[int | None, typer.Option("--steps", min=1, help="Pictures: steps; default: as the run says.")]
ClassName = Annotated[str | None, typer.Option("--class", help="Pictures: a class, by its name or number.")]
PictureSize = Annotated[str | None, typer.Option("--size", help="Pictures: WIDTHxHEIGHT; default: as it was trained.")]


def makes_pictures(runs: Sequence[Path]) -> bool:
    """Whether this is one run of MaskGit or Muse, or an exported one."""
    from madrigal.muse.recognising import is_muse

    return len(runs) == 1 and is_muse(runs[0])


def generate(
    run: Path,
    out: Path,
    *,
    text: str | None,
    negative: str | None,
    class_name: str | None,
    size: str | None,
    n: int,
    seed: int,
    how: dict[str, Any],
    device: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make n pictures: as files of a folder, or, where `out` is an image file, all on a page."""
    if is_sound(out) and not out.is_dir():
        raise UserError(f"{run} makes pictures, and {out} is no picture's name: end it in .png, or name a folder.")
    files = [out] if is_picture(out) else [out / f"{number:03d}.png" for number in range(n)]
    check_files(files, overwrite=overwrite)
    check_texts(text, negative)
    wanted, options = size_of(size), drawn(how)

    from madrigal.engine.machine import prepare_process
    from madrigal.muse.loading import load_muse

    prepare_process()
    muse = load_muse(run, device=device)
    asked = asked_for(muse, run, text, negative, class_name)
    images: list[Image] = []
    with Bar("Painting") as bar:
        for start in range(0, n, TOGETHER):
            rows = min(TOGETHER, n - start)
            repeated = {name: value * rows for name, value in asked.items()}
            images += _made(muse, seed=seed + start, size=wanted, batch_size=rows, **repeated, **options)
            bar(len(images), n)
    write(files, images)
    if as_json:
        print_json({"files": [str(file) for file in files], "pictures": n, "size": list(images[0].size), "seed": seed})
    else:
        typer.echo("\n".join(map(str, files)))


def _made(muse: "Muse", **options: Any) -> "list[Image]":
    from madrigal.muse.pictures import to_pil

    return to_pil(muse.generate(**options))


def write(files: Sequence[Path], images: "Sequence[Image]") -> None:
    """Each picture into its file, or all of them as one page."""
    from madrigal.muse.pictures import grid

    pages = images if len(files) == len(images) else [grid(images)]
    for file, image in zip(files, pages, strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        image.save(file)


def asked_for(
    muse: "Muse", run: Path, text: str | None, negative: str | None, class_name: str | None
) -> dict[str, Any]:
    """What one picture is conditioned on, as `Muse.generate` takes it, each in a list of one."""
    config = muse.base.config
    net = config.transformer
    if net.text_encoder == "embeds":
        raise UserError(f"{run} is conditioned on embeddings that are given to it: make its pictures in Python.")
    if not net.reads_text and (text is not None or negative is not None):
        wanted = "leave out --text and --negative" if net.num_classes is None else "name a class with --class"
        raise UserError(f"{run} was trained without texts: {wanted}.")
    if net.num_classes is None and class_name is not None:
        raise UserError(f"{run} knows no classes: leave out --class.")
    if net.num_classes is not None and class_name is not None:
        return {"classes": [class_number(config, class_name)]}
    return {name: [said] for name, said in given({"texts": text, "negative_texts": negative}).items()}


def class_number(config: "MaskGitConfig", name: str) -> int:
    """Of a class by its name or its number."""
    names, count = config.class_names or (), config.transformer.num_classes or 0
    some = f": {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names else f", 0 to {count - 1}"
    if name in names:
        return names.index(name)
    if name.isdigit() and int(name) < count:
        return int(name)
    raise UserError(f"There is no class {name!r}; there are {count}{some}.")


def drawn(how: dict[str, Any]) -> dict[str, Any]:
    """How pictures are made, as far as it was said, checked."""
    from madrigal.engine.recipe import build_config
    from madrigal.muse.painting import Painting

    options = given(how)
    if "temperature" in options:
        try:
            options["temperature"] = float(options["temperature"])
        except ValueError as error:
            raise UserError(f"--temperature is {options['temperature']!r}; for pictures write one number.") from error
    build_config(Painting, options, "The command")
    return options


def size_of(text: str | None) -> tuple[int, int] | None:
    """`WIDTHxHEIGHT` as (height, width)."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdigit() and int(side) > 0 for side in sides):
        raise UserError(f"--size is {text!r}; write WIDTHxHEIGHT in pixels, for example 96x64.")
    return int(sides[1]), int(sides[0])


def is_picture(path: Path) -> bool:
    """Whether the name is one of a picture's file."""
    from PIL import Image

    return path.suffix.lower() in Image.registered_extensions()


def check_texts(text: str | None, negative: str | None) -> None:
    """Before anything is loaded: an empty text says nothing about a picture."""
    for option, said in (("--text", text), ("--negative", negative)):
        if said is not None and not said.strip():
            raise UserError(f"{option} is empty; write something there, or leave {option} out.")


def check_files(files: Sequence[Path], *, overwrite: bool) -> None:
    """Before anything is loaded."""
    taken = next((file for file in files if file.exists()), None)
    if taken is not None and taken.is_dir():
        raise UserError(f"{taken} is a folder; name a picture to write with -o.")
    if taken is not None and not overwrite:
        raise UserError(f"{taken} is there already; name another with -o, or replace it with --overwrite.")
    for ending in sorted({file.suffix.lower() for file in files}):
        _check_format(ending)


def _check_format(ending: str) -> None:
    """By writing some pixels: there are formats that PIL only reads, and some that have no colours."""
    from PIL import Image

    try:
        Image.new("RGB", (8, 8)).save(io.BytesIO(), Image.registered_extensions()[ending])
    except (KeyError, OSError, ValueError) as error:
        raise UserError(f"Pictures cannot be written as {ending}; name a .png file with -o.") from error
