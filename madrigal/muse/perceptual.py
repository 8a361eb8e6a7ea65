"""A distance of pictures that a frozen network sees: VGG16, with LPIPS' weights where its file has them.

Zhang et al. (2018): the features of some layers, each place of unit length, and the squares of their differences,
weighed channel by channel where weights were learned.
"""

import re
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from madrigal.errors import UserError

CONVOLUTIONS = {
    0: (3, 64), 2: (64, 64),
    5: (64, 128), 7: (128, 128),
    10: (128, 256), 12: (256, 256), 14: (256, 256),
    17: (256, 512), 19: (512, 512), 21: (512, 512),
    24: (512, 512), 26: (512, 512), 28: (512, 512),
}  # fmt: skip
"""VGG16's convolutions by their number among its layers: channels in and out."""
POOLED_BEFORE = {5, 10, 17, 24}
LOOKED_AT = (2, 7, 14, 21, 28)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, which the network was trained on."""


class PerceptualLoss(nn.Module):
    """Distance of pictures [batch, 3, height, width] from 0 to 1, a mean over them. Nothing in it ever learns.

    `network` takes pictures and gives features: a tensor or several of them.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """It stays in eval mode, whatever the model around it does."""
        return super().train(False)

    def forward(self, made: Tensor, real: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = _listed(self.network(real))
        seen = _listed(self.network(made))
        distance = getattr(self.network, "distance", lambda _, m, r: F.mse_loss(m, r))
        return torch.stack([distance(n, m, r) for n, (m, r) in enumerate(zip(seen, wanted, strict=True))]).sum()


class VGG16Features(nn.Module):
    """The features of five layers of VGG16, [batch, channels, height / 2 ** n, …] each."""

    mean: Tensor
    std: Tensor

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict()
        for number, (dim, wider) in CONVOLUTIONS.items():
            self.layers[str(number)] = nn.Conv2d(dim, wider, 3, padding=1)
        self.layers.load_state_dict(_convolutions(weights))
        heads = _heads(weights)
        self.heads = nn.ParameterList(heads) if heads else None
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(STD)[:, None, None], persistent=False)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file of VGG16's weights as torchvision or LPIPS name them: .safetensors, or .pt of tensors alone."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"There is no file {path} with VGG16 weights; check vgg, or leave it out.")
        try:
            weights: Any = (
                load_file(path)
                if path.suffix == ".safetensors"
                else torch.load(path, map_location="cpu", weights_only=True)
            )
            return cls(weights)
        except (OSError, SafetensorError, RuntimeError, KeyError, ValueError, AttributeError, EOFError) as error:
            reason = str(error).partition("\n")[0].rstrip(".:")
            raise UserError(f"{path} does not hold the weights of a VGG16 ({reason}).") from error
        except Exception as error:  # what is not read with weights_only says so by pickle's own error
            raise UserError(f"{path} holds more than tensors, and is not opened; save its state_dict alone.") from error

    def forward(self, pictures: Tensor) -> list[Tensor]:
        x = (pictures - self.mean) / self.std
        features = []
        for number in CONVOLUTIONS:
            x = F.max_pool2d(x, 2) if number in POOLED_BEFORE and min(x.shape[-2:]) > 1 else x
            x = F.relu(self.layers[str(number)](x))
            if number in LOOKED_AT:
                features.append(x)
        return features

    def distance(self, number: int, made: Tensor, real: Tensor) -> Tensor:
        """Of the features of one layer."""
        square = (F.normalize(made, dim=1) - F.normalize(real, dim=1)).square()
        weights = 1 if self.heads is None else self.heads[number][:, None, None]
        return (square * weights).sum(1).mean()


def _listed(features: Tensor | list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
    return [features] if isinstance(features, Tensor) else list(features)


def _convolutions(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """By number, from `features.0.weight`, `net.slice1.0.weight` or the like."""
    found = {}
    for number, (dim, wider) in CONVOLUTIONS.items():
        for part, shape in (("weight", (wider, dim, 3, 3)), ("bias", (wider,))):
            ending = re.compile(rf"(^|\.){number}\.{part}$")
            fitting = [t for name, t in weights.items() if ending.search(name) and tuple(t.shape) == shape]
            if not fitting:
                raise KeyError(f"no {part} of the convolution {number}")
            found[f"{number}.{part}"] = fitting[0].float()
    return found


def _heads(weights: dict[str, Tensor]) -> list[Tensor]:
    """LPIPS' weight of every channel, layer by layer, or none."""
    found: list[Tensor] = []
    for layer, number in enumerate(LOOKED_AT):
        dim = CONVOLUTIONS[number][1]
        named = re.compile(rf"^lins?\.?{layer}\.")
        fitting = [t for name, t in weights.items() if named.search(name) and t.numel() == dim]
        found += [tensor.float().flatten() for tensor in fitting[:1]]
    return found if len(found) == len(LOOKED_AT) else []
