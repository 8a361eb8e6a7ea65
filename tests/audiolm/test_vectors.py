"""A new stage knows which of its tokens are alike."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stages import COARSE, CODES, FINE, SEMANTIC, STAGES, streams_of
from torch import Tensor

from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.vectors import code_vectors, start_from_vectors


class SmallCodec:
    """Codes whose vectors lie on a line, in the order of their numbers."""

    codebook_size = CODES

    def get_emb_from_indices(self, indices: Tensor) -> Tensor:
        scale = torch.tensor([1.0, 0.5, 0.25, 0.2, 0.1])[: indices.shape[-1]]
        return (indices * scale).sum(-1, keepdim=True) * torch.ones(4)


TOOLS: dict[str, dict[str, Any]] = {
    "semantic": {"wav2vec": SimpleNamespace(centroids=torch.arange(float(SEMANTIC))[:, None])},
    "coarse": {"wav2vec": SimpleNamespace(centroids=torch.randn(SEMANTIC, 6)), "codec": SmallCodec()},
    "fine": {"codec": SmallCodec()},
}


def started(name: str) -> tuple[StageTransformer, StageTransformer]:
    """A stage before and after."""
    before, after = STAGES[name](), STAGES[name]()
    torch.manual_seed(4)
    start_from_vectors(after, **TOOLS[name])
    return before, after


@pytest.mark.parametrize("name", ["semantic", "coarse", "fine"])
def test_codes_with_near_vectors_begin_near_each_other(name: str) -> None:
    _, stage = started(name)
    section = len(stage.layout.sections) - 1
    quantizers = {"semantic": 1, "coarse": COARSE, "fine": FINE}[name]
    for codebook in range(quantizers):
        first, size = stage.layout.first_row(section, codebook), stage.layout.sections[section].codebook_size
        head = stage.heads[stage.layout.first_head(section) + codebook].weight[:size]
        for table in (stage.embedding.weight[first : first + size], head):
            near, far = (table[0] - table[1]).norm(), (table[0] - table[size - 1]).norm()
            assert near < 0.5 * far


@pytest.mark.parametrize("name", ["semantic", "coarse", "fine"])
def test_starts_ends_and_nothing_stay_and_the_loss_begins_at_chance(name: str) -> None:
    before, after = started(name)
    layout = after.layout
    same = (before.embedding.weight == after.embedding.weight).all(1)
    assert bool(same[: len(layout.sections)].all())
    assert bool(same[layout.nothing])
    assert not bool(same[layout.first_row(len(layout.sections) - 1, 0)])
    loss = after.losses(streams_of(after), training=False)[name].detach()
    classes = SEMANTIC if name == "semantic" else CODES
    assert float(loss) == pytest.approx(math.log(classes), rel=0.1)


def test_vectors_are_what_a_code_adds() -> None:
    first, second = code_vectors(SmallCodec(), 2)
    assert torch.allclose(first[3] - first[1], torch.full((4,), 2.0))
    assert torch.allclose(second[3] - second[1], torch.full((4,), 1.0))
    assert torch.allclose(first.mean(0), torch.zeros(4), atol=1e-6)


def test_a_tokenizer_without_vectors_changes_nothing() -> None:
    before, after = STAGES["semantic"](), STAGES["semantic"]()
    start_from_vectors(after, wav2vec=SimpleNamespace())
    assert torch.equal(before.embedding.weight, after.embedding.weight)


def test_a_codebook_of_one_vector_leaves_its_codes_apart_and_finite() -> None:
    stage = STAGES["semantic"]()
    start_from_vectors(stage, wav2vec=SimpleNamespace(centroids=torch.ones(SEMANTIC, 4)))
    first = stage.layout.first_row(0, 0)
    rows = stage.embedding.weight[first : first + SEMANTIC]
    assert bool(rows.isfinite().all())
    assert float((rows[0] - rows[1]).norm().detach()) > 0.1
