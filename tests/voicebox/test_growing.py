"""A stream that begins with a part of a sentence: as long as the whole, in parts that grow, without a seam."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from voicebox_speaking import HOP, RATE, codec_run, hum, speaking_run, speech

from madrigal.voicebox.growing import FADE_FRAMES, PARTS_SECONDS, REST_SECONDS, parts_of
from madrigal.voicebox.loading import load_voicebox
from madrigal.voicebox.speech import Line, VoiceboxSpeech
from madrigal.voicebox.voice import Voice

TEXT = "A sentence of some length, that goes on and on. Another one."
FRAME_RATE = RATE / HOP
SILENCE = 0


@pytest.fixture(scope="module", params=["regression", "flow"])
def model(request: pytest.FixtureRequest) -> VoiceboxSpeech:
    return speech(durations={"kind": request.param})


@pytest.fixture(scope="module")
def prompt(model: VoiceboxSpeech, tmp_path_factory: pytest.TempPathFactory) -> Voice:
    return model.voice(hum(tmp_path_factory.mktemp("voices") / "hum.wav"), text="A hum.")


def test_it_lasts_as_long_as_what_comes_whole(model: VoiceboxSpeech, prompt: Voice) -> None:
    how = {"voice": prompt, "seconds": 6.0, "steps": 1}
    whole = torch.cat(list(model.stream(TEXT, **how)))
    pieces = list(model.stream(TEXT, growing=True, chunk_seconds=60, **how))
    assert torch.cat(pieces).shape == whole.shape
    assert torch.isfinite(torch.cat(pieces)).all()
    assert len(pieces[0]) < len(pieces[1])
    assert len(pieces[0]) <= (2 * PARTS_SECONDS[0] * FRAME_RATE + 1) * HOP
    again = list(model.stream(TEXT, growing=True, chunk_seconds=60, **how))
    assert all(torch.equal(one, other) for one, other in zip(pieces, again, strict=True))


@pytest.mark.parametrize("named", [True, False], ids=["with a text", "without a text"])
def test_a_voice_of_any_kind_grows(model: VoiceboxSpeech, tmp_path: Path, named: bool) -> None:
    voice = model.voice(hum(tmp_path / "hum.wav"), text="A hum." if named else None)
    for one in (voice, model.nobody()):
        pieces = list(model.stream("One two three four five six seven.", voice=one, growing=True, steps=1, rate=0.3))
        assert len(pieces) >= 2
        assert all(len(piece) for piece in pieces)


def test_latents_of_a_codec_come_whole(tmp_path: Path) -> None:
    coded = load_voicebox(codec_run(tmp_path / "run", tmp_path / "codec"))
    how = {"seconds": 3.0, "steps": 1}
    one, other = (torch.cat(list(coded.stream("One two.", growing=growing, **how))) for growing in (True, False))
    assert torch.equal(one, other)


def test_an_exported_voice_grows(tmp_path: Path) -> None:
    voice = load_voicebox(speaking_run(tmp_path / "run"))
    assert len(list(voice.stream("One two three four five.", growing=True, rate=0.3))) >= 2


def line(*durations: int, silences: tuple[int, ...] = ()) -> Line:
    symbols = [SILENCE if place in silences else 1 + place for place in range(len(durations))]
    return Line(torch.tensor(symbols), torch.tensor(durations))


def test_a_part_ends_between_words_where_it_can() -> None:
    even = line(*[10] * 40, silences=(0, 5, 17, 39))
    assert parts_of(even, SILENCE, 100.0) == [50, 190, 400]  # 50 is a pause; from 190 to 330 there is none
    assert parts_of(line(*[10] * 40, silences=(0, 20)), SILENCE, 100.0) == [30, 200, 400]
    assert parts_of(line(10, 10, 10), SILENCE, 100.0) == [30]
    assert parts_of(line(*[10] * 6), SILENCE, 100.0) == [60]  # the rest would be too short
    assert FADE_FRAMES < REST_SECONDS * FRAME_RATE
