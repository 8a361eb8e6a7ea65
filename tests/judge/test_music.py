"""Music judged by ears that know recordings: descriptors, a classifier, Frechet distances, the report."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from madrigal.errors import UserError
from madrigal.judge.frechet import components, frechet_distance
from madrigal.judge.html import Mark
from madrigal.judge.music import GENERATED, RECORDING, Clip, MusicReport, derangement, evaluate_music
from madrigal.judge.music_classifier import InstrumentClassifier, features_of
from madrigal.judge.music_descriptors import NearestCentre, beats_per_minute, describe
from madrigal.judge.music_judges import Judges, Known
from madrigal.judge.music_page import instrument_rows, remarks, show_music, write_music

RATE = 16_000
SECONDS = 4.0
HARMONICS = {"flute": (1.0, 0.1), "organ": (1.0, 0.6, 0.8, 0.3, 0.5, 0.2), "bell": (0.3, 0.0, 0.2, 0.0, 1.0)}
BEATS = {"slow": 60.0, "fast": 170.0}
PITCHES = {"low": 46, "high": 77}
SCALES = {"major": (0, 4, 7, 12, 7, 4), "minor": (0, 3, 7, 12, 7, 3)}


def tune(instrument: str, tempo: str, register: str, mode: str, seed: int = 0) -> np.ndarray:
    """Notes that decay, one a beat."""
    rng = np.random.default_rng(seed)
    beat = 60 / (BEATS[tempo] * rng.uniform(0.96, 1.04))
    tonic = PITCHES[register] + int(rng.integers(5))
    wave = np.zeros(int(SECONDS * RATE))
    for number, start in enumerate(np.arange(0.05, SECONDS, beat)):
        time = np.arange(len(wave) - int(start * RATE)) / RATE
        pitch = tonic + SCALES[mode][number % 6]
        hertz = 440 * 2 ** ((pitch - 69) / 12)
        tone = sum(a * np.sin(2 * np.pi * hertz * (h + 1) * time) for h, a in enumerate(HARMONICS[instrument]))
        wave[int(start * RATE) :] += tone * np.exp(-time / (0.5 * beat)) * np.minimum(1.0, time / 0.005)
    return (0.2 * wave / np.abs(wave).max()).astype(np.float32)


def tunes(count: int, seed: int) -> tuple[list[np.ndarray], list[dict[str, str]]]:
    rng = np.random.default_rng(seed)
    rows = [
        {
            "instrument": sorted(HARMONICS)[i % 3],
            "tempo": str(rng.choice(sorted(BEATS))),
            "register": str(rng.choice(sorted(PITCHES))),
            "mode": str(rng.choice(sorted(SCALES))),
        }
        for i in range(count)
    ]
    return [tune(**row, seed=1000 * seed + i) for i, row in enumerate(rows)], rows


@pytest.fixture(scope="module")
def known() -> Known:
    waves, rows = tunes(48, 1)
    return Known.of(waves, RATE, rows)


@pytest.fixture(scope="module")
def report(known: Known) -> MusicReport:
    return evaluate_music(clips(), known, notes=["A note."], examples=2)


def clips(count: int = 12) -> list[Clip]:
    """Those of which the model makes what the caption says, but for the tempo."""
    waves, rows = tunes(count, 2)
    other = {"slow": "fast", "fast": "slow"}
    made = [tune(**{**row, "tempo": other[row["tempo"]]}, seed=50 + i) for i, row in enumerate(rows)]
    return [
        Clip(f"clip-{i}", " ".join(row.values()), RATE, row, {GENERATED: m, RECORDING: w}, {GENERATED: (0.9, 0.1)})
        for i, (row, m, w) in enumerate(zip(rows, made, waves, strict=True))
    ]


@pytest.mark.parametrize("tempo", BEATS)
@pytest.mark.parametrize("instrument", HARMONICS)
def test_the_tempo_is_that_of_the_beats(tempo: str, instrument: str) -> None:
    found = beats_per_minute(tune(instrument, tempo, "low", "major"))
    assert found == pytest.approx(BEATS[tempo], rel=0.08)


def test_pitch_brightness_and_mode_are_heard() -> None:
    low, high = (describe(tune("flute", "slow", register, "minor"), RATE) for register in ("low", "high"))
    assert high.pitch - low.pitch == pytest.approx(PITCHES["high"] - PITCHES["low"], abs=2)
    assert high.centroid > low.centroid
    modes = [describe(tune("flute", "fast", "low", mode, seed=seed), RATE).mode for mode in SCALES for seed in range(3)]
    assert modes == ["major"] * 3 + ["minor"] * 3


@pytest.mark.parametrize("samples", [1, 150, 1000, 5000])
def test_a_clip_of_less_than_two_beats_has_no_tempo(samples: int) -> None:
    noise = np.random.default_rng(0).standard_normal(samples).astype(np.float32)
    found = describe(noise, RATE)
    assert found.sounds
    assert np.isnan(found.beats)
    assert NearestCentre([80.0, 160.0], ["slow", "fast"])(float(np.log2(found.beats))) == ""


def test_silence_is_described_as_nothing() -> None:
    found = describe(np.zeros(RATE, dtype=np.float32), RATE)
    assert np.isnan([found.beats, found.pitch, found.centroid]).all()
    assert NearestCentre([1.0, 2.0], ["a", "b"])(found.pitch) == ""


def silent(clip: Clip) -> Clip:
    return dataclasses.replace(clip, waves={**clip.waves, GENERATED: np.zeros_like(clip.waves[GENERATED])})


def test_silence_is_no_instrument(known: Known) -> None:
    """It is neither heard as one, nor do the judges learn that an instrument is silent."""
    report = evaluate_music([silent(clip) for clip in clips()], known)
    assert all(set(clip.heard[GENERATED].values()) == {""} for clip in report.clips)
    assert {one.right.mean for one in report.way().agreements} == {0.0}
    assert report.way().centroid_error is None
    assert "silence 4" in str(instrument_rows(report)[1])
    waves, rows = tunes(12, 2)
    mute = {"instrument": "kazoo"}
    learned = Judges(Known.of([*waves, np.zeros(RATE), np.zeros(RATE)], RATE, [*rows, mute, mute]))
    assert learned.classifier.names == sorted(HARMONICS)


def test_a_silent_clip_among_others_changes_only_its_own_row(known: Known, report: MusicReport) -> None:
    made = clips()
    other = evaluate_music([silent(made[0]), *made[1:]], known)
    assert [clip.heard for clip in other.clips[1:]] == [clip.heard for clip in report.clips[1:]]
    assert other.way().centroid_error is not None
    assert other.way().centroid_error.count == len(made) - 1


def test_loudness_and_rate_make_no_difference() -> None:
    wave = tune("organ", "slow", "high", "major")
    at_twice = np.repeat(wave, 2)  # roughly, and with images far above
    plain = features_of([wave], RATE)
    np.testing.assert_allclose(features_of([0.1 * wave], RATE), plain, atol=1e-6)
    assert np.abs(features_of([at_twice], 2 * RATE) - plain).mean() < 0.2


def test_one_loud_moment_makes_little_difference() -> None:
    wave = tune("organ", "slow", "low", "major")
    burst = wave.copy()
    burst[8000:8400] *= 4
    once, twice = features_of([wave, burst], RATE)
    assert np.abs(once[:64] - twice[:64]).mean() < 0.25  # tens of dB: it is 12 dB louder
    assert features_of([tune("flute", "slow", "low", "major")], RATE)[0][:64] != pytest.approx(once[:64], abs=0.3)


def test_the_classifier_knows_instruments_that_it_has_not_heard(known: Known) -> None:
    waves, rows = tunes(24, 3)
    made = InstrumentClassifier.fit(known.features, known.labels("instrument"))
    said = made.predict(features_of(waves, RATE))
    assert np.mean([a == row["instrument"] for a, row in zip(said, rows, strict=True)]) > 0.9
    again = InstrumentClassifier.fit(known.features, known.labels("instrument"))
    np.testing.assert_array_equal(made.embed(known.features), again.embed(known.features))
    with pytest.raises(UserError, match="two instruments"):
        InstrumentClassifier.fit(known.features[:3], ["flute"] * 3)


def test_frechet_is_nothing_for_the_same_and_grows_with_the_gap() -> None:
    rng = np.random.default_rng(0)
    one = rng.standard_normal((400, 5))
    assert frechet_distance(one, one) == pytest.approx(0.0, abs=1e-9)
    assert frechet_distance(one, one + 2.0) == pytest.approx(20.0, rel=1e-6)
    assert frechet_distance(one, 3.0 * one) == pytest.approx(
        4.0 * np.trace(np.cov(one.T)) + 4 * (one.mean(0) ** 2).sum()
    )
    _, axes = components(one * [1, 1, 9, 1, 1], 1)
    assert abs(axes[0, 2]) > 0.99


def test_what_the_caption_says_is_found_and_what_it_does_not_is_not(report: MusicReport) -> None:
    way = report.way()
    assert way.label == GENERATED
    assert way.agreement("instrument").right.mean > 0.9
    assert way.agreement("register").right.mean > 0.9
    assert way.agreement("tempo").right.mean < 0.2
    assert report.way(RECORDING).agreement("tempo").right.mean > 0.9
    assert way.agreement("instrument").shuffled.mean < 0.7
    assert way.agreement("instrument").chance == pytest.approx(1 / 3)
    assert way.similarity is not None
    assert way.similarity.mean == pytest.approx(0.9)
    assert report.way(RECORDING).similarity is None


def test_recordings_are_nearer_to_recordings_than_noise(known: Known) -> None:
    judges = Judges(known)
    waves, _ = tunes(24, 4)
    noise = [0.1 * np.random.default_rng(i).standard_normal(RATE).astype(np.float32) for i in range(24)]
    near, far = (judges.distances(features_of(some, RATE), known.features) for some in (waves, noise))
    assert all(near[name] < 0.3 * far[name] for name in near)


def test_distances_of_all_ways_compare(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is between as many clips and the same recordings, none of them a clip: equal waves are equally far."""
    asked = []
    plain = Judges.distances

    def watched(judges: Judges, features: np.ndarray, others: np.ndarray) -> dict[str, float]:
        asked.append((features, others))
        return plain(judges, features, others)

    monkeypatch.setattr(Judges, "distances", watched)
    same = [dataclasses.replace(clip, waves={**clip.waves, GENERATED: clip.waves[RECORDING]}) for clip in clips()]
    report = evaluate_music(same, known)
    assert report.reference == len(same) == 12
    assert report.way(GENERATED).distances == report.way(RECORDING).distances
    for features, others in asked:
        assert features.shape == others.shape
        np.testing.assert_array_equal(others, asked[0][1])
        assert all((known.features == row).all(1).any() for row in others)


