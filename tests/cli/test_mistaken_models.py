"""Models that cannot be exported or evaluated: one sentence, status 2, nothing lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shell import RATES, PlainUser, contents, done, on_full_disk, refused
from spoiled import spoil

# export


def test_export_never_replaces_what_is_there(here: Path) -> None:
    assert "exported" in refused("export", "runs/codec", "exported")
    assert "is a file" in refused("export", "runs/codec", "speech.mgl")
    assert "speech.mgl" in refused("export", "runs/codec", "speech.mgl/new")
    assert "is a run" in refused("export", "runs/codec", "runs/codec", "--overwrite")
    assert "lies in the run" in refused("export", "runs/codec", "runs/other/new")
    done("export", "runs/other", "exported", "--overwrite")


def test_export_where_nothing_can_be_written(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    assert "locked" in refused("export", "runs/codec", "locked/new", run=plain_user)
    assert "locked" in refused("export", "runs/codec", "locked", run=plain_user)
    for size in (0, 3000):
        refused("export", "runs/codec", "new", run=on_full_disk(size), leaves=("new",))
        assert contents("new") == {}
        refused("export", "runs/other", "exported", "--overwrite", run=on_full_disk(size))


def test_export_a_run_without_a_checkpoint(here: Path) -> None:
    shutil.rmtree("runs/codec/checkpoints")
    Path("runs/codec/checkpoints").mkdir()
    for words in (["export", "runs/codec", "new"], ["evaluate", "runs/codec"]):
        assert "holds no checkpoint" in refused(*words)


# evaluate


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("--kbps three", "--kbps is 'three'"),
        ("--kbps 3,,6", "--kbps is '3,,6'"),
        ("--kbps=", "--kbps is ''"),
        ("--kbps 0.2,77", "cannot code at 77 kbps"),
        ("--kbps nan", "cannot code at nan kbps"),
        ("--kbps 0", "cannot code at 0 kbps"),
        ("--kbps 0.2 --data nowhere", "nowhere"),
        ("--kbps 0.2 --data bad", "14 files in"),
        ("--kbps 0.2 --data speech.mgl", "speech.mgl"),
        ("--kbps 0.2 --out speech.mgl", "speech.mgl cannot be written"),
        ("--kbps 0.2 --recogniser nowhere", "no model.bin"),
        (
            "--top-p 0.9",
            "--top-p is for an audiolm or a speartts or a musiclm, and runs/codec is a codec: leave it out.",
        ),
    ],
)
def test_evaluate_what_cannot_be(here: Path, words: str, about: str) -> None:
    spoil(Path("bad"))
    assert about in refused("evaluate", "runs/codec", "--no-opus", *words.split(), leaves=("runs/codec/evaluation",))


def test_evaluate_with_a_recogniser_that_is_not_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADRIGAL_RECOGNISER", "nowhere")
    words = ("evaluate", "runs/codec", "--no-opus", "--kbps", RATES[0])
    assert "MADRIGAL_RECOGNISER names nowhere" in refused(*words, leaves=("runs/codec/evaluation",))


def test_evaluate_a_codec_without_data_of_its_own(here: Path) -> None:
    assert "--data FOLDER" in refused("evaluate", "exported", "--no-opus", "--kbps", "0.2")


def test_evaluate_into_a_read_only_folder(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    words = ("evaluate", "runs/codec", "--no-opus", "--kbps", "0.2", "--out")
    for out in ("locked", "locked/new"):
        assert "locked" in refused(*words, out, run=plain_user)
