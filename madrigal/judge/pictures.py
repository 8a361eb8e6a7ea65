"""The verdict on a tokenizer of pictures: how like the originals what comes back is, and how many codes say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal, NamedTuple

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from madrigal.data.likeness import perplexity, psnr, ssim
from madrigal.judge.estimates import Estimate, of_mean
from madrigal.judge.frechet import frechet_on_components
from madrigal.judge.picture_features import FeatureMaker
from madrigal.judge.record import Record, SavedReport

FORMAT: Final = "madrigal.judge.pictures"
VERSION: Final = 1
BATCH, SHOWN = 16, 48

RoundTrip = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Pictures [batch, 3, height, width] to the pictures again and their codes [batch, rows, columns]."""


class PictureScore(Record):
    """One picture: its likeness to the original."""

    name: str
    psnr: float
    ssim: float


class Group(Record):
    """Pictures of one kind, such as a style."""

    name: str
    psnr: Estimate | None
    ssim: Estimate | None


class Pair(NamedTuple):
    """An original and what came back, both [3, height, width]."""

    name: str
    real: Tensor
    made: Tensor


class PictureReport(SavedReport):
    """An evaluation. All but `examples` is in its JSON."""

    of_what: ClassVar[str] = "a tokenizer of pictures"
    format: Literal["madrigal.judge.pictures"] = FORMAT
    version: Literal[1] = VERSION
    title: str
    pictures: int
    size: tuple[int, int]
    grid: tuple[int, int]
    psnr: Estimate | None
    ssim: Estimate | None
    codebook_size: int
    perplexity: float
    codes_used: int
    frechet: float | None
    features: str
    components: int
    groups: list[Group] = Field(default_factory=list)
    scores: list[PictureScore] = Field(default_factory=list)
    examples: list[Pair] = Field(default_factory=list, exclude=True, repr=False)


def evaluate_pictures(
    pictures: Tensor,
    round_trip: RoundTrip,
    *,
    codebook_size: int,
    features: FeatureMaker,
    names: Sequence[str],
    kinds: Sequence[str] | None = None,
    title: str = "A tokenizer of pictures",
    components: int = 64,
    progress: Callable[[int, int], object] | None = None,
) -> PictureReport:
    """Judge pictures [n, 3, height, width] from 0 to 1 and what comes back of them.

    The Frechet distance lies between the features of the originals and of what came back, on their first
    principal `components`: the same pictures have distance zero.
    """
    made, counts = [], torch.zeros(codebook_size)
    grid = (0, 0)
    for batch in pictures.split(BATCH):
        again, codes = round_trip(batch)
        made.append(again.clamp(0.0, 1.0))
        counts += torch.bincount(codes.flatten(), minlength=codebook_size)
        grid = (int(codes.shape[-2]), int(codes.shape[-1]))
        if progress is not None:
            progress(sum(map(len, made)), len(pictures))
    back = torch.cat(made)
    decibels, likeness = psnr(back, pictures).tolist(), ssim(back, pictures).tolist()
    distance = None
    if len(pictures) > 2:
        distance = frechet_on_components(features.features(pictures), features.features(back), components)
    return PictureReport(
        title=title,
        pictures=len(pictures),
        size=(int(pictures.shape[-2]), int(pictures.shape[-1])),
        grid=grid,
        psnr=of_mean(decibels),
        ssim=of_mean(likeness),
        codebook_size=codebook_size,
        perplexity=float(perplexity(counts)),
        codes_used=int((counts > 0).sum()),
        frechet=distance,
        features=features.name,
        components=min(components, len(pictures) - 1),
        groups=_groups(decibels, likeness, kinds),
        scores=[PictureScore(name=n, psnr=p, ssim=s) for n, p, s in zip(names, decibels, likeness, strict=True)],
        examples=[Pair(names[i], pictures[i], back[i]) for i in _spread(len(pictures), SHOWN)],
    )


def _groups(decibels: list[float], likeness: list[float], kinds: Sequence[str] | None) -> list[Group]:
    if kinds is None or len(set(kinds)) < 2:
        return []
    chosen = {kind: [number for number, other in enumerate(kinds) if other == kind] for kind in sorted(set(kinds))}
    return [
        Group(name=kind, psnr=of_mean([decibels[n] for n in here]), ssim=of_mean([likeness[n] for n in here]))
        for kind, here in chosen.items()
    ]


def _spread(count: int, shown: int) -> list[int]:
    """So many numbers below `count`, evenly spread."""
    return [round(n * (count - 1) / max(1, min(shown, count) - 1)) for n in range(min(shown, count))]


def pairs_picture(pairs: Sequence[Pair], columns: int = 12, gap: int = 4) -> Image.Image:
    """A page of originals, each with what came back below it."""
    height, width = pairs[0].real.shape[-2:]
    rows = -(-len(pairs) // columns)
    cell = 2 * height + gap + 2 * gap
    page = Image.new("RGB", (gap + min(columns, len(pairs)) * (width + gap), gap + rows * cell), "white")
    for number, pair in enumerate(pairs):
        row, column = divmod(number, columns)
        left, top = gap + column * (width + gap), gap + row * cell
        page.paste(_image(pair.real), (left, top))
        page.paste(_image(pair.made), (left, top + height + gap // 2))
    return page


def _image(pixels: Tensor) -> Image.Image:
    whole = (pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
    return Image.fromarray(whole.numpy())
