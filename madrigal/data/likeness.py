"""How alike two pictures are: figures that trainers watch and judges report."""

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW, SIGMA = 11, 1.5
STABILISERS = 0.01**2, 0.03**2
"""Window and constants of Wang et al. (2004), for values from 0 to 1."""


def psnr(made: Tensor, real: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, [batch], of pictures [batch, channels, height, width] from 0 to 1.

    Equal pictures have 100 dB, which is more than a byte a channel can tell apart.
    """
    error = (made - real).square().flatten(1).mean(1)
    return -10 * error.clamp(min=1e-10).log10()


def ssim(made: Tensor, real: Tensor) -> Tensor:
    """Structural similarity [batch], at most 1: a mean over channels and over all places of its window.

    In a picture with a side shorter than the window the window is as long as that side.
    """
    window = _window(min(WINDOW, *real.shape[-2:]), real)
    channels = real.shape[1]

    def blurred(x: Tensor) -> Tensor:
        x = F.conv2d(x, window[:, None].expand(channels, 1, -1, 1), groups=channels)
        return F.conv2d(x, window[None].expand(channels, 1, 1, -1), groups=channels)

    first, second = blurred(made), blurred(real)
    variance = blurred(made.square()) - first.square() + blurred(real.square()) - second.square()
    covariance = blurred(made * real) - first * second
    light, contrast = STABILISERS
    luminance = (2 * first * second + light) / (first.square() + second.square() + light)
    structure = (2 * covariance + contrast) / (variance + contrast)
    return (luminance * structure).flatten(1).mean(1)


def perplexity(counts: Tensor) -> Tensor:
    """Exponential of the entropy of codes with these counts [codes]: as many codes, equally used, say as much."""
    shares = counts.float() / counts.sum().clamp(min=1)
    return torch.special.entr(shares).sum().exp()


def _window(size: int, like: Tensor) -> Tensor:
    places = torch.arange(size, device=like.device, dtype=like.dtype) - (size - 1) / 2
    window = torch.exp(-places.square() / (2 * SIGMA**2))
    return window / window.sum()
