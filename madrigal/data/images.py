"""Pictures of one size, square or not, with or without captions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from madrigal.data.failures import DecodeError, FileDataset
from madrigal.data.inspection import Rejection, check_file
from madrigal.data.layouts import IMAGE_FORMATS, find_files, picture_candidates
from madrigal.data.manifest import MANIFEST, PictureManifest
from madrigal.errors import UserError

__all__ = ["IMAGE_FORMATS", "MAX_PIXELS", "ImageFolderDataset", "Size", "inspect_picture", "open_picture"]

MAX_PIXELS = 64_000_000
"""A picture that says that it has more is not decoded: a file of some kilobytes may ask for all of the memory."""

Size = tuple[int, int]
"""Height and width."""


class ImageFolderDataset(FileDataset):
    """Pictures: {"image": float32 [3, height, width] from 0 to 1}, and "text" where there are captions.

    They come from a folder, a prepared folder or a manifest. `image_size` is (height, width), or one number for
    squares. A picture is resized to cover that, and what is too much of it is cropped: at a random place with
    `train` and in the middle without. `flip` mirrors half of the pictures, on training only. Captions come from
    `.txt` files beside them or from `metadata.csv` or `.jsonl`; if any picture has one, those without have "".
    """

    def __init__(
        self,
        folder: str | Path | PictureManifest,
        image_size: int | Size,
        *,
        train: bool = True,
        flip: bool = True,
        exts: Sequence[str] = IMAGE_FORMATS,
        rejected_path: str | Path | None = None,
    ) -> None:
        if min(sides := (image_size,) if isinstance(image_size, int) else image_size) < 1:
            raise UserError(f"image_size is {image_size}; give a number of pixels above zero.")
        files, captions = _listed(folder, exts)
        super().__init__(files, rejected_path)
        self.image_size: Size = (sides[0], sides[-1])
        self.train, self.flip = train, flip
        self.captions = [caption or "" for caption in captions] if any(captions) else None

    def for_evaluation(self) -> ImageFolderDataset:
        """The same pictures without augmentation."""
        plain = copy.copy(self)
        plain.train = False
        return plain

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        """Decode, resize, crop, and flip as `rng` says."""
        image = self._covering(open_picture(self.files[index], max(self.image_size)), rng)
        if self.train and self.flip and rng.random() < 0.5:
            image = ImageOps.mirror(image)
        item: dict[str, Any] = {"image": _tensor(image)}
        if self.captions is not None:
            item["text"] = self.captions[index]
        return item

    def _covering(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        high, wide = self.image_size
        scale = max(wide / image.width, high / image.height)
        width, height = max(wide, round(image.width * scale)), max(high, round(image.height * scale))
        if (width, height) != image.size:
            image = image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
        left, top = (width - wide) // 2, (height - high) // 2
        if self.train:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
        return image.crop((left, top, left + wide, top + high))


def open_picture(
    path: Path | BinaryIO,
    size: int | None = None,
    *,
    max_pixels: int = MAX_PIXELS,
    formats: tuple[str, ...] | None = None,
) -> Image.Image:
    """Decode to RGB, upright; what is transparent becomes white. With `size` no more of it is needed a side.

    `formats` are PIL's names of those that are let in, where not all of them are.
    """
    name = path if isinstance(path, Path) else "The picture"
    try:
        with Image.open(path, formats=formats) as file:
            if file.width * file.height > max_pixels:
                raise DecodeError.of(name, _too_large(file.width * file.height, max_pixels))
            if size is not None:
                # JPEG can be decoded at a half, a quarter or an eighth of its size, much faster.
                file.draft("RGB", (2 * size, 2 * size))
            image = _eight_bits(_upright(file, name))
            if image.has_transparency_data:
                image = image.convert("RGBA")
                white = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(white, image)
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise DecodeError.of(name, "there is no such file") from error
    except Image.DecompressionBombError as error:
        raise DecodeError.of(name, _too_large(None, max_pixels)) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DecodeError.of(name, "it is damaged, or no image of a known format") from error


def _upright(file: Image.Image, name: str | Path) -> Image.Image:
    file.load()  # the pixels first: what goes wrong after them is in the EXIF
    try:
        return ImageOps.exif_transpose(file)
    except Exception as error:  # struct.error, TypeError, AttributeError: whatever PIL stumbles over
        raise DecodeError.of(name, "its EXIF data are damaged") from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of more bits brought to 8 by its scale: PIL's own conversion makes white of all that is over 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.nan_to_num(np.asarray(image, dtype=np.float32))
    highest = float(values.max())
    # Whole numbers are of 16 bits where they fit; floats may be of any of these.
    whites = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0, 2.0**31)
    white = next((level for level in whites if highest <= level), highest)
    if (clear := image.info.get("transparency")) is not None:
        values[values == clear] = white
    return Image.fromarray((values.clip(0, white) * (255 / white)).round().astype(np.uint8))


def inspect_picture(path: Path) -> Size:
    """(width, height) of a usable picture, upright; raises Rejection for one that is not usable."""
    check_file(path)
    try:
        return open_picture(path).size
    except DecodeError as error:
        is_large = error.reason.startswith(_LARGE)
        raise Rejection("too many pixels" if is_large else "not a whole picture", error.reason) from error


_LARGE = "it has more than"


def _too_large(pixels: int | None, most: int) -> str:
    told = "" if pixels is None else f" ({pixels / 1e6:.0f})"
    return f"{_LARGE} {most // 1_000_000} million pixels{told}"


def _listed(given: str | Path | PictureManifest, exts: Sequence[str]) -> tuple[list[Path], list[str | None]]:
    """The files of a folder, a prepared folder or a manifest, and their captions."""
    folder = given.root if isinstance(given, PictureManifest) else Path(given)
    if isinstance(given, PictureManifest) or folder.is_file() or (folder / MANIFEST).is_file():
        manifest = given if isinstance(given, PictureManifest) else PictureManifest.load(folder)
        return [manifest.resolve(entry) for entry in manifest], [entry.text for entry in manifest]
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; give the folder that holds the images.")
    files = set(find_files(folder, exts))
    found = [item for item in picture_candidates(folder) if item.path in files]
    if not found:
        raise UserError(f"{folder} holds no images ({', '.join(exts)}); give another folder.")
    return [item.path for item in found], [item.text for item in found]


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float() / 255
