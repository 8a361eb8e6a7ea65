"""The voice that comes with madrigal: it speaks at once, it is small, and it says what it was made of."""

import socket
from pathlib import Path

import pytest
import soundfile
import torch
from typer.testing import CliRunner

from madrigal.cli import app
from madrigal.engine.pretrained import SHIPPED
from madrigal.voicebox.loading import SHIPPED_VOICE, export_voicebox, load_voicebox, weight_of
from madrigal.voicebox.speech import VoiceboxSpeech

FOLDER = SHIPPED / SHIPPED_VOICE


LIVE = "voice-24k-live"


@pytest.fixture(scope="module", params=[SHIPPED_VOICE, LIVE])
def speaker(request: pytest.FixtureRequest) -> VoiceboxSpeech:
    return load_voicebox(request.param)


def test_it_says_hello_without_a_run_and_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("it went to the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["say", "Hello"])
    assert done.exit_code == 0, done.output
    wave, rate = soundfile.read("speech.wav")
    assert rate == 24000
    assert 0.2 < len(wave) / rate < 3.0
    assert 0.01 < abs(wave).max() <= 1.0


def test_heart_is_the_one_that_speaks(speaker: VoiceboxSpeech) -> None:
    assert list(speaker.voices) == ["hibari-heart"]
    first = speaker.say("Good morning.", seed=1).wave
    assert torch.equal(first, speaker.say("Good morning.", voice="hibari-heart", seed=1).wave)


def test_it_lasts_as_long_as_it_is_asked_to(speaker: VoiceboxSpeech) -> None:
    assert abs(speaker.say("Two seconds and a half.", seconds=2.5).seconds - 2.5) < 0.011


def test_the_live_one_is_its_student_and_shares_its_parts(tmp_path: Path) -> None:
    teacher, student = load_voicebox(), load_voicebox(LIVE)
    assert student.voicebox.config.distilled_steps == 4
    own = {name for name, tensor in student.state_dict().items() if not torch.equal(tensor, teacher.state_dict()[name])}
    assert own
    assert all(name.startswith("voicebox.") for name in own)
    assert weight_of(LIVE, student) < 40
    export_voicebox(LIVE, tmp_path / "mine")  # whole: it needs no shipped voice any more
    mine = load_voicebox(tmp_path / "mine")
    assert torch.equal(mine.say("Yes.", seed=1).wave, student.say("Yes.", seed=1).wave)


def test_it_is_small_and_its_card_names_the_licence_of_its_data() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) < 40e6
    assert sum(file.stat().st_size for file in SHIPPED.rglob("*")) < 150e6
    card = (FOLDER / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "SYNTHETIC" in card
