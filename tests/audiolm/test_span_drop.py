"""What training hides of the columns that a stage draws, so that a voice is learned from further back."""

import itertools
from dataclasses import replace

import pytest
import torch
from stages import STAGES, streams_of


@pytest.mark.parametrize("name", ["coarse", "fine"])
def test_spans_of_the_drawn_section_are_hidden_and_nothing_else(name: str) -> None:
    torch.manual_seed(0)
    stage = STAGES[name](span_drop_prob=0.5)
    packed = stage.layout.pack(streams_of(stage))
    first = stage.layout.first_row(1, 0)
    given = packed.ids[..., 0] < first
    seen = [stage._dropped(packed) for _ in range(50)]
    assert all(torch.equal(ids[given], packed.ids[given]) for ids in seen)
    hidden = torch.stack([(ids != packed.ids).any(-1) for ids in seen]).float().mean(0)[~given & packed.mask]
    assert 0.2 < float(hidden.mean()) < 0.8
    assert all(bool(((ids == packed.ids) | (ids == stage.layout.nothing)).all()) for ids in seen)


@pytest.mark.parametrize("pattern", ["flatten", "delay"])
def test_a_span_is_as_many_frames_however_they_are_laid_out(pattern: str) -> None:
    torch.manual_seed(0)
    stage = STAGES["coarse"](span_drop_prob=0.5, pattern=pattern)
    columns = stage.layout.sections[-1].pattern.columns_per_frame
    assert columns == (1 if pattern == "delay" else stage.num_quantizers)
    first = stage.layout.first_row(1, 0)
    ids = torch.full((40, 1000 * columns, stage.layout.width), first)
    packed = replace(stage.layout.pack(streams_of(stage)), ids=ids)
    hidden = (stage._dropped(packed) == stage.layout.nothing).all(-1)
    inner = [run for row in hidden for run in runs(row.tolist())[1:-1]]
    assert inner
    assert all(length % (25 * columns) == 0 for length in inner)
    assert 25 * columns in inner


def test_what_stands_along_a_column_is_never_hidden() -> None:
    torch.manual_seed(0)
    clock = {"unique_consecutive": False, "frames_per_semantic": 2.0, "semantic_along": True}
    stage = STAGES["coarse"](span_drop_prob=0.5, pattern="delay", **clock)
    packed = stage.layout.pack(streams_of(stage, (200, 120)))
    ids = stage._dropped(packed)
    assert torch.equal(ids[..., -1], packed.ids[..., -1])
    assert not torch.equal(ids[..., :-1], packed.ids[..., :-1])


def runs(row: list[bool]) -> list[int]:
    """The lengths of equal values in a row."""
    return [len(list(group)) for _, group in itertools.groupby(row)]


def test_only_training_hides_spans() -> None:
    stage = STAGES["coarse"](span_drop_prob=0.5, mask_prob=0.0)
    streams = streams_of(stage)

    def loss(training: bool) -> float:
        torch.manual_seed(1)
        return float(stage.losses(streams, training=training)["coarse"].detach())

    assert loss(False) != loss(True)
    plain = STAGES["coarse"](span_drop_prob=0.0, mask_prob=0.0)
    plain.load_state_dict(stage.state_dict())
    assert loss(False) == float(plain.losses(streams, training=True)["coarse"].detach())
