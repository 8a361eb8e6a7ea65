"""The demo stops a training as a scheduler would, and may be given again."""

import sys
from pathlib import Path

import pytest

from madrigal import demo

TRAINING = """
import pathlib, shutil, signal, sys, time
time.sleep(0.7)  # as torch is loaded: whoever is told to stop now is gone
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
checkpoints = pathlib.Path(sys.argv[1]) / "checkpoints"
shutil.rmtree(checkpoints, ignore_errors=True)
(checkpoints / "step-00000002").mkdir(parents=True)
time.sleep(20)
sys.exit(3)
"""


@pytest.mark.parametrize("has_one", [False, True])
def test_a_training_is_stopped_after_a_checkpoint_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_one: bool
) -> None:
    """Not after one that an earlier demo has left."""
    if has_one:
        (tmp_path / "checkpoints" / "step-00000009").mkdir(parents=True)
    monkeypatch.setattr(demo, "_command", lambda arguments: [sys.executable, "-c", TRAINING, *arguments])
    demo._train_and_stop([str(tmp_path)], tmp_path)
    assert [step.name for step in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]


def test_it_speaks_before_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(demo, "_madrigal", lambda arguments: calls.append(arguments[0]))
    monkeypatch.setattr(demo, "render_speech", lambda *_, **__: calls.append("render"))
    monkeypatch.setattr(demo, "_train_and_stop", lambda *_: calls.append("train"))
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "report.html").write_text("")
    assert demo.run_demo(tmp_path) == tmp_path / "report.html"
    assert calls == ["say", "render", "train", "train", "evaluate"]