def test_few_recordings_are_all_the_reference(known: Known) -> None:
    few = Known(known.features[:6], known.described[:6], known.attributes[:6])
    assert evaluate_music(clips(), few).reference == 6


def test_an_older_report_says_that_its_distances_do_not_compare(report: MusicReport, tmp_path: Path) -> None:
    written = write_music(report, tmp_path)["json"]
    said = json.loads(written.read_text())
    del said["reference"]
    written.write_text(json.dumps(said))
    older = MusicReport.load(written)
    assert any("do not compare" in remark for remark in remarks(older))
    assert any("the same 12 of the recordings" in remark for remark in remarks(report))


def without(known: Known, *measures: str) -> Known:
    rows = [{name: said for name, said in row.items() if name not in measures} for row in known.attributes]
    return dataclasses.replace(known, attributes=rows)


def test_what_the_judges_could_not_learn_is_not_judged(known: Known) -> None:
    report = evaluate_music(clips(), without(known, "tempo", "register", "mode"))
    assert [one.measure for one in report.way().agreements] == ["instrument", "mode"]  # a mode needs no examples
    assert report.way().agreement("mode").chance == 0.5
    assert [note.split(" is not judged")[0] for note in report.notes] == ["The tempo", "The register"]
    one_tempo = [{**row, "tempo": "slow"} for row in known.attributes]
    report = evaluate_music(clips(), dataclasses.replace(known, attributes=one_tempo))
    assert "tempo" not in {one.measure for one in report.way().agreements}


