"""Similar sources, similar targets: by rows that went without their source, whatever their padding."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from spear_trainings import Pairs, new_model

from madrigal.speartts.alignment import alignment
from madrigal.speartts.pairs import collate_pairs
from madrigal.speartts.wrappers import SpeechSpeechPretrainWrapper, TextToSemanticWrapper


def states(rows: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sources [rows, 6, 8] and targets [rows, 5, 8] of different lengths, with their masks."""
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randn(rows, time, 8, generator=generator) for time in (6, 5))
    masks = [torch.arange(time) < torch.randint(1, time + 1, (rows, 1), generator=generator) for time in (6, 5)]
    return source, masks[0], target, masks[1]


def by_hand(source: Any, source_mask: Any, target: Any, target_mask: Any, rows: list[int], temperature: Any) -> float:
    pooled = []
    for hidden, mask in ((source, source_mask), (target, target_mask)):
        each = []
        for row in rows:
            real = F.rms_norm(hidden[row, mask[row]], (8,))
            each.append(real.amax(0) if temperature is None else temperature * (real / temperature).logsumexp(0))
        pooled.append(F.normalize(torch.stack(each), dim=-1))
    differences = [
        float((pooled[0][i] @ pooled[0][j] - pooled[1][i] @ pooled[1][j]) ** 2)
        for i in range(len(rows))
        for j in range(len(rows))
        if i != j
    ]
    return sum(differences) / len(differences)


@pytest.mark.parametrize("temperature", [None, 0.1, 1.0])
def test_it_is_the_mean_squared_difference_of_similarities(temperature: float | None) -> None:
    parts = states()
    rows = torch.tensor([True, False, True, True])
    expected = by_hand(*parts, [0, 2, 3], temperature)
    assert float(alignment(*parts, rows, temperature=temperature)) == pytest.approx(expected, rel=1e-4)


def test_padding_does_not_change_it() -> None:
    source, source_mask, target, target_mask = states()
    rows = torch.ones(4, dtype=torch.bool)
    padded = F.pad(source, (0, 0, 0, 3), value=50.0), F.pad(source_mask, (0, 3))
    torch.testing.assert_close(
        alignment(*padded, target, target_mask, rows, temperature=0.1),
        alignment(source, source_mask, target, target_mask, rows, temperature=0.1),
    )


@pytest.mark.parametrize("dropped", [0, 1])
def test_fewer_than_two_rows_have_nothing_to_compare(dropped: int) -> None:
    source, source_mask, target, target_mask = states()
    source.requires_grad_()
    loss = alignment(source, source_mask, target, target_mask, torch.arange(4) < dropped, temperature=0.1)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert source.grad is not None
    assert not source.grad.any()


def test_a_row_without_anything_real_is_no_row_to_compare() -> None:
    source, source_mask, target, target_mask = states()
    source_mask[1] = False
    everyone = torch.ones(4, dtype=torch.bool)
    found = alignment(source, source_mask, target, target_mask, everyone, temperature=0.1)
    assert float(found) == pytest.approx(by_hand(source, source_mask, target, target_mask, [0, 2, 3], 0.1), rel=1e-4)


def losses(training: bool = True, wrapper: Any = TextToSemanticWrapper, **options: Any) -> dict[str, torch.Tensor]:
    model = new_model(**options)
    batch = collate_pairs([Pairs()[number] for number in range(6)], model.text_tokenizer)
    torch.manual_seed(0)
    made: dict[str, torch.Tensor] = wrapper(model).losses(batch, training=training)
    return made


def test_it_is_of_rows_without_their_source_across_modalities_in_training() -> None:
    assert losses(cond_drop_prob=0.5)["align"] > 0
    for options in (
        {},
        {"cond_drop_prob": 0.5, "align_reg_loss_weight": 0.0},
        {"cond_drop_prob": 0.5, "training": False},
    ):
        assert "align" not in losses(**options)
    assert "align" not in losses(cond_drop_prob=0.5, wrapper=SpeechSpeechPretrainWrapper)


def test_its_options_do_something() -> None:
    plain = losses(cond_drop_prob=1.0)["align"]
    assert losses(cond_drop_prob=1.0, align_reg_use_logsumexp_pool=False)["align"] != plain
    assert losses(cond_drop_prob=1.0, align_reg_logsumexp_pool_temp=1.0)["align"] != plain
    weights = [TextToSemanticWrapper(new_model(align_reg_loss_weight=w)).weight("align") for w in (0.1, 0.7)]
    assert weights == [0.1, 0.7]


def test_both_sides_learn_from_it() -> None:
    model = new_model(cond_drop_prob=1.0)
    batch = collate_pairs([Pairs()[number] for number in range(6)], model.text_tokenizer)
    TextToSemanticWrapper(model).losses(batch, training=True)["align"].backward()
    assert model.tables["text"].weight.grad.abs().sum() > 0
    assert model.tables["speech"].weight.grad.abs().sum() > 0
