"""What a stage's recipe is trained on: recordings or their tokens, with or without text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from madrigal.data.manifest import Manifest
from madrigal.data.prepare import prepare
from madrigal.data.tokens import TokenShards
from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig
from madrigal.tokenizers.tokenizing import tokenize_manifest
from madrigal.verbs.systems import load_recipe

CODEC = {
    "strides": (8, 40),
    "channels": 2,
    "channel_mults": (2, 4),
    "codebook_dim": 8,
    "codebook_size": 16,
    "rq_num_quantizers": 4,
    "use_local_attn": False,
}
TEXT = ("model.has_condition=true", "model.text_encoder=bytes")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, sounds: Path) -> Path:
    """said/ and wordless/ (each with a manifest), tokens/ of both, and tokenizer/ and codec/ that made them."""
    folder = tmp_path_factory.mktemp("corpus")
    torch.manual_seed(0)
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=20))
    tokenizer.centroids.normal_()
    tokenizer.save_pretrained(folder / "tokenizer")
    SoundStream(discriminators=False, **CODEC).save_pretrained(folder / "codec")
    for name, count in (("said", 4), ("wordless", 3)):
        (folder / name).mkdir()
        for number in range(count):
            shutil.copy(sounds / f"{number}.wav", folder / name / f"{name}{number}.wav")
            if name == "said":
                (folder / name / f"{name}{number}.txt").write_text(f"sound {number}")
        prepare(folder / name, folder / "prepared" / name)
        makers = [str(folder / "tokenizer"), str(folder / "codec")]
        tokenize_manifest(Manifest.load(folder / "prepared" / name), makers, folder / "tokens")
    return folder


def trainer(corpus: Path, run: Path, stage: str, *overrides: str, data: str = "said") -> Any:
    parts = {"semantic": ["tokenizer"], "coarse": ["tokenizer", "codec"], "fine": ["codec"]}[stage]
    given = [f"data={corpus / 'prepared' / data}", *(f"{part}={corpus / part}" for part in parts), *overrides]
    return load_recipe(f"{stage}/tiny", given).trainer(run)


@pytest.mark.parametrize("stage", ["semantic", "coarse", "fine"])
def test_tokens_on_disk_are_those_of_the_recordings(corpus: Path, tmp_path: Path, stage: str) -> None:
    """Of whole recordings, batch by batch; the folder holds tokens of another manifest too."""
    ways = {"audio": (), "tokens": (f"data.tokens={corpus / 'tokens'}",)}
    streams, units = {}, {}
    for way, overrides in ways.items():
        made = trainer(corpus, tmp_path / way, stage, "data.max_length_seconds=null", *overrides)
        batch = made.data.feed("all turns").micro_batches(0)[0]
        streams[way], units[way] = made.wrapper.streams(batch), made.units(batch)
    for heard, read in zip(*streams.values(), strict=True):
        assert torch.equal(heard.codes, read.codes)
        assert torch.equal(heard.lengths, read.lengths)
        assert heard.ends is None or bool(heard.ends.all()) == bool(read.ends.all())
    assert units["audio"] == pytest.approx(units["tokens"])


@pytest.mark.parametrize("way", ["audio", "tokens"])
def test_a_stage_with_a_condition_is_given_the_text(corpus: Path, tmp_path: Path, way: str) -> None:
    tokens = [f"data.tokens={corpus / 'tokens'}"] if way == "tokens" else []
    made = trainer(corpus, tmp_path, "semantic", *TEXT, *tokens)
    batch = made.data.feed("all turns").micro_batches(0)[0]
    assert all(text.startswith("sound ") for text in batch["text"])
    made.train()


def test_recordings_without_a_text_are_refused_where_one_is_needed(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"None of the recordings of .*wordless has a text"):
        trainer(corpus, tmp_path, "semantic", *TEXT, data="wordless")


def test_batches_without_a_text_are_refused_where_one_is_needed(corpus: Path, tmp_path: Path) -> None:
    made = trainer(corpus, tmp_path, "semantic", *TEXT)
    batch = made.data.feed("all turns").micro_batches(0)[0]
    del batch["text"]
    with pytest.raises(UserError, match="The semantic stage is conditioned"):
        made.loss("semantic", batch)


def test_tokens_of_other_recordings_are_not_taken(corpus: Path, tmp_path: Path, sounds: Path) -> None:
    with pytest.raises(UserError, match="holds no finished tokens of this manifest"):
        load_recipe(
            "semantic/tiny", [f"data={sounds}", f"tokenizer={corpus / 'tokenizer'}", f"data.tokens={corpus / 'tokens'}"]
        ).trainer(tmp_path)


def test_recordings_without_tokens_are_told(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = TokenShards.find

    def with_failure(*args: Any) -> TokenShards:
        shards = find(*args)
        shards.failed[next(path for path in shards.paths if path.endswith("said1.wav"))] = "too short"
        return shards

    monkeypatch.setattr(TokenShards, "find", with_failure)
    trainer(corpus, tmp_path, "semantic", f"data.tokens={corpus / 'tokens'}")
    said = capsys.readouterr().err
    assert "1 of 4 recordings have no tokens and are left out; the first is " in said
    assert "said1.wav (semantic: too short)" in said