def test_recordings_that_do_not_tell_are_no_kind_of_their_own(known: Known, report: MusicReport) -> None:
    half = [row if i % 2 else {"instrument": row["instrument"]} for i, row in enumerate(known.attributes)]
    found = evaluate_music(clips(), dataclasses.replace(known, attributes=half))
    assert found.way().agreement("tempo").chance == report.way().agreement("tempo").chance == 0.5
    assert all(clip.heard[RECORDING]["tempo"] in BEATS for clip in found.clips)


def test_known_clips_too_short_for_a_tempo_leave_it_out() -> None:
    waves, rows = tunes(12, 1)
    report = evaluate_music(clips(), Known.of([wave[:3000] for wave in waves], RATE, rows))
    assert "tempo" not in {one.measure for one in report.way().agreements}
    assert any("The tempo is not judged" in note for note in report.notes)


def test_samples_that_are_no_numbers_are_refused(known: Known) -> None:
    made = clips(3)
    bad = made[1].waves[GENERATED].copy()
    bad[100] = np.nan
    made[1] = dataclasses.replace(made[1], waves={**made[1].waves, GENERATED: bad})
    with pytest.raises(UserError, match=r"clip-1 \(Generated\) has samples that are not finite"):
        evaluate_music(made, known)
    with pytest.raises(UserError, match="Recording 2 of those that the judges"):
        Known.of([tunes(1, 1)[0][0], bad], RATE, [{}, {}])


def test_another_clip_is_never_the_same() -> None:
    for count in (2, 3, 50):
        found = derangement(count, 0)
        assert sorted(found) == list(range(count))
        assert all(index != other for index, other in enumerate(found))


def test_the_report_is_kept_shown_and_put_on_a_page(report: MusicReport, tmp_path: Path) -> None:
    written = write_music(report, tmp_path)
    assert MusicReport.load(written["json"]) == report.model_copy(update={"examples": []})
    page = written["page"].read_text()
    assert page.count("<audio") == 4
    assert "as another&#x27;s caption says" in page
    assert "or rather" in page
    console = Console(record=True, width=200)
    show_music(report, console)
    assert "A note." in console.export_text()


def test_what_was_heard_in_an_instruments_place_is_told(report: MusicReport) -> None:
    asked = report.clips[0].true["instrument"]
    wrong = report.clips[0].model_copy(update={"heard": {GENERATED: {"instrument": "kazoo"}}})
    rows = instrument_rows(report.model_copy(update={"clips": [wrong, *report.clips[1:]]}))[1]
    told = {str(row[0]): row[2] for row in rows}
    assert sorted(told) == sorted({clip.true["instrument"] for clip in report.clips})
    assert isinstance(told[asked], Mark)
    assert "kazoo 1" in told[asked].text


def test_one_caption_is_too_little(known: Known) -> None:
    with pytest.raises(UserError, match="two captions"):
        evaluate_music(clips()[:1], known)
