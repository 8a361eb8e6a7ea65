"""Everything that can be chosen about a VQGAN, checked before anything is built."""

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from madrigal.engine.loss_weights import Count, WeighedConfig

LOSS_WEIGHTS = {
    "recon": 1.0,
    "perceptual": 1.0,
    "adversarial": 1.0,
    "commitment": 1.0,
    "discriminator": 1.0,
    "penalty": 10.0,
}
"""Weights of the generator's terms, then of the discriminator's two. A term of weight zero is not computed."""


class VQGanVAEConfig(WeighedConfig):
    """Options of `VQGanVAE`. A picture of [height, width] has [height, width] / 2 ** layers tokens."""

    default_loss_weights: ClassVar[Mapping[str, float]] = LOSS_WEIGHTS

    kind: Literal["vqgan"] = Field("vqgan", description="what this is")

    # encoder and decoder
    dim: Count = Field(128, description="channels at full resolution")
    channels: Count = Field(3, description="channels of a picture")
    layers: Count = Field(4, description="each halves the sides of a picture: a token covers 2 ** layers pixels a side")
    layer_mults: tuple[Count, ...] | None = Field(
        None, description="channels after each layer in multiples of dim; default: 1, 2, 4, …"
    )
    num_resnet_blocks: int | tuple[int, ...] = Field(
        1, description="residual blocks after each layer, or one number for those after the last"
    )
    resnet_groups: Count = Field(16, description="groups of channels that the norms work on")
    first_conv_kernel_size: Count = Field(5, description="pixels that the first convolution sees, an odd number")

    # quantizer
    quantizer: Literal["lfq", "vq", "fsq"] = Field(
        "lfq", description="lookup-free, a learned codebook, or finite scalar quantization"
    )
    codebook_size: Count = Field(65536, description="tokens that there are; for fsq the product of its levels")
    levels: tuple[Count, ...] | None = Field(None, description="fsq: steps of each of its dimensions")
    lfq_kwargs: dict[str, Any] = Field(
        default_factory=lambda: {"diversity_gamma": 4.0},
        description="lfq: diversity_gamma, entropy_weight, commitment_weight",
    )
    vq_kwargs: dict[str, Any] = Field(
        default_factory=lambda: {"ema_decay": 0.8, "l2_normalised": True},
        description="vq: l2_normalised, ema_decay, factorised_dim, commitment_weight, kmeans_init, …",
    )

    # how a picture is judged in training
    l2_recon_loss: bool = Field(False, description="the term `recon` is a mean of squares; else of absolute values")
    use_vgg_and_gan: bool = Field(True, description="train against a discriminator, with a perceptual loss")
    use_hinge_loss: bool = Field(True, description="the discriminator's loss is the hinge; else cross entropy")
    discr_layers: Count = Field(4, description="strided layers of the discriminator")
    adaptive_weight_max: float = Field(1e4, ge=0, description="the adversarial term's adaptive weight stays below this")
    vgg: str | None = Field(
        None,
        description="file with VGG16 or LPIPS weights for the term `perceptual`; none: features of the discriminator",
    )

    @model_validator(mode="before")
    @classmethod
    def _older_keywords(cls, options: Any) -> Any:
        """`encdec_…` and `vq_…` are keys of their own here; `lookup_free_quantization` is a choice of two of three."""
        if not isinstance(options, dict):
            return options
        options, more = dict(options), {}
        if (is_free := options.pop("lookup_free_quantization", None)) is not None:
            options.setdefault("quantizer", "lfq" if is_free else "vq")
        for name in list(options):
            if name.startswith("encdec_"):
                options[name.removeprefix("encdec_")] = options.pop(name)
            elif name.startswith("vq_") and name != "vq_kwargs":
                more[name.removeprefix("vq_")] = options.pop(name)
        if "codebook_size" in more:
            options.setdefault("codebook_size", more.pop("codebook_size"))
        if more:
            options["vq_kwargs"] = {**(options.get("vq_kwargs") or {}), **more}
        levels = options.get("levels")
        # What are no numbers is told below, where levels are checked.
        are_numbers = isinstance(levels, list | tuple) and all(isinstance(level, int | float) for level in levels)
        if levels and are_numbers and options.get("quantizer") == "fsq":
            options.setdefault("codebook_size", prod(levels))
        return options

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> Self:
        for name in ("layer_mults", "num_resnet_blocks"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.layers:
                raise ValueError(f"{name} has {len(value)} entries for {self.layers} layers; give one for each.")
        if not self.first_conv_kernel_size % 2:
            raise ValueError(f"first_conv_kernel_size={self.first_conv_kernel_size} must be odd, to have a middle.")
        odd = next((dim for dim in self.dims[1:] if dim % self.resnet_groups), None)
        if odd is not None:
            raise ValueError(
                f"resnet_groups={self.resnet_groups} does not divide the {odd} channels of a layer; choose another dim."
            )
        return self

    @model_validator(mode="after")
    def _quantizer_has_its_codes(self) -> Self:
        if (self.levels is not None) != (self.quantizer == "fsq"):
            raise ValueError("levels belong to quantizer=fsq, and that needs them, for example levels=[8,5,5,5].")
        if self.levels is not None and prod(self.levels) != self.codebook_size:
            raise ValueError(f"levels={list(self.levels)} make {prod(self.levels)} codes, not {self.codebook_size}.")
        return self

    @property
    def dims(self) -> tuple[int, ...]:
        """Channels at full resolution and after each layer."""
        mults = self.layer_mults or tuple(2**layer for layer in range(self.layers))
        return (self.dim, *(self.dim * mult for mult in mults))

    @property
    def blocks(self) -> tuple[int, ...]:
        """Residual blocks after each layer."""
        given = self.num_resnet_blocks
        return given if isinstance(given, tuple) else (*[0] * (self.layers - 1), given)

    @property
    def downsample_factor(self) -> int:
        return int(2**self.layers)
