"""`generate`, `tokenize` and `export` with a MusicLM."""

import json
from pathlib import Path

import pytest
import soundfile
import torch
from commanding import Command
from safetensors.torch import load_file

from madrigal.errors import UserError
from madrigal.musiclm.mulan import load_mulan
from madrigal.musiclm.music import MusicLM

TEXT = ("--text", "a low hum", "--seconds", "0.4")


@pytest.fixture
def madrigal(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_the_best_goes_into_a_file(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    said = json.loads(madrigal.done("generate", music_run, *TEXT, "--n", "3", "-o", tmp_path / "out.wav", "--json"))
    assert len(said["scores"]) == 3
    assert said["files"] == [str(tmp_path / "out.wav")]
    assert soundfile.info(tmp_path / "out.wav").frames == 20 * 320
    assert "is there already" in madrigal.refused("generate", music_run, *TEXT, "-o", tmp_path / "out.wav")
    madrigal.done("generate", music_run, *TEXT, "--n", "3", "-o", tmp_path / "all")
    best, _ = soundfile.read(tmp_path / "out.wav")
    first, _ = soundfile.read(tmp_path / "all/000.wav")
    assert (best == first).all()
    assert len(list((tmp_path / "all").iterdir())) == 3


def test_a_sound_in_the_place_of_a_text(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    like = music_run.parent / "recordings/0.wav"
    said = madrigal.done("generate", music_run, "--like", like, "--seconds", "0.2", "-o", tmp_path / "like.wav")
    assert "similarity" in said
    assert "no file" in madrigal.refused("generate", music_run, "--like", tmp_path / "none.wav")


def test_a_prompt_to_go_on_from(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    prompt = music_run.parent / "recordings/0.wav"
    madrigal.done("generate", music_run, *TEXT, "--prompt", prompt, "-o", tmp_path / "on.wav")
    assert soundfile.info(tmp_path / "on.wav").frames == (100 + 20) * 320


def test_nothing_to_make_is_refused(madrigal: Command, music_run: Path) -> None:
    assert "--text" in madrigal.refused("generate", music_run)


def test_a_run_is_exported_whole(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    madrigal.done("export", music_run, tmp_path / "music")
    madrigal.done("generate", tmp_path / "music", *TEXT, "-o", tmp_path / "out.wav")
    madrigal.done("generate", music_run, *TEXT, "-o", tmp_path / "same.wav")
    assert (tmp_path / "out.wav").read_bytes() == (tmp_path / "same.wav").read_bytes()


def test_a_whole_run_searches_with_its_own_mulan(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    words = ("search", music_run.parent / "recordings", "a low hum", "--n", "2", "--index", tmp_path / "index", "--run")
    assert madrigal.done(*words, music_run) == madrigal.done(*words, music_run / "mulan")
    elsewhere = tmp_path / "whole"
    elsewhere.mkdir()
    (elsewhere / "recipe.yaml").write_text(f"{{system: musiclm, mulan: {music_run / 'mulan'}}}")
    assert load_mulan(elsewhere).fingerprint() == load_mulan(music_run).fingerprint()


def test_a_quantizer_tokenizes_as_any_tokenizer(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    data = music_run.parent / "recordings"
    with_it = ("--with", music_run / "quantizer", "-o", tmp_path, "--workers", "1")
    assert "mulan-quantizer: 8 files" in madrigal.done("tokenize", data, *with_it)


def test_a_run_is_exported_with_the_last_weights_of_its_stages(
    madrigal: Command, music_run: Path, tmp_path: Path
) -> None:
    """The stages have learned with the averaged MuLaN and quantizer, and with no others."""
    madrigal.done("export", music_run, tmp_path / "averaged")
    madrigal.done("export", music_run, tmp_path / "online", "--online")
    madrigal.done("generate", tmp_path / "online", *TEXT, "-o", tmp_path / "out.wav")
    for part in ("mulan", "quantizer", "semantic", "coarse", "fine"):
        one, other = (load_file(tmp_path / kind / part / "model.safetensors") for kind in ("averaged", "online"))
        same = all(torch.equal(tensor, other[name]) for name, tensor in one.items())
        assert same == (part in ("mulan", "quantizer"))
    last = load_file(music_run / "fine/checkpoints/step-00000004/model.safetensors")
    assert all(torch.equal(tensor, other[name]) for name, tensor in last.items())


@pytest.fixture
def nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before minutes of drawing."""

    def drawn(*_: object, **__: object) -> None:
        raise AssertionError("it was drawn")

    monkeypatch.setattr("madrigal.musiclm.music.MusicLM.draw", drawn)


@pytest.mark.usefixtures("nothing_drawn")
def test_where_nothing_can_be_written_nothing_is_drawn(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("mine")
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "there.WAV").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for name, why in {
        "song.mp3": "written as .wav",
        "song.FLAC": "written as .wav",
        "plain": "plain is no folder",
        "plain/x.wav": "plain is no folder",
        "nowhere/x.wav": "nowhere is no folder",
        "there.WAV": "there already",
        "folder.wav": "folder.wav is a folder",
    }.items():
        assert why in madrigal.refused("generate", music_run, *TEXT, "-o", tmp_path / name), name
    assert "is a folder" in madrigal.refused("generate", music_run, *TEXT, "-o", tmp_path / "folder.wav", "--overwrite")
    assert "nothing can be written in" in madrigal.refused("generate", music_run, *TEXT, "-o", "/proc/none/out.wav")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_ending_in_capitals_is_a_file_too(madrigal: Command, music_run: Path, tmp_path: Path) -> None:
    madrigal.done("generate", music_run, *TEXT, "-o", tmp_path / "song.WAV")
    assert soundfile.info(tmp_path / "song.WAV").frames == 20 * 320


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_a_length_is_a_number_within_a_day(madrigal: Command, music_run: Path, tmp_path: Path, seconds: str) -> None:
    words = ("--text", "a hum", "--seconds", seconds, "-o", tmp_path / "out.wav")
    assert "'--seconds': Input should" in madrigal.refused("generate", music_run, *words)


def test_a_length_from_python_is_finite(music: MusicLM) -> None:
    for seconds in (float("nan"), float("inf")):
        with pytest.raises(UserError, match="give a finite number"):
            music("a hum", seconds=seconds)
