"""A vocoder is judged by what it makes of recordings' own log-mels, beside Griffin-Lim."""

from pathlib import Path

import numpy as np
import pytest
from voicebox_sounds import write_vowels

from madrigal.cli import main
from madrigal.judge.codec import Utterance, evaluate_copies


def test_copies_are_judged_against_what_went_in() -> None:
    rng = np.random.default_rng(0)
    items = [Utterance(str(number), rng.standard_normal((1, 16000)) * 0.1, 16000) for number in range(3)]
    copies = {"same": lambda wave, rate: wave, "noisy": lambda wave, rate: wave + rng.standard_normal(wave.shape)}
    report = evaluate_copies(items, copies, metrics=("mel",), workers=0)
    same, noisy = (next(s for s in report.systems if s.name == name) for name in copies)
    assert same.metrics["mel"].mean < noisy.metrics["mel"].mean
    assert same.measured_kbps is None


def run(*arguments: object) -> int:
    """The status that the command ends with."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_evaluate_and_export_take_a_vocoders_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recordings = write_vowels(tmp_path / "recordings", 4)
    assert run("train", "vocoder/tiny", f"data={recordings}", "plan.num_train_steps=2", "--run", "runs/v") == 0
    judge = ["evaluate", "runs/v", "--data", recordings, "--limit", 2]
    assert run(*judge) == 0
    assert "Griffin-Lim" in capsys.readouterr().out
    assert (tmp_path / "runs/v/evaluation/report.html").is_file()
    assert run(*judge, "--kbps", 3) == 2
    assert "--kbps is for a codec" in capsys.readouterr().err
    for option, value in (("--device", "cuda"), ("--seed", 1), ("--holes", 3), ("--no-opus", None)):
        assert run(*judge, option, *([] if value is None else [value])) == 2
        assert "is for" in capsys.readouterr().err
    assert run("export", "runs/v", "exported") == 0
    assert (tmp_path / "exported/config.json").is_file()
