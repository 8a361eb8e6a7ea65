from __future__ import annotations

import json
import pickle
import shutil
from fractions import Fraction

import numpy as np
import pytest
from token_folders import ACOUSTIC, SEMANTIC, ids_of, manifest_of, write_tokens

from madrigal.data import shards as shards_on_disk
from madrigal.data import token_writing
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.token_writing import close_folder, cut, finished_shard, open_folder, remove_remains, write_shard
from madrigal.data.tokens import TokenInfo, TokenShards, digest
from madrigal.errors import UserError

SECONDS = {"a.wav": 3.0, "deep/b.wav": 0.5, "bad.wav": 2.0, "ü.flac": 1.03}


@pytest.fixture
def two_entries_a_shard(monkeypatch):
    monkeypatch.setattr(token_writing, "SHARD_ENTRIES", 2)


@pytest.fixture
def manifest(tmp_path):
    return manifest_of(tmp_path, SECONDS)


@pytest.mark.usefixtures("two_entries_a_shard")
@pytest.mark.parametrize("info", [SEMANTIC, ACOUSTIC])
def test_what_is_written_is_read(tmp_path, manifest, info):
    shards = write_tokens(tmp_path, info, manifest)
    assert shards.info.shards == 2
    assert shards.paths == ["a.wav", "deep/b.wav", "ü.flac"]
    assert shards.failed == {"bad.wav": "its data is damaged"}
    for entry in manifest:
        if entry.path in shards:
            expected = ids_of(info, entry)
            assert shards.frames(entry.path) == len(expected)
            assert shards.tokens(entry.path).dtype == np.int64
            np.testing.assert_array_equal(shards.tokens(entry.path), expected)
            np.testing.assert_array_equal(shards.tokens(entry.path, 3, 7), expected[3:7])
            np.testing.assert_array_equal(shards.tokens(entry.path, len(expected) - 1, 10_000), expected[-1:])
            assert len(shards.tokens(entry.path, 10_000)) == 0


def test_the_folder_says_what_it_holds(tmp_path, manifest):
    shards = write_tokens(tmp_path, ACOUSTIC, manifest)
    assert shards.folder.name == f"codec-fedcba9876543210-{digest(manifest.entries)}"
    whole = json.loads((shards.folder / "tokens.json").read_text())
    assert (whole["kind"], whole["frame_rate"], whole["quantizers"], whole["codebook_size"]) == ("codec", 50.0, 3, 4000)
    assert (whole["entries"], whole["failed"], whole["shards"], whole["frames"]) == (4, 1, 1, 150 + 25 + 52)
    assert whole["manifest"] == digest(manifest.entries)
    array = np.load(shards.folder / "shard-00000.npy", mmap_mode="r")
    assert (array.shape, array.dtype) == ((227, 3), np.uint16)


def test_ids_above_sixteen_bits_are_kept(tmp_path):
    info = SEMANTIC.model_copy(update={"codebook_size": 100_000})
    entries = manifest_of(tmp_path, {"a": 1.0}).entries
    write_shard(tmp_path, 0, info, entries, lambda entry: np.array([0, 65_536, 99_999]))
    assert np.load(tmp_path / "shard-00000.npy").tolist() == [0, 65_536, 99_999]


@pytest.mark.parametrize("ids", [[0, 4000], [-1, 3], [[1, 2]]])
def test_ids_that_no_codebook_has_are_refused(tmp_path, ids):
    entries = manifest_of(tmp_path, {"a": 1.0}).entries
    with pytest.raises(UserError, match="stub tokenizer gave"):
        write_shard(tmp_path, 0, SEMANTIC, entries, lambda entry: np.array(ids))
    assert list(tmp_path.iterdir()) == []


def test_shards_are_cut_by_time_and_count_in_order(tmp_path, monkeypatch):
    manifest = manifest_of(tmp_path, {f"{n}": 100.0 if n < 14 else 1.0 for n in range(40)})
    monkeypatch.setattr(token_writing, "SHARD_ENTRIES", 10)
    shards = cut(manifest)
    assert [len(entries) for entries in shards] == [6, 6, 10, 10, 8]
    assert [entry for entries in shards for entry in entries] == list(manifest)
    assert cut(Manifest(tmp_path, [])) == []


def test_the_digest_follows_recordings_and_not_their_texts(tmp_path):
    entry = Entry(path="a", duration=1.0, sample_rate=16000, channels=1)
    assert digest([entry]) == digest([entry.model_copy(update={"text": "hello", "speaker": "x"})])
    assert digest([entry]) != digest([entry.model_copy(update={"duration": 1.5})])
    assert digest([entry]) != digest([entry, entry])


def test_the_rate_is_the_exact_fraction():
    for sample_rate, hop in ((16000, 320), (16000, 480), (44100, 512), (22050, 320), (24000, 1920)):
        info = TokenInfo(kind="x", fingerprint="0", frame_rate=sample_rate / hop, codebook_size=2)
        assert info.rate == Fraction(sample_rate, hop)


def test_shards_sent_to_a_worker_leave_their_maps_behind(tmp_path, manifest):
    shards = write_tokens(tmp_path, SEMANTIC, manifest)
    shards.tokens("a.wav")
    sent = pickle.dumps(shards)
    assert len(sent) < 2000
    np.testing.assert_array_equal(pickle.loads(sent).tokens("a.wav"), shards.tokens("a.wav"))


