"""The trainer: any dataset, nothing but the model in it, and a run that is broken off ends as one that was not."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from voicebox_flows import DIM, HIDING, TRAINERS, Blocks, Rows, distiller, features, ids, model, trainer, whole_state

from madrigal.errors import UserError
from madrigal.voicebox.features import Features
from madrigal.voicebox.filling import fill
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.training import VoiceBoxTrainer


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("name", TRAINERS)
def test_X2_X3_resumed_is_unbroken(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"options": HIDING} if name == "voicebox-flow" else {}
    whole = TRAINERS[name](tmp_path / "whole", **options).train()
    broken = TRAINERS[name](tmp_path / "broken", **options)

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 4 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    resumed = TRAINERS[name](tmp_path / "broken", **options, resume=True)
    assert resumed.step == 4
    assert_same(whole_state(whole), whole_state(resumed.train()))


def test_VB6_AT1_validation_changes_nothing_about_training(tmp_path: Path) -> None:
    plain, watched = (trainer(tmp_path / folder, options=HIDING) for folder in ("plain", "watched"))
    for _ in range(3):
        expected = plain.train_step()
        figures = watched.validation()
        assert watched.validation() == figures  # the same times, spans and noise, every time
        watched.write_samples()
        assert watched.train_step() == expected
    assert_same(whole_state(plain), whole_state(watched))


@pytest.mark.parametrize("kind", ["wave", "tuple", "dict", "features"])
def test_a_dataset_may_give_waves_features_pairs_or_dicts(kind: str, tmp_path: Path) -> None:
    has_ids = kind in ("tuple", "dict")
    made = trainer(
        tmp_path, options={"condition_on_text": has_ids}, tool=Blocks(), dataset=Rows(kind=kind), num_train_steps=2
    )
    x1, lengths, said = made.heard(made.collate([Rows(kind=kind)[index] for index in range(3)]))
    plain = [Rows(kind="dict")[index] for index in range(3)]
    for row, item in enumerate(plain):
        assert torch.equal(x1[row, : lengths[row]], item["features"])
        assert said is None or torch.equal(said[row, : lengths[row]], item["ids"])
    assert (said is None) is not has_ids
    assert made.units(made.collate([Rows(kind=kind)[0]])) == len(plain[0]["ids"])
    made.train()


def test_symbols_with_durations_become_ids_of_frames(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    item = {"features": features(1, 5)[0], "symbols": torch.tensor([3, 4]), "durations": torch.tensor([2, 3])}
    assert made.heard(made.collate([item]))[2] == pytest.approx(torch.tensor([[3, 3, 4, 4, 4]]))


def test_VB14_optimizer_and_checkpoint_hold_the_model_alone(tmp_path: Path) -> None:
    class Tool(nn.Linear):
        dim, hop, sample_rate = DIM, DIM, 600

        def fingerprint(self) -> str:
            return "c" * 16

    tool = Tool(2, 2)
    before = tool.weight.clone()
    run = VoiceBoxTrainer(
        ConditionalFlowMatcherWrapper(model(fresh=True), tool),
        dataset=Rows(),
        num_train_steps=2,
        batch_size=3,
        valid_frac=0,
        results_folder=tmp_path,
    ).train()
    held = {id(p) for group in run.turn_states[0].optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in run.model.parameters()}
    assert torch.equal(tool.weight, before)
    again = VoiceBox.from_pretrained(tmp_path, averaged=False)
    assert_same(dict(again.state_dict()), dict(run.model.state_dict()))


def test_VB15_padding_of_a_batch_is_never_trained(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    batch = made.collate([Rows()[index] for index in range(3)])
    wild = {name: value.clone() for name, value in batch.items()}
    for row, length in enumerate(batch["features_lengths"].tolist()):
        wild["features"][row, length:] = 1e3
    losses = []
    for given in (batch, wild):
        torch.manual_seed(0)
        losses.append(made.loss("", given)["flow"])
    torch.testing.assert_close(losses[0], losses[1])


def test_VB16_epochs_count_batches_of_the_training_share(tmp_path: Path) -> None:
    made = trainer(tmp_path, dataset=Rows(30), num_train_steps=None, num_epochs=2, grad_accum_every=2, valid_frac=0.2)
    assert made.num_train_steps == 2 * 24 // 3 // 2


def test_older_words_of_the_trainer(tmp_path: Path) -> None:
    made = trainer(tmp_path, warmup_steps=None, num_warmup_steps=5, log_every=2, force_clear_prev_results=False)
    assert (made.plan.warmup_steps, made.plan.log_losses_every) == (5, 2)
    with pytest.raises(UserError, match="are the same"):
        trainer(tmp_path, num_warmup_steps=5)
    assert made.plan.initial_lr == 1e-5
    assert made.plan.scheduler == "cosine"
    assert torch.equal(made.generate(ids=ids(1, 5), steps=1), made.wrapper.sample(ids=ids(1, 5), steps=1))


def test_batches_by_tokens_hold_rows_of_like_length(tmp_path: Path) -> None:
    made = trainer(tmp_path, tokens_per_batch=40, valid_frac=0.1)
    for batch in made.data.feed("all turns").micro_batches(0):
        assert batch["features"].shape[0] * batch["features"].shape[1] <= 40


def test_it_learns(tmp_path: Path) -> None:
    made = trainer(tmp_path, options={"dim": 32}, num_train_steps=60, batch_size=8, save_results_every=1000, lr=2e-2)
    before = made.validation()["valid/loss"]
    made.train()
    assert made.validation()["valid/loss"] < 0.6 * before


def test_samples_are_a_picture_and_sound(tmp_path: Path) -> None:
    made = trainer(tmp_path, tool=Blocks())
    names = {path.name for path in made.write_samples()}
    assert {"000-original.wav", "000-made.wav", "000-made-ema.wav", "000-picture.png", "001-made.wav"} <= names
    silent = trainer(tmp_path / "silent")
    assert {path.name for path in silent.write_samples()} >= {"000-picture.png", "001-picture-ema.png"}


def test_recordings_without_ids_are_refused_to_a_model_of_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="condition_on_text=False"):
        trainer(tmp_path / "run", folder=tmp_path, dataset=None)


class Halves(Features):
    """Features that have to be fitted: the samples, DIM to a frame."""

    def __init__(self) -> None:
        super().__init__(dim=DIM, sample_rate=600, hop=DIM)

    def raw(self, wave: Tensor) -> Tensor:
        return wave[:, : wave.shape[1] // DIM * DIM].unflatten(1, (-1, DIM))

    def sound(self, raw: Tensor) -> Tensor:
        return raw.flatten(1)

    def options(self) -> dict[str, Any]:
        return {"kind": "halves"}


def test_features_that_were_never_fitted_are_fitted_once_and_kept_with_the_model(tmp_path: Path) -> None:
    run = trainer(tmp_path, tool=Halves(), dataset=Rows(kind="tuple"), num_train_steps=2).train()
    assert run.model.std.any()
    assert torch.equal(run.wrapper.features.mean, run.model.mean)
    fresh = Halves()
    again = ConditionalFlowMatcherWrapper(VoiceBox.from_pretrained(tmp_path), fresh)
    wave = torch.randn(1, 30)
    torch.testing.assert_close(again.heard(wave)[0], run.wrapper.heard(wave)[0])


def test_a_run_goes_on_with_the_features_that_it_began_with(tmp_path: Path) -> None:
    def fitted(level: float) -> Halves:
        tool = Halves()
        tool.take_statistics(torch.full((DIM,), level), torch.ones(DIM))
        return tool

    trainer(tmp_path, tool=fitted(0.0), num_train_steps=2).train()
    with pytest.raises(UserError, match="another features"):
        trainer(tmp_path, tool=fitted(1.0), num_train_steps=2, resume=True)


# Distillation.


def test_a_student_comes_nearer_than_its_teacher_in_as_many_steps(tmp_path: Path) -> None:
    teacher = model(fresh=True)
    torch.nn.init.normal_(teacher.to_flow.weight, std=0.5)
    run = distiller(
        tmp_path,
        teacher=teacher,
        teacher_cond_scale=1.0,
        num_train_steps=60,
        batch_size=8,
        lr=5e-3,
        save_results_every=1000,
    )
    before = run.validation()
    assert before["valid/end"] == pytest.approx(before["valid/few"], rel=1e-4)  # it begins as its teacher
    run.train()
    after = run.validation()
    assert after["valid/few"] == pytest.approx(before["valid/few"], rel=1e-4)
    assert after["valid/end"] < 0.7 * after["valid/few"]


def test_a_student_knows_its_own_way_alone(tmp_path: Path) -> None:
    run = distiller(tmp_path, num_train_steps=2, sway=-0.5).train()
    student = VoiceBox.from_pretrained(tmp_path)
    assert (student.config.distilled_steps, student.config.distilled_sway) == (2, -0.5)
    filled = fill(student, [6], ids=ids(1, 6))
    assert filled.evaluations == 2
    with pytest.raises(UserError, match="distilled to steps=2"):
        fill(student, [6], ids=ids(1, 6), steps=8)
    with pytest.raises(UserError, match="cond_drop_prob"):
        fill(student, [6], ids=ids(1, 6), cond_scale=2.0)
    with pytest.raises(UserError, match="distilled itself"):
        distiller(tmp_path / "more", teacher=student, teacher_cond_scale=1.0)
    assert not any(p.requires_grad for p in run.teacher.parameters())


def test_guidance_of_a_teacher_that_has_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cond_drop_prob"):
        distiller(tmp_path, teacher=model(), teacher_cond_scale=2.0)


def test_a_student_goes_on_with_its_teacher(tmp_path: Path) -> None:
    distiller(tmp_path, num_train_steps=2).train()
    with pytest.raises(UserError, match="another teacher"):
        distiller(tmp_path, num_train_steps=2, teacher=model(seed=5, cond_drop_prob=0.2), resume=True)


@pytest.mark.parametrize("items", [[torch.zeros(4, DIM + 1, 2)], [(torch.zeros(9), torch.zeros(9))]])
def test_items_that_nobody_understands_are_refused(items: list[Any], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        trainer(tmp_path).collate(items)
