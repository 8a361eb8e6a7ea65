"""The vocoder's trainer: it learns, resumes to the bit, and is the same on two ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from trained import ranks_equal_one, resumed_equals_unbroken
from voicebox_sounds import tiny_vocoder, vowel, write_vowels

from madrigal.voicebox.vocoder.model import Vocoder
from madrigal.voicebox.vocoder.trainer import VocoderTrainer

SCRIPT = Path(__file__).parent / "voicebox_vocoder_on_ranks.py"


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    return write_vowels(tmp_path / "recordings")


def make(recordings: Path, out: Path, model: Vocoder | None = None, **options: Any) -> VocoderTrainer:
    plan = {"batch_size": 2, "num_train_steps": 4, "num_samples": 1, "data_max_length_seconds": 0.3, "use_ema": False}
    model = model or tiny_vocoder(discriminators=True)
    return VocoderTrainer(model, folder=recordings, results_folder=out, **{**plan, **options})


def test_it_learns_to_mend_what_griffin_lim_leaves(recordings: Path, tmp_path: Path) -> None:
    """Nobody can foretell the noise in the recordings, which most of the distance is."""
    options = {"lr": 6e-3, "num_train_steps": 40, "batch_size": 8, "valid_frac": 0.0, "discr_start_step": 1000}
    trainer = make(recordings, tmp_path / "run", tiny_vocoder(discriminators=True, iterations=1, dim=32), **options)
    values = [trainer.train_step()["generator/mel"] for _ in range(40)]
    assert sum(values[-5:]) / 5 < 0.9 * values[0]


def test_statistics_are_measured_before_the_first_step_and_then_kept(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run")
    assert not bool(trainer.model.statistics.fitted)
    trainer.train_step()
    first = trainer.model.statistics.mean.clone()
    assert bool(trainer.model.statistics.fitted)
    assert first.abs().max() > 1
    again = make(recordings, tmp_path / "again", trainer.model, seed=5)
    again.train_step()
    assert torch.equal(again.model.statistics.mean, first)


def test_noise_is_laid_over_the_frames_in_training_only(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", tiny_vocoder(discriminators=True, input_noise=0.5))
    trainer._look_at_first_data()
    batch = {"audio": vowel()[None, None, :6400], "lengths": torch.tensor([6400])}
    clean = [trainer.make(batch, learn=False, adversarial=False)[0] for _ in range(2)]
    noisy = [trainer.make(batch, learn=True, adversarial=False)[0] for _ in range(2)]
    assert torch.equal(*clean)
    assert not torch.allclose(*noisy, atol=1e-4)
    assert trainer.validate(batch).keys() == {"mel"}


def test_discriminators_take_turns_of_their_own(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", discr_start_step=1)
    names = {turn.name: set(turn.parameters) for turn in trainer.turn_states}
    assert not any(name.startswith("discriminators.") for name in names["generator"])
    figures = [trainer.train_step() for _ in range(2)]
    assert "generator/feature" not in figures[0]
    assert figures[1].keys() >= {"generator/feature", "generator/adversarial", "discriminator/spectrogram_128/hinge"}


def test_a_resumed_run_ends_as_one_that_nobody_touched(recordings: Path, tmp_path: Path) -> None:
    options = {
        "num_train_steps": 6,
        "save_model_every": 3,
        "discr_start_step": 1,
        "use_ema": True,
        "ema_update_after_step": 1,
        "ema_update_every": 1,
        "save_results_every": 6,
    }
    started = lambda run, resume: make(recordings, run, resume=resume, **options)
    _, resumed = resumed_equals_unbroken(started, tmp_path, stop=3, steps=6)
    assert sorted(path.name for path in (tmp_path / "whole/samples/step-00000006").iterdir()) == [
        "000-original.wav",
        "000-vocoded-ema.wav",
        "000-vocoded.wav",
    ]
    found = Vocoder.from_pretrained(tmp_path / "whole", discriminators=False)
    assert resumed.ema is not None
    for name, tensor in resumed.ema.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


@pytest.mark.slow
def test_two_ranks_equal_one_with_twice_the_accumulation(recordings: Path, tmp_path: Path) -> None:
    ranks_equal_one(SCRIPT, recordings, tmp_path)
