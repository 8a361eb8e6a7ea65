from __future__ import annotations

import numpy as np
import pytest
import torch

from madrigal.data.collate import collate, mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.errors import UserError


def test_audio_is_padded_with_zeros_and_lengths_say_where():
    batch = collate([{"audio": torch.ones(2, 5)}, {"audio": torch.ones(2, 3)}])
    assert batch["audio"].shape == (2, 2, 5)
    assert batch["audio"].dtype == torch.float32
    assert batch["lengths"].tolist() == [5, 3]
    assert batch["lengths"].dtype == torch.int64
    assert batch["audio"][1, :, 3:].abs().sum() == 0
    assert batch["audio"][1, :, :3].sum() == 6


def test_several_rates_have_lengths_of_their_own():
    items = [{"audio": torch.ones(1, n), "audio_24000": torch.ones(1, n * 3 // 2)} for n in (4, 2)]
    batch = collate(items)
    assert batch["lengths"].tolist() == [4, 2]
    assert batch["lengths_24000"].tolist() == [6, 3]
    assert batch["audio_24000"].shape == (2, 1, 6)


@pytest.mark.parametrize("pad_to_longest", [True, False])
def test_AM33_a_batch_of_one(pad_to_longest):
    batch = collate([torch.ones(7)], pad_to_longest=pad_to_longest)
    assert batch["audio"].shape == (1, 1, 7)
    assert batch["lengths"].tolist() == [7]


def test_curtailing_to_the_shortest():
    batch = collate([torch.arange(7.0), torch.arange(4.0)], pad_to_longest=False)
    assert batch["audio"].tolist() == [[[0, 1, 2, 3]], [[0, 1, 2, 3]]]
    assert batch["lengths"].tolist() == [4, 4]


def test_tuples_and_arrays_of_foreign_datasets():
    batch = collate([("low", np.ones(3), torch.ones(1, 6)), ("high", np.ones(2), torch.ones(1, 4))])
    assert batch["text"] == ["low", "high"]
    assert batch["audio"].shape == (2, 1, 3)
    assert batch["audio"].dtype == torch.float32
    assert batch["lengths_1"].tolist() == [6, 4]


def test_other_values_are_joined_by_kind():
    image = torch.zeros(3, 2, 2)
    batch = collate([{"text": "a", "id": 0, "image": image}, {"text": "b", "id": 1, "image": image}])
    assert batch["text"] == ["a", "b"]
    assert batch["id"].tolist() == [0, 1]
    assert batch["image"].shape == (2, 3, 2, 2)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "at least one"),
        ([torch.ones(1, 3), torch.ones(2, 3)], "number of channels"),
        ([torch.ones(1, 1, 3)], "shape"),
        ([{"audio": torch.ones(1)}, {"audio": torch.ones(1), "text": "x"}], "different fields"),
        ([{"image": torch.ones(1)}, {"image": torch.ones(2)}], 'shape of "image"'),
    ],
)
def test_what_does_not_fit_gets_one_sentence(items, words):
    with pytest.raises(UserError, match=words):
        collate(items)


def test_mask_from_lengths():
    mask = mask_from_lengths(torch.tensor([0, 2, 3]), 3)
    assert mask.tolist() == [[False] * 3, [True, True, False], [True] * 3]


def test_tokens_are_padded_with_pad_and_lengths_say_where():
    items = [{"semantic": torch.arange(n), "acoustic": np.ones((2 * n, 3), np.int64)} for n in (3, 1)]
    batch = collate(items)
    assert batch["semantic"].tolist() == [[0, 1, 2], [0, PAD, PAD]]
    assert batch["semantic_lengths"].tolist() == [3, 1]
    assert batch["acoustic"].shape == (2, 6, 3)
    assert (batch["acoustic"][1, 2:] == PAD).all()
    assert batch["acoustic_lengths"].dtype == batch["semantic"].dtype == torch.int64
    assert PAD == -1


def test_flags_become_a_bool_tensor():
    batch = collate([{"reaches_end": True}, {"reaches_end": False}])
    assert batch["reaches_end"].dtype == torch.bool
    assert batch["reaches_end"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([torch.ones(3)], "whole numbers"),
        ([torch.ones(1, 2, 3).long()], "whole numbers"),
        ([torch.ones(2, 3).long(), torch.ones(2, 4).long()], "quantizers"),
    ],
)
def test_tokens_that_do_not_fit_get_one_sentence(rows, words):
    with pytest.raises(UserError, match=words):
        collate([{"acoustic": row} for row in rows])
