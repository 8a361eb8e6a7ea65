"""`madrigal generate`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from commanding import Command

from madrigal.audiolm.draws import MUSIC, SPEECH
from madrigal.verbs.generate import MUSIC_TEMPERATURE, RECALL, TEMPERATURE
from madrigal.verbs.sampling import samplings


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(capsys, "generate")


def heard(path: str | Path) -> np.ndarray:
    wave, rate = soundfile.read(path)
    assert rate == 16000
    return wave


def test_samples_are_numbered_files_of_the_length_asked_for(generate: Command, run: Path) -> None:
    out = generate.done(run, "--seconds", "0.3", "--n", "2", "--seed", "7")
    assert out.split() == ["generated/000.wav", "generated/001.wav"]
    first, second = (heard(path) for path in out.split())
    assert len(first) == len(second) == 4800
    assert not np.array_equal(first, second)


def test_sample_i_is_that_of_seed_plus_i(generate: Command, run: Path) -> None:
    generate.done(run, "--seconds", "0.2", "--n", "2", "--seed", "7", "-o", "two")
    generate.done(run, "--seconds", "0.2", "--seed", "8", "-o", "one")
    assert np.array_equal(heard("two/001.wav"), heard("one/000.wav"))


def test_a_prompt_is_gone_on_from(generate: Command, run: Path, sounds: Path) -> None:
    generate.done(run, "--prompt", sounds / "0.wav", "--seconds", "0.2")
    assert len(heard("generated/000.wav")) == 32000 + 3200


def test_the_command_draws_as_the_studio_does() -> None:
    assert samplings(TEMPERATURE, recall=RECALL) == SPEECH
    assert samplings(MUSIC_TEMPERATURE) == MUSIC


def test_a_prompt_is_recalled_as_much_as_asked(generate: Command, run: Path, sounds: Path) -> None:
    shares = {"plain": ("0",), "some": (), "same": ("0,0.5,0.5",), "more": ("0,0.9,0.9",)}
    waves = {}
    for name, share in shares.items():
        how = ("--recall", *share) if share else ()
        generate.done(run, "--prompt", sounds / "0.wav", "--seconds", "0.4", "--temperature", "2", "-o", name, *how)
        waves[name] = heard(f"{name}/000.wav")
    assert np.array_equal(waves["some"], waves["same"])
    assert not np.array_equal(waves["some"], waves["plain"])
    assert not np.array_equal(waves["some"], waves["more"])


def test_json_is_one_object(generate: Command, run: Path) -> None:
    said = json.loads(generate.done(run, "--seconds", "0.1", "--seed", "3", "--json"))
    assert said == {"files": ["generated/000.wav"], "seconds": 0.1, "sample_rate": 16000, "seed": 3}


def test_one_sample_may_be_a_file(generate: Command, run: Path) -> None:
    generate.done(run, "--seconds", "0.2", "--seed", "7", "-o", "made/one.wav")
    generate.done(run, "--seconds", "0.2", "--seed", "7", "-o", "two")
    assert np.array_equal(heard("made/one.wav"), heard("two/000.wav"))
    assert "do not go into one file" in generate.refused(run, "--seconds", "0.2", "--n", "2", "-o", "two.wav")
    assert "sound is written as .wav" in generate.refused(run, "--seconds", "0.2", "-o", "one.mp3")
    assert "one.wav" in generate.refused(run, "--seconds", "0.2", "-o", "made/one.wav")


def test_the_runs_of_the_stages_do_as_well(generate: Command, run: Path) -> None:
    generate.done(run, "--seconds", "0.1", "-o", "whole")
    generate.done(run / "semantic", run / "coarse", run / "fine", "--seconds", "0.1", "-o", "parts")
    generate.done(run / "semantic", run / "coarse", "--seconds", "0.1", "-o", "coarse")
    assert np.array_equal(heard("whole/000.wav"), heard("parts/000.wav"))
    assert not np.array_equal(heard("whole/000.wav"), heard("coarse/000.wav"))


def test_a_run_may_be_moved(generate: Command, run: Path) -> None:
    shutil.copytree(run, "moved")
    for recipe in Path("moved").rglob("recipe.yaml"):
        recipe.write_text(recipe.read_text().replace(str(run), "/where/it/was"))
    generate.done(run, "--seconds", "0.1", "-o", "before")
    generate.done("moved", "--seconds", "0.1", "-o", "after")
    assert np.array_equal(heard("before/000.wav"), heard("after/000.wav"))


def test_temperatures_are_of_each_stage(generate: Command, run: Path) -> None:
    for seed in ("1", "2"):
        generate.done(run, "--seconds", "0.1", "--temperature", "0", "--seed", seed, "-o", f"greedy{seed}")
        generate.done(run, "--seconds", "0.1", "--temperature", "0,0,1", "--seed", seed, "-o", f"fine{seed}")
    assert np.array_equal(heard("greedy1/000.wav"), heard("greedy2/000.wav"))
    assert not np.array_equal(heard("fine1/000.wav"), heard("fine2/000.wav"))


def test_files_that_are_there_are_kept(generate: Command, run: Path) -> None:
    Path("generated").mkdir()
    Path("generated/001.wav").write_text("precious")
    sentence = generate.refused(run, "--seconds", "0.1", "--n", "2")
    assert "generated/001.wav is there already" in sentence
    assert Path("generated/001.wav").read_text() == "precious"
    assert not Path("generated/000.wav").exists()
    generate.done(run, "--seconds", "0.1", "--n", "2", "--overwrite")
    assert len(heard("generated/001.wav")) == 1600


REFUSED = {
    ("nowhere",): "There is no run nowhere",
    (".",): "is no run of anything, of which nothing can be generated",
    ("RUN/coarse",): "There is no semantic stage in",
    ("RUN", "RUN/fine"): "There are two fine stages",
    ("RUN/tokenizer",): "is a run of masked-prediction, of which nothing can be generated",
    ("RUN", "--prompt", "nowhere.wav"): "There is no file nowhere.wav to go on from",
    ("RUN", "--prompt", "noise.txt"): "noise.txt cannot be used",
    ("RUN", "--text", "hello"): "None of the stages was trained with a condition",
    ("RUN", "--temperature", "warm"): "--temperature is 'warm'",
    ("RUN", "--temperature", "1,2"): "--temperature is '1,2'",
    ("RUN", "--temperature=-1"): "--temperature is '-1'",
    ("RUN", "--temperature", "nan"): "--temperature is 'nan'",
    ("RUN", "--prompt", "0.wav", "--recall", "some"): "--recall is 'some'",
    ("RUN", "--prompt", "0.wav", "--recall", "0,0.5,1"): "write one number from 0 to below 1, or three",
    ("RUN", "--recall", "0.5"): "--recall is of a prompt",
    ("RUN", "--device", "nowhere"): "The device 'nowhere' cannot be used here",
    ("RUN", "--top-p", "0"): "top_p is 0.0",
    ("RUN", "--seconds", "0"): "Invalid value for '--seconds'",
    ("RUN", "--n", "0"): "Invalid value for '--n'",
    ("RUN", "--codec", "nowhere/codec/at/all"): "There is no model 'nowhere/codec/at/all'",
    (): "Missing argument",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_a_mistake_is_one_sentence_and_status_2(generate: Command, run: Path, words: tuple[str, ...]) -> None:
    Path("noise.txt").write_text("no sound at all")
    assert REFUSED[words] in generate.refused(*(word.replace("RUN", str(run)) for word in words))
    assert not Path("generated").exists()
