"""The three tasks: what is source and what is target, padding, deletion, and generation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from spear_trainings import SEMANTIC, TRAINERS, WRITTEN, Pairs, make, new_model, random_ids

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.losses import learn
from madrigal.speartts.pairs import Ids, collate_pairs
from madrigal.speartts.wrappers import (
    SemanticToTextWrapper,
    SpeechSpeechPretrainWrapper,
    TextToSemanticWrapper,
    random_subset,
)


def speech_batch(lengths: tuple[int, ...], extra: int = 0) -> dict[str, Any]:
    ids = random_ids(SEMANTIC, lengths, extra=extra)
    return {"semantic": ids.ids, "semantic_lengths": ids.lengths}


def test_SP7_every_real_place_is_as_likely_to_be_deleted_whatever_the_padding() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([10, 5, 1]).repeat(2000)
    drawn = random_subset(lengths, 14, 0.6).view(2000, 3, 14)
    shares = drawn.float().mean(0)
    assert shares[0, :10].tolist() == pytest.approx([0.6] * 10, abs=0.05)
    assert shares[1, :5].tolist() == pytest.approx([0.6] * 5, abs=0.05)
    assert not shares[0, 10:].any()
    assert not shares[1, 5:].any()
    assert not shares[2].any()
    assert set(drawn[:, 0].sum(1).tolist()) == {6}
    assert set(drawn[:, 1].sum(1).tolist()) == {3}


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_what_was_deleted_is_asked_for_in_order(share: float) -> None:
    wrapper = SpeechSpeechPretrainWrapper(new_model(unique_consecutive=False), deletion_prob=share)
    batch = speech_batch((10, 7), extra=2)
    source, target = wrapper.pair(batch)
    assert target.lengths.tolist() == [round(10 * share), round(7 * share)]
    for whole, kept, deleted in zip(Ids(*batch.values()).rows(), source.rows(), target.rows(), strict=True):
        assert sorted([*kept.tolist(), *deleted.tolist()]) == sorted(whole.tolist())
        assert is_part_in_order(kept.tolist(), whole.tolist())
        assert is_part_in_order(deleted.tolist(), whole.tolist())
    assert (source.ids[1, source.lengths[1] :] == PAD).all()


def is_part_in_order(part: list[int], whole: list[int]) -> bool:
    rest = iter(whole)
    return all(token in rest for token in part)


def test_the_whole_may_be_asked_for_with_or_without_masks() -> None:
    model, batch = new_model(unique_consecutive=False), speech_batch((10, 7))
    source, target = SpeechSpeechPretrainWrapper(model, reconstruct_seq=True).pair(batch)
    assert torch.equal(target.ids, batch["semantic"])
    assert source.lengths.tolist() == [4, 3]
    masked = {**batch, "semantic": batch["semantic"].masked_fill(batch["semantic"] == 0, 1)}
    source, target = SpeechSpeechPretrainWrapper(model, reconstruct_seq=True, mask_id=0).pair(masked)
    assert source.lengths.tolist() == [10, 7]
    assert (source.ids == 0).sum(1).tolist() == [6, 4]
    assert torch.equal(source.ids.where(source.ids != 0, masked["semantic"]), masked["semantic"])


@pytest.mark.parametrize(
    ("options", "said"),
    [({"mask_id": 3}, "needs reconstruct_seq"), ({"mask_id": SEMANTIC, "reconstruct_seq": True}, "from 0 to 19")],
)
def test_masks_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        SpeechSpeechPretrainWrapper(new_model(), **options)


@pytest.mark.parametrize("ways", [("speech", "text"), ("text", "speech"), ("speech", "speech")])
def test_SP6_padding_is_never_a_code(ways: Any) -> None:
    """More padding changes no loss, and a batch's loss is that of its rows."""
    model = new_model(target_early_exit_layer=1)
    sizes = [model.end(modality) for modality in ways]
    losses = []
    for extra in (0, 6):
        source = random_ids(sizes[0], (5, 3, 8))
        target = random_ids(sizes[1], (4, 6, 2), seed=2)
        source, target = (
            Ids(torch.nn.functional.pad(rows.ids, (0, extra), value=PAD), rows.lengths) for rows in (source, target)
        )
        losses.append(learn(model, (ways[0], source), (ways[1], target), training=False, early=True))
    assert torch.equal(losses[0].targets, losses[1].targets)
    assert losses[0].targets.tolist().count(model.end(ways[1])) == 3
    torch.testing.assert_close(losses[0].logits, losses[1].logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(losses[0].early, losses[1].early, atol=1e-5, rtol=1e-4)


def test_SP6_rows_of_different_lengths_are_padded_with_what_is_no_id() -> None:
    batch = collate_pairs([(torch.tensor([1, 2, 3]), "so"), (torch.tensor([0]), "away")], new_model().text_tokenizer)
    assert batch["semantic"].tolist() == [[1, 2, 3], [0, PAD, PAD]]
    assert batch["semantic_lengths"].tolist() == [3, 1]
    assert batch["text_lengths"].tolist() == [2, 4]
    assert batch["text_ids"][0, 2:].tolist() == [PAD, PAD]
    assert batch["text"] == ["so", "away"]


def test_SP14_a_token_that_repeats_is_taken_once_unless_asked_not_to() -> None:
    batch = {"semantic": torch.tensor([[1, 1, 2, 2, 2, 3], [4, 5, 5, 5, PAD, PAD]])}
    batch |= {"text_ids": torch.ones(2, 2, dtype=torch.int64)}
    batch |= {"semantic_lengths": torch.tensor([6, 4]), "text_lengths": torch.tensor([2, 2])}
    source, _ = SemanticToTextWrapper(new_model()).pair(batch)
    assert [row.tolist() for row in source.rows()] == [[1, 2, 3], [4, 5]]
    source, _ = SemanticToTextWrapper(new_model(unique_consecutive=False)).pair(batch)
    assert source.lengths.tolist() == [6, 4]


class Ears:
    """Every 4 samples are a token: their mean, in twentieths."""

    codebook_size, target_sample_hz, frame_rate, downsample_factor = SEMANTIC, 16000, 4000.0, 4

    def tokenize(self, audio: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert audio.dtype == torch.float32
        frames = audio[:, 0].unfold(1, 4, 4).mean(-1)
        return (frames * 20).round().clamp(0, SEMANTIC - 1).long(), lengths // 4

    def fingerprint(self) -> str:
        return "0123456789abcdef"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_SP13_waves_of_any_type_are_waves(dtype: torch.dtype) -> None:
    ids = torch.tensor([[3, 8, 1, 9], [2, 4, 6, 8]])
    waves = (ids / 20).repeat_interleave(4, dim=1).to(dtype)
    model = new_model()
    wrapper = SemanticToTextWrapper(model, Ears())
    heard, _ = wrapper(waves, ["so", "far"])
    torch.testing.assert_close(heard, wrapper(ids, ["so", "far"])[0])
    speak = TextToSemanticWrapper(model, Ears())
    torch.testing.assert_close(speak(["so", "far"], waves)[0], speak(["so", "far"], ids)[0])
    torch.manual_seed(0)
    loss, _ = SpeechSpeechPretrainWrapper(model, Ears())(waves)
    torch.manual_seed(0)
    torch.testing.assert_close(loss, SpeechSpeechPretrainWrapper(model)(ids)[0])


def test_waves_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(UserError, match="give the trainer a tokenizer"):
        SpeechSpeechPretrainWrapper(new_model())(torch.randn(2, 64))


@pytest.mark.parametrize("name", TRAINERS)
def test_SP2_every_trainer_generates(name: str, tmp_path: Path) -> None:
    trainer = make(name, tmp_path)
    source = ["so far", "hills"] if name == "text-to-semantic" else random_ids(SEMANTIC, (5, 3)).ids
    made = trainer.generate(source, max_length=4, temperature=0.0)
    assert made.ids.shape[0] == 2
    assert made.ids.shape[1] <= 4
    assert int(made.ids.max()) < trainer.model.end(WRITTEN[name])  # type: ignore[arg-type]
    alone = trainer.generate(source[:1], max_length=4, temperature=0.0)
    assert torch.equal(alone.rows()[0], made.rows()[0])


def test_SP2_waves_are_heard_by_the_wrappers_own_tokenizer() -> None:
    ids = torch.tensor([[3, 8, 1, 9]])
    wrapper = SemanticToTextWrapper(new_model(), Ears())
    heard = wrapper.generate((ids / 20).repeat_interleave(4, dim=1).half(), max_length=5, temperature=0.0)
    assert torch.equal(heard.ids, wrapper.generate(ids, max_length=5, temperature=0.0).ids)


def test_the_early_exit_learns_where_speech_is_written() -> None:
    model = new_model(target_early_exit_layer=1)
    batch = collate_pairs([Pairs()[0], Pairs()[1]], model.text_tokenizer)
    assert "early" in TextToSemanticWrapper(model).losses(batch, training=True)
    assert "early" in SpeechSpeechPretrainWrapper(model).losses(batch, training=True)
    assert "early" not in SemanticToTextWrapper(model).losses(batch, training=True)
    assert "early" not in TextToSemanticWrapper(model, early_exit=False).losses(batch, training=True)
    assert "early" not in TextToSemanticWrapper(new_model()).losses(batch, training=True)


@pytest.mark.parametrize("detach", [True, False])
def test_a_detached_early_exit_changes_nothing_below_it(detach: bool) -> None:
    model = new_model(target_early_exit_layer=1, detach_early_exit_embed=detach)
    batch = collate_pairs([Pairs()[0], Pairs()[1]], model.text_tokenizer)
    TextToSemanticWrapper(model).losses(batch, training=False)["early"].backward()
    below = [parameter.grad for parameter in model.lower.parameters()]
    assert all(grad is None for grad in below) == detach
    assert model.early_norm is not None
    assert model.early_norm.weight.grad is not None


def test_a_share_of_the_rows_goes_without_its_source_in_training_alone() -> None:
    model = new_model(cond_drop_prob=1.0)
    wrapper = TextToSemanticWrapper(model)
    batches = [
        collate_pairs([(torch.tensor([1, 2, 3]), text)], model.text_tokenizer) for text in ("so", "far away hills")
    ]
    dropped, kept = (
        [float(wrapper.losses(batch, training=training)["speech"].detach()) for batch in batches]
        for training in (True, False)
    )
    assert dropped[0] == pytest.approx(dropped[1])
    assert abs(kept[0] - kept[1]) > 1e-6
