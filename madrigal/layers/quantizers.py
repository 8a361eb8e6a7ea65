"""The quantizers of the package behind one function."""

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

from madrigal.layers.residual_quantizer import ABSENT, Gather, Quantized, Quantizer, Reduce
from madrigal.layers.residual_vq import ResidualVQ
from madrigal.layers.scalar_quantizers import ResidualFSQ, ResidualLFQ

__all__ = ["ABSENT", "Gather", "Quantized", "Quantizer", "QuantizerKind", "Reduce", "build_quantizer"]

QuantizerKind = Literal["vq", "lfq", "fsq"]


def build_quantizer(
    kind: QuantizerKind,
    *,
    dim: int,
    codebook_size: int,
    num_quantizers: int,
    groups: int = 1,
    levels: Sequence[int] | None = None,
    commitment_weight: float = 1.0,
    ema_decay: float = 0.95,
    dead_code_threshold: float = 2,
    quantize_dropout: bool = True,
    dropout_cutoff_index: int = 1,
    dropout_multiple_of: int = 1,
    stochastic_sample_codes: bool = False,
    rotation_trick: bool = True,
    kmeans_init: bool = True,
    factorised_dim: int | None = None,
    l2_normalised: bool = False,
    clip_invariance: float = 0.0,
    entropy_weight: float = 0.1,
    diversity_gamma: float = 1.0,
) -> Quantizer:
    """A residual quantizer of one kind.

    "vq": learned codebooks; "lfq": signs of log2(codebook_size) dimensions, no lookup; "fsq": `levels[i]` steps in
    dimension i, whose product is the codebook size. `ema_decay`, `dead_code_threshold` and what follows
    `dropout_multiple_of`, but for `clip_invariance`, are for learned codebooks; the last two are for "lfq".

    `dead_code_threshold`: a code is dead when fewer frames choose it than this percentage of an equal share.
    `clip_invariance`: weight, within the commitment loss, of the part of the latents' variance that lies between clips.
    Left alone, the coarse codes tell speakers and loudness apart, and one speaker uses only a part of them; with the
    weight, what stays the same through a clip moves to the fine levels, and every speaker uses all coarse codes.
    """
    shared: dict[str, Any] = {
        "dim": dim,
        "num_quantizers": num_quantizers,
        "groups": groups,
        "quantize_dropout": quantize_dropout,
        "dropout_cutoff_index": dropout_cutoff_index,
        "dropout_multiple_of": dropout_multiple_of,
        "clip_invariance": clip_invariance,
    }
    if kind == "fsq":
        if not levels or prod(levels) != codebook_size:
            raise ValueError(f"The levels {levels} do not make a codebook of {codebook_size} codes.")
        return ResidualFSQ(levels=levels, **shared)
    if levels is not None:
        raise ValueError(f"levels={list(levels)} belong to the kind 'fsq', not to '{kind}'.")
    if kind == "lfq":
        return ResidualLFQ(
            codebook_size=codebook_size,
            commitment_weight=commitment_weight,
            entropy_weight=entropy_weight,
            diversity_gamma=diversity_gamma,
            **shared,
        )
    return ResidualVQ(
        codebook_size=codebook_size,
        commitment_weight=commitment_weight,
        ema_decay=ema_decay,
        dead_code_threshold=dead_code_threshold,
        stochastic_sample_codes=stochastic_sample_codes,
        rotation_trick=rotation_trick,
        kmeans_init=kmeans_init,
        factorised_dim=factorised_dim,
        l2_normalised=l2_normalised,
        **shared,
    )
