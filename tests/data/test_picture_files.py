"""Folders of pictures: prepared with every reason for what cannot be used, read in any shape, as they are looked at."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from madrigal.data.images import ImageFolderDataset, open_picture
from madrigal.data.likeness import perplexity, psnr, ssim
from madrigal.data.manifest import Manifest, PictureManifest
from madrigal.data.picture_source import PictureSource, pictures_of
from madrigal.data.prepare import prepare_pictures
from madrigal.errors import UserError

MAKER = 0x010F
DAMAGED = [(0x00FE, 2), (0x011A, 2), (MAKER, 5)]
"""Tags and types of EXIF that PIL cannot write again; each is another exception there."""


def plain(width: int = 20, height: int = 10, colour: tuple[int, ...] = (200, 20, 20)) -> Image.Image:
    return Image.new("RGBA" if len(colour) == 4 else "RGB", (width, height), colour)


def bomb(path: Path, side: int = 20_000) -> None:
    """A small file that says that it is huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


def turned_with_damaged_exif(path: Path, tag: int, kind: int) -> None:
    """A photograph that says that it was turned, and has one more field whose tag or type was overwritten."""
    exif = Image.Exif()
    exif[0x0112], exif[MAKER] = 6, "a maker"
    plain().save(path, "JPEG", exif=exif)
    whole, field = path.read_bytes(), struct.pack(">HHI", MAKER, 2, 8)
    assert whole.count(field) == 1
    path.write_bytes(whole.replace(field, struct.pack(">HHI", tag, kind, 1)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    root.mkdir()
    plain().save(root / "a.png")
    (root / "a.txt").write_text("a red\ncard")
    plain(8, 16).save(root / "b.jpg")
    (root / "metadata.csv").write_text("file_name,text,licence\nb.jpg,a tall card,CC0\ngone.png,nothing,\n")
    return root


def test_a_manifest_has_sizes_captions_and_licences(folder: Path, tmp_path: Path) -> None:
    done = prepare_pictures(folder, tmp_path / "out")
    first, second = PictureManifest.load(tmp_path / "out")
    assert (first.width, first.height, first.text) == (20, 10, "a red card")
    assert (second.width, second.height, second.text, second.licence) == (8, 16, "a tall card", "CC0")
    assert done.summary.startswith("2 pictures, 2 with captions ->")
    assert [(Path(r.path).name, r.reason) for r in done.rejected] == [("gone.png", "missing")]


def test_what_cannot_be_used_is_rejected_with_its_reason(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "a.png").read_bytes()
    noisy = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    Image.fromarray(noisy).save(folder / "cut.png")
    cut = (folder / "cut.png").read_bytes()
    (folder / "cut.png").write_bytes(cut[: len(cut) // 2])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("no picture")
    bomb(folder / "bomb.png")
    bomb(folder / "large.png", side=9_000)
    done = prepare_pictures(folder, tmp_path / "out")
    reasons = {Path(item.path).name: item.reason for item in done.rejected}
    assert reasons == {
        "cut.png": "not a whole picture",
        "empty.png": "empty",
        "text.jpg": "not a whole picture",
        "bomb.png": "too many pixels",
        "large.png": "too many pixels",
        "gone.png": "missing",
    }
    listed = [json.loads(line) for line in (tmp_path / "out/rejected.jsonl").read_text().splitlines()]
    assert {item["reason"] for item in listed} == set(reasons.values())
    assert "more than 64 million pixels" in next(i["detail"] for i in listed if i["path"].endswith("large.png"))
    assert (folder / "a.png").read_bytes() == whole


@pytest.mark.parametrize(("tag", "kind"), DAMAGED)
def test_damaged_exif_is_a_reason_as_any_other(tag: int, kind: int, folder: Path, tmp_path: Path) -> None:
    turned_with_damaged_exif(folder / "turned.jpg", tag, kind)
    done = prepare_pictures(folder, tmp_path / "out")
    told = next(item for item in done.rejected if item.path.endswith("turned.jpg"))
    assert (told.reason, told.detail) == ("not a whole picture", "its EXIF data are damaged")
    dataset = ImageFolderDataset(folder, 8, rejected_path=tmp_path / "rejected.jsonl")
    assert all(dataset[number]["image"].shape == (3, 8, 8) for number in range(len(dataset)))
    assert "EXIF" in (tmp_path / "rejected.jsonl").read_text()


def test_a_bomb_is_no_item_of_a_dataset(folder: Path, tmp_path: Path) -> None:
    bomb(folder / "bomb.png")
    dataset = ImageFolderDataset(folder, 8, rejected_path=tmp_path / "rejected.jsonl")
    assert all(dataset[number]["image"].shape == (3, 8, 8) for number in range(len(dataset)))
    assert "million pixels" in (tmp_path / "rejected.jsonl").read_text()


def test_a_camera_that_was_turned_is_honoured(tmp_path: Path) -> None:
    picture = Image.new("RGB", (20, 10), "white")
    picture.paste((0, 0, 0), (0, 0, 10, 10))
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter: what is stored on the left is looked at on top
    (tmp_path / "in").mkdir()
    picture.save(tmp_path / "in/a.png", exif=exif)
    (entry,) = prepare_pictures(tmp_path / "in", tmp_path / "out").manifest
    assert (entry.width, entry.height) == (10, 20)
    image = ImageFolderDataset(tmp_path / "out", (20, 10), train=False)[0]["image"]
    assert image[:, :8].max() < 0.1
    assert image[:, 12:].min() > 0.9


def test_what_is_transparent_becomes_white(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    plain(8, 8, (200, 0, 0, 0)).save(tmp_path / "in/a.png")
    assert ImageFolderDataset(tmp_path / "in", 8)[0]["image"].min() == 1


@pytest.mark.parametrize(
    ("name", "kind", "white"),
    [
        ("a.png", "<u2", 65535),
        ("a.tiff", ">u2", 65535),
        ("a.tiff", "<i4", 65535),
        ("a.tiff", "<i4", 2**31 - 1),
        ("a.tiff", "<f4", 1.0),
        ("a.tiff", "<f4", 255.0),
    ],
)
def test_grey_of_more_than_eight_bits_keeps_its_scale(name: str, kind: str, white: float, tmp_path: Path) -> None:
    ramp = np.linspace(0, 1, 16).reshape(4, 4)
    Image.fromarray((ramp * white).astype(kind)).save(tmp_path / name)
    pixels = np.asarray(open_picture(tmp_path / name))
    assert np.abs(pixels - ramp[..., None] * 255).max() < 1.01


def test_a_transparent_grey_of_sixteen_bits_becomes_white(tmp_path: Path) -> None:
    grey = np.array([[0, 9000], [9000, 30000]], "<u2")
    Image.fromarray(grey).save(tmp_path / "a.png", transparency=9000)
    assert np.asarray(open_picture(tmp_path / "a.png"))[..., 0].tolist() == [[0, 255], [255, 117]]


def test_rectangles_cover_and_are_cropped_in_the_middle(tmp_path: Path) -> None:
    ramp = np.zeros((32, 64, 3), np.uint8)
    ramp[..., 0] = np.arange(64)[None] * 4
    (tmp_path / "in").mkdir()
    Image.fromarray(ramp).save(tmp_path / "in/a.png")
    dataset = ImageFolderDataset(tmp_path / "in", (32, 16), train=False)
    image = dataset[0]["image"]
    assert image.shape == (3, 32, 16)
    torch.testing.assert_close(image[0, 0] * 255, torch.arange(24, 40) * 4.0)
    wide = ImageFolderDataset(tmp_path / "in", (16, 64), train=False)[0]["image"]
    assert wide.shape == (3, 16, 64)
    with pytest.raises(UserError, match="above zero"):
        ImageFolderDataset(tmp_path / "in", (16, 0))


def test_a_source_prepares_once_and_reads_a_prepared_folder(folder: Path, tmp_path: Path) -> None:
    source = PictureSource(path=folder, image_size=(8, 16), valid_path=folder)
    said: list[str] = []
    train, valid = source.datasets(multiple_of=4, prepared_in=tmp_path / "run", say=said.append)
    assert len(said) == 2
    assert valid is not None
    assert (train.train, valid.train, train.image_size) == (True, False, (8, 16))
    assert train.captions == ["a red card", "a tall card"]
    again = pictures_of(tmp_path / "run/train", tmp_path / "elsewhere")
    assert [entry.text for entry in again] == train.captions
    with pytest.raises(UserError, match="choose multiples of 16"):
        source.datasets(multiple_of=16, prepared_in=tmp_path / "run")


def test_a_manifest_of_pictures_is_none_of_recordings(folder: Path, tmp_path: Path) -> None:
    prepare_pictures(folder, tmp_path / "out")
    with pytest.raises(UserError, match="duration"):
        Manifest.load(tmp_path / "out")


def test_psnr_and_ssim_of_known_pictures() -> None:
    real = torch.rand(2, 3, 16, 24, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(psnr((real + 0.1), real), torch.full((2,), 20.0))
    torch.testing.assert_close(ssim(real, real), torch.ones(2))
    assert psnr(real, real).tolist() == [100.0, 100.0]
    noisy = [
        ssim(real + torch.randn(real.shape, generator=torch.Generator().manual_seed(1)) * n, real) for n in (0.1, 0.3)
    ]
    assert (noisy[1] < noisy[0]).all()
    flat, darker = torch.full((1, 3, 16, 16), 0.5), torch.full((1, 3, 16, 16), 0.25)
    # By hand: without structure only the luminance counts, (2ab + c) / (a² + b² + c).
    torch.testing.assert_close(
        ssim(flat, darker), torch.tensor([(0.25 + 1e-4) / (0.3125 + 1e-4)]), rtol=1e-3, atol=1e-4
    )
    assert ssim(real[..., :4, :4], real[..., :4, :4]).shape == (2,)


def test_perplexity_counts_codes_that_are_used_alike() -> None:
    assert float(perplexity(torch.tensor([5, 5, 5, 5, 0]))) == pytest.approx(4.0)
    assert float(perplexity(torch.tensor([9, 0, 0]))) == pytest.approx(1.0)
