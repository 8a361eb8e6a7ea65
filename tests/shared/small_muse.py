"""A Muse of a size for tests: nobody has trained it, but it draws, and all that it is told matters."""

from typing import Any

import torch

from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_transformer import MaskGitTransformer
from madrigal.muse.muse import Muse
from madrigal.muse.painting import Painting
from madrigal.muse.vae import VQGanVAE

SIDE = 16
"""Pixels."""


def small_muse(**net: Any) -> Muse:
    """Pictures of 16 x 16 pixels from the bytes of a text, in two steps; `net` are options of its transformer."""
    torch.manual_seed(0)
    vae = VQGanVAE(
        discriminators=False, dim=8, layers=2, resnet_groups=4, num_resnet_blocks=0, quantizer="fsq", levels=(4, 4)
    )
    sizes = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8, "num_tokens": 16, "text_encoder": "bytes"}
    transformer = MaskGitTransformer(**{**sizes, **net})
    return Muse(MaskGit(SIDE, transformer, vae=vae.eval()), painting=Painting(timesteps=2)).eval()
