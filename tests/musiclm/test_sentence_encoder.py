"""Sentence encoders of others as MuLaN's text side: read from this machine alone, and known by their weights."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from small_mulans import PLAIN, audio_side, chord, mulan

from madrigal import MuLaN, UserError, load_mulan
from madrigal.musiclm.sentence_encoder import SentenceConfig, SentenceEncoder

transformers = pytest.importorskip("transformers")
WAVES = torch.stack([chord(number) for number in range(2)])
TEXTS = ["low a", "high b low c"]


def t5(folder: Path, seed: int = 0) -> Path:
    """A random T5 over bytes, as transformers writes it."""
    config = transformers.T5Config(d_model=12, d_kv=6, d_ff=16, num_layers=2, num_heads=2, vocab_size=300)
    torch.manual_seed(seed)
    transformers.T5EncoderModel(config).save_pretrained(folder)
    transformers.ByT5Tokenizer(extra_ids=0).save_pretrained(folder)
    return folder


def with_encoder(name: str | Path, **options: Any) -> MuLaN:
    torch.manual_seed(0)
    text = SentenceEncoder(SentenceConfig(name=str(name), **options))
    torch.manual_seed(0)
    return MuLaN(audio_side(**PLAIN), text, dim_latent=8).eval()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whom somebody asked for over the network."""
    asked: list[str] = []

    def refuse(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return asked


@pytest.mark.parametrize("tuned", [False, True])
def test_a_t5_reads_captions_frozen_or_tuned(tuned: bool, tmp_path: Path) -> None:
    model = with_encoder(t5(tmp_path / "t5"), tuned=tuned)
    assert (model.text.dim, model.text.depth) == (12, 2)
    together = model.get_text_latents(TEXTS)
    torch.testing.assert_close(together[:1], model.get_text_latents(TEXTS[:1]), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(together[0], together[1])
    model(WAVES, TEXTS).backward()
    learned = [name for name, p in model.named_parameters() if name.startswith("text.") and p.grad is not None]
    assert bool(learned) == tuned
    again = load_mulan(model.save_pretrained(tmp_path / "mulan"))
    torch.testing.assert_close(again.get_text_latents(TEXTS), together, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tuned", [False, True])
def test_a_hub_name_that_was_never_fetched_is_told_without_the_network(
    tuned: bool, offline: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("some/encoder", "no such folder/of a/checkpoint", "./nowhere"):
        with pytest.raises(UserError, match="fetch it with"):
            SentenceEncoder(SentenceConfig(name=name, tuned=tuned))
    assert not offline


@pytest.mark.parametrize("tuned", [False, True])
def test_a_hub_name_that_was_fetched_reads_without_the_network(
    tuned: bool, offline: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    kept, commit = tmp_path / "models--some--encoder", "0" * 40
    t5(kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    model = with_encoder("some/encoder", tuned=tuned)
    assert model.get_text_latents(TEXTS).shape == (2, 8)
    assert not offline


@pytest.mark.parametrize("tuned", [False, True])
def test_a_fingerprint_knows_the_weights_of_a_sentence_encoder_and_not_where_they_lie(
    tuned: bool, tmp_path: Path
) -> None:
    first = with_encoder(t5(tmp_path / "first"), tuned=tuned)
    moved = with_encoder(shutil.copytree(tmp_path / "first", tmp_path / "moved"), tuned=tuned)
    assert moved.fingerprint() == first.fingerprint()
    before = first.fingerprint()
    t5(tmp_path / "first", seed=1)
    assert with_encoder(tmp_path / "first", tuned=tuned).fingerprint() != before


def test_the_fingerprint_of_a_mulan_of_our_own_stays() -> None:
    """Runs, quantizers and indexes that were made before are known by it."""
    model = mulan()
    for tensor in model.state_dict().values():
        tensor.fill_(0.25 if tensor.is_floating_point() else 1)
    assert model.fingerprint() == "38f664a1c409faf8"


def test_captions_that_differ_where_nobody_reads_are_equal(tmp_path: Path) -> None:
    model = with_encoder(t5(tmp_path / "t5"), max_seq_len=6)
    texts = ["slow piano", "slow drums", "fast piano"]
    latents, labels = model.get_text_latents(texts), model.labels(texts).tolist()
    assert torch.equal(latents[0], latents[1])
    assert labels[0] == labels[1] != labels[2]


def test_a_folder_is_found_from_other_working_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(t5(tmp_path / "here/t5").parent)
    model = with_encoder("t5")
    model.save_pretrained(tmp_path / "mulan")
    monkeypatch.chdir(tmp_path)
    assert load_mulan("mulan").fingerprint() == model.fingerprint()
