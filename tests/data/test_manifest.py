from __future__ import annotations

import pytest
from pydantic import ValidationError

from madrigal.data.manifest import Entry, Manifest, write_lines
from madrigal.errors import UserError

GOOD = '{"path": "a.wav", "duration": 1.5, "sample_rate": 16000, "channels": 1, "text": "früh", "mood": "glad"}\n'


def test_what_is_written_is_read_back(tmp_path):
    entries = [
        Entry(path="a.wav", duration=1.25, sample_rate=16000, channels=1, text="für dich", licence="CC0", take=3),
        Entry(path="/far/b.flac", duration=2.0, sample_rate=44100, channels=2, speaker="p225"),
    ]
    file = Manifest(tmp_path, entries).write(tmp_path)
    assert file == tmp_path / "manifest.jsonl"
    assert "für dich" in file.read_text()
    for source in (tmp_path, file):
        manifest = Manifest.load(source)
        assert list(manifest) == entries
        assert len(manifest) == 2
        assert manifest.seconds == 3.25
        assert manifest.resolve(entries[0]) == tmp_path / "a.wav"
        assert str(manifest.resolve(entries[1])) == "/far/b.flac"
    assert list(tmp_path.iterdir()) == [file]


def test_entries_are_frozen_and_know_their_frames():
    entry = Entry(path="a.wav", duration=round(12345 / 44100, 6), sample_rate=44100, channels=1)
    assert entry.frames == 12345
    with pytest.raises(ValidationError):
        entry.path = "b.wav"


def test_a_file_written_by_hand(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text("\ufeff" + GOOD + "\n\n" + GOOD, encoding="utf-8")
    assert [entry.text for entry in Manifest.load(file)] == ["früh", "früh"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD + "{broken\n", "line 2 is not JSON"),
        (GOOD + "[1]\n", "line 2 is not a JSON object"),
        (GOOD.replace("1.5", '"long"'), "line 1: the field duration is wrong"),
        (GOOD.replace("1.5", "-1"), "duration"),
        (GOOD.replace('"path": "a.wav", ', ""), "the field path"),
    ],
)
def test_bad_lines_are_named(tmp_path, content, words):
    file = tmp_path / "manifest.jsonl"
    file.write_text(content)
    with pytest.raises(UserError, match=words):
        Manifest.load(tmp_path)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(UserError, match="madrigal prepare"):
        Manifest.load(tmp_path)
    (tmp_path / "manifest.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read as text"):
        Manifest.load(tmp_path)


def test_a_broken_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "list.jsonl"
    write_lines(file, [{"a": 1}])

    def records():
        yield {"a": 2}
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left on device"):
        write_lines(file, records())
    assert file.read_text() == '{"a": 1}\n'
    assert list(tmp_path.iterdir()) == [file]


def test_names_that_are_no_text_survive(tmp_path):
    write_lines(tmp_path / "x.jsonl", [{"path": "caf\udce9.wav"}])
    assert "\\udce9" in (tmp_path / "x.jsonl").read_text()
