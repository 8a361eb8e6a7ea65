"""Whether parts were made for each other: stages that learned other tokens than they are given would make noise."""

from collections.abc import Iterable
from typing import Any

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.errors import UserError

Claim = tuple[str, Any, str, Any]
"""What, its value, whose value it should be, and that one."""


def check_fit(claims: Iterable[Claim], whole: str = "AudioLM") -> None:
    """Tell the first two parts that differ."""
    for what, value, other, wanted in claims:
        if value != wanted:
            raise UserError(f"The parts of {whole} do not fit: {what} is {value}, and {other} is {wanted}.")


def check_levels(coarse: CoarseTransformer, fine: FineTransformer | None, codec: Any, whole: str = "AudioLM") -> None:
    """The stages may draw some of a codec's codebooks, or all of them."""
    drawn = coarse.num_quantizers + (0 if fine is None else fine.num_quantizers)
    there = codec.num_quantizers * codec.rq_groups
    if drawn > there:
        raise UserError(
            f"The parts of {whole} do not fit: the stages draw {drawn} codebooks, and the codec has {there}."
        )


def acoustic_claims(tokenizer: Any, codec: Any, coarse: CoarseTransformer, fine: FineTransformer | None) -> list[Claim]:
    """What must hold between the acoustic stages, the codec and the tokenizer."""
    claims: list[Claim] = [
        ("the coarse stage's codebook_size", coarse.config.codebook_size, "the codec's", codec.codebook_size),
        ("the coarse stage's rq_groups", coarse.config.rq_groups, "the codec's", codec.rq_groups),
    ]
    if tokenizer is not None:
        tokens, frames = coarse.config.num_semantic_tokens, coarse.config.frames_per_semantic
        size = tokenizer.codebook_size
        claims.append(("the coarse stage's num_semantic_tokens", tokens, "the tokenizer's codebook_size", size))
        if frames is not None:
            ratio = codec.frame_rate / tokenizer.frame_rate
            claims.append(("the coarse stage's frames_per_semantic", frames, "the codec and the tokenizer's", ratio))
    if fine is not None:
        levels = coarse.config.num_coarse_quantizers
        claims += [
            ("the fine stage's codebook_size", fine.config.codebook_size, "the codec's", codec.codebook_size),
            (
                "the fine stage's num_coarse_quantizers",
                fine.config.num_coarse_quantizers,
                "the coarse stage's",
                levels,
            ),
            ("the fine stage's rq_groups", fine.config.rq_groups, "the codec's", codec.rq_groups),
        ]
    return claims
