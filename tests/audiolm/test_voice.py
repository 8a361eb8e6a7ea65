"""The mean of a prompt's columns, which joins every column after it."""

import pytest
import torch
from stages import STAGES, coarse_stage, row_of, streams_of, with_an_ear, wrapped

from madrigal.audiolm.decoding import Decoding
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.voice import LEAST, listening_lengths, running_mean
from madrigal.layers.sampling import RowNoise, Sampling


def test_the_mean_is_of_what_was_heard_so_far_and_stops_where_listening_stops() -> None:
    x = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]])[..., None]
    heard = torch.tensor([[False, True, True, False, True]])
    assert running_mean(x, heard)[0, :, 0].tolist() == pytest.approx([0, 2, 3, 3, 22 / 3])
    assert running_mean(x, heard, torch.tensor([2]))[0, :, 0].tolist() == pytest.approx([0, 2, 3, 3, 3])


@pytest.mark.parametrize("per_frame", [1, 3])
def test_training_listens_for_a_second_or_more(per_frame: int) -> None:
    torch.manual_seed(0)
    heard = torch.ones(500, 200 * per_frame, dtype=torch.bool)
    lengths = listening_lengths(heard, per_frame)
    assert LEAST * per_frame <= int(lengths.min()) < 60 * per_frame
    assert 190 * per_frame < int(lengths.max()) <= 200 * per_frame
    assert (listening_lengths(heard[:, :3], per_frame) == LEAST * per_frame).all()  # short rows are heard whole


@pytest.mark.parametrize("name", ["coarse", "fine"])
@torch.no_grad()
def test_an_ear_changes_nothing_before_it_is_trained(name: str) -> None:
    stage = STAGES[name](has_voice=True)
    ids = stage.layout.pack(streams_of(stage)).ids
    silence, noise = torch.zeros(1), torch.randn(*ids.shape[:2], stage.config.dim)
    assert torch.equal(stage.hidden(ids, heard=silence.expand_as(noise)), stage.hidden(ids, heard=noise))
    with_an_ear(stage)
    assert not torch.allclose(stage.hidden(ids, heard=silence.expand_as(noise)), stage.hidden(ids, heard=noise))


@torch.no_grad()
def test_only_the_drawn_section_is_heard_and_nothing_of_what_comes() -> None:
    stage = coarse_stage(has_voice=True, pattern="delay")
    streams = streams_of(stage)
    packed = stage.layout.pack(streams)
    heard = stage.listen(packed.ids)
    assert heard is not None
    others = [Stream((streams[0].codes + 1) % 12, streams[0].lengths, streams[0].ends), streams[1]]
    assert torch.equal(heard, stage.listen(stage.layout.pack(others).ids))
    changed = streams[1].codes.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 10
    again = stage.listen(stage.layout.pack([streams[0], Stream(changed, *(streams[1].lengths, streams[1].ends))]).ids)
    assert again is not None
    start = int((packed.ids[0, :, 0] == 1).nonzero()[0])  # where the coarse section begins
    assert torch.equal(heard[:1, : start + 4], again[:1, : start + 4])
    assert not torch.equal(heard[:1, start + 4 :], again[:1, start + 4 :])


def test_a_hidden_span_is_still_part_of_the_voice() -> None:
    """So that what is drawn inside it has only the mean to know the voice from."""
    stage = with_an_ear(coarse_stage(has_voice=True, span_drop_prob=0.5, mask_prob=0.0))
    streams = streams_of(stage)
    torch.manual_seed(1)
    stage.losses(streams, training=True)["coarse"].backward()
    assert stage.voice is not None
    assert stage.voice.layers[0].weight.grad.abs().sum() > 0  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("has_voice", [False, True])
@torch.no_grad()
def test_a_prompt_that_is_leaned_on_is_what_two_passes_give(has_voice: bool) -> None:
    """With its prompt and with its prompt hidden, in one batch; a scale of 1 is as if nothing had been asked for."""
    stage = with_an_ear(coarse_stage(has_voice=has_voice, pattern="delay"))
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
    alone = stage.hidden(
        packed.ids.masked_fill(drawn, stage.layout.nothing),
        positions=packed.positions,
        heard=torch.zeros(1, 1, stage.config.dim) if has_voice else None,
    )
    torch.testing.assert_close(hidden, stage.heads[stage.layout.first_head(1)](alone[0, -1]))


def test_leaning_changes_what_is_drawn_and_rows_stay_alone() -> None:
    stage = with_an_ear(coarse_stage(has_voice=True, pattern="delay"))
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
