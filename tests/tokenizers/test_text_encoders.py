"""Text encoders: read on first use only, padding that is not there, embeddings that training can go on from."""

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch

from madrigal.errors import UserError
from madrigal.tokenizers.text_encoders import ByteEncoder, T5Encoder, TextEncoder, make_text_encoder

TEXTS = ["a bell", "rain on a tin roof", "Ü"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random T5 over bytes, as transformers writes it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("t5")
    config = transformers.T5Config(d_model=12, d_kv=6, d_ff=16, num_layers=2, num_heads=2, vocab_size=300)
    torch.manual_seed(0)
    transformers.T5EncoderModel(config).save_pretrained(folder)
    transformers.ByT5Tokenizer(extra_ids=0).save_pretrained(folder)
    return folder


@pytest.fixture(params=["t5", "bytes"])
def encoder(request: pytest.FixtureRequest) -> TextEncoder:
    torch.manual_seed(0)
    name = str(request.getfixturevalue("checkpoint")) if request.param == "t5" else ""
    made: TextEncoder = make_text_encoder(request.param, name, dim=16)
    return made


def test_a_text_in_a_batch_equals_the_text_alone(encoder: TextEncoder) -> None:
    embeddings, mask = encoder.encode(TEXTS)
    assert embeddings.shape == (*mask.shape, encoder.dim)
    assert mask.dtype == torch.bool
    for row, text in enumerate(TEXTS):
        alone, whole = encoder.encode([text])
        assert whole.all()
        torch.testing.assert_close(embeddings[row, mask[row]], alone[0], rtol=1e-4, atol=1e-5)


def test_different_texts_differ_and_an_empty_one_is_still_a_text(encoder: TextEncoder) -> None:
    embeddings, mask = encoder.encode(["ab", "ba", ""])
    assert not torch.allclose(embeddings[0, :2], embeddings[1, :2], atol=1e-3)
    assert mask.any(dim=1).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_AM4_training_goes_on_from_the_embeddings(encoder: TextEncoder, precision: str) -> None:
    embeddings, _ = encoder.encode(TEXTS)
    assert not embeddings.is_inference()
    head = torch.nn.Linear(encoder.dim, 3)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = head(embeddings).square().mean()
    loss.backward()
    assert head.weight.grad is not None
    assert embeddings.requires_grad is encoder.is_trainable


def test_long_texts_are_cut(checkpoint: Path) -> None:
    for made in (T5Encoder(str(checkpoint), max_length=5), ByteEncoder(8, max_length=5)):
        assert made.encode(["a very long text", "a"])[1].shape[1] == 5


def test_every_parameter_of_our_own_learns() -> None:
    encoder = ByteEncoder(16, depth=1, heads=2)
    embeddings, mask = encoder.encode(TEXTS)
    embeddings[mask].square().mul(torch.randn(16)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


def test_AM13_nothing_is_read_before_the_first_text(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_ = builtins.__import__

    def without_transformers(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "transformers":
            raise ImportError("it is not installed")
        return import_(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_transformers)
    assert T5Encoder(str(checkpoint)).dim == 12
    sizes = {"google/t5-v1_1-base": 768, "t5-small": 512, "google/flan-t5-xl": 2048, "t5-11b": 1024}
    assert {name: T5Encoder(name).dim for name in sizes} == sizes
    with pytest.raises(UserError, match=r"pip install 'madrigal\[pretrained\]'"):
        T5Encoder(str(checkpoint)).encode(["now"])


def test_AM19_the_encoder_is_moved_to_where_it_is_told(checkpoint: Path) -> None:
    encoder = T5Encoder(str(checkpoint))
    assert encoder.to(torch.device("cpu")) is encoder
    embeddings, mask = encoder.encode(["now"])
    assert (embeddings.device.type, mask.device.type) == ("cpu", "cpu")
    _, model = encoder._checkpoint()
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint folder"):
        T5Encoder(str(tmp_path / "nowhere")).encode(["now"])
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json"):
        T5Encoder(str(tmp_path))
