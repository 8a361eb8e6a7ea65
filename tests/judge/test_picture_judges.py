"""Judges of pictures: distances that are known by hand, a probe that learns, a report that is read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from madrigal.errors import UserError
from madrigal.judge.frechet import frechet_distance, frechet_on_components
from madrigal.judge.picture_features import colours_and_edges, find_features
from madrigal.judge.picture_page import write_pictures
from madrigal.judge.pictures import PictureReport, evaluate_pictures
from madrigal.judge.probe import fit_probe


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_the_frechet_distance_of_two_normal_distributions_is_known() -> None:
    points = drawn(4000, 3)
    points = (points - points.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(points.T))).T  # exactly normal
    assert frechet_distance(points, points) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(points, points + np.array([1, 2, 0])) == pytest.approx(5)
    assert frechet_distance(points, 3 * points) == pytest.approx(3 * (3 - 1) ** 2)
    with pytest.raises(ValueError, match="one dim"):
        frechet_distance(points, points[:, :2])


def test_few_items_are_compared_on_their_own_axes() -> None:
    real = drawn(20, 50)
    assert frechet_on_components(real, real) == pytest.approx(0, abs=1e-6)
    assert frechet_on_components(real, real + 1) > 1


def discs(count: int, kinds: list[str], seed: int = 0) -> Tensor:
    """Pictures with a patch in a colour that tells their kind, at a random place."""
    colours = {"red": (1.0, 0, 0), "green": (0, 1.0, 0), "blue": (0, 0, 1.0)}
    rng = np.random.default_rng(seed)
    pictures = torch.ones(count, 3, 32, 32)
    for number, kind in enumerate(kinds):
        top, left = rng.integers(0, 16, 2)
        pictures[number, :, top : top + 16, left : left + 16] = torch.tensor(colours[kind])[:, None, None]
    return pictures


def test_a_probe_learns_labels_and_is_always_the_same() -> None:
    kinds = ["red", "green", "blue"] * 20
    features = colours_and_edges().features
    probe = fit_probe(features(discs(60, kinds)), kinds)
    other = features(discs(60, kinds, seed=1))
    assert probe.accuracy(other, kinds) > 0.9
    assert probe.chance == pytest.approx(1 / 3)
    assert probe.accuracy(other, ["yellow"] * 60) == 0
    assert probe.accuracy(other, kinds, top=3) == 1
    assert probe.guesses(other) == fit_probe(features(discs(60, kinds)), kinds).guesses(other)
    with pytest.raises(UserError, match="two labels"):
        fit_probe(other, ["red"] * 60)


def test_features_are_named_for_what_they_are(tmp_path: Path) -> None:
    assert colours_and_edges().name == "colours and edges"
    pictures = discs(2, ["red", "blue"])
    assert colours_and_edges().features(pictures).shape[0] == 2
    (tmp_path / "no.pt").write_bytes(b"nothing")
    with pytest.raises(UserError, match="no TorchScript network"):
        find_features(tmp_path / "no.pt")

    class Network(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3))

    torch.jit.script(Network()).save(str(tmp_path / "inception.pt"))
    found = find_features(tmp_path / "inception.pt")
    assert found.name == "Inception-v3"
    np.testing.assert_allclose(found.features(torch.ones(1, 3, 8, 8)), [[255 / 128 - 1] * 3], rtol=1e-5)


def test_a_report_has_its_figures_and_a_page(tmp_path: Path) -> None:
    kinds = ["red", "green", "blue", "red"]
    pictures = discs(4, kinds)
    report = evaluate_pictures(
        pictures,
        lambda batch: (batch * 0.9, torch.arange(16).reshape(1, 4, 4).expand(len(batch), -1, -1)),
        codebook_size=32,
        features=colours_and_edges(),
        names=[f"{number}.png" for number in range(4)],
        kinds=kinds,
    )
    assert report.psnr is not None
    assert 20 < report.psnr.mean < 30
    assert report.grid == (4, 4)
    assert report.perplexity == pytest.approx(16)
    assert report.codes_used == 16
    assert [group.name for group in report.groups] == ["blue", "green", "red"]
    written = write_pictures(report, tmp_path)
    assert PictureReport.load(written["json"]).scores == report.scores
    page = written["page"].read_text()
    assert "colours and edges" in page
    assert "16 of 32" in page
    assert Image.open(tmp_path / "pictures.png").size[0] > 4 * 32
