from __future__ import annotations

import json

import pytest
from real_models import write_models

from madrigal.cli import main
from madrigal.data.tokens import TokenShards


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """Runs the command in a folder with the models of ours: status, output, errors."""
    write_models(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")

    def run(*words) -> tuple[int, str, str]:
        status = 0
        try:
            main(["tokenize", *map(str, words)])
        except SystemExit as left:
            status = int(left.code or 0)
        return status, *capsys.readouterr()

    return run


def test_a_manifest_with_two_tokenizers(said, manifest):
    status, out, _ = said(manifest.root, "--with", "tokenizer", "--with", "codec", "--workers", 1)
    assert status == 0
    assert out.startswith("mel-kmeans: 6 files")
    assert "soundstream: 6 files" in out
    assert out.count("1 files have no tokens (1: its content is not audio)") == 2
    # Without --out the tokens lie beside the manifest.
    assert len(list((manifest.root / "tokens").iterdir())) == 2
    status, out, _ = said(manifest.root / "manifest.jsonl", "--with", "tokenizer", "--workers", 1, "--json")
    (figures,) = json.loads(out)
    assert (figures["written"], figures["entries"], figures["quantizers"], figures["failed"]) == (0, 7, 0, 1)
    assert TokenShards.open(figures["folder"]).info.shards == 4


def test_a_plain_folder_is_prepared_and_looked_through_each_time(said, manifest, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("0.wav", "1.wav", "3.wav"):
        (manifest.root / name).rename(plain / name)
    status, out, err = said(plain, "--with", "codec", "-o", "tokens", "--workers", 1)
    assert (status, out.startswith("soundstream: 2 files")) == (0, True)
    assert "1 rejected" in err
    (manifest.root / "2.wav").rename(plain / "2.wav")
    assert said(plain, "--with", "codec", "-o", "tokens", "--workers", 1)[1].startswith("soundstream: 3 files")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tokenizer", "--with", "codec"), "holds no audio files"),
        (("nowhere", "--with", "codec"), "There is no folder nowhere"),
        (("nowhere", "--with", "nothing"), "There is no model 'nothing'"),
        (("..",), "Missing option '--with'"),
        (("..", "--with", "codec", "--workers", "0"), "--workers"),
        (("..", "--with", "codec", "-o", "codec/config.json"), "could not be written"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(said, manifest, words, sentence):
    status, out, err = said(*words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
