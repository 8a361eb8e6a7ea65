"""Two gloo processes train what one process trains, with validation on; rows of both are compared with each other."""

import json
from pathlib import Path

import pytest
import torch
from launching import on_two_ranks
from safetensors.torch import load_file
from spear_on_ranks import align, train
from spear_trainings import TRAINERS, WRITTEN

HERE = Path(__file__).parent
ALIGNED = ("semantic-to-text-aligned", "text-to-semantic-aligned")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    two, one = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    on_two_ranks(HERE / "spear_on_ranks.py", two)
    train(one, 2, 4)
    align(one, 0, 1)
    return two, one


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", [*TRAINERS, *ALIGNED, "semantic-to-text-dropped", "text-to-semantic-dropped"])
def test_SP3_SP4_SP11_the_ranks_end_alike(name: str, folders: tuple[Path, Path]) -> None:
    """Also where parameters go unused, validation is on, and each rank drops other rows' sources."""
    first, second = (load_file(folders[0] / f"{name}-{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    for key in first:
        assert torch.equal(first[key], second[key]), key


@pytest.mark.parametrize("name", TRAINERS)
def test_two_ranks_are_one_with_twice_the_accumulation(name: str, folders: tuple[Path, Path]) -> None:
    written = WRITTEN[name]
    names = ["loss", written, "valid/loss", f"valid/{written}", f"valid/ema/{written}", "valid/accuracy", "valid/cer"]
    names += ["ctc", "valid/ctc", "valid/ctc_fits"]
    assert any("valid/ctc" in line for line in lines(folders[0] / name)) == (name == "semantic-to-text")
    for found, wanted in zip(*(lines(folder / name) for folder in folders), strict=True):
        for key in names:
            assert found.get(key) == pytest.approx(wanted.get(key), abs=1e-5), key
    first, alone = (load_file(folder / f"{name}-0.safetensors") for folder in folders)
    for key in first:
        torch.testing.assert_close(first[key], alone[key], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ALIGNED)
def test_SP10_two_ranks_align_what_one_with_twice_the_rows_aligns(name: str, folders: tuple[Path, Path]) -> None:
    two, one = ([line for line in lines(folder / name) if "align" in line] for folder in folders)
    assert len(two) == 3
    for found, wanted in zip(two, one, strict=True):
        assert found["align"] > 0
        for key in ("align", "loss"):
            assert found[key] == pytest.approx(wanted[key], rel=1e-3, abs=1e-6), key
    first, alone = (load_file(folder / f"{name}-0.safetensors") for folder in folders)
    for key in (key for key in first if key.startswith("model.")):
        torch.testing.assert_close(first[key], alone[key], atol=2e-4, rtol=1e-2)


def test_SP10_rows_shared_out_unevenly_give_the_same_loss_and_gradients(folders: tuple[Path, Path]) -> None:
    alone = load_file(folders[1] / "alignment-0.safetensors")
    for rank in (0, 1):
        found = load_file(folders[0] / f"alignment-{rank}.safetensors")
        for key, tensor in alone.items():
            torch.testing.assert_close(found[key], tensor, atol=1e-6, rtol=1e-4)
