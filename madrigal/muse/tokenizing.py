"""`tokenize` for pictures: the tokens that trainings of MaskGit read, made beforehand."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from madrigal.data.images import ImageFolderDataset, Size
from madrigal.data.manifest import PictureManifest
from madrigal.muse.picture_tokens import PictureTokens, tokens_of_pictures
from madrigal.muse.tokenised import Tokenised
from madrigal.muse.vae import VQGanVAE


class Sizes(NamedTuple):
    """Of the pictures whose tokens are made, and of the same in low resolution for super-resolution."""

    image_size: Size
    cond_image_size: Size | None = None


class PictureTokenizer(Tokenised):
    """A vae as what makes tokens of pictures in one or two sizes; there is nothing in it to be trained."""

    config: Any

    def __init__(self, vae: VQGanVAE, sizes: Sizes, cond_vae: VQGanVAE | None = None) -> None:
        super().__init__(vae, cond_vae)
        self.config = sizes

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")


def tokenize_pictures(
    manifest: PictureManifest, vae: VQGanVAE, out: Path, *, image_size: Size, cond_image_size: Size | None = None
) -> PictureTokens:
    """Tokens of all pictures below `out`, where `data.tokens=out` finds them; those that are there stay."""
    tokenizer = PictureTokenizer(vae, Sizes(image_size, cond_image_size))
    pictures = ImageFolderDataset(manifest, image_size, train=False, flip=False, rejected_path=out / "rejected.jsonl")
    return tokens_of_pictures(tokenizer, pictures, out)
