"""A training that is broken off and resumed ends as one that was not, to the bit."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from spear_trainings import TRAINERS, make, whole_state

from madrigal.data.manifest import Entry, Manifest
from madrigal.data.token_writing import close_folder, open_folder, write_shard
from madrigal.data.tokens import TokenInfo
from madrigal.errors import UserError

OPTIONS = {"target_early_exit_layer": 1, "cond_drop_prob": 0.4, "ff_dropout": 0.1, "ctc_loss_weight": 1.0}
PLANS: dict[str, dict[str, Any]] = {"semantic-to-text": {"mask_prob": 0.35, "freeze_encoder": False}}
"""What a task can do besides, by its name."""


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("name", TRAINERS)
def test_X2_X3_resumed_is_unbroken(name: str, tmp_path: Path) -> None:
    plan = PLANS.get(name, {})
    whole = make(name, tmp_path / "whole", model=OPTIONS, **plan).train()
    broken = make(name, tmp_path / "broken", model=OPTIONS, **plan)

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 4 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    assert broken.step == 4
    resumed = make(name, tmp_path / "broken", model={**OPTIONS, "seed": 7}, resume=True, **plan)
    assert resumed.step == 4
    resumed.train()
    assert_same(whole_state(whole), whole_state(resumed))


@pytest.mark.parametrize("name", TRAINERS)
def test_AT1_validation_changes_nothing_about_training(name: str, tmp_path: Path) -> None:
    plan = PLANS.get(name, {})
    plain, watched = (make(name, tmp_path / folder, model=OPTIONS, **plan) for folder in ("plain", "watched"))
    for _ in range(3):
        expected = plain.train_step()
        watched.validation()
        watched.write_samples()
        assert watched.train_step() == expected
    assert_same(whole_state(plain), whole_state(watched))


@pytest.mark.parametrize("name", TRAINERS)
def test_load_takes_the_weights_with_or_without_the_optimizer(name: str, tmp_path: Path) -> None:
    done = make(name, tmp_path / "done").train()
    done.save(tmp_path / "kept")
    other = make(name, tmp_path / "other", model={"seed": 3})
    other.load(tmp_path / "kept")
    assert_same(whole_state(done), whole_state(other))
    fresh = make(name, tmp_path / "fresh", model={"seed": 3})
    fresh.load(tmp_path / "kept", restore_optimizer=False)
    assert fresh.step == 0
    assert not fresh.turn_states[0].optimizer.state_dict()["state"]


class Ears:
    codebook_size, target_sample_hz, frame_rate = 20, 16000, 50.0

    def __init__(self, name: str) -> None:
        self.name = name

    def fingerprint(self) -> str:
        return self.name


def test_a_run_goes_on_with_the_tokenizer_that_it_began_with(tmp_path: Path) -> None:
    make("speech-speech", tmp_path, wav2vec=Ears("a" * 16)).train()
    with pytest.raises(UserError, match="trained with another tokenizer"):
        make("speech-speech", tmp_path, wav2vec=Ears("b" * 16), resume=True)


def labelled(folder: Path, text: str) -> Path:
    """Four generated pairs."""
    info = TokenInfo(kind="stub", fingerprint="a" * 16, frame_rate=25.0, codebook_size=20)
    entries = [Entry(path=f"{n}.wav", duration=0.24, sample_rate=16000, channels=1, text=text) for n in range(4)]
    manifest = Manifest(folder, entries)
    place = open_folder(folder, info, manifest)
    shard = write_shard(place, 0, info, entries, lambda entry: np.arange(6) + int(entry.path[0]))
    close_folder(place, info, manifest, [shard])
    manifest.write(folder / "manifest.jsonl")
    return folder


def test_a_run_goes_on_with_the_generated_pairs_that_it_began_with(tmp_path: Path) -> None:
    def trainer(folder: str, text: str | None = "so far", **options: Any) -> Any:
        given = options
        if text is not None:
            pairs = labelled(tmp_path / text, text)
            given = {"generated_audio_text_dataset_folder": pairs, "generated_ratio": 0.5, **options}
        return make("text-to-semantic", tmp_path / folder, model=OPTIONS, **given)

    # Nothing is learned yet: other pairs may still take the place of these.
    trainer("broken", "far away")
    whole, broken = trainer("whole").train(), trainer("broken", resume=True)

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 4 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    with pytest.raises(UserError, match="has learned from other generated pairs"):
        trainer("broken", "far away", resume=True)
    with pytest.raises(UserError, match=r"has learned from other generated pairs .* and now none\): give it those"):
        trainer("broken", None, resume=True)
    trainer("bare", None).train()
    with pytest.raises(UserError, match=r"has learned from other generated pairs \(none, .*: give it none"):
        trainer("bare", resume=True)
    resumed = trainer("broken", resume=True)
    assert resumed.step == 4
    assert_same(whole_state(whole), whole_state(resumed.train()))
