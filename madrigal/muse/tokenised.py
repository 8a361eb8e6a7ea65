"""Pictures as tokens and back, by a vae that is a frozen tool."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.engine.evaluating import eval_mode
from madrigal.errors import UserError
from madrigal.muse.grids import as_grid
from madrigal.muse.maskgit_config import MaskGitConfig, Size, as_size
from madrigal.muse.pictures import lowered


class Tokenised(nn.Module):
    """What a model over tokens does with pictures. Its `vae` is no part of it: it is in no optimizer and no checkpoint.

    `cond_vae` (default: the same) makes the tokens of pictures in low resolution, where there are such.
    """

    config: MaskGitConfig
    vae: Any
    cond_vae: Any

    def __init__(self, vae: Any = None, cond_vae: Any = None) -> None:
        super().__init__()
        self.__dict__ |= {"vae": vae, "cond_vae": vae if cond_vae is None else cond_vae}

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def is_superres(self) -> bool:
        return self.config.cond_image_size is not None

    def check_vae(self) -> None:
        """The transformer knows as many tokens as there are."""
        wanted = {"vae": self.config.transformer.num_tokens, "cond_vae": self.config.transformer.num_cond_tokens}
        for name, size in wanted.items():
            vae = getattr(self, name)
            if vae is not None and size is not None and vae.codebook_size != size:
                raise UserError(f"The {name} has {vae.codebook_size} tokens, and the transformer was built for {size}.")

    def tool(self, name: str = "vae") -> Any:
        """The vae, where there is one."""
        vae = getattr(self, name)
        if vae is None:
            raise UserError(f"Pictures become tokens, and tokens pictures, by a vae: give MaskGit {name}=….")
        return vae

    @torch.no_grad()
    def tokens_of(self, images: Tensor, name: str = "vae") -> Tensor:
        """Images [batch, 3, height, width] -> ids [batch, rows, columns]; the vae stays as it was."""
        vae = self.tool(name)
        factor = vae.downsample_factor
        if images.shape[-2] % factor or images.shape[-1] % factor:
            raise UserError(
                f"A token covers {factor} pixels a side, and a picture of {images.shape[-1]}x{images.shape[-2]} is no "
                "multiple of that: bring it to another size."
            )
        with _used(vae) as device:
            ids: Tensor = vae.encode(images.to(device))
        return ids.to(self.device)

    @torch.no_grad()
    def picture(self, ids: Tensor) -> Tensor:
        """Ids [batch, rows, columns] -> images [batch, 3, height, width] from 0 to 1."""
        vae = self.tool()
        with _used(vae) as device:
            images: Tensor = vae.decode_from_ids(ids.to(device))
        return images.to(self.device).clamp(0, 1)

    def low_size(self, size: Size) -> Size:
        """The low resolution of a picture of this size (height, width)."""
        assert self.config.cond_image_size is not None
        (height, width), (low, narrow) = self.config.image_size, self.config.cond_image_size
        return size[0] * low // height, size[1] * narrow // width

    def low_tokens_of(self, images: Tensor, size: int | Size | None = None) -> Tensor:
        """The tokens in low resolution of what has `size` (default: image_size) in high resolution."""
        return self.tokens_of(lowered(images, self.low_size(as_size(size) or self.config.image_size)), "cond_vae")

    def tokenised(
        self, images_or_ids: Tensor, *, cond_images: Tensor | None = None, cond_token_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Ids [batch, rows, columns], and those in low resolution where the model makes pictures larger."""
        is_picture = images_or_ids.is_floating_point()
        ids = self.tokens_of(images_or_ids) if is_picture else as_grid(images_or_ids)
        if not self.is_superres:
            if cond_images is not None or cond_token_ids is not None:
                raise UserError(
                    "The model makes pictures from nothing: with cond_image_size it would make them larger."
                )
            return ids, None
        if cond_token_ids is not None:
            return ids, as_grid(cond_token_ids)
        source = images_or_ids if cond_images is None else cond_images
        if not source.is_floating_point():
            raise UserError("Super-resolution learns from pictures, or from ids with cond_token_ids: give those, too.")
        height, width = images_or_ids.shape[-2:]
        return ids, self.low_tokens_of(source, (height, width) if is_picture else None)

    def fmap(self, size: int | Size | None = None) -> Size:
        """Rows and columns of the tokens of a picture of this size (height, width)."""
        height, width = as_size(size) or self.config.image_size
        factor = self.tool().downsample_factor
        if height % factor or width % factor:
            raise UserError(f"A token covers {factor} pixels a side: {width}x{height} is no multiple of that.")
        return height // factor, width // factor


@contextmanager
def _used(vae: Any) -> Iterator[torch.device]:
    """A vae in eval mode, as it was afterwards, and where it is."""
    first = next(vae.parameters(), None)
    with eval_mode(vae):
        yield torch.device("cpu") if first is None else first.device
