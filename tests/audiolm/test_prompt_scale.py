"""A prompt that is leaned on: drawn away from what the same row would have with its prompt hidden."""

import pytest
import torch
from stages import coarse_stage, row_of, streams_of, wrapped

from madrigal.audiolm.decoding import Decoding
from madrigal.audiolm.packing import Stream
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling


@torch.no_grad()
def test_a_prompt_that_is_leaned_on_is_what_two_passes_give() -> None:
    """With its prompt and with its prompt hidden, in one batch; a scale of 1 is as if nothing had been asked for."""
    stage = coarse_stage(pattern="delay", span_drop_prob=0.2)
    streams = [row_of(stream, 0) for stream in streams_of(stage, (6,))]
    given = [streams[0], Stream(streams[1].codes[:, :2], torch.tensor([2]))]

    def first_logits(scale: float) -> torch.Tensor:
        decoding = Decoding(
            stage, given, torch.tensor([6]), sampling=Sampling(prompt_scale=scale), noise=RowNoise([0]), may_end=False
        )
        parts = stage.heads[stage.layout.first_head(1)](decoding.hidden)
        assert len(parts) == (1 if scale == 1 else 2)
        return parts

    plain, (with_it, hidden) = first_logits(1.0)[0], first_logits(2.0)
    torch.testing.assert_close(with_it, plain)
    assert not torch.allclose(hidden, plain)
    packed = stage.layout.pack(given, open_last=True)
    drawn = packed.ids[..., :1] >= stage.layout.first_row(1, 0)
    alone = stage.hidden(packed.ids.masked_fill(drawn, stage.layout.nothing), positions=packed.positions)
    torch.testing.assert_close(hidden, stage.heads[stage.layout.first_head(1)](alone[0, -1]))


def test_leaning_changes_what_is_drawn_and_rows_stay_alone() -> None:
    stage = coarse_stage(pattern="delay", span_drop_prob=0.2)
    streams = streams_of(stage)
    prompt = Stream(streams[1].codes[:, :3], torch.tensor([3, 1, 2]))
    frames = torch.tensor([6, 6, 6])

    def drawn(scale: float, rows: slice = slice(None)) -> torch.Tensor:
        some = [Stream(s.codes[rows], s.lengths[rows]) for s in (streams[0], prompt)]
        how = Sampling(prompt_scale=scale)
        seeds = [5, 6, 7][rows]
        return wrapped(stage).decode(some, frames[rows], sampling=how, seeds=seeds, context=None, may_end=False).codes

    together = drawn(3.0)
    assert not torch.equal(together, drawn(1.0))
    for row in range(3):
        assert torch.equal(drawn(3.0, slice(row, row + 1))[0], together[row])


def test_a_stage_that_never_went_without_a_prompt_does_not_lean_on_it() -> None:
    stage = coarse_stage(pattern="delay")
    streams = streams_of(stage)
    with pytest.raises(UserError, match="never learned without: train it with span_drop_prob over 0"):
        Decoding(
            stage,
            streams,
            torch.tensor([9, 9, 9]),
            sampling=Sampling(prompt_scale=2.0),
            noise=RowNoise([0, 1, 2]),
            may_end=False,
        )
