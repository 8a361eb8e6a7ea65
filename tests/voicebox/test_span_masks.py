"""Spans that are to be made: inside their rows, of the asked length, the same whatever the padding."""

import pytest
import torch

from madrigal.voicebox.span_masks import chosen_rows, span_masks, spread_times


def test_a_span_is_one_span_inside_its_row() -> None:
    torch.manual_seed(0)
    lengths = torch.randint(1, 40, (300,))
    made = span_masks(lengths, 50, fractions=(0.2, 0.7))
    for row, length in zip(made, lengths.tolist(), strict=True):
        places = row.nonzero().flatten()
        assert int(places[-1]) < length
        assert len(places) == int(places[-1]) - int(places[0]) + 1
        assert 1 <= len(places) <= max(1, round(0.7 * length) + 1)


def test_a_span_may_lie_anywhere() -> None:
    torch.manual_seed(0)
    made = span_masks(torch.full((4000,), 10), 10, fractions=(0.5, 0.5))
    starts = made.long().argmax(1).bincount(minlength=6)
    assert (starts / 4000 - 1 / 6).abs().max() < 0.03


def test_VB15_padding_changes_no_mask() -> None:
    lengths = torch.tensor([5, 9, 7])
    torch.manual_seed(3)
    narrow = span_masks(lengths, 9, whole_prob=0.3)
    torch.manual_seed(3)
    assert torch.equal(span_masks(lengths, 20, whole_prob=0.3)[:, :9], narrow)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_VB11_so_many_rows_are_made_whole(share: float) -> None:
    torch.manual_seed(0)
    made = span_masks(torch.full((2000,), 20), 20, fractions=(0.5, 0.9), whole_prob=share)
    assert abs(float(made.all(1).float().mean()) - share) < 0.04
    assert abs(float(chosen_rows(4000, share).float().mean()) - share) < 0.04


def test_times_cover_the_way_in_every_batch() -> None:
    torch.manual_seed(0)
    times = torch.stack([spread_times(8) for _ in range(500)])
    ordered = times.sort(1).values
    assert (ordered.diff(dim=1) - 1 / 8).abs().max() < 1e-5
    assert (times.mean(0) - 0.5).abs().max() < 0.06
    assert float(times.min()) >= 0
    assert float(times.max()) < 1
