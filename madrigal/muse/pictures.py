"""Pictures as tensors, as PIL images and as a page of many with their captions."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

GAP, LINE, SMALLEST = 4, 14, 128
"""Pixels between pictures, of a line of text, and of a picture that a caption is to be read under."""


def to_pil(images: Tensor) -> list[Image.Image]:
    """Images [batch, 3, height, width]; values outside of 0 … 1 are clamped, for they would come out as others."""
    whole = (images.detach().float().cpu().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1)
    return [Image.fromarray(image.numpy()) for image in whole]


def from_pil(image: Image.Image) -> Tensor:
    """[3, height, width] from 0 to 1."""
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous().float() / 255


def lowered(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Images [batch, 3, height, width] in a lower resolution (height, width)."""
    if images.shape[-2:] == size:
        return images
    return F.interpolate(images, size, mode="bilinear", antialias=True).clamp(0, 1)


def grid(
    images: Sequence[Image.Image], captions: Sequence[str] | None = None, *, columns: int | None = None
) -> Image.Image:
    """A page of pictures of one size, each with its caption below; small ones are enlarged for that."""
    width, height = images[0].size
    scale = max(1, math.ceil(SMALLEST / min(width, height))) if captions is not None else 1
    width, height, line = width * scale, height * scale, LINE if captions is not None else 0
    columns = columns or math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    page = Image.new("RGB", (columns * (width + GAP) + GAP, rows * (height + line + GAP) + GAP), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(11)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        left, top = GAP + column * (width + GAP), GAP + row * (height + line + GAP)
        page.paste(image.resize((width, height), Image.Resampling.NEAREST), (left, top))
        if captions is not None:
            pen.text((left, top + height), _fitting(captions[number], pen, font, width), fill="black", font=font)
    return page


def _fitting(
    text: str, pen: ImageDraw.ImageDraw, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: int
) -> str:
    """The text, or as much of it as there is room for."""
    text = " ".join(text.split())
    if pen.textlength(text, font=font) <= width:
        return text
    while text and pen.textlength(text + "…", font=font) > width:
        text = text[:-1]
    return text + "…"
