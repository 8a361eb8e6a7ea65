"""A folder of images, square and of one size, with or without captions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from madrigal.data.failures import DecodeError, FileDataset
from madrigal.data.layouts import find_files, read_lists, text_beside
from madrigal.errors import UserError

IMAGE_FORMATS = ("jpg", "jpeg", "png", "webp", "bmp")


class ImageFolderDataset(FileDataset):
    """Images of a folder: {"image": float32 [3, image_size, image_size] from 0 to 1}, and "text" with captions.

    The shorter side is resized to `image_size` and the longer one cropped: at a random place with `train` and in
    the middle without. `flip` mirrors half of the images, on training only. Captions come from `.txt` files
    beside the images or from `metadata.csv` or `.jsonl`; if any image has one, those without have "".
    """

    def __init__(
        self,
        folder: str | Path,
        image_size: int,
        *,
        train: bool = True,
        flip: bool = True,
        exts: Sequence[str] = IMAGE_FORMATS,
        rejected_path: str | Path | None = None,
    ) -> None:
        folder = Path(folder)
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder}; give the folder that holds the images.")
        if image_size < 1:
            raise UserError(f"image_size is {image_size}; give a number of pixels above zero.")
        files = find_files(folder, exts)
        if not files:
            raise UserError(f"{folder} holds no images ({', '.join(exts)}); give another folder.")
        super().__init__(files, rejected_path)
        self.image_size, self.train, self.flip = image_size, train, flip
        listed = {item.path: item.text for item in read_lists(folder)}
        captions = [listed.get(file) or text_beside(file) for file in files]
        self.captions = [caption or "" for caption in captions] if any(captions) else None

    def for_evaluation(self) -> ImageFolderDataset:
        """The same pictures without augmentation."""
        plain = copy.copy(self)
        plain.train = False
        return plain

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        """Decode, resize, crop, and flip as `rng` says."""
        image = self._square(_open(self.files[index], self.image_size), rng)
        if self.train and self.flip and rng.random() < 0.5:
            image = ImageOps.mirror(image)
        item: dict[str, Any] = {"image": _tensor(image)}
        if self.captions is not None:
            item["text"] = self.captions[index]
        return item

    def _square(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        size = self.image_size
        scale = size / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
        left, top = (width - size) // 2, (height - size) // 2
        if self.train:
            left, top = int(rng.integers(width - size + 1)), int(rng.integers(height - size + 1))
        return image.crop((left, top, left + size, top + size))


def _open(path: Path, size: int) -> Image.Image:
    """Decode to RGB, upright; what is transparent becomes white."""
    try:
        with Image.open(path) as file:
            # JPEG can be decoded at a half, a quarter or an eighth of its size, much faster.
            file.draft("RGB", (2 * size, 2 * size))
            image = ImageOps.exif_transpose(file)
            if image.has_transparency_data:
                image = image.convert("RGBA")
                white = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(white, image)
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise DecodeError.of(path, "there is no such file") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DecodeError.of(path, f"it is no whole image ({type(error).__name__})") from error


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float() / 255
