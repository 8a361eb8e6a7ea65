"""What a trainer and a wrapper make of what they are given: dicts, embeddings, ids and waves."""

from pathlib import Path
from typing import Any

import pytest
import torch
from stages import COARSE, CODES, SEMANTIC, coarse_stage, semantic_stage
from token_sets import Utterances, make
from torch import Tensor

from madrigal.audiolm.wrappers import CoarseTransformerWrapper, SemanticTransformerWrapper
from madrigal.data.tokens import PAD
from madrigal.errors import UserError


class Kept(Utterances):
    """Gives the same dicts again and again, as a list of items does."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(12, **fields)
        self.items = [super(Kept, self).__getitem__(index) for index in range(12)]

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]


CONDITIONED = {"has_condition": True, "cond_dim": 8, "text_encoder": "bytes"}


def test_the_items_of_a_dataset_are_left_as_they_are(tmp_path: Path) -> None:
    dataset = Kept(text_embeds=torch.ones(2, 8))
    trainer = make("semantic", tmp_path, stage=CONDITIONED, dataset=dataset)
    trainer.train()
    assert all("text_embeds" in item for item in dataset.items)


def test_one_embedding_to_an_item_is_a_condition_of_one(tmp_path: Path) -> None:
    trainer = make("semantic", tmp_path, stage=CONDITIONED, dataset=Utterances(text_embeds=torch.ones(8)))
    batch = trainer.data.feed("all turns").micro_batches(0)[0]
    assert batch["text_embeds"].shape == (3, 1, 8)
    assert batch["text_mask"].tolist() == [[True]] * 3
    trainer.train_step()


class Tokenizer:
    """Hears 8 kHz, four samples to a token."""

    target_sample_hz, codebook_size, frame_rate = 8000, SEMANTIC, 2000.0

    def tokenize(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(audio), audio.shape[-1] // 4, dtype=torch.long), lengths // 4


class Codec:
    """Hears 16 kHz, and remembers what it heard."""

    target_sample_hz, codebook_size, rq_groups, channels = 16000, CODES, 1, 1

    def tokenize(self, audio: Tensor, lengths: Tensor) -> Tensor:
        self.heard = audio, lengths
        return torch.zeros(len(audio), audio.shape[-1] // 4, COARSE, dtype=torch.long)

    def frames(self, lengths: Tensor) -> Tensor:
        return lengths // 4


def coarse_wrapper() -> CoarseTransformerWrapper:
    return CoarseTransformerWrapper(transformer=coarse_stage(), wav2vec=Tokenizer(), codec=Codec())


def test_a_tokenizer_with_another_vocabulary_is_refused(tmp_path: Path) -> None:
    class Larger(Tokenizer):
        codebook_size = SEMANTIC + 1

    with pytest.raises(UserError, match=f"build it with num_semantic_tokens={SEMANTIC + 1}"):
        make("semantic", tmp_path, wav2vec=Larger())


@pytest.mark.parametrize(("name", "size"), [("semantic", SEMANTIC), ("acoustic", CODES)])
def test_an_id_that_would_be_the_end_is_refused(tmp_path: Path, name: str, size: int) -> None:
    trainer = make("coarse", tmp_path)
    batch = trainer.data.feed("all turns").micro_batches(0)[0]
    batch[name].view(len(batch[name]), -1)[1, 1] = size
    with pytest.raises(UserError, match=f"The {name} tokens hold the id {size}"):
        trainer.loss("coarse", batch)


def test_the_codec_hears_a_single_wave_at_its_own_rate() -> None:
    """A tone of a tenth of the tokenizer's rate is one of a twentieth of the codec's."""
    wrapper = coarse_wrapper()
    tone = torch.sin(2 * torch.pi * torch.arange(800) / 10).expand(2, 1, -1)
    wrapper.streams({"audio": tone, "lengths": torch.tensor([800, 400])})
    heard, lengths = wrapper.codec.heard
    assert lengths.tolist() == [1600, 800]
    expected = torch.sin(2 * torch.pi * torch.arange(1600) / 20)
    torch.testing.assert_close(heard[0, 0, 200:-200], expected[200:-200], atol=1e-2, rtol=0)


def test_a_wave_for_the_codec_is_heard_by_the_codec() -> None:
    wrapper = coarse_wrapper()
    wave = torch.randn(2, 1600)
    loss = wrapper(raw_wave=torch.randn(2, 800), raw_wave_for_codec=wave)
    assert loss.isfinite()
    assert torch.equal(wrapper.codec.heard[0], wave[:, None])


def test_a_word_that_a_wrapper_does_not_know_is_refused() -> None:
    with pytest.raises(UserError, match=r"SemanticTransformerWrapper knows no semantics; a batch may hold raw_wave"):
        SemanticTransformerWrapper(transformer=semantic_stage())(semantics=torch.zeros(1, 4))


def test_lengths_that_are_not_given_are_counted() -> None:
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, PAD, PAD]])
    codes = torch.randint(0, CODES, (2, 6, COARSE))
    codes[1, 4:] = PAD
    wrapper = CoarseTransformerWrapper(transformer=coarse_stage())
    given = {"semantic_lengths": torch.tensor([4, 2]), "acoustic_lengths": torch.tensor([6, 4])}
    assert wrapper(semantic=ids, acoustic=codes) == wrapper(semantic=ids, acoustic=codes, **given)


def test_generation_leaves_the_mode_of_every_part() -> None:
    stage = semantic_stage().train()
    stage.heads.eval()
    before = [module.training for module in stage.modules()]
    SemanticTransformerWrapper(transformer=stage).generate(max_length=3)
    assert [module.training for module in stage.modules()] == before
