"""Generation with a cache: what the whole forward pass would draw, row by row, for every stage and condition."""

from typing import Any

import pytest
import torch
from stages import (
    CODES,
    STAGES,
    coarse_stage,
    fine_stage,
    row_of,
    semantic_stage,
    streams_of,
    wrapped,
)

from madrigal.audiolm.decoding import Decoding, decode_in_chunks
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.stage import StageTransformer
from madrigal.data.tokens import PAD
from madrigal.layers.sampling import RowNoise, Sampling

CONDITIONS = {
    "none": {},
    "cross": {"has_condition": True, "cond_dim": 8, "text_encoder": "bytes"},
    "prefix": {"has_condition": True, "cond_dim": 8, "text_encoder": "bytes", "cond_as_self_attn_prefix": True},
}
GREEDY = Sampling(temperature=0)


def context_of(stage: StageTransformer, rows: int) -> Any:
    if stage.condition is None:
        return None
    embeds = torch.randn(rows, 4, 8, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(rows, 4, dtype=torch.bool)
    mask[1:, 3] = False
    return stage.context(text_embeds=embeds, text_mask=mask)


def uncached(stage: StageTransformer, streams: list[Stream], frames: int, context: Any) -> torch.Tensor:
    """Greedy generation of one row that runs the whole sequence anew for every column."""
    section = stage.layout.sections[-1]
    codes = streams[-1].codes.clone()
    start = codes.shape[1]
    codes = torch.cat((codes, torch.full((1, frames - start, section.pattern.quantizers), PAD)), 1)
    first = stage.layout.first_head(len(stage.layout.sections) - 1)
    for column in range(
        int(section.pattern.begun(torch.tensor(start))), int(section.pattern.columns(torch.tensor(frames)))
    ):
        given = [*streams[:-1], Stream(codes, torch.tensor([frames]))]
        packed = stage.layout.pack(given)
        at = int(packed.lengths[0]) - int(section.pattern.columns(torch.tensor(frames))) - 1 + column
        keep = slice(0, at + 1)
        positions = None if packed.positions is None else packed.positions[:, keep]
        hidden = stage.hidden(packed.ids[:, keep], positions=positions, context=context)[0, -1]
        frame, codebook = section.pattern.place(torch.tensor(column))
        for f, k in zip(frame.tolist(), codebook.tolist(), strict=True):
            if start <= f < frames:
                codes[0, f, k] = stage.heads[first + k](hidden)[: section.codebook_size].argmax()
    return codes[0]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("positions", ["rotary", "relative", "none"])
@pytest.mark.parametrize("name", STAGES)
@torch.no_grad()
def test_AM2_AM3_cached_generation_is_what_whole_passes_draw(name: str, positions: str, condition: str) -> None:
    stage = STAGES[name](positions=positions, **CONDITIONS[condition])
    streams = [row_of(s, 0) for s in streams_of(stage, (5,))]
    prompt = Stream(streams[-1].codes[:, :2], torch.tensor([2]))
    given, context = [*streams[:-1], prompt], context_of(stage, 1)
    wanted = uncached(stage, given, 5, context)
    made = wrapped(stage).decode(given, torch.tensor([5]), sampling=GREEDY, seeds=0, context=context, may_end=False)
    assert torch.equal(made.codes[0], wanted)


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("pattern", ["flatten", "delay"])
@torch.no_grad()
def test_patterns_and_clocks_are_cached_right(pattern: str, along: bool) -> None:
    options = {"unique_consecutive": False, "frames_per_semantic": 2.0, "value_residual": False}
    stage = coarse_stage(pattern=pattern, semantic_along=along, **options)
    streams = [row_of(s, 0) for s in streams_of(stage, (6,))]
    given = [streams[0], Stream(streams[1].codes[:, :2], torch.tensor([2]))]
    made = wrapped(stage).decode(given, torch.tensor([6]), sampling=GREEDY, seeds=0, context=None, may_end=False)
    assert torch.equal(made.codes[0], uncached(stage, given, 6, None))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", STAGES)
def test_AM7_AM8_a_row_among_others_draws_what_it_draws_alone(name: str, condition: str) -> None:
    stage = STAGES[name](**CONDITIONS[condition])
    streams, prompts = streams_of(stage), (3, 1, 0)
    prompt = Stream(streams[-1].codes[:, :3], torch.tensor(prompts))
    context = context_of(stage, 3)
    sampling = Sampling(temperature=1.3, top_p=0.95, cond_scale=1.0 if context is None else 2.0)
    limits = torch.tensor([6, 4, 5])
    together = (
        wrapped(stage)
        .decode([*streams[:-1], prompt], limits, sampling=sampling, seeds=[7, 8, 9], context=context, may_end=True)
        .rows()
    )
    for row in range(3):
        given = [*(row_of(s, row) for s in streams[:-1]), row_of(prompt, row)]
        own = None if context is None else tuple(t[row : row + 1] for t in context)
        alone = wrapped(stage).decode(
            given, limits[row : row + 1], sampling=sampling, seeds=[7 + row], context=own, may_end=True
        )
        assert torch.equal(together[row], alone.rows()[0])


@pytest.mark.parametrize("pattern", ["flatten", "delay"])
def test_rows_that_end_early_leave_the_others_alone(pattern: str) -> None:
    stage = coarse_stage(pattern=pattern)
    streams = streams_of(stage)
    made = wrapped(stage).generate(semantic=streams[0], frames=40, seed=[1, 2, 3], sampling=Sampling(temperature=2.0))
    assert len(set(made.lengths.tolist())) > 1
    for row in range(3):
        alone = wrapped(stage).generate(
            semantic=row_of(streams[0], row), frames=40, seed=[1 + row], sampling=Sampling(temperature=2.0)
        )
        assert torch.equal(made.rows()[row], alone.rows()[0])
        assert (made.codes[row, made.lengths[row] :] == PAD).all()
        assert (made.rows()[row] >= 0).all()


def test_AM9_generation_stops_when_every_row_has_ended() -> None:
    stage = coarse_stage()
    with torch.no_grad():
        stage.heads[1].weight[CODES] = 0.0
        decoding = Decoding(
            stage,
            [row_of(streams_of(stage)[0], 0), Stream(torch.empty(1, 0, 3, dtype=torch.long), torch.tensor([0]))],
            torch.tensor([1000]),
            sampling=Sampling(temperature=5.0),
            noise=RowNoise([0]),
        )
        while not decoding.is_done:
            decoding.advance()
    assert decoding.cache.length < 1000
    assert len(decoding.result().rows()[0]) == int(decoding.limit[0]) < 300


def test_AM5_every_code_can_be_drawn() -> None:
    stage = fine_stage()
    streams = [row_of(s, 0) for s in streams_of(stage, (40,))]
    for codebook in range(2):
        drawn = torch.cat(
            [
                wrapped(stage)
                .generate(coarse=streams[0], seed=seed, sampling=Sampling(temperature=3.0))
                .codes[0, :, codebook]
                for seed in range(6)
            ]
        )
        assert set(drawn.tolist()) == set(range(CODES))


def test_AM16_temperature_zero_is_greedy_and_a_seed_repeats() -> None:
    wrapper = wrapped(semantic_stage())
    greedy = [wrapper.generate(max_length=8, seed=seed, sampling=GREEDY, may_end=False).codes for seed in (0, 1)]
    assert torch.equal(*greedy)
    drawn = [wrapper.generate(max_length=8, seed=seed, may_end=False).codes for seed in (5, 5, 6)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_chunks_are_the_whole() -> None:
    for pattern in ("flatten", "delay"):
        stage = coarse_stage(pattern=pattern)
        wrapper, semantic = wrapped(stage), row_of(streams_of(stage)[0], 0)
        whole = wrapper.generate(semantic=semantic, frames=11, seed=4, may_end=False).codes
        nothing = Stream(torch.empty(1, 0, 3, dtype=torch.long), torch.tensor([0]))
        decoding = wrapper.decoding([semantic, nothing], torch.tensor([11]), None, 4, None, False)
        pieces = list(decode_in_chunks(decoding, 4))
        assert [piece.shape[1] for piece in pieces] == [4, 4, 3]
        assert torch.equal(torch.cat(pieces, 1), whole)


def test_repetition_penalty_spreads_the_draws() -> None:
    wrapper = wrapped(semantic_stage())
    plain = wrapper.generate(max_length=60, sampling=Sampling(temperature=0), may_end=False).codes
    other = wrapper.generate(
        max_length=60, sampling=Sampling(temperature=0, repetition_penalty=50.0, repetition_window=8), may_end=False
    ).codes
    assert len(set(other.flatten().tolist())) > len(set(plain.flatten().tolist()))


def test_generation_in_training_mode_has_no_dropout_and_leaves_the_mode() -> None:
    stage = semantic_stage(ff_dropout=0.5, attn_dropout=0.5)
    calm = wrapped(stage).generate(max_length=8, sampling=GREEDY, may_end=False).codes
    stage.train()
    assert torch.equal(wrapped(stage).generate(max_length=8, sampling=GREEDY, may_end=False).codes, calm)
    assert stage.training
