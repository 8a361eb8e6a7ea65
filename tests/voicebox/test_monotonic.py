"""Paths through a text: what is added up and what is found equals what trying all of them gives."""

import itertools

import pytest
import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.voicebox.monotonic import IMPOSSIBLE, all_paths, best_path, log_prior


def every_path(scores: Tensor) -> list[tuple[float, list[int]]]:
    """The score and the durations of every path through [time, symbols]."""
    time, size = scores.shape
    found = []
    for ends in itertools.combinations(range(1, time), size - 1):
        edges = [0, *ends, time]
        durations = [b - a for a, b in itertools.pairwise(edges)]
        which = torch.repeat_interleave(torch.arange(size), torch.tensor(durations))
        found.append((float(scores[torch.arange(time), which].sum()), durations))
    return found


@pytest.mark.parametrize(("time", "size"), [(1, 1), (4, 1), (5, 5), (7, 3), (9, 4)])
def test_paths_equal_those_of_brute_force(time: int, size: int) -> None:
    scores = torch.randn(1, time, size, generator=torch.Generator().manual_seed(time)).double()
    paths = every_path(scores[0])
    lengths, frames = torch.tensor([size]), torch.tensor([time])
    found = all_paths(scores, lengths, frames)
    total = torch.tensor([score for score, _ in paths]).logsumexp(0)
    torch.testing.assert_close(found.total, total[None].double(), atol=1e-5, rtol=1e-5)
    assert best_path(scores, lengths, frames)[0].tolist() == max(paths)[1]


def test_shares_are_the_gradient_of_all_paths() -> None:
    scores = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    rows = []
    for _, durations in every_path(scores[0].detach()):
        which = torch.repeat_interleave(torch.arange(3), torch.tensor(durations))
        rows.append(scores[0, torch.arange(6), which].sum())
    torch.stack(rows).logsumexp(0).backward()
    found = all_paths(scores, torch.tensor([3]), torch.tensor([6]))
    torch.testing.assert_close(found.shares, scores.grad)
    torch.testing.assert_close(found.shares.sum(2), torch.ones(1, 6).double())


def test_a_padded_row_equals_the_row_alone() -> None:
    scores = torch.randn(3, 12, 6, generator=torch.Generator().manual_seed(1))
    symbols, frames = torch.tensor([6, 2, 4]), torch.tensor([12, 7, 4])
    together, best = all_paths(scores, symbols, frames), best_path(scores, symbols, frames)
    assert best.sum(1).tolist() == frames.tolist()
    for row, (size, time) in enumerate(zip(symbols.tolist(), frames.tolist(), strict=True)):
        own = (scores[row : row + 1, :time, :size], symbols[row : row + 1], frames[row : row + 1])
        alone = all_paths(*own)
        assert torch.equal(alone.total[0], together.total[row])
        assert torch.equal(alone.shares[0], together.shares[row, :time, :size])
        assert float(together.shares[row, time:].sum()) == 0
        assert best[row, :size].equal(best_path(*own)[0])
        assert best[row, size:].tolist() == [0] * (6 - size)


def test_every_symbol_gets_a_frame_even_where_none_fits() -> None:
    scores = torch.full((1, 8, 4), IMPOSSIBLE)
    scores[..., 0] = 0.0
    found = best_path(scores, torch.tensor([4]), torch.tensor([8]))[0]
    assert found.sum() == 8
    assert found.min() >= 1


def test_fewer_frames_than_symbols_are_refused_by_name() -> None:
    scores = torch.zeros(2, 5, 6)
    with pytest.raises(UserError, match=r"two\.wav has 5 frames and its text 6 symbols"):
        best_path(scores, torch.tensor([3, 6]), torch.tensor([5, 5]), ["one.wav", "two.wav"])
    with pytest.raises(UserError, match="Row 0"):
        all_paths(scores, torch.tensor([0, 5]), torch.tensor([5, 5]))


def test_the_prior_is_a_beta_binomial() -> None:
    time, size = 9, 5
    found = log_prior(torch.tensor([size, 3]), torch.tensor([time, 6]), (time, size))
    torch.testing.assert_close(found[0].exp().sum(1), torch.ones(time), atol=1e-4, rtol=0)
    torch.testing.assert_close(found[1, :6, :3].exp().sum(1), torch.ones(6), atol=1e-4, rtol=0)
    for frame in range(1, time + 1):
        a, b = float(frame), float(time - frame + 1)
        steps = torch.distributions.Beta(a, b)
        place = torch.linspace(0.0005, 0.9995, 1000)
        weight = steps.log_prob(place).exp()
        for symbol in range(size):
            chosen = torch.distributions.Binomial(size - 1, probs=place).log_prob(torch.tensor(float(symbol))).exp()
            assert float(found[0, frame - 1, symbol].exp()) == pytest.approx(
                float((weight * chosen).mean() / weight.mean()), abs=2e-3
            )
    assert found[0, 0].argmax() == 0
    assert found[0, -1].argmax() == size - 1
