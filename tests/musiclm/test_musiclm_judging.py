"""`evaluate` with a MusicLM."""

import json
import shutil
from pathlib import Path

import pytest
from commanding import Command
from small_music import CAPTIONS, recorded

from madrigal.data.manifest import Manifest
from madrigal.data.shared_files import shared
from madrigal.musiclm.loading import export_musiclm


def named(folder: Path) -> Path:
    """Its manifest also says what is played."""
    manifest = Manifest.load(folder)
    names = dict(zip(CAPTIONS, ("hum", "tone", "whistle"), strict=True))
    rows = [entry.model_copy(update={"instrument": names[entry.text or ""]}) for entry in manifest]
    Manifest(folder, rows).write(folder)
    return folder


@pytest.fixture
def madrigal(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_a_run_is_judged(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    named(music_run.parent / "recordings")
    test = named(recorded(tmp_path / "test", count=8, seconds=1.0))
    Manifest(test, [Manifest.load(test).entries[number] for number in (0, 4, 7)]).write(test)  # pitches of training
    words = ("evaluate", music_run, "--data", test, "--samples", "2", "-o", tmp_path / "report", "--limit", "3")
    found = json.loads(madrigal.done(*words, "--json"))
    assert [way["label"] for way in found["ways"]] == ["Generated", "Ceiling", "Recording"]
    assert all(way["seconds"] == 3.0 for way in found["ways"])
    assert [one["measure"] for one in found["ways"][0]["agreements"]] == ["instrument"]
    assert found["ways"][2]["agreements"][0]["right"]["mean"] > 0.6
    assert all(way["similarity"] is not None for way in found["ways"])
    assert (tmp_path / "report/report.html").is_file()
    assert "Report: " in madrigal.done(*words, "--seed", "3", "--cond-scale", "2,1,1")


def test_captions_are_read_where_there_is_no_text(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    known = named(recorded(tmp_path / "known", count=6, seconds=1.5))
    test = named(recorded(tmp_path / "test", count=3, seconds=0.5))
    words = (
        "evaluate",
        music_run,
        "--data",
        test,
        "--known",
        known,
        "--samples",
        "1",
        "--json",
        "-o",
        tmp_path / "out",
    )
    by_text = json.loads(madrigal.done(*words))
    only = [
        entry.model_copy(update={"text": None, "captions": [entry.text, "a tune"]}) for entry in Manifest.load(test)
    ]
    Manifest(test, only).write(test)
    assert json.loads(madrigal.done(*words))["ways"] == by_text["ways"]


def test_mistakes_are_told(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    assert "--data FOLDER" in madrigal.refused("evaluate", music_run)
    plain = recorded(tmp_path / "plain", count=3)
    assert "an instrument in its manifest" in madrigal.refused("evaluate", music_run, "--data", plain)
    assert "--holes is for" in madrigal.refused("evaluate", music_run, "--data", plain, "--holes", "3")
    folder = export_musiclm(music_run, tmp_path / "music")
    test = named(recorded(tmp_path / "test", count=3))
    assert "--known FOLDER" in madrigal.refused("evaluate", folder, "--data", test)
    assert "do not say their instrument" in madrigal.refused("evaluate", folder, "--data", test, "--known", plain)


def test_an_exported_folder_is_judged_as_its_run_is(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    known = named(recorded(tmp_path / "known", count=6, seconds=1.5))
    test = named(recorded(tmp_path / "test", count=3, seconds=1.0))
    folder = export_musiclm(music_run, tmp_path / "music")
    words = ("--data", test, "--known", known, "--samples", "1", "--json")
    ours, theirs = (
        json.loads(madrigal.done("evaluate", place, *words, "-o", tmp_path / place.name))
        for place in (music_run, folder)
    )
    assert ours["ways"] == theirs["ways"]
    assert ours["trained_on"] == 6


def test_the_judges_do_not_learn_from_what_they_judge(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    """Neither from the same files nor from copies, and what the run has learned from is told."""
    training = named(music_run.parent / "recordings")
    words = ("--samples", "1", "--json", "-o", tmp_path / "report")
    found = json.loads(madrigal.done("evaluate", music_run, "--data", training, "--limit", "3", *words))
    assert found["trained_on"] == 5
    told = " ".join(found["notes"])
    assert "3 of the 3 recordings are in the data that the run was trained on" in told
    assert "not learned from 3 recordings" in told
    copies = shutil.copytree(training, tmp_path / "copies")
    refused = madrigal.refused("evaluate", music_run, "--data", copies, *words)
    assert "8 of its 8 recordings are those that they have to judge" in refused
    fresh = named(recorded(tmp_path / "fresh", count=3, seconds=1.0))
    found = json.loads(madrigal.done("evaluate", music_run, "--data", fresh, *words))
    assert found["trained_on"] == 8
    assert len(found["notes"]) == 1
    known = named(recorded(tmp_path / "known", count=6, seconds=1.5))
    found = json.loads(madrigal.done("evaluate", music_run, "--data", copies, "--known", known, *words))
    assert "8 of the 8 recordings" in found["notes"][1]
    assert len(found["notes"]) == 2


def test_files_are_shared_by_what_is_in_them(tmp_path: Path) -> None:
    names = ("one", "copy", "same-size", "longer")
    paths = [tmp_path / name for name in names]
    for path, content in zip(paths, (b"abc", b"abc", b"abd", b"abcd"), strict=True):
        path.write_bytes(content)
    assert shared(paths, [paths[0], tmp_path / "gone"]) == set(paths[:2])
    assert shared([tmp_path / "gone"], paths) == set()