def test_few_shards_are_open_at_a_time(tmp_path, manifest, monkeypatch):
    monkeypatch.setattr(token_writing, "SHARD_ENTRIES", 1)
    monkeypatch.setattr(shards_on_disk, "_MAX_OPEN", 2)
    shards = write_tokens(tmp_path, SEMANTIC, manifest)
    for path in [*shards.paths, *shards.paths]:
        assert shards.tokens(path)[0] == 0
        assert len(shards._maps) <= 2


@pytest.mark.parametrize("spoil", ["cut", "changed", "other", "gone", "list cut", "list wrong", "tokens.json"])
def test_a_damaged_shard_is_named(tmp_path, manifest, spoil):
    folder = write_tokens(tmp_path, SEMANTIC, manifest).folder
    array, listed = folder / "shard-00000.npy", folder / "shard-00000.json"
    named = {"tokens.json": "tokens.json"}.get(spoil, "shard-00000")
    if spoil == "cut":
        array.write_bytes(array.read_bytes()[:-10])
    elif spoil == "changed":
        data = bytearray(array.read_bytes())
        data[-9] ^= 1
        array.write_bytes(data)
    elif spoil == "other":
        np.save(array, np.zeros(3))
    elif spoil == "gone":
        array.unlink()
    elif spoil == "list cut":
        listed.write_text(listed.read_text()[:-30])
    elif spoil == "list wrong":
        listed.write_text('{"entries": 3}')
    else:
        (folder / "tokens.json").write_text("{}")
    with pytest.raises(UserError, match=f"{named}.* damaged .*tokenize again") as caught:
        TokenShards.open(folder).tokens("a.wav")
    assert "\n" not in str(caught.value)


def test_questions_that_have_no_answer(tmp_path, manifest):
    shards = write_tokens(tmp_path, SEMANTIC, manifest)
    with pytest.raises(UserError, match="its data is damaged"):
        shards.tokens("bad.wav")
    with pytest.raises(UserError, match=r"knows no recording other.wav"):
        shards.tokens("other.wav")
    with pytest.raises(UserError, match="There are no tokens at"):
        TokenShards.open(tmp_path / "missing")
    (tmp_path / "half").mkdir()
    with pytest.raises(UserError, match="no finished tokens"):
        TokenShards.open(tmp_path / "half")


def test_shards_are_found_by_fingerprint(tmp_path, manifest):
    write_tokens(tmp_path, SEMANTIC, manifest)
    write_tokens(tmp_path, ACOUSTIC, manifest)
    assert TokenShards.find(tmp_path, ACOUSTIC.fingerprint).info.quantizers == 3
    with pytest.raises(UserError, match="no finished tokens of the tokenizer abc"):
        TokenShards.find(tmp_path, "abc")


def test_every_manifest_has_a_folder_of_its_own(tmp_path, manifest):
    test = manifest_of(tmp_path, {"a.wav": 1.0})
    write_tokens(tmp_path, SEMANTIC, manifest)
    write_tokens(tmp_path, SEMANTIC, test)
    mark = SEMANTIC.fingerprint
    assert TokenShards.find(tmp_path, mark, manifest).frames("a.wav") == 75
    assert TokenShards.find(tmp_path, mark, test).frames("a.wav") == 25
    part = Manifest(tmp_path, manifest.entries[1:])
    assert TokenShards.find(tmp_path, mark, part).frames("deep/b.wav") == 13
    with pytest.raises(UserError, match="no finished tokens of this manifest"):
        TokenShards.find(tmp_path, mark, manifest_of(tmp_path, {"new.wav": 1.0}))
    with pytest.raises(UserError, match="several manifests"):
        TokenShards.find(tmp_path, mark)


def test_a_shard_is_finished_only_as_a_whole_and_for_these_recordings(tmp_path, manifest):
    folder = write_tokens(tmp_path, SEMANTIC, manifest).folder
    entries = manifest.entries
    assert finished_shard(folder, 0, entries) is not None
    assert finished_shard(folder, 0, entries[:-1]) is None
    assert finished_shard(folder, 1, entries) is None
    for name in ("shard-00000.npy", "shard-00000.json"):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        assert finished_shard(copy, 0, entries) is None
        shutil.rmtree(copy)


def test_remains_of_a_killed_writer_go(tmp_path, manifest):
    folder = open_folder(tmp_path, SEMANTIC, manifest)
    remains = folder / ".shard-00000.npy.abc.partial"
    remains.write_bytes(b"half")
    (folder / "shard-00000.npy").write_bytes(b"whole")
    assert open_folder(tmp_path, SEMANTIC, manifest) == folder
    remove_remains(folder)
    assert [file.name for file in folder.iterdir()] == ["shard-00000.npy"]


def test_an_empty_shard_can_be_written_and_read(tmp_path):
    manifest = manifest_of(tmp_path, {"bad.wav": 1.0})
    shards = write_tokens(tmp_path, ACOUSTIC, manifest)
    assert (len(shards), shards.info.frames, list(shards.failed)) == (0, 0, ["bad.wav"])


def test_a_disk_that_cannot_be_written_gives_one_sentence(tmp_path, manifest):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"):
        open_folder(tmp_path / "file", SEMANTIC, manifest)
    with pytest.raises(UserError, match="could not be written"):
        close_folder(tmp_path / "missing", SEMANTIC, manifest, [])
