"""Trains a VQGAN: the generator's turn, then the discriminator's."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.data.likeness import perplexity, psnr, ssim
from madrigal.data.picture_source import PictureSource
from madrigal.engine.adversarial import GENERATOR, Adversarial, AdversarialPlan
from madrigal.engine.artifacts import ORIGINAL, Picture, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.sourced import SourceTrainer
from madrigal.engine.trainer import Figures, Terms
from madrigal.errors import UserError
from madrigal.muse.vae import VQGanVAE


class VQGanPlan(AdversarialPlan):
    """A plan with a schedule of its own for the discriminator."""

    max_grad_norm: float | None = Field(None, gt=0, description="clip norm of the generator")
    ema_update_after_step: int = Field(0, ge=0, description="up to here the average equals the weights")
    ema_update_every: int = Field(1, ge=1, description="steps between moves of the average")
    num_samples: int = Field(16, ge=0, description="pictures in the grids that are written at each validation")


class VQGanVAETrainer(Adversarial, SourceTrainer):
    """Trains `vae` on a folder, a dataset or a loader of pictures; keywords are the fields of `VQGanPlan`.

    A batch holds `image` [batch, 3, height, width]; `image_size` is a number, or height and width.
    """

    system: ClassVar[str] = "vqgan"
    unit: ClassVar[str] = "pictures"
    model: VQGanVAE
    plan: VQGanPlan

    def __init__(
        self,
        vae: VQGanVAE,
        *,
        folder: str | Path | None = None,
        image_size: int | tuple[int, int] | None = None,
        plan: VQGanPlan | None = None,
        source: PictureSource | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        plan, given = plan_and_keywords(VQGanPlan, plan, options, name)
        if folder is not None and source is not None:
            raise UserError(f"{name} was given a folder and a source, which both name its pictures: give one of them.")
        self.turns_share_batch = plan.discr_share_batch
        self._adaptive: list[Tensor] = []
        if folder is not None:
            more = {} if image_size is None else {"image_size": image_size}
            source = PictureSource(path=Path(folder), **more)
        self._used = torch.zeros(vae.codebook_size, dtype=torch.long)
        super().__init__(vae, plan=plan, source=source, results_folder=results_folder, recipe=recipe, **given)
        self._used = self._used.to(self.device)

    def opened(self, source: PictureSource, **how: Any) -> tuple[Any, Any]:
        return source.datasets(multiple_of=self.model.downsample_factor, **how)

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def frozen(self) -> list[nn.Module]:
        return [] if self.model.perceptual is None else [self.model.perceptual]

    def target(self, batch: Batch) -> Tensor:
        pictures: Tensor = batch["image"]
        return pictures

    def make(self, batch: Batch, *, learn: bool, adversarial: bool) -> tuple[Tensor, Terms]:
        real = self.target(batch)
        made, quantized = self.model.autoencode(real, collect=learn)
        judged = self.model.generator_terms(real, made, quantized.commitment, adversarial=adversarial)
        if judged.adaptive_weight is not None:
            self._adaptive.append(judged.adaptive_weight.detach())
        return made, judged.terms

    def judge(self, discriminator: nn.Module, batch: Batch, *, penalty: bool) -> Terms:
        return self.model.discriminator_terms(self.target(batch), batch["made"], penalty=penalty)

    def first_step(self, batches: list[Batch]) -> None:
        if not self.model.quantizer.initialized:  # one that was trained before keeps its codebook
            latents = [self.model.latents(self.target(batch)).flatten(0, 2) for batch in batches]
            self.model.quantizer.initialize(torch.cat(latents))

    def after_turn(self, turn: str, applied: bool) -> Figures:
        if turn != GENERATOR:
            return {}
        weights, self._adaptive = self._adaptive, []
        figures = {"adaptive_weight": float(torch.stack(weights).mean())} if weights else {}
        if not applied:
            self.model.quantizer.discard()
            return figures
        self.model.quantizer.commit(reduce=self.ranks.sum_, gather=self.ranks.gather)
        return {**figures, "perplexity": float(self.model.quantizer.perplexity())}

    def validate(self, batch: Batch) -> Terms:
        real = self.target(batch)
        made, quantized = self.model.autoencode(real)
        terms = self.model.generator_terms(real, made, quantized.commitment, adversarial=False).terms
        self._used += torch.bincount(quantized.codes.flatten(), minlength=len(self._used))
        made = made.clamp(0.0, 1.0)
        return {**terms, "psnr": psnr(made, real).mean(), "ssim": ssim(made, real).mean()}

    def conclude(self, means: Figures) -> Figures:
        """With the perplexity of the codes of the whole validation set."""
        if not means:
            return means  # there is no validation set
        used = self.ranks.sum_(self._used.float())
        self._used = torch.zeros_like(self._used)
        return {**means, "perplexity": float(perplexity(used))}

    def sample(self, batch: Batch) -> list[Sample]:
        """One grid: each picture, and below it the same from its tokens."""
        real = self.target(batch)
        made = self.model.decode_from_ids(self.model.encode(real))
        return [{ORIGINAL: Picture(_row(real)), "reconstruction": Picture(torch.cat((_row(real), _row(made)), dim=1))}]


def _row(pictures: Tensor) -> Tensor:
    """Pictures [batch, 3, height, width] beside each other: [3, height, batch * width]."""
    return pictures.permute(1, 2, 0, 3).flatten(2)
