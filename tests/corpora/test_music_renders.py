"""The corpus of music: captions that are true, combinations that training never has, the same files from a seed."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import music_captions
import music_renders
import numpy as np
import pytest
from music_tunes import (
    INSTRUMENTS,
    KEYS,
    REGISTERS,
    SCALES,
    TEMPOS,
    TEXTURES,
    Attributes,
    combinations,
    compose,
    draw_attributes,
    held_out,
)

from madrigal.data.manifest import Manifest

SIZES = {"train": 60, "valid": 10, "test-pairs": 20, "test-combinations": 20}
ALL = [
    Attributes(*combination, register=register, texture=texture)
    for combination in combinations()
    for register in REGISTERS
    for texture in TEXTURES
]


class Synth:
    """Sounds a tone for every key that is down, at once and exactly."""

    def __init__(self, samplerate: int) -> None:
        self.rate, self.down, self.at = samplerate, set[int](), 0

    def sfload(self, path: str) -> int:
        return 0

    def program_select(self, *given: int) -> None:
        self.program = given[-1]

    def sounds_off(self) -> None:
        self.down.clear()

    def noteon(self, channel: int, pitch: int, velocity: int) -> None:
        self.down.add(pitch)

    def noteoff(self, channel: int, pitch: int) -> None:
        self.down.discard(pitch)

    def generate_simple(self, samples: int) -> memoryview:
        time = np.arange(samples) / self.rate
        wave = sum((np.sin(2 * np.pi * 440 * 2 ** ((p - 69) / 12) * time) for p in self.down), np.zeros(samples))
        return memoryview(np.repeat(wave.astype(np.float32), 2).tobytes())


@pytest.fixture(autouse=True)
def no_soundfont(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(music_renders, "optional", lambda *_: SimpleNamespace(Synth=Synth))
    monkeypatch.setattr(music_renders, "debian_package", lambda name, cache: cache)


def built(out: Path, seed: int = 0, **options: Any) -> dict[str, Manifest]:
    music_renders.build(out, out / "cache", seed, SIZES, **{"seconds": 2.0, **options})
    return {name: Manifest.load(out / name) for name in SIZES}


def test_every_set_has_its_clips_captions_and_attributes(tmp_path: Path) -> None:
    for name, manifest in built(tmp_path).items():
        assert len(manifest) == SIZES[name]
        for entry in manifest:
            said = entry.model_extra or {}
            assert entry.duration == 2.0
            assert entry.sample_rate == 16000
            assert entry.licence is not None
            assert entry.text in said["captions"]
            assert said["instrument"] == entry.speaker
            low, high = TEMPOS[said["tempo"]]
            assert low <= said["beats_per_minute"] <= high
            assert said["key"].endswith(said["mode"])
            assert manifest.resolve(entry).is_file()


def test_unheard_combinations_are_in_one_set_alone(tmp_path: Path) -> None:
    sets = built(tmp_path)
    found = {
        name: {(e.instrument, e.tempo, e.mode) for e in manifest}  # type: ignore[attr-defined]
        for name, manifest in sets.items()
    }
    assert found["test-combinations"] == held_out()
    for name in ("train", "valid", "test-pairs"):
        assert not found[name] & held_out()
    assert {instrument for instrument, _, _ in found["train"]} == set(INSTRUMENTS)
    assert {tempo for _, tempo, _ in held_out()} == set(TEMPOS)
    assert {mode for _, _, mode in held_out()} == set(SCALES)


def test_a_test_asks_for_no_notes_and_no_caption_that_training_has() -> None:
    known = music_renders.Known()
    sets = {name: list(music_renders.drawn(name, count, 0, 5.0, known)) for name, count in music_renders.SETS.items()}

    def openings(name: str) -> set[Any]:
        return {(a.instrument, tuple(note.pitch for note in tune.notes[:8])) for a, tune, _ in sets[name]}

    heard = openings("train") | openings("valid")
    said = {text for name in ("train", "valid") for _, _, texts in sets[name] for text in texts}
    for name in ("test-pairs", "test-combinations"):
        assert not openings(name) & heard
        assert not {texts[0] for _, _, texts in sets[name]} & said
        assert len(sets[name]) == music_renders.SETS[name]


def test_a_seed_repeats_and_another_differs(tmp_path: Path) -> None:
    first, again, other = (built(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert list(first["train"]) == list(again["train"]) != list(other["train"])
    files = [manifest.resolve(manifest.entries[3]).read_bytes() for manifest in (first["train"], again["train"])]
    assert files[0] == files[1]


@pytest.mark.parametrize("full", [True, False])
def test_captions_say_what_is_true_and_nothing_else(full: bool) -> None:
    tables = {
        "instrument": music_captions.NAMES,
        "tempo": music_captions.TEMPO_WORDS,
        "mode": music_captions.MOOD_WORDS,
        "register": music_captions.REGISTER_WORDS,
        "texture": music_captions.TEXTURE_WORDS,
    }
    for number, attributes in enumerate(ALL[::7]):
        text = music_captions.caption(attributes, random.Random(number), full)
        padded = f" {text.replace(',', ' ').replace(':', ' ')} "
        for name, table in tables.items():
            own = getattr(attributes, name)
            says = {key for key, words in table.items() if any(f" {w.replace(',', ' ')} " in padded for w in words)}
            assert says <= {own}, text
            assert says == {own} or not full, text
        assert ("minor" in text) <= (attributes.mode == "minor")
        assert ("major" in text) <= (attributes.mode == "major")


def test_several_captions_of_a_tune_differ() -> None:
    for attributes in ALL[::11]:
        assert len(set(music_captions.captions(attributes, random.Random(0)))) == 4


def test_notes_are_of_the_key_the_register_and_the_tempo() -> None:
    rng = random.Random(3)
    for combination in combinations():
        attributes = draw_attributes(combination, rng)
        tune = compose(attributes, 5.0, rng)
        starts = sorted({note.start for note in tune.notes})
        beat = 60 / tune.beats_per_minute
        assert np.allclose(np.diff(starts), beat)
        tonic = next(
            t
            for t in range(REGISTERS[attributes.register], REGISTERS[attributes.register] + 8)
            if tune.key == KEYS[t % 12]
        )
        assert {(note.pitch - tonic) % 12 for note in tune.notes} <= set(SCALES[attributes.mode])
        chords = len(tune.notes) / len(starts)
        assert chords == (3 if attributes.texture == "block chords" else 1)


def test_a_clip_does_not_hang_on_the_one_before_it() -> None:
    font = music_renders.Soundfont(Path("none"))
    tunes = [compose(attributes, 2.0, random.Random(1)) for attributes in (ALL[0], ALL[60])]
    alone = font.play(tunes[1], 0, 2.0)
    font.play(tunes[0], 3, 2.0)
    np.testing.assert_array_equal(font.play(tunes[1], 0, 2.0), alone)
    assert len(alone) == 32000
    assert np.sqrt(np.mean(alone**2)) == pytest.approx(music_renders.LEVEL, rel=0.05)
    assert abs(alone[-1]) < 1e-3


@pytest.mark.parametrize("rate", [11025, 16000, 22050, 44100])
@pytest.mark.parametrize("seconds", [0.02, 1.0])
def test_a_clip_of_any_rate_and_length_fades_out(rate: int, seconds: float) -> None:
    made = music_renders._levelled(np.ones(int(rate * seconds), dtype=np.float32), rate)
    assert len(made) == int(rate * seconds)
    assert made[-1] == 0.0
    assert (made[: max(0, len(made) - rate // 20)] == made[0]).all()
    assert (np.diff(made) <= 0).all()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(music_renders, "SETS", {"train": 50, "test-combinations": 10})
    words = ["--out", str(tmp_path), "--seconds", "1", "--sample-rate", "8000", "--clips", "20"]
    monkeypatch.setattr(sys, "argv", ["music_renders.py", *words])
    music_renders.main()
    assert "20 clips" in capsys.readouterr().out
    entry = Manifest.load(tmp_path / "train").entries[0]
    assert (entry.sample_rate, entry.duration) == (8000, 1.0)
