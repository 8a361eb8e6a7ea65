"""A stage begins with what is known of its tokens: the vectors that they stand for.

To a new embedding all codes are equally far from each other. The codec and the semantic tokenizer know better: codes
are the numbers of vectors, and near vectors sound alike. Each codebook's vectors, turned into the width of the stage at
random, are where its embedding and its head begin; a voice can then be averaged from the first step on.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.audiolm.stage import StageTransformer

OWN = 0.3
"""How much of an embedding is its token's own, in parts of its length: near vectors are still told apart."""


@torch.no_grad()
def start_from_vectors(stage: StageTransformer, wav2vec: Any = None, codec: Any = None) -> None:
    """Lay the vectors of tokenizer and codec into the embeddings and heads of a new stage."""
    codebooks = 0 if codec is None else sum(s.pattern.quantizers for s in stage.layout.sections if s.name != "semantic")
    acoustic = [] if codec is None else code_vectors(codec, codebooks)
    taken = 0
    for number, section in enumerate(stage.layout.sections):
        for codebook in range(section.pattern.quantizers):
            if section.name == "semantic":
                vectors = getattr(wav2vec, "centroids", None)
            else:
                vectors, taken = acoustic[taken] if acoustic else None, taken + 1
            if vectors is not None and len(vectors) == section.codebook_size:
                _lay(stage, number, codebook, vectors.float().to(stage.device))


def code_vectors(codec: Any, codebooks: int) -> list[Tensor]:
    """What each code of each codebook adds to a frame, [codes, dim] for each, less the mean of the codebook."""
    size = codec.codebook_size
    found = []
    for codebook in range(codebooks):
        codes = torch.zeros(1, size, codebooks, dtype=torch.long)
        codes[0, :, codebook] = torch.arange(size)
        added = codec.get_emb_from_indices(codes)[0].detach()
        found.append(added - added.mean(0))
    return found


def _lay(stage: StageTransformer, section: int, codebook: int, vectors: Tensor) -> None:
    """Vectors of unit length on average, in directions of their own for every codebook."""
    layout = stage.layout
    first, size = layout.first_row(section, codebook), len(vectors)
    head: nn.Linear = stage.heads[layout.first_head(section) + codebook]  # type: ignore[assignment]
    centred = vectors - vectors.mean(0)
    for table, length in ((stage.embedding.weight[first : first + size], 1.0), (head.weight[:size], 0.1)):
        turned = centred @ torch.randn(centred.shape[1], table.shape[1], device=table.device)
        # A codebook that has fallen into one vector says nothing of its codes.
        turned = turned * turned.square().sum(1).mean().clamp(min=1e-12).rsqrt()
        own = F.normalize(torch.randn_like(turned), dim=1) * OWN
        table.copy_((turned + own) * length)
