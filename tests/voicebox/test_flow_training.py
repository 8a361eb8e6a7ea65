"""The trainer: any dataset, nothing but the model in it, and a run that is broken off ends as one that was not."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from voicebox_flows import DIM, HIDING, TRAINERS, Blocks, Halves, Rows, ids, model, trainer, whole_state

from madrigal.data.source import AudioSource
from madrigal.errors import UserError
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.training import VoiceBoxTrainer


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def fitting(place: Path, **plan: Any) -> VoiceBoxTrainer:
    """Features that are fitted in the first step, and have to be the same when the run goes on."""
    return trainer(place, options=HIDING, tool=Halves(), dataset=Rows(kind="tuple"), **plan)


@pytest.mark.parametrize("name", [*TRAINERS, "fitting"])
def test_X2_X3_resumed_is_unbroken(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"options": HIDING} if name == "voicebox-flow" else {}
    build = {**TRAINERS, "fitting": fitting}[name]
    whole = build(tmp_path / "whole", **options).train()
    broken = build(tmp_path / "broken", **options)

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 4 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    resumed = build(tmp_path / "broken", **options, resume=True)
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


def test_the_original_of_a_sample_is_the_recording(tmp_path: Path) -> None:
    class Lossy(Blocks):
        """What is decoded is not what was heard."""

        def decode(self, frames: Tensor) -> Tensor:
            return super().decode(frames) * 0.5

    made = trainer(tmp_path, tool=Lossy(), dataset=Rows(kind="tuple"))
    items = [Rows(kind="tuple")[index] for index in range(2)]
    for (wave, _), sample in zip(items, made.sample(made.collate(items)), strict=True):
        assert torch.equal(sample["original"].wave.flatten(), wave)  # type: ignore[union-attr]


def test_guidance_that_the_samples_could_not_have_is_refused_before_the_run_is_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cond_drop_prob"):
        trainer(tmp_path / "run", sample_cond_scale=2.0)
    assert not (tmp_path / "run").exists()


def test_recordings_are_named_once_and_with_ids(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="condition_on_text=False"):
        trainer(tmp_path / "run", folder=tmp_path, dataset=None)
    with pytest.raises(UserError, match="a folder and a source"):
        trainer(tmp_path / "run", folder=tmp_path, source=AudioSource(path=tmp_path), dataset=None)
