from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
import torch
from toy_tokenizers import ToyCodec, ToyTokenizer

from madrigal.data.audio import read
from madrigal.data.manifest import Manifest
from madrigal.data.token_dataset import TokenDataset
from madrigal.data.tokens import TokenShards
from madrigal.errors import UserError
from madrigal.tokenizers.tokenizing import tokenize_manifest


def test_tokens_on_disk_are_those_that_the_tokenizers_give(manifest, tmp_path):
    seen = []
    semantic, acoustic = tokenize_manifest(
        manifest, [ToyTokenizer(), ToyCodec()], tmp_path / "out", progress=lambda *n: seen.append(n)
    )
    assert semantic.shards.info.shards == 4
    assert semantic.shards.paths == ["0.wav", "1.wav", "2.wav", "5.wav", "6.wav"]
    assert acoustic.shards.paths == ["0.wav", "1.wav", "2.wav", "4.wav", "5.wav", "6.wav"]
    assert (acoustic.shards.info.quantizers, acoustic.shards.info.groups) == (4, 2)
    torch.set_num_threads(1)
    for path in semantic.shards.paths:
        wave = read(manifest.root / path, sample_rate=16000, channels=1)
        np.testing.assert_array_equal(semantic.shards.tokens(path), ToyTokenizer().tokenize(wave)[0][0])
    stereo = read(manifest.root / "2.wav", sample_rate=16000, channels=2)
    np.testing.assert_array_equal(acoustic.shards.tokens("2.wav"), ToyCodec().tokenize(stereo[None])[0])
    assert len(np.unique(semantic.shards.tokens("2.wav"))) > 5
    assert seen == [(n, 14) for n in (2, 4, 6, 7, 9, 11, 13, 14)]


def test_files_without_tokens_are_listed_with_their_reason_and_counted(manifest, tmp_path):
    (made,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
    assert made.shards.failed == {"3.wav": "its content is not audio", "4.wav": "it is too short for one token"}
    assert made.shards.info.failed == 2
    assert "5 files" in made.summary
    assert "2 files have no tokens (1: its content is not audio, 1: it is too short for one token)" in made.summary
    assert made.figures["reasons"] == {"its content is not audio": 1, "it is too short for one token": 1}


def test_a_second_call_changes_nothing_and_makes_nothing(manifest, tmp_path, contents):
    tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
    before = contents(tmp_path / "out")
    stamps = [file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("shard*")]
    (again,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
    assert again.written == 0
    assert contents(tmp_path / "out") == before
    assert [file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("shard*")] == stamps


@pytest.mark.parametrize("name", ["shard-00001.npy", "shard-00002.json", "tokens.json"])
def test_only_what_is_damaged_or_gone_is_made_again(manifest, tmp_path, contents, name):
    (made,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
    before = contents(tmp_path / "out")
    file = made.shards.folder / name
    for spoil in (lambda: file.write_bytes(file.read_bytes()[:-3]), file.unlink):
        spoil()
        (again,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
        assert again.written == (0 if name == "tokens.json" else 1)
        assert contents(tmp_path / "out") == before


def test_a_file_that_can_be_read_again_gets_its_tokens(manifest, tmp_path):
    lost = manifest.root / "5.wav"
    lost.rename(tmp_path / "elsewhere.wav")
    (made,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
    assert made.shards.failed["5.wav"] == "there is no such file"
    (tmp_path / "elsewhere.wav").rename(lost)
    (made,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
    assert made.written == 1
    assert "5.wav" in made.shards


def test_other_weights_and_other_manifests_have_folders_of_their_own(manifest, tmp_path):
    part = Manifest(manifest.root, manifest.entries[:3])
    made = [
        tokenize_manifest(m, [ToyTokenizer(size)], tmp_path / "out")[0] for m in (manifest, part) for size in (64, 32)
    ]
    assert len({each.shards.folder for each in made}) == 4
    assert TokenShards.find(tmp_path / "out", ToyTokenizer(32).fingerprint(), part).info.entries == 3


def test_the_same_tokenizer_twice_is_one(manifest, tmp_path):
    assert len(tokenize_manifest(manifest, [ToyTokenizer(), ToyTokenizer()], tmp_path / "out")) == 1


def test_a_trainer_reads_them(manifest, tmp_path):
    semantic, acoustic = tokenize_manifest(manifest, [ToyTokenizer(), ToyCodec()], tmp_path / "out")
    dataset = TokenDataset(manifest, semantic.shards, acoustic.shards, max_seconds=0.4)
    assert len(dataset) == 5
    assert dataset.left_out.keys() == {"3.wav", "4.wav"}
    assert dataset[2]["acoustic"].shape == (20, 4)
    assert dataset[2]["speaker"] == "x"


def test_the_number_of_threads_is_put_back(manifest, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def run_and_die(manifest, tokenizers, out, calls=None, seconds=None):
    """Tokenize in a fork that is killed at one of its `calls` of the system, or after some seconds."""
    child = os.fork()
    if child == 0:
        try:
            left = [calls]

            def dying(name):
                real = getattr(os, name)

                def call(*arguments, **options):
                    left[0] -= 1
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*arguments, **options)

                return call

            if calls is not None:
                for name in ("fsync", "chmod", "replace", "fdopen", "close"):
                    setattr(os, name, dying(name))
            tokenize_manifest(manifest, tokenizers, out)
        finally:
            os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_killed_at_every_step_of_writing_and_restarted_ends_byte_identical(manifest, tmp_path, contents):
    tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    calls, was_killed = 0, True
    while was_killed:
        calls += 1
        out = tmp_path / f"killed-{calls}"
        was_killed = run_and_die(manifest, [ToyTokenizer()], out, calls=calls)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: None)
            tokenize_manifest(manifest, [ToyTokenizer()], out)
        assert contents(out) == whole
    # Four shards of two files and one of their own: nine files, and four calls for each.
    assert calls > 36


def test_killed_at_random_again_and_again_ends_byte_identical(manifest, tmp_path, contents):
    tokenizers = [ToyTokenizer(pause=0.01), ToyCodec(pause=0.01)]
    rng = np.random.default_rng(0)
    kills = [run_and_die(manifest, tokenizers, tmp_path / "out", seconds=rng.uniform(0, 0.1)) for _ in range(12)]
    assert any(kills)
    for out in ("out", "whole"):
        tokenize_manifest(manifest, tokenizers, tmp_path / out)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_at_a_time_are_refused(manifest, tmp_path):
    def second(*_):
        tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out")

    with pytest.raises(UserError, match="Another process is writing"):
        tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out", progress=second)


class Lying(ToyTokenizer):
    def tokenize(self, audio, lengths=None):
        ids, lengths = super().tokenize(audio)
        return ids + 60, lengths


def test_mistakes_get_one_sentence(manifest, tmp_path):
    out = tmp_path / "out"
    for arguments, options, words in (
        ((Manifest(tmp_path, []), [ToyTokenizer()], out), {}, "names no recordings"),
        ((manifest, [], out), {}, "Name a tokenizer"),
        ((manifest, [ToyTokenizer()], out), {"workers": 0}, "workers is 0"),
        ((manifest, [ToyTokenizer()], manifest.root / "0.wav"), {}, "could not be written"),
        ((manifest, [Lying()], out), {}, "but says that it has 64"),
        ((manifest, ["no-such-name"], out), {}, "There is no model 'no-such-name'"),
        ((manifest, [manifest.root], out), {}, "is neither"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            tokenize_manifest(*arguments, **options)
        assert "\n" not in str(caught.value)
