"""`evaluate` with a MusicLM."""

import json
from pathlib import Path

import pytest
from commanding import Command
from small_music import CAPTIONS, recorded

from madrigal.data.manifest import Manifest
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
    test = named(recorded(tmp_path / "test", count=3, seconds=1.0))
    words = ("evaluate", music_run, "--data", test, "--samples", "2", "-o", tmp_path / "report", "--limit", "3")
    found = json.loads(madrigal.done(*words, "--json"))
    assert [way["label"] for way in found["ways"]] == ["Generated", "Ceiling", "Recording"]
    assert all(way["seconds"] == 3.0 for way in found["ways"])
    assert [one["measure"] for one in found["ways"][0]["agreements"]] == ["instrument"]
    assert found["ways"][2]["agreements"][0]["right"]["mean"] > 0.6
    assert all(way["similarity"] is not None for way in found["ways"])
    assert (tmp_path / "report/report.html").is_file()
    assert "Report: " in madrigal.done(*words, "--seed", "3", "--cond-scale", "2,1,1")


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
    known = named(recorded(tmp_path / "known", count=6, seconds=1.0))
    test = named(recorded(tmp_path / "test", count=3, seconds=1.0))
    folder = export_musiclm(music_run, tmp_path / "music")
    words = ("--data", test, "--known", known, "--samples", "1", "--json")
    ours, theirs = (
        json.loads(madrigal.done("evaluate", place, *words, "-o", tmp_path / place.name))
        for place in (music_run, folder)
    )
    assert ours["ways"] == theirs["ways"]
    assert ours["trained_on"] == 6
