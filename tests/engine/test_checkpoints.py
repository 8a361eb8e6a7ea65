"""Checkpoints: whole or not there, checked, kept as the plan says, and never a pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from toys import GanTrainer, RegressionTrainer, ToyConfig, ToyGan, ToyRegression, assert_identical, make, saved_state
from toys import whole_state as state_of

from madrigal.engine.checkpoint import (
    DamagedCheckpoint,
    checkpoint_name,
    checkpoints,
    newest_whole,
    prune,
    read_state,
    write_checkpoint,
)
from madrigal.errors import UserError

PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")


def written(folder: Path, step: int, value: float = 0.0) -> Path:
    tensors = {"model": {"w": torch.full((3,), value)}}
    return write_checkpoint(folder / checkpoint_name(step), tensors, {"config.json": {}}, {"step": step})


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> GanTrainer:
    trainer = make(
        GanTrainer, tmp_path_factory.mktemp("finished"), num_train_steps=10, recipe={"system": "toy", "n": 1}
    )
    return trainer.train()


def test_X3_a_checkpoint_holds_all_that_later_steps_depend_on(finished: GanTrainer) -> None:
    newest = finished.run.checkpoints / "step-00000010"
    state = json.loads((newest / "state.json").read_text())
    assert state["step"] == 10
    assert state["system"] == "toy"
    assert state["recipe"] == {"system": "toy", "n": 1}
    assert set(state["turns"]) == {"generator", "critic", "judge"}
    assert {"skipped", "skipped_in_a_row", "precision"} <= state["turns"]["critic"].keys()
    assert state.keys() >= {"best", "version", "format"}
    assert set(state["files"]) == {p.name for p in newest.iterdir()} - {"state.json"}
    assert json.loads((newest / "config.json").read_text()) == {"hidden": 16}
    expected = {n: t for n, t in state_of(finished).items() if "ears" not in n}
    assert_identical(saved_state(newest), expected)


def test_X3_there_is_one_at_the_end_and_none_at_the_start(finished: GanTrainer) -> None:
    assert [p.name for p in checkpoints(finished.run.checkpoints)] == [checkpoint_name(n) for n in (4, 8, 10)]
    assert not list(finished.run.checkpoints.glob(".*"))


def test_no_pickle_is_written_anywhere(finished: GanTrainer) -> None:
    files = [p for p in finished.run.path.rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".safetensors", ".json", ".jsonl", ".yaml", ".wav"}
    assert not [p for p in files if p.read_bytes().startswith(PICKLES)]


def test_AT26_every_loader_takes_up_what_was_written(finished: GanTrainer, tmp_path: Path) -> None:
    newest = finished.run.checkpoints / "step-00000010"
    assert len(finished.model.state_dict()) > 20
    other = make(GanTrainer, tmp_path, model=ToyGan())
    other.model.ears.load_state_dict(finished.model.ears.state_dict())
    other.load(newest)
    assert other.step == 10
    assert_identical(state_of(other), state_of(finished))

    averaged = ToyGan.from_pretrained(newest)
    online = ToyGan.from_pretrained(finished.run.path, averaged=False)
    assert torch.equal(online.generator[0].weight, finished.model.generator[0].weight)
    assert torch.equal(averaged.generator[0].weight, finished.ema.state_dict()["generator.0.weight"])
    assert averaged.config == ToyConfig()


@pytest.mark.parametrize("name", ["exp7/final", "toy.1000.ema.v2", "step-00000003"])
def test_X2_AT6_step_comes_from_the_checkpoint_not_from_its_name(tmp_path: Path, name: str) -> None:
    trainer = make(RegressionTrainer, tmp_path / "a")
    for _ in range(5):
        trainer.train_step()
    trainer.save(tmp_path / name)
    other = make(RegressionTrainer, tmp_path / "b")
    other.load(tmp_path / name)
    assert other.step == 5
    assert type(other.step) is int


def test_X13_the_step_is_a_whole_number_before_and_after(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path)
    trainer.train_step()
    assert type(trainer.step) is int
    trainer.save(tmp_path / "one")
    trainer.load(tmp_path / "one")
    assert type(trainer.step) is int


def test_fine_tuning_takes_the_best_weights_and_nothing_else(finished: GanTrainer, tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path, model=ToyGan())
    trainer.load(finished.run.checkpoints / "step-00000010", restore_optimizer=False)
    average = finished.ema.state_dict()
    assert torch.equal(trainer.model.generator[0].weight, average["generator.0.weight"])
    assert torch.equal(trainer.ema.state_dict()["generator.0.weight"], average["generator.0.weight"])
    assert trainer.step == 0
    assert not any(turn.state_tensors() for turn in trainer.turn_states)
    # What was learned must not be set anew from the first batch, as it is in a run that begins.
    trainer.train_step()
    assert torch.allclose(trainer.model.codebook, average["codebook"], atol=0.011)


def test_fine_tuning_takes_the_average_of_a_tensor_with_two_names(tmp_path: Path) -> None:
    def tied() -> ToyRegression:
        model = ToyRegression()
        model.again = nn.Linear(8, 8, bias=False)
        model.again.weight = model.line.weight
        return model

    trainer = make(RegressionTrainer, tmp_path / "a", model=tied(), ema_update_after_step=0, lr=0.1)
    for _ in range(4):
        trainer.train_step()
    trainer.save(tmp_path / "checkpoint")
    other = make(RegressionTrainer, tmp_path / "b", model=tied())
    other.load(tmp_path / "checkpoint", restore_optimizer=False)
    assert torch.equal(other.model.line.weight, trainer.ema.state_dict()["line.weight"])
    assert not torch.equal(other.model.line.weight, trainer.model.line.weight)


def test_a_checkpoint_of_another_model_is_refused_in_a_sentence(finished: GanTrainer, tmp_path: Path) -> None:
    newest = finished.run.checkpoints / "step-00000010"
    trainer = make(GanTrainer, tmp_path, model=ToyGan(ToyConfig(hidden=5)))
    before = state_of(trainer)
    with pytest.raises(UserError, match=r"does not fit this model: model\.hidden is 16 there and 5 here; use the"):
        trainer.load(newest)
    assert_identical(state_of(trainer), before)
    with pytest.raises(UserError, match="does not fit this model"):
        make(RegressionTrainer, tmp_path / "other").load(newest)
    with pytest.raises(UserError, match="There is no checkpoint folder"):
        trainer.load(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "state", "step", "empty state"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path, damage: str) -> None:
    good, bad = written(tmp_path, 5), written(tmp_path, 10)
    weights, state = bad / "model.safetensors", bad / "state.json"
    if damage == "flip":
        flip_a_bit(weights)
    elif damage == "cut":
        os.truncate(weights, 20)
    elif damage == "missing":
        weights.unlink()
    elif damage == "state":
        state.write_text(state.read_text()[:-10])
    elif damage == "step":
        state.write_text(state.read_text().replace('"step": 10', '"step": 18'))
    else:
        state.write_text("")
    said: list[str] = []
    assert newest_whole(tmp_path, said.append) == good
    assert len(said) == 1
    assert str(bad) in said[0]
    assert "Going back to the one before it" in said[0]
    with pytest.raises(DamagedCheckpoint, match="step-00000010 is damaged"):
        read_state(bad)
    assert read_state(good)["step"] == 5


def test_a_checkpoint_of_a_later_format_is_not_misread(tmp_path: Path) -> None:
    state = written(tmp_path, 1) / "state.json"
    state.write_text(state.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(DamagedCheckpoint, match="format 99, this version reads 1"):
        read_state(state.parent)


def test_resuming_passes_over_damage_and_its_remains_take_no_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(RegressionTrainer, tmp_path, num_train_steps=8, keep_checkpoints=2).train()
    flip_a_bit(tmp_path / "checkpoints" / "step-00000008" / "optimizer.safetensors")
    capfd.readouterr()
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=7, keep_checkpoints=1, save_model_every=6, resume=True)
    said = capfd.readouterr().err
    assert "step-00000008 is damaged: optimizer.safetensors is not what was written" in said
    assert "at step 4" in said
    trainer.train()
    assert newest_whole(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-00000007"
    assert (tmp_path / "checkpoints" / "damaged-step-00000008" / "model.safetensors").exists()


def test_when_no_checkpoint_is_whole_nothing_is_begun_anew(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=4, save_model_every=4).train()
    flip_a_bit(tmp_path / "checkpoints" / "step-00000004" / "model.safetensors")
    with pytest.raises(UserError, match=r"No checkpoint in .* is whole; start over with --overwrite"):
        make(RegressionTrainer, tmp_path, resume=True)
    with pytest.raises(UserError, match="is whole"):
        trainer.run.checkpoint("best")
    assert (tmp_path / "checkpoints" / "step-00000004").exists()


def test_a_run_gives_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    run = make(RegressionTrainer, tmp_path, num_train_steps=8).train().run
    flip_a_bit(run.checkpoints / "step-00000008" / "model.safetensors")
    assert run.checkpoint("newest").name == run.checkpoint("best").name == "step-00000004"
    assert run.checkpoint("8").name == "step-00000008"
    with pytest.raises(UserError, match="no checkpoint of step 5; it has step-00000004, step-00000008"):
        run.checkpoint("5")


def test_retention_keeps_the_newest_and_the_best_and_sweeps_what_killed_writers_left(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10, 100):
        written(tmp_path, step)
    for leftover in (".partial-step-00000004-77", ".removed-step-00000001"):
        (tmp_path / leftover).mkdir()
    prune(tmp_path, 2, "step-00000002")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000002", "step-00000010", "step-00000100"]


def test_a_checkpoint_is_replaced_as_a_whole(tmp_path: Path) -> None:
    written(tmp_path, 1, 1.0)
    written(tmp_path, 1, 2.0)
    assert saved_state(tmp_path / "step-00000001")["model/w"].tolist() == [2.0] * 3
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("broken", ["os.fsync", "os.rename"])
def test_a_write_that_fails_says_so_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    written(tmp_path, 1, 1.0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(broken, full)
        with pytest.raises(UserError, match=r"could not be written .*No space left.*make room"):
            written(tmp_path, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert read_state(tmp_path / "step-00000001")["step"] == 1


def test_everything_is_synced_before_the_name_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, rename = os.fsync, Path.rename

    def noted_sync(descriptor: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    written(tmp_path, 1)
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert {"model.safetensors", "config.json", "state.json"} <= set(before)
    assert before[-1].startswith(".partial-")
    assert after == [tmp_path.name]
