"""The three tasks: what is source and what is target, padding, deletion, and generation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from spear_trainings import SEMANTIC, TRAINERS, WRITTEN, Pairs, make, new_model, random_ids

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.losses import learn
from madrigal.speartts.model import MASKED
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
    source, target = SpeechSpeechPretrainWrapper(model, reconstruct_seq=True, mask_id=0).pair(batch)
    assert torch.equal(target.ids, batch["semantic"])
    assert source.lengths.tolist() == [10, 7]
    is_masked = source.ids == MASKED
    assert is_masked.sum(1).tolist() == [6, 4]
    assert torch.equal(source.ids.where(~is_masked, batch["semantic"]), batch["semantic"])


def test_masked_places_have_a_vector_that_no_code_has() -> None:
    """Any number masks, in or beyond the vocabulary, and no code learns from what is masked."""
    model, batch = new_model(unique_consecutive=False), speech_batch((10, 7))
    losses = []
    for mask_id in (0, SEMANTIC):
        torch.manual_seed(3)
        wrapper = SpeechSpeechPretrainWrapper(model, reconstruct_seq=True, mask_id=mask_id)
        losses.append(wrapper.losses(batch, training=False)["speech"])
    assert torch.equal(*losses)
    losses[0].backward()
    assert model.masks["speech"].grad is not None
    assert model.masks["speech"].grad.abs().sum() > 0
    ids = torch.tensor([[MASKED, 4, MASKED]])
    seen = model.encode("speech", ids).hidden
    model.tables["speech"].weight.grad = None
    seen.sum().backward()
    rows = model.tables["speech"].weight.grad.abs().sum(1).nonzero().flatten()  # type: ignore[union-attr]
    assert rows.tolist() == [4]
    with pytest.raises(UserError, match="The text ids hold"):
        model.encode("text", ids)


def test_a_mask_needs_its_place_in_the_target() -> None:
    with pytest.raises(UserError, match="needs reconstruct_seq"):
        SpeechSpeechPretrainWrapper(new_model(), mask_id=3)


@pytest.mark.parametrize("pad_id", [0, 5])
def test_SP6_text_that_is_padded_with_an_id_of_its_own_is_read_without_it(pad_id: int) -> None:
    """Where older scripts say what pads their text; in a row's middle the same id is text."""
    model = new_model(text_pad_id=pad_id)
    speech = torch.tensor([[3, 8, 1, 9]])
    plain, padded = torch.tensor([[7, pad_id, 9]]), torch.tensor([[7, pad_id, 9, pad_id, pad_id, PAD]])
    write, read = TextToSemanticWrapper(model), SemanticToTextWrapper(model)
    torch.testing.assert_close(write(padded, speech), write(plain, speech))
    torch.testing.assert_close(read(speech, padded), read(speech, plain))
    assert torch.equal(write.generate(padded, max_length=3).source, plain)
    other = TextToSemanticWrapper(new_model())
    assert abs(float(other(padded, speech)[0].detach() - other(plain, speech)[0].detach())) > 1e-6
    assert other.generate(padded, max_length=3).source.shape == (1, 5)


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


def test_SP2_lengths_of_waves_count_samples() -> None:
    """A padded wave is read as far as it is real, by the wrapper's tokenizer as by the model's own."""
    ids = torch.tensor([[3, 8, 1, 9], [2, 4, 0, 0]])
    waves, lengths = (ids / 20).repeat_interleave(4, dim=1), torch.tensor([16, 8])
    model = new_model()
    made = SemanticToTextWrapper(model, Ears()).generate(waves, source_lengths=lengths, max_length=5, temperature=0.0)
    assert made.source.tolist() == [[3, 8, 1, 9], [2, 4, PAD, PAD]]
    assert made.source_lengths.tolist() == [4, 2]
    options: dict[str, Any] = {"source_type": "speech", "target_type": "text", "max_length": 5, "temperature": 0.0}
    given = model.generate(waves, source_lengths=lengths, tokenizer=Ears(), **options)
    own = new_model(wav2vec=Ears()).generate(waves, source_lengths=lengths, **options)
    assert torch.equal(made.ids, given.ids)
    assert torch.equal(made.ids, own.ids)


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
