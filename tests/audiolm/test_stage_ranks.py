"""Two gloo processes train the same stages as one with twice the accumulation."""

import json
from pathlib import Path

import pytest
import torch
from launching import on_two_ranks
from safetensors.torch import load_file
from stages_on_ranks import train
from token_sets import TRAINERS, make

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    two, one = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    make("coarse", two / "coarse", num_train_steps=1).train()  # a run that both ranks are to start over
    on_two_ranks(HERE / "stages_on_ranks.py", two, 1)
    train(one, 2)
    return two, one


@pytest.mark.parametrize("name", TRAINERS)
def test_AT2_parameters_are_equal_on_both_ranks(name: str, folders: tuple[Path, Path]) -> None:
    first, second = (load_file(folders[0] / f"{name}-{rank}.safetensors") for rank in (0, 1))
    for key in first:
        assert torch.equal(first[key], second[key]), key


def test_AT24_a_folder_is_cleared_once_for_all_ranks(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        kept = {path.name for path in (folder / "coarse" / "checkpoints").iterdir()}
        assert "step-00000006" in kept
        assert "step-00000001" not in kept


@pytest.mark.parametrize("name", TRAINERS)
def test_two_ranks_are_one_with_twice_the_accumulation(name: str, folders: tuple[Path, Path]) -> None:
    two, one = (
        [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()] for folder in folders
    )
    assert len(two) == len(one)
    for found, wanted in zip(two, one, strict=True):
        for key in ("loss", name, f"valid/{name}", f"valid/ema/{name}"):
            assert found.get(key) == pytest.approx(wanted.get(key), abs=1e-5), key
    first, alone = (load_file(folder / f"{name}-0.safetensors") for folder in folders)
    for key in first:
        torch.testing.assert_close(first[key], alone[key], atol=1e-5, rtol=1e-4)
