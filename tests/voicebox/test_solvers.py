"""Solvers: their order, what they cost, and rows that do not know of each other."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.voicebox.solvers import EVALUATIONS, Flow, between, solve, time_grid, times_asked


class Counted:
    """dx/dt = x cos(t), whose end is x0 exp(sin 1)."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, times: Tensor) -> Tensor:
        self.calls += 1
        assert times.shape == x.shape[:1]
        return x * times.cos()[:, None]


def error(method: Any, steps: int) -> float:
    start = torch.ones(1, 1, dtype=torch.float64)
    found = solve(Counted(), start, method=method, steps=steps).x
    return abs(float(found) - math.exp(math.sin(1)))


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("heun", 2)])
def test_halving_the_steps_shows_the_order(method: str, order: int) -> None:
    assert math.log2(error(method, 16) / error(method, 32)) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun", "adaptive"])
@pytest.mark.parametrize("steps", [1, 3])
def test_VB13_evaluations_are_counted(method: Any, steps: int) -> None:
    flow = Counted()
    solved = solve(flow, torch.ones(2, 3), method=method, steps=steps)
    assert solved.evaluations == flow.calls
    if method != "adaptive":
        assert flow.calls == EVALUATIONS[method] * steps


@pytest.mark.parametrize("method", EVALUATIONS)
def test_the_times_are_known_beforehand(method: Any) -> None:
    asked: list[Tensor] = []

    def flow(x: Tensor, times: Tensor) -> Tensor:
        asked.append(times)
        return x

    solve(flow, torch.ones(2, 3), method=method, steps=5, sway=-0.3)
    known = times_asked(method, 5, -0.3)
    assert known is not None
    assert [times.tolist() for times in asked] == [[time, time] for time in known.tolist()]
    assert times_asked("adaptive", 5) is None


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-5])
def test_the_adaptive_solver_heeds_its_tolerance(tolerance: float) -> None:
    start = torch.ones(1, 1, dtype=torch.float64)
    found = solve(Counted(), start, method="adaptive", rtol=tolerance, atol=tolerance)
    assert abs(float(found.x) - math.exp(math.sin(1))) < 10 * tolerance
    looser = solve(Counted(), start, method="adaptive", rtol=10 * tolerance, atol=10 * tolerance)
    assert looser.evaluations <= found.evaluations


def stiff(x: Tensor, times: Tensor) -> Tensor:
    """Rows differ in how much they bend."""
    return torch.sin(8 * x + 3 * times.view(-1, *(1,) * (x.ndim - 1)))


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun", "adaptive"])
def test_a_batch_gives_what_its_rows_give(method: Any) -> None:
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.1, 1.0, 3.0])[:, None, None]
    mask = torch.tensor([[4], [2], [3]]) > torch.arange(4)
    together = solve(stiff, x, method=method, steps=3, mask=mask[..., None]).x
    for row in range(3):
        length = int(mask[row].sum())
        alone = solve(stiff, x[row : row + 1, :length], method=method, steps=3).x
        torch.testing.assert_close(together[row, :length], alone[0], rtol=1e-5, atol=1e-5)


def test_a_solver_that_never_arrives_says_so() -> None:
    def wild(x: Tensor, times: Tensor) -> Tensor:
        return torch.sign(torch.sin(1e6 * x + 1e6 * times[:, None])) * 1e4

    with pytest.raises(UserError, match="raise its tolerances"):
        solve(wild, torch.ones(1, 1), method="adaptive", rtol=1e-9, atol=1e-9)


def test_a_flow_that_is_no_number_is_told_at_once() -> None:
    flow = Counted()
    with pytest.raises(UserError, match="The flow is no number"):
        solve(flow, torch.full((2, 3), torch.nan), method="adaptive")
    assert flow.calls < 10


def test_a_step_that_leads_out_of_what_can_be_computed_is_made_shorter() -> None:
    def walled(x: Tensor, times: Tensor) -> Tensor:
        return torch.where(x > 1.2, torch.nan, 10 * (1 - x))

    found = solve(walled, torch.zeros(1, 1), method="adaptive")
    assert float(found.x) == pytest.approx(1 - math.exp(-10), abs=1e-2)


def test_the_adaptive_method_has_no_single_intervals() -> None:
    times = torch.zeros(1), torch.ones(1)
    with pytest.raises(UserError, match="not by 'adaptive'"):
        between(Counted(), torch.ones(1, 1), *times, method="adaptive", steps=2)  # type: ignore[arg-type]


def test_sway_moves_the_steps_and_keeps_the_ends() -> None:
    early, even, late = (time_grid(8, sway) for sway in (-1.0, 0.0, 1.0))
    for grid in (early, even, late):
        assert grid[0] == 0
        assert float(grid[-1]) == pytest.approx(1)
        assert (grid.diff() > 0).all()
    assert (early[1:-1] < even[1:-1]).all()
    assert (late[1:-1] > even[1:-1]).all()
    torch.testing.assert_close(early, 1 - torch.cos(torch.pi / 2 * even))


@pytest.mark.parametrize(("options", "sentence"), [({"steps": 0}, "at least one"), ({"sway": -2.0}, "from -1 to")])
def test_grids_that_go_nowhere_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        solve(stiff, torch.ones(1, 1), **options)


def test_rows_may_have_ways_of_their_own() -> None:
    flow: Flow = Counted()
    start, end = torch.tensor([0.0, 0.5]), torch.tensor([0.5, 1.0])
    first = between(flow, torch.ones(2, 1), start, end, method="midpoint", steps=16)
    alone = between(flow, torch.ones(1, 1), start[1:], end[1:], method="midpoint", steps=16)
    torch.testing.assert_close(first[1:], alone)
    assert float(first[0]) == pytest.approx(math.exp(math.sin(0.5)), abs=1e-3)
