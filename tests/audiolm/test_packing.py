"""Rows of packed streams: every code in its place, padding at the end alone, the end only where it is true."""

import pytest
import torch
from stages import SEMANTIC, STAGES, coarse_stage, row_of, streams_of

from madrigal.audiolm.packing import Layout, Section, Stream
from madrigal.audiolm.patterns import Pattern
from madrigal.data.tokens import PAD
from madrigal.errors import UserError


def layout(pattern: str = "flatten", has_end: bool = True, ticks: int = 0) -> Layout:
    semantic = Section("semantic", Pattern("flatten", 1), 5, has_end=True, ticks=2 * ticks)
    return Layout([semantic, Section("coarse", Pattern(pattern, 2), 4, has_end=has_end, ticks=ticks)])  # type: ignore[arg-type]


def test_a_row_is_start_semantic_start_coarse() -> None:
    streams = [
        Stream(torch.tensor([[[3], [1]]]), torch.tensor([2])),
        Stream(torch.tensor([[[0, 3]]]), torch.tensor([1])),
    ]
    packed = layout().pack(streams)
    # Rows of the table: two starts, 5 semantic codes and an end, 4 + end of the first codebook, 4 of the second.
    assert packed.ids[0, :, 0].tolist() == [0, 2 + 3, 2 + 1, 1, 8 + 0, 13 + 3]
    assert packed.targets[0, :, 0].tolist() == [3, 1, PAD, 0, 3, PAD]
    assert packed.heads[0, :, 0].tolist()[:2] == [0, 0]
    assert packed.heads[0, 3:5, 0].tolist() == [1, 2]


def test_AM15_the_end_is_learned_only_where_an_utterance_ends() -> None:
    codes = torch.tensor([[[3], [1]], [[3], [1]]])
    ended = Stream(codes, torch.tensor([2, 2]), torch.tensor([True, False]))
    packed = Layout([Section("semantic", Pattern("flatten", 1), 5, has_end=True)]).pack([ended])
    assert packed.targets[0, :, 0].tolist() == [3, 1, 5]
    assert packed.targets[1, :, 0].tolist() == [3, 1, PAD]


@pytest.mark.parametrize("pattern", ["flatten", "delay"])
@pytest.mark.parametrize("ends", [True, False])
def test_every_code_is_a_target_once(pattern: str, ends: bool) -> None:
    stage = coarse_stage(pattern=pattern)
    streams = streams_of(stage, ends=ends)
    packed = stage.layout.pack(streams)
    for s, (section, stream) in enumerate(zip(stage.layout.sections, streams, strict=True)):
        for k in range(section.pattern.quantizers):
            at = (packed.heads == stage.layout.first_head(s) + k) & (packed.targets != PAD)
            for row, length in enumerate(stream.lengths.tolist()):
                wanted = stream.codes[row, :length, k].tolist()
                wanted += [section.codebook_size] if ends and k == 0 else []
                assert packed.targets[row][at[row]].tolist() == wanted


@pytest.mark.parametrize("pattern", ["flatten", "delay"])
def test_a_semantic_token_may_go_along_with_what_it_is_of(pattern: str) -> None:
    stage = coarse_stage(
        pattern=pattern, unique_consecutive=False, frames_per_semantic=2.0, semantic_along=True, codebook_size=9
    )
    plain = coarse_stage(pattern=pattern, unique_consecutive=False, frames_per_semantic=2.0, codebook_size=9)
    semantic, coarse = streams_of(stage, (4, 3))
    coarse = Stream(coarse.codes[:, :5], torch.tensor([5, 4]))
    packed, alone = (layout.pack([semantic, coarse]) for layout in (stage.layout, plain.layout))
    assert torch.equal(packed.targets[..., :-1], alone.targets)
    section, first = stage.layout.sections[1], plain.layout.nothing
    assert stage.layout.nothing == first + SEMANTIC
    for row in range(2):
        start = int(semantic.lengths[row]) + 1
        assert (packed.ids[row, :start, -1] == stage.layout.nothing).all()
        for column in range(int(section.pattern.begun(coarse.lengths)[row])):
            frame = int(section.pattern.place(torch.tensor(column))[0][0])
            wanted = int(semantic.codes[row, frame // 2, 0])
            assert int(packed.ids[row, start + column, -1]) == first + wanted


def test_tokens_that_go_along_need_a_clock() -> None:
    with pytest.raises(UserError, match="semantic_along"):
        coarse_stage(semantic_along=True)
    with pytest.raises(UserError, match="semantic_along"):
        coarse_stage(semantic_along=True, unique_consecutive=False, frames_per_semantic=2.0, positions="none")


@pytest.mark.parametrize("name", STAGES)
def test_padding_is_only_at_the_end(name: str) -> None:
    stage = STAGES[name]()
    streams = streams_of(stage)
    packed = stage.layout.pack(streams)
    for row in range(3):
        alone = stage.layout.pack([row_of(stream, row) for stream in streams])
        length = int(alone.lengths[0])
        assert length == int(packed.lengths[row])
        assert torch.equal(packed.ids[row, :length], alone.ids[0])
        assert torch.equal(packed.targets[row, :length], alone.targets[0])
        assert (packed.ids[row, length:] == stage.layout.nothing).all()
        assert (packed.targets[row, length:] == PAD).all()


def test_AM6_every_code_end_and_start_has_a_row_of_its_own() -> None:
    stage = coarse_stage()
    rows: list[int] = list(range(len(stage.layout.sections)))
    for s, section in enumerate(stage.layout.sections):
        for k in range(section.pattern.quantizers):
            codes = torch.arange(section.classes(k))
            rows += stage.layout.rows(s, codes, torch.full_like(codes, k)).tolist()
    assert len(rows) == len(set(rows)) == stage.layout.nothing


def test_codes_of_an_instant_share_a_position() -> None:
    packed = layout(ticks=1)
    positions = packed.position(1, torch.tensor([0, 4, 8]))
    # Two codebooks a frame and two frames a token: a semantic token lasts four columns.
    again = Layout(
        [
            Section("semantic", Pattern("flatten", 1), 5, has_end=True, ticks=4),
            Section("coarse", Pattern("flatten", 2), 4, has_end=True, ticks=1),
        ]
    )
    assert again.position(0, torch.tensor([0, 1, 2])).tolist() == positions.tolist()


def test_AM12_grouped_codebooks_have_heads_of_their_own() -> None:
    stage = coarse_stage(rq_groups=2)
    assert stage.num_quantizers == 6
    assert len(stage.heads) == 1 + 6
    losses = stage.losses(streams_of(stage), training=False)
    assert set(losses) == {"semantic", "coarse"}
