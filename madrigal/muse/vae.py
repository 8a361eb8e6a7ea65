"""VQGAN: a picture as a grid of tokens, and a picture of a grid of tokens, after Esser et al. (2021)."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from madrigal.engine.pretrained import Pretrained
from madrigal.engine.recipe import build_config, known_keywords
from madrigal.errors import UserError
from madrigal.layers.gan_losses import Terms, cross_entropy, discriminator_terms, hinge
from madrigal.layers.quantizers import Quantized, Quantizer, build_quantizer
from madrigal.muse.perceptual import PerceptualLoss, VGG16Features
from madrigal.muse.vae_config import VQGanVAEConfig
from madrigal.muse.vae_layers import Decoder, Encoder, PatchDiscriminator, ResidualBlock
from madrigal.muse.vae_losses import Judged, generator_terms
from madrigal.tokenizers.fingerprint import fingerprint_of

OLDER_WORDS = {
    "decay": "ema_decay",
    "codebook_dim": "factorised_dim",
    "use_cosine_sim": "l2_normalised",
    "threshold_ema_dead_code": "dead_code_threshold",
    "entropy_loss_weight": "entropy_weight",
    "commitment_loss_weight": "commitment_weight",
}
"""What other libraries call some options of a quantizer."""


class VQGanVAE(nn.Module, Pretrained):
    """Pictures [batch, channels, height, width] from 0 to 1 -> ids [batch, height / f, width / f] and back.

    Options are those of `VQGanVAEConfig`, as keywords or as one config. Sides may have any length that is a multiple
    of `downsample_factor`, f. What a call does never depends on the training mode. `discriminators=False` builds no
    discriminator and no perceptual network, for one that is only used; `vgg` is a network that gives features of
    pictures, or the file of VGG16's weights. It is never trained.
    """

    Config: ClassVar[type[VQGanVAEConfig]] = VQGanVAEConfig
    left_out: ClassVar[tuple[str, ...]] = ("discriminators.", "perceptual.")
    config: VQGanVAEConfig

    def __init__(
        self,
        config: VQGanVAEConfig | Mapping[str, Any] | None = None,
        *,
        vgg: nn.Module | str | Path | None = None,
        discriminators: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(vgg, str | Path):
            options, vgg = {**options, "vgg": str(vgg)}, None
        if not isinstance(config, VQGanVAEConfig) or options:
            given = config.model_dump() if isinstance(config, VQGanVAEConfig) else dict(config or {})
            config = build_config(VQGanVAEConfig, {**given, **options}, "VQGanVAE")
        self.config = config
        self.encoder = Encoder(config)
        self.quantizer = _quantizer(config)
        self.decoder = Decoder(config)
        self.discriminators = nn.ModuleDict()
        self.perceptual: PerceptualLoss | None = None
        if config.use_vgg_and_gan and discriminators:
            self.discriminators["patch"] = PatchDiscriminator(config)
            if vgg is None and config.vgg is not None:
                vgg = VGG16Features.load(config.vgg)
            self.perceptual = None if vgg is None else PerceptualLoss(vgg)

    # Numbers that others ask for.

    @property
    def codebook_size(self) -> int:
        return self.config.codebook_size

    @property
    def downsample_factor(self) -> int:
        return self.config.downsample_factor

    @property
    def discr(self) -> nn.Module:
        return self.discriminators["patch"]

    @property
    def fingerprint(self) -> str:
        """A short name for what it has learned: tokens of other weights mean something else."""
        return fingerprint_of(self.config.model_dump(mode="json", include={"kind", "quantizer"}), self.exported())

    def get_encoded_fmap_size(self, image_size: int | tuple[int, int]) -> Any:
        """The tokens a side of a picture of this size, or of these [height, width]."""
        if isinstance(image_size, int):
            return self._grid(image_size, image_size)[0]
        return self._grid(*image_size)

    def blocks(self) -> list[nn.Module]:
        """The repeated parts, worth compiling or recomputing."""
        return [part for part in self.modules() if isinstance(part, ResidualBlock)]

    # The ways through it.

    def latents(self, pictures: Tensor) -> Tensor:
        """Pictures to latents [batch, height / f, width / f, dims[-1]] as the quantizer gets them."""
        if pictures.ndim != 4 or pictures.shape[1] != self.config.channels:
            raise UserError(
                f"Pictures come as [batch, {self.config.channels}, height, width], not as {list(pictures.shape)}."
            )
        self._grid(*pictures.shape[-2:])
        x: Tensor = self.encoder(pictures * 2 - 1)
        return x.permute(0, 2, 3, 1)

    def autoencode(self, pictures: Tensor, *, collect: bool = False) -> tuple[Tensor, Quantized]:
        """Pictures again, and what the quantizer made of their latents; `collect` notes the codes that were used."""
        latents = self.latents(pictures)
        quantized = self.quantizer(latents.flatten(1, 2), collect=collect)
        return self.decode(quantized.embedding.unflatten(1, latents.shape[1:3])), quantized

    @torch.no_grad()
    def encode(self, pictures: Tensor) -> Tensor:
        """Pictures [batch, channels, height, width] -> ids [batch, height / f, width / f]."""
        latents = self.latents(pictures)
        codes: Tensor = self.quantizer(latents.flatten(1, 2)).codes
        return codes[..., 0].unflatten(1, latents.shape[1:3])

    def decode(self, embedding: Tensor) -> Tensor:
        """Quantized latents [batch, h, w, dims[-1]] -> pictures [batch, channels, h * f, w * f], not clamped."""
        pixels: Tensor = self.decoder(embedding.permute(0, 3, 1, 2))
        return (pixels + 1) / 2

    @torch.no_grad()
    def decode_from_ids(self, ids: Tensor) -> Tensor:
        """Ids [batch, h, w] -> pictures [batch, channels, h * f, w * f] from 0 to 1."""
        if ids.ndim != 3:
            raise UserError(f"Ids come as [batch, height, width] in tokens, not as {list(ids.shape)}.")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.codebook_size:
            raise UserError(
                f"Ids from {int(ids.min())} to {int(ids.max())} are not all of this tokenizer, which has "
                f"{self.codebook_size}: take them from a MaskGit that was trained with it."
            )
        embedding = self.quantizer.decode(ids.flatten(1)[..., None])
        return self.decode(embedding.unflatten(1, ids.shape[1:])).clamp(0.0, 1.0)

    # Training.

    def generator_terms(self, real: Tensor, made: Tensor, commitment: Tensor, *, adversarial: bool = True) -> Judged:
        """The generator's named terms; see `vae_losses`."""
        return generator_terms(self, real, made, commitment, adversarial=adversarial)

    def discriminator_terms(self, real: Tensor, made: Tensor, *, penalty: bool = False) -> Terms:
        """The discriminator's named terms."""
        verdict = hinge if self.config.use_hinge_loss else cross_entropy
        return discriminator_terms(self.discr, real, made, penalty=penalty, verdict=verdict, name="discriminator")

    def forward(
        self,
        img: Tensor,
        return_loss: bool = False,
        return_discr_loss: bool = False,
        return_recons: bool = False,
        add_gradient_penalty: bool = True,
    ) -> Any:
        """The pictures again, or the generator's or the discriminator's loss; with `return_recons` both.

        With `return_loss` the quantizer learns from what it sees, as in one step of a trainer.
        """
        if not (return_loss or return_discr_loss):
            return self.autoencode(img)[0]
        if return_loss and return_discr_loss:
            raise UserError("Ask a VQGanVAE for the generator's loss or the discriminator's, not for both at once.")
        if return_discr_loss:
            if not len(self.discriminators):
                raise UserError("This VQGanVAE has no discriminator: build it with use_vgg_and_gan=True.")
            with torch.no_grad():
                made = self.autoencode(img)[0]
            terms = self.discriminator_terms(img, made, penalty=add_gradient_penalty)
        else:
            made, quantized = self.autoencode(img, collect=True)
            terms = self.generator_terms(img, made, quantized.commitment).terms
            self.quantizer.commit()
        loss = torch.stack([self.config.loss_weights[name] * term for name, term in terms.items()]).sum()
        return (loss, made) if return_recons else loss

    # Names that scripts of older libraries call.

    def copy_for_eval(self) -> Self:
        """A copy to be used and not trained, on the same device; this one stays as it is."""
        parts = self.discriminators, self.perceptual
        self.discriminators, self.perceptual = nn.ModuleDict(), None
        try:
            other = copy.deepcopy(self)
        finally:
            self.discriminators, self.perceptual = parts
        return other.requires_grad_(False).eval()

    def save(self, path: str | Path) -> None:
        """Write a folder with config.json and model.safetensors."""
        self.save_pretrained(path)

    def load(self, path: str | Path) -> None:
        """Take the weights, averaged where there is an average, of a folder that `save` or a trainer wrote."""
        self._take(type(self).from_pretrained(path, discriminators=False).exported(), Path(path))

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        factor = self.downsample_factor
        if height % factor or width % factor or not (height and width):
            raise UserError(
                f"A picture of {height} by {width} pixels cannot be cut into tokens of {factor} by {factor}: "
                f"resize it to multiples of {factor}."
            )
        return height // factor, width // factor


def _quantizer(config: VQGanVAEConfig) -> Quantizer:
    given = {"lfq": config.lfq_kwargs, "vq": config.vq_kwargs, "fsq": {}}[config.quantizer]
    options = {OLDER_WORDS.get(name, name): value for name, value in given.items()}
    known_keywords(build_quantizer, options, f"{config.quantizer}_kwargs")
    try:
        return build_quantizer(
            config.quantizer,
            **{
                "dim": config.dims[-1],
                "codebook_size": config.codebook_size,
                "num_quantizers": 1,
                "levels": config.levels,
                "quantize_dropout": False,
                **options,
            },
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"VQGanVAE cannot build its quantizer ({error}).") from error
