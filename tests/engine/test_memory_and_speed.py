"""The switches that trade time for memory, or start-up for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toys import GanTrainer, assert_identical, make, whole_state

from madrigal.engine.flops import CountFlops
from madrigal.engine.memory import recompute_in_backward


class WithBlocks(GanTrainer):
    def blocks(self) -> list[nn.Module]:
        return [self.model.generator, self.model.critic]


def test_X15_recomputing_gives_the_same_gradients_dropout_included() -> None:
    gradients = []
    for recomputes in (False, True):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 6))
        calls: list[int] = []
        block[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        if recomputes:
            recompute_in_backward(block)
        x = torch.randn(4, 6, requires_grad=True)
        block(x).square().sum().backward()
        assert len(calls) == 1 + recomputes
        gradients.append([x.grad, *(p.grad for p in block.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_nothing_is_recomputed_where_there_is_no_backward() -> None:
    block = nn.Linear(3, 3)
    calls = []
    block.register_forward_hook(lambda *_: calls.append(1))
    recompute_in_backward(block)
    with torch.no_grad():
        block(torch.ones(2, 3))
    assert len(calls) == 1


def test_X15_a_run_with_gradient_checkpointing_trains_the_same_weights(tmp_path: Path) -> None:
    plain = make(WithBlocks, tmp_path / "a")
    saving = make(WithBlocks, tmp_path / "b", gradient_checkpointing=True)
    for _ in range(5):
        plain.train_step()
        saving.train_step()
    assert_identical(whole_state(plain), whole_state(saving))
    assert plain.validation() == saving.validation()


def test_X15_compiling_is_done_to_the_blocks_and_gives_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real compiler would take half a minute; a backend that runs the traced graph shows as much.
    real, compiled = nn.Module.compile, []

    def traced(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        compiled.append(self)
        real(self, *args, backend="eager", **kwargs)

    monkeypatch.setattr(nn.Module, "compile", traced)
    plain, fast = make(WithBlocks, tmp_path / "a"), make(WithBlocks, tmp_path / "b", compile=True)
    assert compiled == [fast.model.generator, fast.model.critic]
    for _ in range(4):
        expected, figures = plain.train_step(), fast.train_step()
    assert figures["generator/loss"] == pytest.approx(expected["generator/loss"], rel=1e-4)
    assert fast.validation()["valid/mse"] == pytest.approx(plain.validation()["valid/mse"], rel=1e-4)
    fast.save(tmp_path / "checkpoint")
    plain.load(tmp_path / "checkpoint")


def test_counting_operations_changes_no_result_and_counts_backward() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4, 8)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    results = []
    for counting in (False, True):
        layer.zero_grad()
        counter = CountFlops()
        if counting:
            with counter:
                layer(x, x, x, need_weights=False)[0].square().sum().backward()
        else:
            layer(x, x, x, need_weights=False)[0].square().sum().backward()
        results.append([p.grad.clone() for p in layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    with CountFlops() as product:
        torch.mm(torch.ones(3, 4), torch.ones(4, 5))
    assert product.total == 2 * 3 * 4 * 5
    assert counter.total > 0


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_convolution_s_backward_costs_twice_its_forward(kind: type[nn.Module], groups: int) -> None:
    layer, x = kind(8, 8, 3, groups=groups), torch.randn(2, 8, 20, requires_grad=True)
    with CountFlops() as forward:
        out = layer(x)
    with CountFlops() as backward:
        out.sum().backward()
    assert backward.total == 2 * forward.total > 0


def test_a_turns_operations_are_counted_once_and_kept(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path)
    for _ in range(4):
        trainer.train_step()
    counted = [turn.flops[""] for turn in trainer.turn_states]
    assert all(count > 0 for count in counted)
    assert trainer.step_flops == sum(counted)
    trainer.train_step()
    assert [turn.flops[""] for turn in trainer.turn_states] == counted
    assert trainer.step_flops == counted[0] + counted[1]


def test_deterministic_kernels_can_be_asked_for(tmp_path: Path) -> None:
    try:
        make(GanTrainer, tmp_path, deterministic=True).train_step()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
