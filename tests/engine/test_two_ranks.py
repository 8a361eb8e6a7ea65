"""Two gloo processes train one model, the same that one process with twice the accumulation trains."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toys import GanTrainer, Measured, RegressionTrainer, assert_identical, make, waves, whole_state

GAN = {"num_train_steps": 8, "best_metric": "valid/mse", "keep_checkpoints": 1, "batch_size": 3}


def facts(folder: Path, name: str) -> list[Any]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]


def states(folder: Path, name: str) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / f"{name}-{rank}.safetensors") for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[GanTrainer, list[dict[str, float]]]:
    """One process with twice the accumulation."""
    figures: list[dict[str, float]] = []
    trainer = make(GanTrainer, tmp_path_factory.mktemp("alone"), grad_accum_every=2, **GAN)
    return trainer.train(figures.append), figures


def test_AT2_AT22_weights_average_and_moments_are_equal_on_both_ranks(two_ranks: Path) -> None:
    for name in ("gan", "resumed", "half", "bad"):
        assert_identical(*states(two_ranks, name))
    averages = [fact["averaged"] for fact in facts(two_ranks, "gan")]
    assert averages[0] == averages[1]


def test_AT9_AT14_two_ranks_with_every_option_on_train_what_one_process_trains(
    two_ranks: Path, alone: tuple[GanTrainer, list[dict[str, float]]]
) -> None:
    trainer, expected = alone
    figures = facts(two_ranks, "gan")[0]["figures"]
    assert len(figures) == len(expected)
    for found, wanted in zip(figures, expected, strict=True):
        speeds = {"items/s", "matmul_share"}
        assert found.keys() - speeds == wanted.keys() - speeds
        for name in wanted.keys() - speeds:
            assert found[name] == pytest.approx(wanted[name], abs=1e-5), name
    state = states(two_ranks, "gan")[0]
    for name, tensor in whole_state(trainer).items():
        assert torch.allclose(state[name].float(), tensor.float(), atol=1e-5), name


def test_AT23_both_ranks_validate_and_know_the_same_figures(two_ranks: Path) -> None:
    first, second = (fact["figures"] for fact in facts(two_ranks, "gan"))
    valid = [[f for f in figures if "valid/mse" in f] for figures in (first, second)]
    assert valid[0] == valid[1]
    assert len(valid[0]) == 2


def test_X4_only_the_main_rank_writes_and_nobody_is_asked(two_ranks: Path) -> None:
    assert [fact["is_main"] for fact in facts(two_ranks, "gan")] == [True, False]
    assert all(fact["distributed"] for fact in facts(two_ranks, "gan"))
    run = two_ranks / "gan"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "generator/loss" in line] == list(range(1, 9))
    assert len(list((run / "samples" / "step-00000005").iterdir())) == 4 * 3


def test_a_stop_asked_of_one_rank_stops_both_and_the_run_ends_unbroken(two_ranks: Path) -> None:
    for fact in facts(two_ranks, "resumed"):
        assert (fact["stopped_at"], fact["resumed_at"], fact["step"]) == (5, 5, 8)
    assert_identical(states(two_ranks, "resumed")[1], states(two_ranks, "gan")[0])
    assert "go on with --resume" in (two_ranks / "said.txt").read_text()


@pytest.mark.parametrize("accumulation", [1, 3])
def test_X8_the_rate_does_not_depend_on_ranks_or_accumulation(two_ranks: Path, accumulation: int) -> None:
    def closed_form(step: int) -> float:
        if step < 3:
            return 1e-3 + 9e-3 * (step + 1) / 4
        return 1e-4 + (1e-2 - 1e-4) * math.cos(math.pi * (step - 3) / 16) ** 2

    for fact in facts(two_ranks, "rates"):
        rates = fact[str(accumulation)]
        assert rates["logged"] == pytest.approx([closed_form(step) for step in range(12)], rel=1e-12)
        assert (rates["logged"][3], rates["logged"][-1]) == (1e-2, 1e-4)
        assert rates["used"] == 1e-4


def test_a_loss_that_is_not_finite_on_one_rank_is_skipped_and_counted_on_all(two_ranks: Path) -> None:
    for fact in facts(two_ranks, "bad"):
        assert fact["skipped"] == [0.0, 0.0, 1.0, 1.0, 1.0]
        assert fact["counted"] == 1
    for state in states(two_ranks, "bad"):
        assert all(torch.isfinite(tensor).all() for tensor in state.values())


def test_all_ranks_give_up_together(two_ranks: Path) -> None:
    errors = [fact["error"] for fact in facts(two_ranks, "bad")]
    assert errors[0] == errors[1]
    assert "UserError: Training stopped at step" in errors[0]


def test_AT9_half_precision_with_clipped_discriminators_runs_on_two_ranks(two_ranks: Path) -> None:
    scales = [fact["scales"] for fact in facts(two_ranks, "half")]
    assert scales[0] == scales[1]


def test_a_rank_without_validation_items_learns_the_figures(two_ranks: Path, tmp_path: Path) -> None:
    figures = facts(two_ranks, "uneven")
    assert figures[0] == figures[1]
    alone = make(RegressionTrainer, tmp_path, val_dataset=waves(3, first=500), batch_size=4)
    assert figures[0] == pytest.approx(alone.validation(), rel=1e-5)


def test_ranks_that_batch_by_a_budget_train_what_one_process_trains(two_ranks: Path, tmp_path: Path) -> None:
    options = {"dataset": Measured(40), "seconds_per_batch": 3.0, "num_train_steps": 5}
    alone = make(RegressionTrainer, tmp_path, grad_accum_every=2, **options).train()
    assert len({len(batch) for batch in alone.seen}) > 1
    for state, figures in zip(states(two_ranks, "budget"), facts(two_ranks, "budget"), strict=True):
        assert figures == pytest.approx(alone.validation(), rel=1e-4)
        for name, tensor in whole_state(alone).items():
            assert torch.allclose(state[name].float(), tensor.float(), atol=1e-5), name


def test_ranks_stay_together_after_a_tracker_was_closed(two_ranks: Path) -> None:
    assert facts(two_ranks, "tracked")[0]["events"] >= 1
    assert (two_ranks / "after" / "state.json").exists()
