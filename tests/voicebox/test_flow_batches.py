"""What a dataset may give a trainer of flows, and what is refused because it could only be misunderstood."""

from pathlib import Path
from typing import Any

import pytest
import torch
from voicebox_flows import DIM, Blocks, Ears, Rows, Speaker, features, ids, model, trainer

from madrigal.errors import UserError
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.training import VoiceBoxTrainer

SYMBOLS, DURATIONS = torch.tensor([2, 4]), torch.tensor([1, 5])


@pytest.mark.parametrize("name", ["symbols", "phoneme_ids"])
def test_VB17_symbols_with_durations_become_ids_of_frames(name: str, tmp_path: Path) -> None:
    made = trainer(tmp_path)
    long = {"features": features(1, 6)[0], name: SYMBOLS, "durations": DURATIONS}
    short = {"features": features(1, 3)[0], name: SYMBOLS[:1], "durations": torch.tensor([3])}
    assert made.heard(made.collate([long, short]))[2].tolist() == [[2, 4, 4, 4, 4, 4], [2, 2, 2, -1, -1, -1]]  # type: ignore[union-attr]


@pytest.mark.parametrize("item", [{"phoneme_ids": SYMBOLS}, {"ids": SYMBOLS}, {"symbols": SYMBOLS}, None])
def test_VB17_ids_that_are_not_at_the_rate_of_frames_are_refused(item: dict[str, Any] | None, tmp_path: Path) -> None:
    made, six = trainer(tmp_path), features(1, 6)[0]
    items: list[Any] = [(six, SYMBOLS) if item is None else {"features": six, **item}]
    with pytest.raises(UserError, match=r"has 2 ids and 6 frames: .*`madrigal align`"):
        made.heard(made.collate(items))
    # Not hidden by a longer row beside it, either.
    name = "ids" if item is None else next(iter(item))
    right = {"features": six, name: ids(1, 6)[0]}
    with pytest.raises(UserError, match="has 2 ids and 6 frames"):
        made.heard(made.collate([right, {"features": six, name: SYMBOLS}]))
    said = made.heard(made.collate([right]))[2]
    assert torch.equal(said, ids(1, 6))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [True, False])
def test_items_with_and_without_ids_are_not_one_batch(first: bool, tmp_path: Path) -> None:
    with_, without = {"features": features(1, 6)[0], "ids": ids(1, 6)[0]}, {"features": features(1, 6)[0]}
    with pytest.raises(UserError, match='have "ids" and others have none'):
        trainer(tmp_path).collate([with_, without] if first else [without, with_])


def test_a_model_of_ids_is_not_trained_without_any(tmp_path: Path) -> None:
    made = trainer(tmp_path, tool=Blocks(), dataset=Rows(kind="wave"))
    with pytest.raises(UserError, match="conditioned on ids, and there are none"):
        made.train()


def test_VB17_waves_without_ids_are_heard_by_the_semantic_tokenizer(tmp_path: Path) -> None:
    wrapper = ConditionalFlowMatcherWrapper(model(fresh=True), Blocks(), text_to_semantic=Speaker())
    made = VoiceBoxTrainer(wrapper, dataset=Rows(), num_train_steps=1, batch_size=2, results_folder=tmp_path)
    waves = [torch.tensor([3.0, 5.0]).repeat_interleave(Ears.size), torch.tensor([1.0]).repeat_interleave(Ears.size)]
    assert made.heard(made.collate(waves))[2].tolist() == [[3, 3, 5, 5], [1, 1, -1, -1]]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ([torch.zeros(4, DIM + 1, 2)], r"shape \[samples\] or \[channels, samples\]"),
        ([(torch.zeros(9), torch.zeros(9))], "holds audio twice"),
        ([{"features": torch.zeros(4, DIM + 1)}], rf"must have the shape \[frames, {DIM}\]"),
        ([torch.zeros(4, DIM), torch.zeros(9)], "Some items of a batch are features and others waves"),
    ],
)
def test_items_that_nobody_understands_are_refused(items: list[Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        trainer(tmp_path).collate(items)
