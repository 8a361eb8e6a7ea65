"""What every semantic tokenizer promises, on the two kinds that need no other library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sounds import fitted, noise, tiny_encoder, tiny_mel_kmeans

from madrigal.errors import UserError
from madrigal.tokenizers import load_tokenizer
from madrigal.tokenizers.repeats import unique_consecutive
from madrigal.tokenizers.semantic import SemanticTokenizer

KINDS: dict[str, Callable[..., SemanticTokenizer]] = {"mel-kmeans": tiny_mel_kmeans, "masked-prediction": tiny_encoder}
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_a_row_of_a_padded_batch_equals_the_row_alone(kind: str) -> None:
    tokenizer = fitted(KINDS[kind]())
    batch, lengths = noise(4, 20000), torch.tensor([20000, 12345, 640, 1])
    ids, counts = tokenizer.tokenize(batch, lengths)  # what lies behind a length is noise, not silence
    assert counts.tolist() == [32, 20, 1, 1]
    for row, wave, length, count in zip(ids, batch, lengths, counts, strict=True):
        alone, _ = tokenizer.tokenize(wave[None, :length])
        assert torch.equal(row[:count], alone[0])
        assert (row[count:] == -1).all()
    assert torch.equal(tokenizer.tokenize(batch[:, None], lengths)[0], ids)


@each_kind
def test_an_empty_row_has_no_tokens(kind: str) -> None:
    ids, counts = fitted(KINDS[kind]()).tokenize(noise(2, 1000), torch.tensor([0, 1000]))
    assert counts.tolist() == [0, 2]
    assert ids[0].tolist() == [-1, -1]


@each_kind
def test_numbers(kind: str) -> None:
    tokenizer = KINDS[kind]()
    assert (tokenizer.target_sample_hz, tokenizer.downsample_factor, tokenizer.frame_rate) == (16000, 640, 25.0)
    assert tokenizer.codebook_size == 8
    assert tokenizer.kind == kind


@each_kind
def test_tokens_do_not_depend_on_the_mode_and_leave_it_alone(kind: str) -> None:
    tokenizer = fitted(KINDS[kind]())
    wave = noise(1, 16000)
    expected = tokenizer.eval().tokenize(wave)[0]
    tokenizer.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(tokenizer.tokenize(wave)[0], expected)
    assert all(module.training for module in tokenizer.modules())


@each_kind
def test_AM4_tokens_may_be_trained_on(kind: str) -> None:
    ids, _ = fitted(KINDS[kind]()).tokenize(noise(2, 16000))
    assert not ids.is_inference()
    table = torch.nn.Embedding(8, 4)
    table(ids).sum().backward()
    assert table.weight.grad is not None


@each_kind
def test_saved_and_loaded_it_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = fitted(KINDS[kind]())
    again = load_tokenizer(tokenizer.save_pretrained(tmp_path / "tokenizer"))
    assert type(again) is type(tokenizer)
    assert again.config == tokenizer.config
    assert again.fingerprint() == tokenizer.fingerprint()
    assert not again.training
    wave = noise(2, 16000)
    assert torch.equal(again.tokenize(wave)[0], tokenizer.tokenize(wave)[0])


@each_kind
def test_the_fingerprint_follows_what_tokens_depend_on(kind: str) -> None:
    tokenizer = fitted(KINDS[kind]())
    first = tokenizer.fingerprint()
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert tokenizer.train().fingerprint() == first
    tokenizer.centroids[0, 0] += 1e-4
    assert tokenizer.fingerprint() != first


def test_the_fingerprint_leaves_out_what_only_training_uses() -> None:
    assert tiny_encoder(mask_span=2, warp=0.0).fingerprint() == tiny_encoder().fingerprint()
    assert tiny_encoder(prior_seconds=2.0).fingerprint() != tiny_encoder().fingerprint()


def test_as_older_scripts_call_it() -> None:
    tokenizer = fitted(tiny_mel_kmeans())
    wave = noise(2, 24000)
    assert tokenizer(wave, input_sample_hz=24000).shape == (2, 25)
    assert tokenizer(wave, flatten=False).shape == (2, 38, 1)
    tokenizer.seq_len_multiple_of = 640
    assert tokenizer(wave).shape == (2, 37)


def test_a_long_recording_is_encoded_in_windows() -> None:
    tokenizer = fitted(tiny_encoder(window_seconds=1.0, centre=False, prior_seconds=1000.0))
    wave = noise(1, 5 * 16000)
    ids, counts = tokenizer.tokenize(wave)
    assert counts.tolist() == [125]
    seen: list[int] = []
    tokenizer.encoder.register_forward_pre_hook(lambda module, given: seen.append(given[0].shape[1]))
    assert torch.equal(tokenizer.tokenize(wave)[0], ids)
    assert seen == [50, 75, 75, 75, 50]


def test_one_without_centroids_says_so(tmp_path: Path) -> None:
    tokenizer = tiny_mel_kmeans()
    with pytest.raises(UserError, match="no centroids"):
        tokenizer.tokenize(noise(1, 1000))
    with pytest.raises(UserError, match="no centroids yet"):
        load_tokenizer(tokenizer.save_pretrained(tmp_path / "early"))


def test_stereo_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[batch, samples\]"):
        fitted(tiny_mel_kmeans()).tokenize(noise(1, 2, 1000))


def test_loading_what_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no semantic tokenizer"):
        load_tokenizer("speech-16k")
    with pytest.raises(UserError, match="no-such-place"):
        load_tokenizer(tmp_path / "no-such-place")


def test_a_run_of_several_stages_has_its_tokenizer_in_a_folder(tmp_path: Path) -> None:
    tokenizer = fitted(tiny_mel_kmeans())
    tokenizer.save_pretrained(tmp_path / "run" / "tokenizer")
    assert load_tokenizer(tmp_path / "run").fingerprint() == tokenizer.fingerprint()


def test_repeats_are_removed_within_each_row() -> None:
    ids = torch.tensor([[5, 5, 2, 2, 2, 5], [1, 1, 1, 1, 3, 3], [4, 4, 4, 0, 0, 0]])
    unique, lengths = unique_consecutive(ids, torch.tensor([6, 4, 0]))
    assert unique.tolist() == [[5, 2, 5], [1, -1, -1], [-1, -1, -1]]
    assert lengths.tolist() == [3, 1, 0]


def test_repeats_without_lengths_are_told_from_pads() -> None:
    unique, lengths = unique_consecutive(torch.tensor([[7, 7, -1, 7, 1, -1], [-1] * 6]))
    assert unique.tolist() == [[7, 1], [-1, -1]]
    assert lengths.tolist() == [2, 0]


def test_repeats_agree_with_torch_on_random_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 3, (20, 40), generator=generator)
    lengths = torch.randint(1, 41, (20,), generator=generator)
    unique, counts = unique_consecutive(ids, lengths)
    for row, found, length, count in zip(ids, unique, lengths, counts, strict=True):
        assert found[:count].tolist() == torch.unique_consecutive(row[:length]).tolist()
        assert (found[count:] == -1).all()
    assert unique_consecutive(ids[:, :0])[0].shape == (20, 0)
