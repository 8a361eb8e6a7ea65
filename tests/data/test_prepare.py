from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from madrigal.data import inspection
from madrigal.data.layouts import FORMATS
from madrigal.data.manifest import Manifest
from madrigal.data.prepare import prepare
from madrigal.errors import UserError


def cut(path: Path, part: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])


def spoil_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 3, len(data) // 3 + 400):
        data[place] ^= 0x5A
    path.write_bytes(data)


def write_bad(kind: str, folder: Path, record) -> Path:
    """One file of each kind that cannot be used."""
    name = f"in/bad.{kind.split('.')[1]}" if "." in kind else "in/bad.wav"
    kind = kind.split(".")[0]
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "no_samples":
        soundfile.write(path, np.zeros((0, 1), np.float32), 16000)
    elif kind == "text":
        path.write_text("Dear diary, today I recorded nothing.\n" * 20)
    elif kind == "binary":
        path.write_bytes(np.random.default_rng(0).bytes(20_000))
    elif kind == "truncated":
        cut(record(name, seconds=3.0), 0.5)
    elif kind == "header_only":
        cut(record(name), 20 / record(name).stat().st_size)
    elif kind == "no_data":
        cut(record(name), 44 / record(name).stat().st_size)
    elif kind == "silent":
        soundfile.write(path, np.zeros(16000, np.float32), 16000)
    elif kind == "constant":
        soundfile.write(path, np.full(16000, 0.25, np.float32), 16000)
    elif kind in ("nan", "inf"):
        wave = np.random.default_rng(0).uniform(-0.1, 0.1, 16000).astype(np.float32)
        wave[7777] = float(kind)
        soundfile.write(path, wave, 16000, subtype="FLOAT")
    elif kind == "short":
        record(name, seconds=0.05)
    elif kind == "slow":
        record(name, seconds=100, rate=1)
    elif kind == "fast":
        data = bytearray(record(name).read_bytes())
        data[24:28] = struct.pack("<I", 1_000_000)
        path.write_bytes(data)
    elif kind == "eight":
        record(name, channels=8)
    elif kind == "foreign":
        path.write_bytes(b"\0\0\0\x20ftypM4A " + bytes(1000))
    elif kind == "folder":
        path.mkdir()
    return path


BAD = {
    "empty": "empty",
    "empty.flac": "empty",
    "no_samples": "empty",
    "text": "not audio",
    "text.flac": "not audio",
    "text.mp3": "not audio",
    "text.ogg": "not audio",
    "binary": "not audio",
    "header_only": "unreadable",
    "no_data": "truncated",
    "truncated": "truncated",
    "truncated.flac": "truncated",
    "truncated.mp3": "truncated",
    "truncated.ogg": "truncated",
    "truncated.opus": "truncated",
    "silent": "silent",
    "silent.flac": "silent",
    "constant": "silent",
    "nan": "NaN samples",
    "inf": "NaN samples",
    "short": "shorter than 0.1 s",
    "slow": "sample rate outside 4 kHz to 768 kHz",
    "fast": "sample rate outside 4 kHz to 768 kHz",
    "eight": "more than 2 channels",
    "foreign.m4a": "not audio",
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_rejected_with_their_reason(kind, record, tmp_path):
    good = record("in/good.wav", seconds=0.2)
    bad = write_bad(kind, tmp_path, record)
    prepared = prepare(tmp_path / "in", tmp_path / "out", workers=1)
    assert [prepared.manifest.resolve(entry) for entry in prepared.manifest] == [good]
    assert prepared.reasons == {BAD[kind]: 1}
    (line,) = map(json.loads, (tmp_path / "out" / "rejected.jsonl").read_text().splitlines())
    assert line["path"] == str(bad)
    assert line["reason"] == BAD[kind]
    assert line["detail"]


@pytest.mark.parametrize("ending", FORMATS)
def test_good_files_of_every_format(ending, record, tmp_path):
    record(f"in/a.{ending}", seconds=1.0, rate=48000, channels=2)
    (entry,) = prepare(tmp_path / "in", tmp_path / "out").manifest
    assert (entry.sample_rate, entry.channels) == (48000, 2)
    assert entry.duration == pytest.approx(1.0, abs=0.03)


def test_only_the_doubtful_is_decoded(record, tmp_path, monkeypatch):
    for name, subtype in [("a.wav", None), ("b.flac", None), ("c.ogg", None), ("d.wav", "FLOAT")]:
        record(f"in/{name}", subtype=subtype)
    decoded = []
    decode_all = inspection._decode_all
    monkeypatch.setattr(inspection, "_decode_all", lambda p, info: decoded.append(p.name) or decode_all(p, info))
    prepare(tmp_path / "in", tmp_path / "out")
    assert sorted(decoded) == ["c.ogg", "d.wav"]
    prepare(tmp_path / "in", tmp_path / "out", check="full")
    assert sorted(decoded[2:]) == ["a.wav", "b.flac", "c.ogg", "d.wav"]


def test_a_full_check_finds_damage_in_the_middle(record, tmp_path):
    record("in/good.wav")
    spoil_middle(record("in/bad.flac", seconds=5.0))
    prepared = prepare(tmp_path / "in", tmp_path / "out", check="full")
    assert len(prepared.manifest) == 1
    assert len(prepared.rejected) == 1


def test_mostly_silent_is_not_silent(tmp_path):
    (tmp_path / "in").mkdir()
    wave = np.zeros(160_000, np.float32)
    wave[50_000:50_400] = 0.3 * np.sin(np.arange(400))
    soundfile.write(tmp_path / "in" / "a.wav", wave, 16000)
    assert len(prepare(tmp_path / "in", tmp_path / "out").manifest) == 1


def test_a_wav_written_to_a_pipe_is_whole(record, tmp_path):
    path = record("in/a.wav")
    data = bytearray(path.read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    (entry,) = prepare(tmp_path / "in", tmp_path / "out").manifest
    assert entry.duration == 0.5


def test_text_speaker_and_missing_files_of_a_list(record, tmp_path):
    record("in/wavs/a.wav")
    (tmp_path / "in" / "metadata.csv").write_text("a|Hello.|Hello.\nb|Gone.|Gone.\n")
    prepared = prepare(tmp_path / "in", tmp_path / "out")
    assert [entry.text for entry in prepared.manifest] == ["Hello."]
    assert prepared.reasons == {"missing": 1}


def test_min_seconds(record, tmp_path):
    record("in/a.wav", seconds=0.5)
    record("in/b.wav", seconds=1.5)
    prepared = prepare(tmp_path / "in", tmp_path / "out", min_seconds=1)
    assert len(prepared.manifest) == 1
    assert prepared.reasons == {"shorter than 1 s": 1}


def test_workers_and_progress_and_source_untouched(record, tmp_path):
    for number in range(12):
        record(f"in/{number:02}.wav", seconds=0.2, seed=number)
    (tmp_path / "in" / "x.wav").write_bytes(b"")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (tmp_path / "in").rglob("*")}
    seen = []
    one = prepare(tmp_path / "in", tmp_path / "one", workers=1, progress=lambda done, total: seen.append((done, total)))
    many = prepare(tmp_path / "in", tmp_path / "many", workers=8)
    assert seen == [(done, 13) for done in range(1, 14)]
    assert list(one.manifest) == list(many.manifest) == list(Manifest.load(tmp_path / "one"))
    assert one.rejected == many.rejected
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in (tmp_path / "in").rglob("*")} == before


