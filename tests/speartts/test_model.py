"""One model for four directions: padding, caches, conditions, tied heads, and where it begins."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from spear_trainings import SEMANTIC, new_model, random_ids

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.config import MODALITIES, Modality
from madrigal.speartts.losses import learn
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.pairs import Ids

DIRECTIONS = [(source, target) for source in MODALITIES for target in MODALITIES]
EXITS = [None, 1]


def logits_of(model: TextToSemantic, source: Ids, target: Ids, ways: tuple[Modality, Modality]) -> torch.Tensor:
    with torch.no_grad():
        encoded = model.encode(ways[0], *source)
        hidden = model.decode_upper(model.decode_lower(ways[1], target.ids, encoded), encoded)
        return model.logits(ways[1], hidden)


@pytest.mark.parametrize("ways", DIRECTIONS)
@pytest.mark.parametrize("early", EXITS)
def test_padded_rows_equal_rows_alone(ways: tuple[Modality, Modality], early: int | None) -> None:
    model = new_model(target_early_exit_layer=early)
    source = random_ids(model.end(ways[0]), (6, 3, 1), extra=2)
    target = random_ids(model.end(ways[1]), (5, 2, 4), seed=2, extra=3)
    together = logits_of(model, source, target, ways)
    for row, (read, written) in enumerate(zip(source.rows(), target.rows(), strict=True)):
        alone = logits_of(model, Ids.of(read[None]), Ids.of(written[None]), ways)
        torch.testing.assert_close(together[row, : len(written) + 1], alone[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("early", EXITS)
@pytest.mark.parametrize("kv_heads", [None, 1])
def test_a_cache_gives_what_one_pass_gives(early: int | None, kv_heads: int | None) -> None:
    model = new_model(target_early_exit_layer=early, target_kv_heads=kv_heads)
    source, target = random_ids(model.end("text"), (6, 3)), random_ids(SEMANTIC, (5, 5), seed=2)
    expected = logits_of(model, source, target, ("text", "speech"))
    with torch.no_grad():
        encoded = model.encode("text", *source)
        cache = model.new_cache(2)
        found = []
        for step in range(6):
            ids = None if step == 0 else target.ids[:, step - 1 : step]
            lower = model.decode_lower("speech", ids, encoded, cache)
            found.append(model.logits("speech", model.decode_upper(lower, encoded, cache)))
        assert cache.length == 6
        torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-5, rtol=1e-4)
        # Back by two, with the rows turned round.
        cache.truncate(4)
        cache.select([1, 0])
        rest = encoded.select([1, 0])
        lower = model.decode_lower("speech", target.ids[[1, 0], 3:], rest, cache)
        again = model.logits("speech", model.decode_upper(lower, rest, cache))
    torch.testing.assert_close(again, expected[[1, 0], 4:], atol=1e-5, rtol=1e-4)


def test_a_target_that_begins_in_a_cache_as_a_whole_begins_with_its_start() -> None:
    model = new_model(target_early_exit_layer=1)
    source, target = random_ids(model.end("text"), (4,)), random_ids(SEMANTIC, (3,), seed=2)
    encoded = model.encode("text", *source)
    with torch.no_grad():
        whole = model.decode_lower("speech", target.ids, encoded)
        cached = model.decode_lower("speech", target.ids, encoded, model.new_cache(1))
        start = model.decode_lower("speech", None, encoded)
    assert whole.shape[1] == 4
    torch.testing.assert_close(cached, whole)
    torch.testing.assert_close(start, whole[:, :1])


@pytest.mark.parametrize("ways", DIRECTIONS)
def test_a_new_model_is_at_chance(ways: tuple[Modality, Modality]) -> None:
    model = new_model(dim=64, target_early_exit_layer=1)
    source, target = random_ids(model.end(ways[0]), (9, 9, 9)), random_ids(model.end(ways[1]), (9, 9, 9), seed=2)
    outcome = learn(model, (ways[0], source), (ways[1], target), training=False, early=True)
    for loss in outcome.losses(ways[1]).values():
        assert loss.item() == pytest.approx(math.log(model.end(ways[1]) + 1), abs=0.06)


def test_heads_are_tied_to_the_embeddings() -> None:
    model = new_model(target_early_exit_layer=1)
    sizes = [len(p) for name, p in model.named_parameters() if name.startswith("tables")]
    assert sorted(sizes) == sorted(model.end(m) + 1 for m in MODALITIES)
    hidden = torch.randn(2, 32)
    before = model.logits("speech", hidden), model.early_logits("speech", hidden)
    with torch.no_grad():
        model.tables["speech"].weight[3] += 1.0
    for old, new in zip(before, (model.logits("speech", hidden), model.early_logits("speech", hidden)), strict=True):
        changed = (old != new).any(0)
        assert changed.tolist() == [row == 3 for row in range(SEMANTIC + 1)]


def test_AM6_the_end_has_a_row_of_its_own_and_every_id_can_be_said() -> None:
    model = new_model()
    for modality in MODALITIES:
        chances = model.logits(modality, torch.randn(1, 32)).softmax(-1)
        assert chances.shape == (1, model.end(modality) + 1)
        assert (chances > 0).all()


def test_a_source_that_is_dropped_says_nothing() -> None:
    model = new_model()
    target = random_ids(SEMANTIC, (4, 4), seed=2)
    made = []
    for seed in (1, 5):
        encoded = model.encode("text", *random_ids(model.end("text"), (6, 3), seed=seed))
        seen = encoded.without(torch.tensor([True, False]))
        with torch.no_grad():
            made.append(model.decode_upper(model.decode_lower("speech", target.ids, seen), seen))
    torch.testing.assert_close(made[0][0], made[1][0])
    assert not torch.allclose(made[0][1], made[1][1], atol=1e-4)


def test_a_source_without_ids_is_as_good_as_none() -> None:
    model = new_model()
    target = random_ids(SEMANTIC, (3,), seed=2)
    nothing = model.encode("text", torch.empty(1, 0, dtype=torch.int64), torch.tensor([0]))
    dropped = model.encode("text", *random_ids(model.end("text"), (4,))).without(torch.tensor([True]))
    made = [model.decode_upper(model.decode_lower("speech", target.ids, seen), seen) for seen in (nothing, dropped)]
    torch.testing.assert_close(*made)


@pytest.mark.parametrize("wrong", [SEMANTIC, 400, -2])
def test_ids_out_of_range_are_named(wrong: int) -> None:
    model = new_model()
    encoded = model.encode("text", *random_ids(model.end("text"), (4,)))
    with pytest.raises(UserError, match=f"hold {wrong}, and this model knows ids from 0 to {SEMANTIC - 1}"):
        model.encode("speech", torch.tensor([[1, wrong]]))
    with pytest.raises(UserError, match="num_semantic_token_ids"):
        model.decode_lower("speech", torch.tensor([[1, wrong]]), encoded)


def test_a_model_without_early_exit_has_no_early_logits() -> None:
    with pytest.raises(UserError, match="target_early_exit_layer"):
        new_model().early_logits("speech", torch.zeros(1, 32))


def test_it_is_rebuilt_from_its_folder_with_its_text_tokenizer(tmp_path: Path) -> None:
    model = new_model(target_early_exit_layer=1, text={"kind": "characters", "alphabet": "abc "})
    again = TextToSemantic.from_pretrained(model.save_pretrained(tmp_path))
    assert again.config == model.config
    assert again.text_tokenizer is not None
    assert again.text_tokenizer.encode("cab a") == [2, 0, 1, 3, 0]
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert json.loads((tmp_path / "config.json").read_text())["num_text_token_ids"] == 4


class Tokenizer(torch.nn.Linear):
    codebook_size = SEMANTIC


def test_SP5_a_tokenizer_is_no_part_of_the_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer(3, 3).requires_grad_(False)
    model = new_model(num_semantic_token_ids=None, wav2vec=tokenizer)
    assert model.wav2vec is tokenizer
    assert model.end("speech") == SEMANTIC
    model.unfreeze_all()
    assert not any(parameter.requires_grad for parameter in tokenizer.parameters())
    assert not {id(p) for p in tokenizer.parameters()} & {id(p) for p in model.parameters()}
    assert model.state_dict().keys() == new_model().state_dict().keys()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target_early_exit_layer": 2}, "has to lie below the decoder's 2 layers"),
        ({"target_kv_heads": 3}, "does not divide 2"),
        ({"dimension": 4}, "has no key 'dimension'"),
        ({"semantic_pad_id": 0}, "padding is always -1"),
        ({"use_openai_tokenizer": True}, "kind': 'bpe'"),
        ({"tokenizer_encode": len}, "kind': 'bytes'"),
        ({"autoset_text_eos_id": False}, "every row ends"),
        ({"text": {"kind": "bytes"}, "num_text_token_ids": 12}, "has 256 ids"),
        ({"num_semantic_token_ids": None}, "num_semantic_token_ids"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        new_model(**options)


def test_older_words_that_choose_nothing_are_taken() -> None:
    words = {"attn_flash": True, "semantic_pad_id": PAD, "text_pad_id": None, "autoset_semantic_eos_id": True}
    assert new_model(**words).config == new_model().config


@pytest.mark.parametrize("option", ["ff_mult", "target_kv_heads", "dim_head", "source_depth", "target_depth"])
def test_sizes_change_the_model(option: str) -> None:
    count = sum(p.numel() for p in new_model().parameters())
    assert sum(p.numel() for p in new_model(**{option: 8 if option == "dim_head" else 1}).parameters()) < count


@pytest.mark.parametrize("option", ["ff_dropout", "attn_dropout"])
def test_dropout_is_of_training_alone(option: str) -> None:
    model = new_model(**{option: 0.5})
    source, target = random_ids(model.end("text"), (6,)), random_ids(SEMANTIC, (5,), seed=2)
    ways: tuple[Modality, Modality] = ("text", "speech")
    assert torch.equal(logits_of(model, source, target, ways), logits_of(new_model(), source, target, ways))
    model.train()
    assert not torch.equal(logits_of(model, source, target, ways), logits_of(model, source, target, ways))
