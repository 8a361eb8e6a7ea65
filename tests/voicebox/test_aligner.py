"""An aligner that learns when each symbol is said, and its trainer."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import on_two_ranks
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence
from voicebox_timed_trainings import align_trainer, train, whole_state
from voicebox_tones import HOP, RATE, aligner, corpus, said, text_of

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.voicebox.aligner import Aligner

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return align_trainer(tmp_path_factory.mktemp("trained"), num_train_steps=70).train()


def rows(model: Aligner, numbers: range) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any], list[list[int]]]:
    pairs = [said(text_of(number), number) for number in numbers]
    symbols = [torch.tensor(model.symbols.encode(text_of(number))) for number in numbers]
    sizes = {
        "samples": torch.tensor([len(wave) for wave, _ in pairs]),
        "lengths": torch.tensor([len(row) for row in symbols]),
    }
    waves = pad_sequence([wave for wave, _ in pairs], batch_first=True)
    return waves, pad_sequence(symbols, batch_first=True, padding_value=PAD), sizes, [frames for _, frames in pairs]


def test_VB9_it_learns_when_each_symbol_is_said(trained: Any) -> None:
    """Nobody told it where a symbol is, and these recordings were never heard."""
    waves, symbols, sizes, true = rows(trained.model.eval(), range(500, 510))
    found = trained.model.align(waves, symbols, **sizes)
    ends = [torch.tensor(row).cumsum(0) for row in true]
    wrong = torch.cat([(found.durations[n, : len(row)].cumsum(0) - row).abs() for n, row in enumerate(ends)])
    assert float((wrong <= 2).float().mean()) > 0.9
    beginner = aligner().align(waves, symbols, **sizes)
    unlearned = torch.cat([(beginner.durations[n, : len(row)].cumsum(0) - row).abs() for n, row in enumerate(ends)])
    assert float(wrong.float().mean()) < 0.3 * float(unlearned.float().mean())
    assert found.durations.sum(1).tolist() == (sizes["samples"] // HOP).tolist()


def test_the_confidence_falls_where_the_text_is_another(trained: Any) -> None:
    model = trained.model.eval()
    wave, _ = said("abc def", 3)
    right, wrong = (model.align_text(wave, text)[2] for text in ("abc def", "fed ebc"))
    assert 0 <= wrong < right <= 1


def test_a_padded_recording_is_aligned_as_the_recording_alone(trained: Any) -> None:
    model = trained.model.eval()
    waves, symbols, sizes, _ = rows(model, range(600, 604))
    noisy = waves + 0.1 * (torch.arange(waves.shape[1]) >= sizes["samples"][:, None])
    together = model.align(noisy, symbols, **sizes)
    for row, number in enumerate(range(600, 604)):
        own, durations, sure = model.align_text(said(text_of(number), number)[0], text_of(number))
        assert own.equal(symbols[row, : len(own)])
        assert durations.equal(together.durations[row, : len(own)])
        assert sure == pytest.approx(float(together.confidence[row]), abs=1e-4)


def test_a_recording_that_is_too_short_is_refused() -> None:
    with pytest.raises(UserError, match=r"^The recording has 3 frames and its text 9 symbols.*own\.$"):
        aligner().align_text(torch.zeros(3 * HOP + 5), "abc def")
    with pytest.raises(UserError, match=r"^me\.wav has 3 frames"):
        aligner().align_text(torch.zeros(3 * HOP + 5), "abc def", "me.wav")


def test_a_recording_that_is_too_long_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("madrigal.voicebox.aligner.MOST_SECONDS", 2.0)
    with pytest.raises(UserError, match=r"me\.wav has 3 seconds, and words are found in 2 at most"):
        aligner().align_text(torch.zeros(3 * RATE), "abc", "me.wav")


def test_a_saved_aligner_aligns_alike(trained: Any, tmp_path: Path) -> None:
    model = trained.model.eval()
    again = Aligner.from_pretrained(model.save_pretrained(tmp_path))
    assert again.fingerprint() == model.fingerprint() != aligner().fingerprint()
    wave, _ = said("abc def", 3)
    assert again.align_text(wave, "abc def")[1].equal(model.align_text(wave, "abc def")[1])


def test_validation_and_samples_are_written(trained: Any) -> None:
    figures = [json.loads(line) for line in (trained.run.path / "metrics.jsonl").read_text().splitlines()]
    curve = [line["valid/symbol"] for line in figures if "valid/symbol" in line]
    assert curve[-1] < 0.5 * curve[0]
    names = {file.name.split("-", 1)[1] for file in trained.run.path.glob("samples/*/*")}
    assert {"alignment.png", "symbols.txt", "alignment-ema.png", "symbols-ema.txt"} <= names


def test_X2_X3_a_resumed_aligner_is_an_unbroken_one(tmp_path: Path) -> None:
    whole = align_trainer(tmp_path / "whole").train()
    broken = align_trainer(tmp_path / "broken")

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 3 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    assert broken.step == 3
    resumed = align_trainer(tmp_path / "broken", seed=7, resume=True).train()
    first, second = whole_state(whole), whole_state(resumed)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_recordings_that_cannot_be_aligned_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = align_trainer(tmp_path / "run", spoiled=True)
    captured = capsys.readouterr()
    told = captured.err + captured.out
    assert "3 of 24 recordings" in told
    assert len(trainer.data.train) + len(trainer.data.valid) == 21


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    two, one = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    for folder in (two, one):
        corpus(folder / "recordings", 12)
    on_two_ranks(HERE / "voicebox_timed_trainings.py", two)
    train(one, 2)
    return two, one


@pytest.mark.parametrize("name", ["aligner", "flow", "regression"])
def test_two_ranks_are_one_with_twice_the_accumulation(name: str, folders: tuple[Path, Path]) -> None:
    two, one = folders
    first, second = (load_file(two / f"{name}-{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(first[key], second[key]) for key in first)
    alone = load_file(one / f"{name}-0.safetensors")
    for key in first:
        torch.testing.assert_close(first[key], alone[key], atol=2e-5, rtol=1e-3)
    figures = [
        [json.loads(line) for line in (folder / name / "run" / "metrics.jsonl").read_text().splitlines()]
        for folder in folders
    ]
    for found, wanted in zip(*figures, strict=True):
        for key in set(found) & {"loss", "valid/loss", "valid/symbol", "valid/milliseconds", "valid/ema/loss"}:
            assert found[key] == pytest.approx(wanted[key], rel=1e-3, abs=1e-5), key


def test_the_frames_are_whole_hops() -> None:
    assert aligner().frames(torch.tensor([RATE, HOP - 1, 5 * HOP + 1])).tolist() == [RATE // HOP, 0, 5]
