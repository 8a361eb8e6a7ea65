"""Muse: a small picture from a text, then the same picture larger."""

from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn

from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.muse.editing import Edit
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_config import Size, as_size
from madrigal.muse.painting import Painting
from madrigal.muse.pictures import to_pil


class Muse(nn.Module):
    """Both stages; `superres` may be left out. `painting` is how pictures are made where a call does not say it."""

    def __init__(self, base: MaskGit, superres: MaskGit | None = None, *, painting: Painting | None = None) -> None:
        super().__init__()
        if base.is_superres:
            raise UserError(
                "The base makes pictures from nothing; the given one makes them larger: give it as superres."
            )
        if superres is not None and superres.config.cond_image_size != base.config.image_size:
            raise UserError(
                f"The super-resolution enlarges pictures of {superres.config.cond_image_size}, and the base makes them "
                f"of {base.config.image_size}: train both for one size."
            )
        self.base, self.superres = base, superres
        self.painting = painting or Painting()
        self.eval()

    @property
    def last(self) -> MaskGit:
        """The stage that makes the picture."""
        return self.base if self.superres is None else self.superres

    @property
    def cell(self) -> int:
        """Pixels a side of the picture that are made together: a token of the base covers them."""
        height = self.last.config.image_size[0]
        return int(self.base.tool().downsample_factor * height // self.base.config.image_size[0])

    @property
    def device(self) -> torch.device:
        return self.base.device

    def generate(
        self,
        texts: list[str] | None = None,
        *,
        size: int | Size | None = None,
        seed: int | list[int] = 0,
        superres_timesteps: int | None = None,
        edit: Edit | None = None,
        return_lowres: bool = False,
        negative_texts: list[str] | None = None,
        classes: Tensor | list[int] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """Images [batch, 3, height, width]; with `return_lowres` also those of the base.

        `size` is (height, width) of the result. With an `edit` only a part of its picture is made. The other options
        are those of `Painting`.
        """
        painting = build_config(Painting, {**self.painting.model_dump(), **options}, "generate")
        wanted = as_size(size) or (self.last.config.image_size if edit is None else edit.size)
        given: dict[str, Any] = {"negative_texts": negative_texts, "classes": classes, "batch_size": batch_size}
        given |= {"seed": seed, **painting.model_dump()}
        small = wanted if self.superres is None else self.superres.low_size(wanted)
        low = self.base.generate_ids(texts, **self._place(self.base, small, edit), **given)
        if self.superres is None:
            images = self.base.picture(low)
            return (images, images) if return_lowres else images
        if superres_timesteps is not None:
            given["timesteps"] = superres_timesteps
        place = self._place(self.superres, wanted, edit)
        ids = self.superres.generate_ids(texts, cond_token_ids=low, **place, **given)
        images = self.superres.picture(ids)
        return (images, self.base.picture(low)) if return_lowres else images

    def _place(self, stage: MaskGit, size: Size, edit: Edit | None) -> dict[str, Any]:
        if edit is None:
            return {"fmap_size": stage.fmap(size)}
        ids, made = edit.tokens(stage, size)
        return {"ids": ids, "made": made}

    @torch.no_grad()
    def forward(
        self,
        texts: list[str],
        *,
        cond_scale: float | None = None,
        temperature: float | None = None,
        timesteps: int | None = None,
        superres_timesteps: int | None = None,
        return_lowres: bool = False,
        return_pil_images: bool = True,
        **options: Any,
    ) -> list[Image] | tuple[list[Image], list[Image]] | Tensor | tuple[Tensor, Tensor]:
        """Pictures of texts, as PIL images if not told otherwise; what is None is as `painting` says."""
        said = {"cond_scale": cond_scale, "temperature": temperature, "timesteps": timesteps}
        options |= {name: value for name, value in said.items() if value is not None}
        images, low = self.generate(texts, superres_timesteps=superres_timesteps, return_lowres=True, **options)
        if not return_pil_images:
            return (images, low) if return_lowres else images
        return (to_pil(images), to_pil(low)) if return_lowres else to_pil(images)
