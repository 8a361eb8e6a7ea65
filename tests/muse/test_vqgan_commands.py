"""The commands for a tokenizer of pictures: prepare, train, evaluate, export."""

import json
from pathlib import Path

import pytest
from commanding import Command
from vqgan_toys import write_pictures

from madrigal.muse.vae import VQGanVAE


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "pictures", 12, 16, 24)
    (tmp_path / "pictures/000.txt").write_text("patches")
    return Command(capsys)


def test_from_a_folder_to_a_report(command: Command) -> None:
    Path("pictures/bad.png").write_bytes(b"no picture")
    said = json.loads(command.done("prepare", "pictures", "-o", "prepared", "--json"))
    assert said["files"] == 12
    assert said["rejected"] == {"not a whole picture": 1}
    command.done(
        "train",
        "vqgan/tiny",
        "data=prepared",
        "data.image_size=[16,24]",
        "plan.num_train_steps=2",
        "plan.valid_frac=0.5",
        "--run",
        "runs/vqgan",
    )
    report = json.loads(command.done("evaluate", "runs/vqgan", "--json"))
    assert report["pictures"] == 6
    assert report["grid"] == [4, 6]
    assert report["features"] in ("colours and edges", "Inception-v3")
    assert Path("runs/vqgan/evaluation/pictures.png").is_file()
    assert "PSNR" in command.done("evaluate", "runs/vqgan", "--limit", "3")
    command.done("export", "runs/vqgan", "exported")
    assert VQGanVAE.from_pretrained("exported", discriminators=False).codebook_size == 64
    other = json.loads(command.done("evaluate", "exported", "--data", "pictures", "--limit", "4", "--json"))
    assert other["size"] == [16, 24]


def test_tokens_are_made_beforehand(command: Command) -> None:
    command.done("train", "vqgan/tiny", "data=pictures", "plan.num_train_steps=1", "--run", "run")
    make = ("tokenize", "pictures", "--with", "run", "-o", "tokens", "--json")
    assert json.loads(command.done(*make))["tokens"] == {"ids": [4, 4]}
    both = json.loads(command.done(*make, "--image-size", "16x24", "--cond-image-size", "8x12"))
    assert both == {"folder": "tokens", "pictures": 12, "tokens": {"ids": [4, 6], "cond_ids": [2, 3]}}
    written = {path: path.stat().st_mtime_ns for path in Path("tokens").rglob("*.npy")}
    command.done(*make)
    assert {path: path.stat().st_mtime_ns for path in Path("tokens").rglob("*.npy")} == written
    assert "no size of a picture" in command.refused(*make, "--image-size", "big")
    assert "--workers is for recordings" in command.refused(*make, "--workers", "2")
    others = ("tokenize", "pictures", "--with", "speech-16k", "--image-size", "16")
    assert "--image-size is for pictures" in command.refused(*others)


def test_mistakes_are_told_in_a_sentence(command: Command) -> None:
    Path("recordings").mkdir()
    assert "holds pictures" in command.refused("prepare", "pictures", "--min-seconds", "1")
    assert "holds no pictures" in command.refused("prepare", "recordings", "--pictures")
    assert "multiples of 4" in command.refused(
        "train", "vqgan/tiny", "data=pictures", "data.image_size=18", "--run", "r"
    )
    assert "did you mean model.layers?" in command.refused(
        "train", "vqgan/tiny", "data=pictures", "model.layer=2", "--run", "r"
    )
    missing = command.refused("train", "vqgan/tiny", "data=pictures", "model.vgg=vgg.safetensors", "--run", "r")
    assert "There is no file vgg.safetensors" in missing


def test_evaluate_refuses_what_is_for_others(command: Command) -> None:
    whole = ("plan.num_train_steps=1", "plan.valid_frac=0", "plan.best_metric=null")
    command.done("train", "vqgan/tiny", "data=pictures", *whole, "--run", "run")
    assert "--kbps is for a codec" in command.refused("evaluate", "run", "--kbps", "3")
    assert "--recogniser is for" in command.refused("evaluate", "run", "--recogniser", "x")
    assert "trained on all of its data" in command.refused("evaluate", "run")
