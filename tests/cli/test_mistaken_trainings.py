"""Data that cannot be trained on, and runs that cannot be written: one sentence, status 2, nothing lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import soundfile
from shell import NEWEST, PlainUser, contents, done, madrigal, on_full_disk, refused, train
from spoiled import RATE, SPOILED, spoil, voice

# train: the data


@pytest.mark.parametrize("data", ["nowhere", "empty", "speech.mgl", "recordings/0.wav", "bad"])
def test_train_on_what_is_no_folder_of_recordings(here: Path, data: str) -> None:
    Path("empty").mkdir()
    spoil(Path("bad"))
    # Which recordings were rejected, and why, is worth keeping.
    sentence = refused(*train(data=data, run="more/runs/new"), leaves=("more",) if data == "bad" else ())
    assert data in sentence
    if data == "bad":
        assert "more/runs/new/data/train/rejected.jsonl" in sentence
        assert not Path("more/runs/new/checkpoints").exists()


def test_a_refused_training_leaves_the_users_own_folder(here: Path) -> None:
    Path("runs/mine").mkdir()
    Path("runs/mine/notes.txt").write_text("mine")
    refused(*train("plan.batch_size=16", run="runs/mine"), leaves=("runs/mine/data",))
    assert Path("runs/mine/notes.txt").read_text() == "mine"


def test_train_goes_on_without_the_files_that_cannot_be_used(here: Path) -> None:
    spoil(Path("recordings"))
    before = contents("recordings")
    said = done(*train())
    assert f"{len(SPOILED)} rejected (" in said.err
    assert len(Path("runs/new/data/train/rejected.jsonl").read_text().splitlines()) == len(SPOILED)
    assert contents("recordings") == before


def test_train_with_a_batch_larger_than_the_set(here: Path) -> None:
    sentence = refused(*train("plan.batch_size=16"))
    assert "5 items, fewer than batch_size 16" in sentence


def test_train_on_too_few_files_to_hold_one_out(here: Path) -> None:
    Path("few").mkdir()
    shutil.copy("recordings/0.wav", "few")
    done(*train("plan.batch_size=1", data="few"))
    shutil.copy("recordings/1.wav", "few")
    assert "1 items, fewer than batch_size 2" in refused(*train(data="few", run="runs/few"))
    assert "--data FOLDER" in refused("evaluate", "runs/new", "--no-opus", leaves=("runs/new",))


@pytest.mark.parametrize(
    "line",
    ["nothing", "[1]", '{"path": "0.wav"}', '{"path": "0.wav", "duration": -1, "sample_rate": 1, "channels": 1}'],
)
def test_train_on_a_damaged_manifest(here: Path, line: str) -> None:
    done("prepare", "recordings", "-o", "prepared")
    manifest = Path("prepared/manifest.jsonl")
    manifest.write_text(manifest.read_text() + line + "\n")
    assert "manifest.jsonl, line 7" in refused(*train(data="prepared"))


def test_train_on_recordings_that_went_away(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    shutil.move("recordings", "elsewhere")
    assert "could not be decoded" in refused(*train(data="prepared"), leaves=("runs/new",))


def test_train_goes_on_when_one_recording_went_bad(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    for name in ("0.wav", "1.wav"):
        Path("recordings", name).write_text("no longer a recording")
    done(*train(data="prepared"))
    rejected = Path("runs/new/data/train/rejected.jsonl").read_text()
    assert "0.wav" in rejected or "1.wav" in rejected


def test_train_takes_the_data_that_it_is_given_now(here: Path) -> None:
    done(*train())
    spoil(Path("others"), "text.wav")
    for number in range(4):
        soundfile.write(f"others/other{number}.wav", voice(pitch=300 + number), RATE)
    done(*train(data="others", options="--overwrite"))
    assert "other3.wav" in Path("runs/new/data/train/manifest.jsonl").read_text()
    soundfile.write("others/added.wav", voice(pitch=400), RATE)
    done(*train(data="others", options="--overwrite"))
    assert "added.wav" in Path("runs/new/data/train/manifest.jsonl").read_text()
    soundfile.write("others/later.wav", voice(pitch=500), RATE)
    done(*train("plan.num_train_steps=5", data="others", options="--resume"))
    assert "later.wav" not in Path("runs/new/data/train/manifest.jsonl").read_text()


# train: the run folder


def test_train_never_clears_a_run_that_is_there(here: Path) -> None:
    sentence = refused(*train(run="runs/codec"))
    assert "already holds a run at step-00000004" in sentence
    assert "--resume" in sentence
    assert "--overwrite" in sentence


def test_train_into_a_file(here: Path) -> None:
    assert "speech.mgl is a file" in refused(*train(run="speech.mgl"))
    assert "cannot be written" in refused(*train(run="speech.mgl/run"))


def test_train_into_a_read_only_folder(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    for run in ("locked", "locked/run"):
        assert "cannot be written" in refused(*train(run=run), run=plain_user)
    os.chmod("runs/codec", 0o500)
    assert "cannot be written" in refused(*train(run="runs/codec", options="--overwrite"), run=plain_user)


@pytest.mark.parametrize(
    "mistake", ["data=nowhere", "data=bad", "plan.batch_size=16", "plan.lr=-1", "plan.log_with=[nobody]"]
)
def test_overwrite_clears_nothing_when_the_new_run_cannot_start(here: Path, mistake: str) -> None:
    done(*train())
    spoil(Path("bad"))
    Path("runs/new/data/train/rejected.jsonl").unlink()  # the one file that may be written again
    refused(*train(mistake, options="--overwrite"), leaves=("runs/new/data/train/rejected.jsonl",))
    done(*train("plan.num_train_steps=5", options="--resume"))


@pytest.mark.parametrize(
    ("size", "fails"),
    [
        (0, "data/train/rejected.jsonl"),
        (300, "data/train/manifest.jsonl"),
        (1200, "recipe.yaml"),
        (4000, "samples/step-00000001"),
        (8000, "checkpoints/step-00000001"),
    ],
)
def test_train_on_a_full_disk(here: Path, size: int, fails: str) -> None:
    spoil(Path("recordings"), "text.wav")
    words = ("plan.save_results_every=1",)
    sentence = refused(*train(*words), run=on_full_disk(size), leaves=("runs/new",))
    assert f"runs/new/{fails} could not be written" in sentence
    assert not list(Path("runs/new").glob("checkpoints/*"))
    assert not list(here.rglob(".*"))
    done(*train(*words, options="--overwrite"))


def test_train_until_the_figures_fill_the_disk(here: Path) -> None:
    words = ("plan.save_model_every=99", "plan.save_results_every=99", "plan.num_train_steps=99")
    assert "runs/new/metrics.jsonl could not be written" in refused(
        *train(*words), run=on_full_disk(4000), leaves=("runs/new",)
    )
    assert done("runs", "--json").json[1]["step"] > 1


def test_resume_on_a_full_disk_keeps_what_is_there(here: Path) -> None:
    before = contents(NEWEST)
    said = on_full_disk(20_000)(*train("plan.num_train_steps=6", run="runs/codec", options="--resume"))
    assert said.status == 2
    assert "could not be written" in said.err
    assert contents(NEWEST) == before
    done(*train("plan.num_train_steps=6", run="runs/codec", options="--resume"))


@pytest.mark.parametrize(("lr", "reason"), [("1e6", "loss was not finite 6 times in a row"), ("1e39", "not finite")])
def test_a_training_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    here: Path, lr: str, reason: str
) -> None:
    """Though it skips past two steps at which a checkpoint is due, and only one is to be kept."""
    before = contents(NEWEST)
    patience = ("plan.num_train_steps=99", "plan.max_skipped_steps=6", "plan.keep_checkpoints=1")
    said = madrigal(*train(f"plan.lr={lr}", *patience, run="runs/codec", options="--resume"))
    assert said.status == 2, said.err
    sentence = said.err.splitlines()[-1]
    assert sentence.startswith("madrigal: Training stopped at step ")
    assert reason in sentence
    assert f"the last good checkpoint is {NEWEST}. Lower plan.lr" in sentence
    assert "Traceback" not in said.err
    assert contents(NEWEST) == before


def test_train_for_the_best_of_a_figure_that_is_not_measured(here: Path) -> None:
    sentence = refused(*train("plan.best_metric=valid/beauty"), leaves=("runs/new",))
    assert "'valid/beauty'" in sentence
    assert "valid/mel" in sentence
