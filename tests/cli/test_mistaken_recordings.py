"""Recordings that cannot be prepared: rejected and counted, or one sentence and status 2; nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
from shell import PlainUser, contents, done, on_full_disk, refused
from spoiled import RATE, SPOILED, spoil, voice


def test_prepare_a_folder_that_is_not_there(here: Path) -> None:
    assert "There is no folder nowhere" in refused("prepare", "nowhere")


def test_prepare_a_file(here: Path) -> None:
    assert "is a file" in refused("prepare", "recordings/0.wav")


def test_prepare_an_empty_folder(here: Path) -> None:
    Path("empty").mkdir()
    assert "holds no audio" in refused("prepare", "empty")


@pytest.mark.parametrize("name", SPOILED)
def test_prepare_counts_a_file_that_cannot_be_used(here: Path, name: str) -> None:
    spoil(Path("recordings"), name)
    before = contents("recordings")
    said = done("prepare", "recordings", "-o", "prepared", "--json")
    assert said.json["files"] == 6
    assert said.json["rejected"] == {SPOILED[name][0]: 1}
    (line,) = Path("prepared/rejected.jsonl").read_text().splitlines()
    assert json.loads(line)["path"].endswith(name)
    assert contents("recordings") == before


@pytest.mark.parametrize("name", SPOILED)
def test_prepare_a_folder_with_nothing_else(here: Path, name: str) -> None:
    spoil(Path("bad"), name)
    sentence = refused("prepare", "bad", "-o", "prepared", leaves=("prepared",))
    assert f"1 {SPOILED[name][0]}" in sentence
    assert not Path("prepared/manifest.jsonl").exists()


def test_prepare_says_how_many_of_each(here: Path) -> None:
    spoil(Path("recordings"))
    said = done("prepare", "recordings", "-o", "prepared")
    assert f"{len(SPOILED)} rejected (" in said.out
    assert "3 truncated" in said.out


def test_prepare_finds_damage_in_the_middle_when_it_is_asked_to(here: Path) -> None:
    path = Path("recordings/damaged.flac")
    soundfile.write(path, voice(6), RATE)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 200] = bytes(200)
    path.write_bytes(data)
    assert sum(done("prepare", "recordings", "-o", "full", "--full", "--json").json["rejected"].values()) == 1


def test_prepare_a_file_that_may_not_be_read(here: Path, plain_user: PlainUser) -> None:
    Path("recordings/1.wav").chmod(0)
    said = plain_user("prepare", "recordings", "-o", "prepared", "--json")
    assert said.status == 0
    assert said.json["rejected"] == {"unreadable": 1}


def test_prepare_a_folder_that_may_not_be_read(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0)
    assert "locked" in refused("prepare", "locked", run=plain_user)


def test_prepare_never_writes_into_the_recordings(here: Path) -> None:
    assert "lies in" in refused("prepare", "recordings", "-o", "recordings/prepared")


def test_prepare_into_a_file(here: Path) -> None:
    assert "speech.mgl is a file" in refused("prepare", "recordings", "-o", "speech.mgl")
    assert "could not be written" in refused("prepare", "recordings", "-o", "speech.mgl/prepared")


def test_prepare_into_a_read_only_folder(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    assert "locked" in refused("prepare", "recordings", "-o", "locked", run=plain_user)
    assert "locked" in refused("prepare", "recordings", "-o", "locked/prepared", run=plain_user)


def test_prepare_on_a_full_disk_keeps_the_manifest_that_was_there(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    soundfile.write("recordings/more.wav", voice(pitch=333), RATE)
    spoil(Path("recordings"), "text.wav")
    assert "could not be written" in refused("prepare", "recordings", "-o", "prepared", run=on_full_disk())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.jsonl", '{"file_name": "0.wav", "text": "One"}\n{"file_name": \n'),
        ("manifest.json", '{"audio_filepath": "0.wav", "duration": 1, "text": "One"}\nnothing\n'),
    ],
)
def test_prepare_a_damaged_list_of_files(here: Path, name: str, text: str) -> None:
    (here / "recordings" / name).write_text(text)
    sentence = refused("prepare", "recordings", "-o", "prepared")
    assert f"{name}, line 2" in sentence
