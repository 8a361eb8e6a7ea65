"""A vae that needs no training, and small MaskGits over its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_transformer import MaskGitTransformer, TokenCritic

LEVELS = 16
SMALL: dict[str, Any] = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16, "num_tokens": LEVELS}


class GreyVAE(nn.Module):
    """Each cell of 4 by 4 pixels becomes its mean brightness, one of 16."""

    downsample_factor = 4
    codebook_size = LEVELS
    fingerprint = "grey"

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(LEVELS - 1.0))

    def encode(self, images: Tensor) -> Tensor:
        return (F.avg_pool2d(images.mean(1, keepdim=True), 4)[:, 0] * self.scale).round().long()

    def decode_from_ids(self, ids: Tensor) -> Tensor:
        grey = (ids / self.scale).repeat_interleave(4, 1).repeat_interleave(4, 2)
        return grey[:, None].expand(-1, 3, -1, -1) * 1.2 - 0.1  # beyond 0 … 1, as decoders are


def transformer(**options: Any) -> MaskGitTransformer:
    torch.manual_seed(0)
    return MaskGitTransformer(**{**SMALL, "text_encoder": "bytes", **options})


def critic(**options: Any) -> TokenCritic:
    torch.manual_seed(1)
    return TokenCritic(**{**SMALL, "text_encoder": "bytes", **options})


def base(size: Any = 16, *, net: dict[str, Any] | None = None, **options: Any) -> MaskGit:
    return MaskGit(size, transformer(**(net or {})), vae=GreyVAE(), **options)


def superres(*, net: dict[str, Any] | None = None, **options: Any) -> MaskGit:
    net = {"num_cond_tokens": LEVELS, **(net or {})}
    return MaskGit(32, transformer(**net), vae=GreyVAE(), cond_image_size=16, **options)


class Squares(torch.utils.data.Dataset[dict[str, Any]]):
    """Pictures of four brightnesses with their names."""

    names = ("black", "dark", "light", "white")

    def __init__(self, size: int = 16, count: int = 24, *, ids: bool = False) -> None:
        self.size, self.count, self.ids = size, count, ids

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        kind = index % 4
        image = torch.full((3, self.size, self.size), kind / 3.0)
        image[:, : self.size // 2] *= 0.5
        item: dict[str, Any] = {"image": image}
        if self.ids:
            item = {"ids": GreyVAE().encode(image[None])[0]}
        return {**item, "text": self.names[kind]}


def write_folder(folder: Path, size: int = 16, count: int = 12) -> Path:
    """The same as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, item in enumerate(Squares(size, count)):  # type: ignore[arg-type,var-annotated]
        if index == count:
            break
        pixels = (item["image"].permute(1, 2, 0) * 255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / f"{index:02d}.png")
        (folder / f"{index:02d}.txt").write_text(item["text"])
    return folder
