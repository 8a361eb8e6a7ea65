"""All of a voice by one recipe: what it makes, what may be left out, and where parts may come from."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from small_codecs import small_codec
from voicebox_speaking import hum

from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.judge.curves import curves_of_parts
from madrigal.verbs.systems import load_recipe
from madrigal.voicebox.loading import load_voicebox
from madrigal.voicebox.training import VoiceBoxTrainer
from madrigal.voicebox.voice import Voice, voice_files
from madrigal.voicebox.whole_recipe import VoiceboxWholeRecipe
from madrigal.voicebox_evaluation import CURVES

PARTS = ["aligner", "vocoder", "durations", "flow"]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight recordings with texts, of two speakers."""
    folder = tmp_path_factory.mktemp("corpus") / "recordings"
    folder.mkdir()
    lines = ["file_name,text,speaker"]
    for number in range(8):
        hum(folder / f"{number}.wav", seconds=1.0, pitch=110.0 + 20 * number)
        lines.append(f"{number}.wav,hum number {number},{'anna' if number % 2 else 'bert'}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder


def recipe(corpus: Path, *changes: str) -> Any:
    words = [f"data={corpus}", *changes]
    return build_config(VoiceboxWholeRecipe, read_recipe("voicebox/tiny", words), "voicebox/tiny")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "voicebox"
    recipe(corpus).trainer(run).train()
    return run


def stamps(run: Path, *parts: str) -> dict[Path, int]:
    files = [file for part in parts for file in (run / part).rglob("*") if file.suffix in (".safetensors", ".npy")]
    assert files
    return {file: file.stat().st_mtime_ns for file in files}


def test_a_run_of_all_parts_speaks_in_the_voices_of_its_speakers(run: Path) -> None:
    assert all(list((run / part / "checkpoints").iterdir()) for part in PARTS)
    said = yaml.safe_load((run / "flow/recipe.yaml").read_text())
    assert said["features"] == str(run / "vocoder")
    assert said["data"]["alignments"] == str(run / "alignments")
    model = load_voicebox(run)
    assert list(model.voices) == ["anna", "bert"]
    voice = Voice.load(voice_files(run)["anna"])
    assert (voice.about or {})["speaker"] == "anna"
    assert model.aligner.symbols.decode(voice.symbols).startswith("hum number")  # type: ignore[arg-type]
    speech = model.say("Hum.", voice="bert")
    assert speech.sample_rate == 24000
    assert speech.wave.isfinite().all()


def test_every_part_of_a_run_is_drawn_in_its_report(run: Path) -> None:
    assert [line.name for line in curves_of_parts(run, CURVES)] == PARTS


def test_what_is_finished_is_passed_over(run: Path, corpus: Path) -> None:
    before = stamps(run, *PARTS, "alignments", "voices")
    recipe(corpus).trainer(run, resume=True).train()
    assert stamps(run, *PARTS, "alignments", "voices") == before


def test_a_run_that_was_stopped_goes_on_in_the_part_where_it_was(
    run: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in its last part, it ends with the bytes of the run that was not."""
    loss = VoiceBoxTrainer.loss

    def interrupted(self: VoiceBoxTrainer, turn: str, batch: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, turn, batch)

    taken = [f"{part}={run / part}" for part in ("aligner", "vocoder", "durations")]
    taken.append(f"alignments={run / 'alignments'}")
    with monkeypatch.context() as patch:
        patch.setattr(VoiceBoxTrainer, "loss", interrupted)
        recipe(corpus, *taken).trainer(tmp_path / "run").train()
    assert not list((tmp_path / "run/flow/checkpoints").glob("step-00000004"))
    assert not (tmp_path / "run/voices").exists()
    recipe(corpus, *taken).trainer(tmp_path / "run", resume=True).train()
    assert list(voice_files(tmp_path / "run")) == ["anna", "bert"]
    last = "flow/checkpoints/step-00000004/model.safetensors"
    assert (tmp_path / "run" / last).read_bytes() == (run / last).read_bytes()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["data", "flow", "recipe.yaml", "voices"]
    assert load_voicebox(tmp_path / "run").say("Hum.").wave.isfinite().all()


def test_a_student_speaks_in_the_place_of_the_flow(run: Path, corpus: Path, tmp_path: Path) -> None:
    taken = [f"{part}={run / part}" for part in PARTS]
    whole = recipe(
        corpus, *taken, f"alignments={run / 'alignments'}", "student={recipe: voicebox-distill/tiny}", "voices=0"
    )
    assert whole.parts == ["student"]
    whole.trainer(tmp_path / "run").train()
    model = load_voicebox(tmp_path / "run")
    assert model.voicebox.config.distilled_steps == 2
    assert model.say("Hum.").wave.isfinite().all()
    with pytest.raises(UserError, match="distilled to steps=2"):
        model.say("Hum.", steps=5)
    # What the student's run says of itself is enough to go on with it.
    student = tmp_path / "run" / "student"
    again = load_recipe(str(student / "recipe.yaml"), []).trainer(student, resume=True)
    assert again.step == again.num_train_steps


def test_overwriting_removes_what_the_run_made_and_nothing_else(run: Path, corpus: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "notes").mkdir()
    (mine / "voices/readme.txt").write_text("mine")
    recipe(corpus).trainer(mine, overwrite=True)
    assert sorted(path.name for path in mine.iterdir()) == ["alignments", "data", "notes", "recipe.yaml", "voices"]
    assert list((mine / "alignments").iterdir()) == []
    assert [path.name for path in (mine / "voices").iterdir()] == ["readme.txt"]


def test_VB8_a_whole_run_makes_the_latents_of_a_codec(run: Path, corpus: Path, tmp_path: Path) -> None:
    small_codec(16, 2).save_pretrained(tmp_path / "codec")
    grid = ("aligner.model.sample_rate=16000", "aligner.model.hop=320")
    recipe(corpus, f"vocoder={tmp_path / 'codec'}", *grid).trainer(tmp_path / "run").train()
    model = load_voicebox(tmp_path / "run")
    assert (model.sample_rate, model.features.hop) == (16000, 320)
    assert set(model.voices) == {"anna", "bert"}
    assert torch.equal(model.features.std, model.voicebox.std)
    assert model.say("Hum.", voice="anna").wave.isfinite().all()
    with pytest.raises(UserError, match=r"aligner\.model\.sample_rate=16000 aligner\.model\.hop=320"):
        recipe(corpus, f"vocoder={tmp_path / 'codec'}").trainer(tmp_path / "other")


def test_a_part_of_another_kind_is_told_before_training(run: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not hold a Aligner"):
        recipe(corpus, f"aligner={run / 'vocoder'}").trainer(tmp_path / "run")
    with pytest.raises(UserError, match="does not hold a SoundStream"):
        recipe(corpus, f"vocoder={run / 'aligner'}").trainer(tmp_path / "run")
    with pytest.raises(UserError, match="The aligner counts frames of 256 samples at 24000 Hz, and the vocoder of 320"):
        recipe(corpus, "vocoder=speech-16k").trainer(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mistakes_are_told_before_training(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The aligner counts frames of 240 samples"):
        recipe(corpus, "aligner.model.hop=240").trainer(tmp_path / "run")
    with pytest.raises(UserError, match="The recipe's flow"):
        recipe(corpus, "flow.plan.steps=3")
    with pytest.raises(UserError, match="where the run keeps its own files"):
        recipe(tmp_path / "run/voices/many").trainer(tmp_path / "run")
    assert not (tmp_path / "run").exists()
