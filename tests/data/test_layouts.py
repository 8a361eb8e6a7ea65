from __future__ import annotations

import json
from pathlib import Path

import pytest

from madrigal.data.layouts import candidates, find_files, has_ending
from madrigal.errors import UserError


def lay(root: Path, *names: str) -> None:
    """Empty files by name; layouts never open audio."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def found(root: Path) -> dict[str, tuple[str | None, str | None]]:
    return {str(c.path.relative_to(root)): (c.text, c.speaker) for c in candidates(root)}


def test_AM34_a_plain_tree(tmp_path):
    lay(tmp_path, "b.WAV", "a/c.flac", "a/d.Ogg", "e.mp3", "f.opus", "g.m4a", "notes.md", ".hidden/h.wav", "._b.wav")
    assert list(found(tmp_path)) == ["a/c.flac", "a/d.Ogg", "b.WAV", "e.mp3", "f.opus", "g.m4a"]
    assert set(found(tmp_path).values()) == {(None, None)}


def test_links_are_followed_and_loops_end(tmp_path):
    lay(tmp_path, "in/a.wav", "far/b.wav")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    assert list(found(tmp_path / "in")) == ["a.wav", "link/b.wav"]


def test_ljspeech(tmp_path):
    lay(tmp_path, "wavs/LJ001-0001.wav", "wavs/LJ001-0002.flac", "wavs/extra.wav")
    lines = ['LJ001-0001|In 1900, "he|In nineteen hundred, "he', "LJ001-0002|two", "LJ001-0003|gone|gone"]
    put(tmp_path, "metadata.csv", "\n".join(lines))
    assert found(tmp_path) == {
        "wavs/LJ001-0001.wav": ('In nineteen hundred, "he', None),
        "wavs/LJ001-0002.flac": ("two", None),
        "wavs/LJ001-0003.wav": ("gone", None),
        "wavs/extra.wav": (None, None),
    }


@pytest.mark.parametrize("column", ["text", "transcription", "sentence", "caption"])
def test_audiofolder_csv(tmp_path, column):
    lay(tmp_path, "train/a.wav", "train/b.wav")
    put(tmp_path, "train/metadata.csv", f'file_name,{column},speaker_id\na.wav,"one, two\nthree",7\nb.wav,,\n')
    assert found(tmp_path) == {"train/a.wav": ("one, two\nthree", "7"), "train/b.wav": (None, None)}


def test_audiofolder_jsonl(tmp_path):
    lay(tmp_path, "data/a.mp3")
    record = {"file_name": "data/a.mp3", "transcription": "grüß", "speaker": "ann", "license": "CC-BY"}
    put(tmp_path, "metadata.jsonl", json.dumps(record) + "\n")
    (item,) = candidates(tmp_path)
    assert (item.text, item.speaker, item.licence) == ("grüß", "ann", "CC-BY")


@pytest.mark.parametrize("name", ["train_manifest.json", "list.jsonl"])
def test_nemo(tmp_path, name):
    lay(tmp_path, "clips/a.wav", "far/b.wav")
    far = str(tmp_path / "far" / "b.wav")
    lines = [{"audio_filepath": "clips/a.wav", "duration": 1.0, "text": "a"}, {"audio_filepath": far, "text": "b"}]
    put(tmp_path, name, "\n".join(map(json.dumps, lines)))
    assert found(tmp_path) == {"clips/a.wav": ("a", None), "far/b.wav": ("b", None)}


def test_other_json_and_csv_lie_about_unharmed(tmp_path):
    lay(tmp_path, "a.wav")
    put(tmp_path, "settings.json", '{\n  "file_name": 3\n}\n')
    put(tmp_path, "list.json", "[1, 2]")
    put(tmp_path, "metadata.csv", "id,genre\n1,rock\n")
    assert found(tmp_path) == {"a.wav": (None, None)}


def test_text_beside(tmp_path):
    lay(tmp_path, "a.wav", "b.wav", "c.wav", "d.wav")
    put(tmp_path, "a.txt", "plain  text\n")
    put(tmp_path, "b.lab", "label\n")
    put(tmp_path, "c.normalized.txt", "spoken out")
    put(tmp_path, "c.original.txt", "as written")
    (tmp_path / "d.txt").write_bytes("café".encode("latin-1"))
    texts = {name: text for name, (text, _) in found(tmp_path).items()}
    assert texts == {"a.wav": "plain text", "b.wav": "label", "c.wav": "spoken out", "d.wav": "café"}


def test_libritts_and_librispeech(tmp_path):
    lay(tmp_path, "dev-clean/84/121123/84_121123_000007_000001.wav", "dev-clean/1988/24833/1988-24833-0000.flac")
    put(tmp_path, "dev-clean/84/121123/84_121123_000007_000001.normalized.txt", "go on")
    put(tmp_path, "dev-clean/1988/24833/1988-24833.trans.txt", "1988-24833-0000 THE TWO\n")
    assert found(tmp_path) == {
        "dev-clean/1988/24833/1988-24833-0000.flac": ("THE TWO", "1988"),
        "dev-clean/84/121123/84_121123_000007_000001.wav": ("go on", "84"),
    }


def test_vctk(tmp_path):
    lay(tmp_path, "wav48_silence_trimmed/p225/p225_001_mic1.flac", "wav48_silence_trimmed/p225/p225_001_mic2.flac")
    put(tmp_path, "txt/p225/p225_001.txt", "Please call Stella.\n")
    assert set(found(tmp_path).values()) == {("Please call Stella.", "p225")}
    assert len(found(tmp_path)) == 2


def test_bad_lists_get_one_sentence(tmp_path):
    put(tmp_path, "list.jsonl", '{"audio_filepath": "a.wav"}\nnonsense\n')
    with pytest.raises(UserError, match=r"list\.jsonl, line 2 is not JSON"):
        candidates(tmp_path)
    put(tmp_path, "list.jsonl", '{"audio_filepath": "a.wav"}\n{"text": "x"}\n')
    with pytest.raises(UserError, match="line 2 names no file"):
        candidates(tmp_path)


def test_endings():
    assert has_ending("A.WAV", ("wav",))
    assert has_ending(Path("a.wav"), (".WAV", "flac"))
    assert not has_ending("wav", ("wav",))
    assert find_files(Path(__file__).parent, ("nothing",)) == []
