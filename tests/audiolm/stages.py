"""Small stages, and tokens for them."""

from typing import Any

import torch

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.wrappers import (
    CoarseTransformerWrapper,
    FineTransformerWrapper,
    SemanticTransformerWrapper,
    StageWrapper,
)

SIZE: dict[str, Any] = {"dim": 32, "depth": 2, "heads": 2, "dim_head": 16}
SEMANTIC, CODES, COARSE, FINE = 12, 10, 3, 2
WRAPPERS: dict[type, type[StageWrapper[Any]]] = {
    SemanticTransformer: SemanticTransformerWrapper,
    CoarseTransformer: CoarseTransformerWrapper,
    FineTransformer: FineTransformerWrapper,
}


def semantic_stage(**options: Any) -> SemanticTransformer:
    torch.manual_seed(0)
    return SemanticTransformer(num_semantic_tokens=SEMANTIC, **SIZE, **options).eval()


def coarse_stage(**options: Any) -> CoarseTransformer:
    torch.manual_seed(0)
    sizes = {"num_semantic_tokens": SEMANTIC, "codebook_size": CODES, "num_coarse_quantizers": COARSE}
    return CoarseTransformer(**{**sizes, **SIZE, **options}).eval()


def fine_stage(**options: Any) -> FineTransformer:
    torch.manual_seed(0)
    sizes = {"codebook_size": CODES, "num_coarse_quantizers": COARSE, "num_fine_quantizers": FINE}
    return FineTransformer(**{**sizes, **SIZE, **options}).eval()


STAGES = {"semantic": semantic_stage, "coarse": coarse_stage, "fine": fine_stage}


def streams_of(stage: StageTransformer, lengths: tuple[int, ...] = (6, 4, 5), ends: bool = True) -> list[Stream]:
    """Random tokens for every section of a stage, rows of different lengths."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for section in stage.layout.sections:
        size = (len(lengths), max(lengths), section.pattern.quantizers)
        codes = torch.randint(0, section.codebook_size, size, generator=generator)
        made.append(Stream(codes, torch.tensor(lengths), torch.full((len(lengths),), ends)))
    return made


def row_of(stream: Stream, row: int) -> Stream:
    """One row alone, without its padding."""
    length = int(stream.lengths[row])
    ends = None if stream.ends is None else stream.ends[row : row + 1]
    return Stream(stream.codes[row : row + 1, :length], stream.lengths[row : row + 1], ends)


def wrapped(stage: StageTransformer) -> StageWrapper[Any]:
    return WRAPPERS[type(stage)](transformer=stage)