def test_paths_are_relative_when_the_manifest_lies_above(record, tmp_path):
    record("corpus/in/a.wav")
    prepared = prepare(tmp_path / "corpus" / "in", tmp_path / "corpus")
    assert [entry.path for entry in prepared.manifest] == ["in/a.wav"]
    (tmp_path / "corpus").rename(tmp_path / "moved")
    moved = Manifest.load(tmp_path / "moved")
    assert all(moved.resolve(entry).is_file() for entry in moved)


def test_an_interruption_does_not_wait_for_the_rest(record, tmp_path):
    for number in range(50):
        record(f"in/{number}.wav", seconds=0.2)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "in", tmp_path / "out", workers=1, progress=stop)
    assert not (tmp_path / "out" / "manifest.jsonl").exists()


def test_no_usable_file_names_folder_and_count(record, tmp_path):
    write_bad("text", tmp_path, record)
    write_bad("truncated.flac", tmp_path, record)
    with pytest.raises(UserError, match=r"None of the 2 files in .*/in can be used \(1 .*, 1 .*\)"):
        prepare(tmp_path / "in", tmp_path / "out")
    assert len((tmp_path / "out" / "rejected.jsonl").read_text().splitlines()) == 2
    assert not (tmp_path / "out" / "manifest.jsonl").exists()


def test_bad_folders_get_one_sentence(record, tmp_path):
    file = record("in/a.wav")
    (tmp_path / "none").mkdir()
    cases = [
        (tmp_path / "missing", tmp_path / "out", "There is no folder"),
        (file, tmp_path / "out", "is a file"),
        (tmp_path / "none", tmp_path / "out", "holds no audio files"),
        (tmp_path / "in", file, "is a file"),
        (tmp_path / "in", tmp_path / "in", "nothing may be changed"),
        (tmp_path / "in", tmp_path / "in" / "deep" / "out", "nothing may be changed"),
        (tmp_path / "in", Path("/proc/madrigal"), "could not be written"),
    ]
    for folder, out, words in cases:
        with pytest.raises(UserError, match=words) as caught:
            prepare(folder, out)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="min_seconds"):
        prepare(tmp_path / "in", tmp_path / "out", min_seconds=-1)
    with pytest.raises(UserError, match="check"):
        prepare(tmp_path / "in", tmp_path / "out", check="some")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
