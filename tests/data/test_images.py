from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from madrigal.data.collate import collate
from madrigal.data.images import ImageFolderDataset
from madrigal.errors import UserError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def ramp(width: int, height: int) -> Image.Image:
    """Red grows to the right and green downwards, so that a crop tells its place."""
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, np.zeros_like(red)], -1).astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "in"
    (root / "deep").mkdir(parents=True)
    ramp(96, 32).save(root / "a.PNG")
    ramp(32, 96).save(root / "deep" / "b.jpg", quality=95)
    ramp(8, 8).convert("L").save(root / "c.webp", lossless=True)
    return root


def test_images_have_one_size_and_range(folder):
    dataset = ImageFolderDataset(folder, 16)
    assert len(dataset) == 3
    batch = collate([dataset[i] for i in range(3)])
    assert batch.keys() == {"image"}
    assert batch["image"].shape == (3, 3, 16, 16)
    assert batch["image"].dtype == torch.float32
    assert 0 <= batch["image"].min() < 0.1
    assert 0.9 < batch["image"].max() <= 1


def test_training_crops_anywhere_and_validation_in_the_middle(folder):
    train, valid = ImageFolderDataset(folder, 32, flip=False), ImageFolderDataset(folder, 32, train=False)
    places = {round(float(train.draw(0, rng(seed))["image"][0, 0, 0]), 2) for seed in range(20)}
    assert len(places) > 10
    items = [valid.draw(0, rng(seed))["image"] for seed in range(5)]
    assert all(torch.equal(item, items[0]) for item in items)
    assert float(items[0][0].mean()) == pytest.approx(0.5, abs=0.01)
    assert torch.equal(train.draw(0, rng(3))["image"], train.draw(0, rng(3))["image"])
    assert torch.equal(train[0]["image"], train.draw(0, rng(0))["image"])


def test_flip_on_training_only(folder):
    def growing(**options):
        images = [ImageFolderDataset(folder, 32, **options).draw(0, rng(seed))["image"][0, 0] for seed in range(30)]
        return [bool(row[-1] > row[0]) for row in images]

    assert 5 < sum(growing()) < 25
    assert all(growing(flip=False))
    assert all(growing(train=False))


def test_transparent_is_white_and_photographs_stand_upright(tmp_path):
    Image.new("RGBA", (16, 16), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees
    ramp(32, 32).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    dataset = ImageFolderDataset(tmp_path, 16, train=False)
    assert dataset[0]["image"].min() == 1
    red = dataset[1]["image"][0]
    assert red[-1].mean() > red[0].mean() + 0.5


def test_captions_beside_and_in_lists(folder):
    (folder / "a.txt").write_text("a wide ramp\n")
    (folder / "deep" / "metadata.jsonl").write_text(json.dumps({"file_name": "b.jpg", "text": "a high ramp"}))
    dataset = ImageFolderDataset(folder, 16)
    assert [dataset[i]["text"] for i in range(3)] == ["a wide ramp", "", "a high ramp"]
    assert collate([dataset[0], dataset[1]])["text"] == ["a wide ramp", ""]


def test_a_damaged_image_is_replaced_and_noted(folder, tmp_path):
    data = (folder / "a.PNG").read_bytes()
    (folder / "a.PNG").write_bytes(data[: len(data) // 2])
    dataset = ImageFolderDataset(folder, 16, rejected_path=tmp_path / "rejected.jsonl")
    assert dataset[0]["image"].shape == (3, 16, 16)
    assert list(dataset.failed) == [str(folder / "a.PNG")]
    assert len((tmp_path / "rejected.jsonl").read_text().splitlines()) == 1


def test_bad_arguments_get_one_sentence(folder, tmp_path):
    for options, words in [
        ({"folder": tmp_path / "missing"}, "There is no folder"),
        ({"exts": ["gif"]}, "no images"),
        ({"image_size": 0}, "image_size"),
    ]:
        with pytest.raises(UserError, match=words):
            ImageFolderDataset(**{"folder": folder, "image_size": 16, **options})
