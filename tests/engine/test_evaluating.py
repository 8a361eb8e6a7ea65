"""Validation and samples: over the whole split, with no effect on training."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch.utils.data import DataLoader
from toys import (
    GanTrainer,
    RegressionTrainer,
    assert_identical,
    make,
    waves,
    whole_state,
)

from madrigal.engine.artifacts import ORIGINAL, Picture, Text, write_samples
from madrigal.engine.feed import Batch
from madrigal.engine.trainer import Terms
from madrigal.errors import UserError


class Meaning(RegressionTrainer):
    """Validates by the mean of the audio, and remembers what it validated."""

    def validate(self, batch: Batch) -> Terms:
        assert not self.model.training
        assert not torch.is_grad_enabled()
        self.validated: list[float] = [*getattr(self, "validated", []), *batch["audio"][:, 0, 0].tolist()]
        return {"mean": batch["audio"].mean()}


def state_of_randomness() -> tuple[Any, ...]:
    return random.getstate(), str(np.random.get_state()), tuple(torch.get_rng_state().tolist())


def test_AT1_validation_changes_nothing_about_training(tmp_path: Path) -> None:
    plain, watched = make(GanTrainer, tmp_path / "a"), make(GanTrainer, tmp_path / "b")
    for _ in range(6):
        plain.train_step()
        watched.train_step()
        modes, randomness = [m.training for m in watched.model.modules()], state_of_randomness()
        before = whole_state(watched)
        watched.validation()
        watched.write_samples()
        assert [m.training for m in watched.model.modules()] == modes
        assert state_of_randomness() == randomness
        assert_identical(whole_state(watched), before)
    assert_identical(whole_state(plain), whole_state(watched))


def test_AT1_a_validation_that_fails_leaves_modes_and_weights_as_they_were(tmp_path: Path) -> None:
    class Failing(GanTrainer):
        def validate(self, batch: Batch) -> Terms:
            raise RuntimeError("no judge today")

    trainer = make(Failing, tmp_path)
    trainer.train_step()
    before = whole_state(trainer)
    with pytest.raises(RuntimeError, match="judge"):
        trainer.validation()
    assert trainer.model.generator.training
    assert_identical(whole_state(trainer), before)


def test_AT1_a_part_that_was_in_eval_mode_is_so_after_validation(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path)
    trainer.model.train()
    trainer.model.judge.eval()
    trainer.validation()
    assert trainer.model.critic.training
    assert not trainer.model.judge.training


@pytest.mark.parametrize("batch_size", [1, 4, 10])
def test_X10_AT3_validation_is_the_mean_over_every_item_of_the_split(tmp_path: Path, batch_size: int) -> None:
    items = waves(50)
    trainer = make(Meaning, tmp_path, batch_size=batch_size, use_ema=False, dataset=items)
    figures = trainer.validation()
    assert len(trainer.validated) == len(set(trainer.validated)) == 10
    split = [item for item in items if item[0].item() in trainer.validated]
    assert figures == {"valid/mean": pytest.approx(torch.stack(split).mean().item(), rel=1e-5)}
    assert trainer.validation() == figures


def test_the_split_depends_on_its_seed_and_no_item_is_on_both_sides(tmp_path: Path) -> None:
    parts = []
    for number, (split_seed, seed) in enumerate([(1, 0), (1, 5), (2, 0)]):
        trainer = make(Meaning, tmp_path / str(number), random_split_seed=split_seed, seed=seed, batch_size=4)
        trainer.validation()
        for _ in range(10):
            trainer.train_step()
        trained = {row[0].item() for batch in trainer.seen for row in batch}
        assert len(trained) == 40
        assert not trained & set(trainer.validated)
        parts.append(set(trainer.validated))
    assert parts[0] == parts[1] != parts[2]


@pytest.mark.parametrize("valid_frac", [0.0, 0.5])
def test_AT7_a_given_validation_set_is_used_and_takes_nothing_from_training(tmp_path: Path, valid_frac: float) -> None:
    given = waves(7, first=1000)
    trainer = make(Meaning, tmp_path, val_dataset=given, valid_frac=valid_frac, use_ema=False, batch_size=5)
    assert trainer.validation()["valid/mean"] == pytest.approx(torch.stack(given).mean().item(), rel=1e-5)
    for _ in range(10):
        trainer.train_step()
    assert len({row[0].item() for batch in trainer.seen for row in batch}) == 50


def test_AT7_a_given_validation_loader_is_used(tmp_path: Path) -> None:
    given = waves(7, first=1000)
    trainer = make(Meaning, tmp_path, val_dataloader=DataLoader(given, batch_size=3), use_ema=False)
    assert trainer.validation()["valid/mean"] == pytest.approx(torch.stack(given).mean().item(), rel=1e-5)


def test_AT7_a_given_validation_set_wins_over_the_one_that_lies_beside_the_data(tmp_path: Path) -> None:
    given, beside = waves(3, first=1000), waves(3, first=2000)
    options = {"dataset": None, "open_data": lambda run: (waves(20), beside), "use_ema": False}
    for name, val_dataset, expected in (("a", given, given), ("b", None, beside)):
        trainer = make(Meaning, tmp_path / name, val_dataset=val_dataset, **options)
        assert trainer.validation()["valid/mean"] == pytest.approx(torch.stack(expected).mean().item(), rel=1e-5)


def test_without_a_validation_set_training_goes_on(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, valid_frac=0, num_train_steps=5)
    trainer.train()
    assert trainer.validation() == {}
    assert not list((tmp_path / "samples").glob("*"))


@pytest.mark.parametrize("count", [2, 6, 60])
def test_X11_a_small_set_is_split_without_complaint(tmp_path: Path, count: int) -> None:
    trainer = make(Meaning, tmp_path, dataset=waves(count), batch_size=1 if count == 2 else 4, valid_frac=0.05)
    trainer.train_step()
    assert trainer.validation()
    assert len(set(trainer.validated)) == max(1, round(count * 0.05))


def test_both_the_weights_and_their_average_are_judged(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path, ema_beta=0.99)
    for _ in range(12):
        trainer.train_step()
    figures = trainer.validation()
    assert figures["valid/mse"] != figures["valid/ema/mse"]
    with trainer.ema.swapped():
        assert trainer.validation()["valid/mse"] == figures["valid/ema/mse"]


def test_the_best_checkpoint_by_a_named_metric_survives_retention(tmp_path: Path) -> None:
    class Scripted(RegressionTrainer):
        scores = (5.0, 1.0, float("nan"), 2.0, 3.0, 1.0)

        def validate(self, batch: Batch) -> Terms:
            return {"score": torch.tensor(self.scores[self.step // 2 - 1])}

    options = {"best_metric": "valid/score", "save_results_every": 2, "keep_checkpoints": 2, "use_ema": False}
    trainer = make(Scripted, tmp_path / "low", save_model_every=3, **options)
    trainer.train()
    assert trainer.best == {"metric": "valid/score", "value": 1.0, "step": 4}
    kept = sorted(p.name for p in trainer.run.checkpoints.iterdir())
    assert kept == ["step-00000004", "step-00000009", "step-00000012"]
    assert trainer.run.checkpoint("best").name == "step-00000004"
    assert trainer.run.checkpoint("newest").name == "step-00000012"
    resumed = make(Scripted, tmp_path / "low", resume=True, **options)
    assert resumed.best == trainer.best

    highest = make(Scripted, tmp_path / "high", best_is_highest=True, **options)
    highest.train()
    assert highest.best["step"] == 2


def test_a_metric_that_is_not_measured_is_named_with_those_that_are(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, best_metric="valid/pesq", num_train_steps=2)
    with pytest.raises(UserError, match=r"best_metric is 'valid/pesq', but validation gives .*valid/mse"):
        trainer.train()


@pytest.mark.parametrize(("asked", "written"), [(0, 0), (3, 3), (10, 10), (25, 10)])
def test_AT8_as_many_samples_are_written_as_went_in(tmp_path: Path, asked: int, written: int) -> None:
    trainer = make(GanTrainer, tmp_path, num_samples=asked)
    paths = trainer.write_samples()
    kinds = ("original", "reconstruction", "reconstruction-ema")
    assert {p.name for p in paths} == {f"{n:03d}-{kind}.wav" for n in range(written) for kind in kinds}
    assert all(p.parent == tmp_path / "samples" / "step-00000000" and p.exists() for p in paths)


def test_AT8_each_sample_holds_its_own_item_online_beside_averaged(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path, ema_beta=0.99, num_samples=3, lr=0.05)
    for _ in range(10):
        trainer.train_step()
    batch = trainer.data.sample_batch()
    trainer.model.eval()
    expected = {ORIGINAL: batch["audio"][:, 0], "reconstruction": trainer.model.generator(batch["audio"][:, 0])}
    with trainer.ema.swapped():
        expected["reconstruction-ema"] = trainer.model.generator(batch["audio"][:, 0])
    for path in trainer.write_samples():
        number, kind = int(path.stem[:3]), path.stem[4:]
        wave, rate = soundfile.read(path, dtype="float32")
        assert rate == 1000
        assert torch.allclose(torch.from_numpy(wave), expected[kind][number].clamp(-1, 1), atol=1e-4)
    assert not torch.allclose(expected["reconstruction"], expected["reconstruction-ema"], atol=1e-3)


def test_pictures_and_words_are_written_as_such(tmp_path: Path) -> None:
    pixels = torch.zeros(3, 4, 6)
    pixels[0] = 1.0
    paths = write_samples(tmp_path / "new", [{"picture": Picture(pixels), "words": Text("hear, hear")}], None)
    assert [p.name for p in paths] == ["000-picture.png", "000-words.txt"]
    image = Image.open(paths[0])
    assert image.size == (6, 4)
    assert image.getpixel((5, 3)) == (255, 0, 0)
    assert paths[1].read_text() == "hear, hear\n"
