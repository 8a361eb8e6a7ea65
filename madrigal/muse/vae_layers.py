"""The convolutions of a VQGAN: pictures [batch, channels, height, width] to a grid of latents and back.

Strides are convolutions of four pixels a side: no pixel counts more often than another, so nothing is chequered.
"""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.muse.vae_config import VQGanVAEConfig


class ResidualBlock(nn.Module):
    """[batch, dim, height, width] -> the same shape: two convolutions, each after a norm, added to what came in."""

    def __init__(self, dim: int, groups: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(groups, dim) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(dim, dim, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            residual = convolution(F.silu(norm(residual)))
        return x + residual


class Encoder(nn.Sequential):
    """Pictures [batch, channels, height, width] -> latents [batch, dims[-1], height / 2 ** layers, …]."""

    def __init__(self, config: VQGanVAEConfig) -> None:
        dims, kernel = config.dims, config.first_conv_kernel_size
        steps: list[nn.Module] = [nn.Conv2d(config.channels, dims[0], kernel, padding=kernel // 2)]
        for dim, wider, blocks in zip(dims, dims[1:], config.blocks, strict=False):
            steps += [nn.SiLU(), nn.Conv2d(dim, wider, 4, stride=2, padding=1)]
            steps += [ResidualBlock(wider, config.resnet_groups) for _ in range(blocks)]
        super().__init__(*steps, nn.GroupNorm(config.resnet_groups, dims[-1]))


class Decoder(nn.Module):
    """Latents [batch, dims[-1], height / 2 ** layers, …] -> pictures [batch, channels, height, width]."""

    def __init__(self, config: VQGanVAEConfig) -> None:
        super().__init__()
        dims = config.dims
        steps: list[nn.Module] = [nn.Conv2d(dims[-1], dims[-1], 3, padding=1)]
        for dim, wider, blocks in zip(dims[-2::-1], dims[:0:-1], config.blocks[::-1], strict=True):
            steps += [ResidualBlock(wider, config.resnet_groups) for _ in range(blocks)]
            steps += [nn.SiLU(), nn.ConvTranspose2d(wider, dim, 4, stride=2, padding=1)]
        self.body = nn.Sequential(*steps, nn.SiLU())
        self.last = nn.Conv2d(dims[0], config.channels, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        pixels: Tensor = self.last(self.body(latents))
        return pixels


class PatchDiscriminator(nn.Module):
    """Pictures [batch, channels, height, width] -> logits [batch, 1, h, w], one for each patch, and its features.

    After Isola et al. (2017): no logit sees the whole of a large picture, so what is judged is texture. The norms
    are of groups and not of the batch, so a picture's logits do not depend on the others.
    """

    def __init__(self, config: VQGanVAEConfig) -> None:
        super().__init__()
        dims = [config.channels, *(config.dim * 2**layer for layer in range(config.discr_layers))]
        self.layers = nn.ModuleList()
        for number, (dim, wider) in enumerate(pairwise(dims)):
            norm = nn.GroupNorm(config.resnet_groups, wider) if number else nn.Identity()
            self.layers.append(nn.Sequential(nn.Conv2d(dim, wider, 4, stride=2, padding=1), norm, nn.LeakyReLU(0.2)))
        self.to_logits = nn.Conv2d(dims[-1], 1, 3, padding=1)

    def forward(self, pictures: Tensor) -> tuple[Tensor, list[Tensor]]:
        features: list[Tensor] = []
        x = pictures * 2 - 1
        for layer in self.layers:
            x = layer(x)
            features.append(x)
        return self.to_logits(x), features
