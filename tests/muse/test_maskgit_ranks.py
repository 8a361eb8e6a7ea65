"""Two gloo processes train what one process trains with twice the accumulation, with validation on."""

import json
from pathlib import Path

import pytest
import torch
from launching import on_two_ranks
from maskgit_on_ranks import train
from maskgit_trainers import TRAINERS
from safetensors.torch import load_file


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    two, one = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    on_two_ranks(Path(__file__).parent / "maskgit_on_ranks.py", two)
    train(one, 2)
    return two, one


@pytest.mark.parametrize("name", TRAINERS)
def test_MS6_two_ranks_are_one_with_twice_the_accumulation(name: str, folders: tuple[Path, Path]) -> None:
    first, second = (load_file(folders[0] / f"{name}-{rank}.safetensors") for rank in (0, 1))
    alone = load_file(folders[1] / f"{name}-0.safetensors")
    assert first.keys() == second.keys() == alone.keys()
    for key in first:
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], alone[key], atol=1e-4, rtol=1e-3)
    lines = [
        [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()] for folder in folders
    ]
    for found, wanted in zip(*lines, strict=True):
        for key in ("loss", "valid/loss", "valid/ema/loss", "valid/accuracy"):
            assert found.get(key) == pytest.approx(wanted.get(key), abs=1e-4), key
