from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge import codec as codec_module
from madrigal.judge import packages
from madrigal.judge.codec import Utterance, evaluate_codec
from madrigal.judge.codec_page import write_report
from madrigal.judge.metrics import si_sdr
from madrigal.judge.opus import opus_available
from madrigal.judge.report import Report
from madrigal.judge.table import beats_opus, show

QUICK = ("si_sdr", "mel", "stft")
HOP, BITS = 320, 10


def round_trip(wave: np.ndarray, rate: int, kbps: float) -> tuple[np.ndarray, np.ndarray]:
    """A codec that adds less noise the more bits it has; 50 frames a second of 10-bit codes."""
    rng = np.random.default_rng(round(kbps))
    frames = math.ceil(wave.shape[1] / HOP)
    codes = rng.integers(0, 1 << BITS, (frames, round(kbps * 1000 / 50 / BITS)))
    return wave + rng.normal(0, 0.1 / kbps, wave.shape).astype(np.float32), codes


class Listener:
    """A recogniser that mishears what is under 12 dB from all that it knows."""

    def transcribe(self, wave: Any, rate: int) -> str:
        nearest = max(si_sdr(item.wave, wave, rate) for item in utterances())
        return "one two three four" if nearest > 12 else "one too three"


@cache
def utterances(count: int = 3) -> tuple[Utterance, ...]:
    return tuple(
        Utterance(f"clip {index}", synthetic_voice(0.5, seed=index), 16_000, "1, 2, 3, 4") for index in range(count)
    )


def evaluated(**options: Any) -> Report:
    given: dict[str, Any] = {"metrics": QUICK, "codebook_size": 1 << BITS, "workers": 0}
    return evaluate_codec(utterances(), round_trip, (3, 12), **(given | options))


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluated(recogniser=Listener())


def test_the_report_holds_every_system_in_order(report: Report) -> None:
    wanted = ["Original", "Codec 3 kbps", "Opus 3 kbps", "Codec 12 kbps", "Opus 12 kbps"]
    assert [system.label for system in report.systems] == [
        label for label in wanted if opus_available() or not label.startswith("Opus")
    ]
    assert (report.utterances, report.seconds, report.sample_rates) == (3, 1.5, [16_000])


def test_more_bits_score_better_and_means_have_intervals(report: Report) -> None:
    low, high = report.system("codec", 3), report.system("codec", 12)
    assert low.metrics["si_sdr"].mean < high.metrics["si_sdr"].mean
    assert low.metrics["mel"].mean > high.metrics["mel"].mean
    for name in QUICK:
        estimate = low.metrics[name]
        assert estimate.count == 3
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.mean < estimate.high


def test_measured_rates_come_from_the_codes(report: Report) -> None:
    assert report.system("codec", 3).measured_kbps == pytest.approx(3.0)
    assert report.system("codec", 12).measured_kbps == pytest.approx(12.0)
    assert report.system("original").measured_kbps is None


def test_codebooks_are_counted_for_each_rate(report: Report) -> None:
    assert [len(report.system("codec", kbps).codebooks) for kbps in (3, 12)] == [6, 24]
    assert all(0 < codebook.usage < 1 for codebook in report.system("codec", 12).codebooks)


def test_word_error_rates_stand_beside_those_of_the_original(report: Report) -> None:
    if not packages.available("wer"):
        assert "pip install jiwer" in [item.install for item in report.left_out]
        return
    assert report.system("original").metrics["wer"].mean == 0
    noisy = report.system("codec", 3).metrics
    assert noisy["wer"].mean == noisy["wer_excess"].mean == pytest.approx(0.5)
    assert report.system("codec", 12).metrics["wer_excess"].mean == 0
    assert {score.heard for score in report.scores if score.system == "Codec 3 kbps"} == {"one too three"}


def test_the_difference_to_opus_is_paired(report: Report) -> None:
    if not opus_available():
        assert report.system("codec", 12).versus_opus == {}
        return
    ours, opus = report.system("codec", 12), report.system("opus", 12)
    difference = ours.versus_opus["si_sdr"]
    assert difference.mean == pytest.approx(ours.metrics["si_sdr"].mean - opus.metrics["si_sdr"].mean)
    assert beats_opus(ours, "si_sdr") is True
    assert opus.measured_kbps is not None
    assert opus.measured_kbps > 5


def test_the_json_is_whole_and_versioned(report: Report, tmp_path: Path) -> None:
    path = report.write(tmp_path / "deep" / "report.json")
    content = json.loads(path.read_text())
    assert (content["format"], content["version"]) == ("madrigal.judge.codec", 1)
    assert "examples" not in content
    again = Report.load(path)
    assert again == report.model_copy(update={"examples": []})
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "not the report"),
        ('{"format": "madrigal.judge.codec", "version": 9}', "version 9"),
    ],
)
def test_a_report_that_cannot_be_used_is_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(UserError, match=words):
        Report.load(path)


def test_a_damaged_report_is_named(report: Report, tmp_path: Path) -> None:
    content = json.loads(report.to_json())
    content["systems"][0]["kind"] = "nonsense"
    (tmp_path / "report.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="damaged"):
        Report.load(tmp_path / "report.json")


def test_the_table_fits_a_terminal_of_80_columns(report: Report) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    show(report, console)
    text = console.export_text()
    assert "Codec 12 kbps" in text
    assert "±" in text
    assert "…" not in text
    assert "perplexity" in text


def test_everything_is_written(report: Report, tmp_path: Path) -> None:
    written = write_report(report, tmp_path)
    assert sorted(path.name for path in written.values()) == ["report.html", "report.json", "spectrograms.png"]
    page = written["page"].read_text()
    assert page.count("<audio") == 3 * len(report.systems)
    assert ("one two three four" in page) == packages.available("wer")


def test_what_is_missing_is_left_out_and_named(without: Callable[..., None]) -> None:
    without("pesq", "stoi", "visqol", "opus", "wer")
    report = evaluated(metrics=("pesq", "stoi", "visqol", "mel"), recogniser=Listener())
    assert {item.install for item in report.left_out} == {
        "pip install pesq",
        "pip install pystoi",
        "pip install visqol-python",
        "pip install av",
        "pip install jiwer",
    }
    assert report.metric_names == ["mel"]
    assert report.packages == {}
    assert [system.kind for system in report.systems] == ["original", "codec", "codec"]


def test_without_a_recogniser_the_report_says_how_to_get_one() -> None:
    report = evaluated(opus=False)
    assert any("MADRIGAL_RECOGNISER" in note for note in report.notes) or not packages.available("wer")
    assert "wer" not in report.metric_names


def test_an_undefined_score_is_null_and_not_counted() -> None:
    items = [*utterances(2), Utterance("silence", np.zeros(8000, np.float32), 16_000)]
    report = evaluate_codec(items, lambda wave, rate, kbps: (wave, None), (6,), opus=False, metrics=QUICK, workers=0)
    assert report.system("codec", 6).metrics["mel"].count == 2
    assert [score.metrics["mel"] for score in report.scores if score.utterance == "silence" and score.metrics] == [None]
    assert "NaN" not in report.to_json()


def test_progress_goes_up_to_the_total() -> None:
    steps: list[tuple[int, int]] = []
    evaluated(opus=False, progress=lambda done, total, what: steps.append((done, total)))
    assert steps == [(step, 9) for step in range(1, 10)]


def test_only_some_examples_are_kept() -> None:
    report = evaluated(opus=False, examples=1)
    assert [example.name for example in report.examples] == ["clip 0"]
    assert list(report.examples[0].waves) == [system.label for system in report.systems]


def test_a_wave_that_comes_back_longer_or_shorter_is_fitted() -> None:
    def sloppy(wave: np.ndarray, rate: int, kbps: float) -> tuple[np.ndarray, None]:
        return wave[0, :-100] if kbps < 5 else np.pad(wave[0], (0, 64)), None

    report = evaluate_codec(utterances(2), sloppy, (3, 12), opus=False, metrics=("si_sdr",), workers=0)
    assert report.system("codec", 12).metrics["si_sdr"].mean == 100


@pytest.mark.parametrize(
    ("items", "rates", "options", "words"),
    [
        ([], (6,), {}, "nothing to evaluate"),
        (utterances(1), (), {}, "nothing to evaluate"),
        ([Utterance("hush", np.zeros(0), 16_000)], (6,), {}, "hush has no samples"),
        (utterances(1), (6,), {"metrics": ("loudness",)}, "no metric 'loudness'"),
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(
    items: Sequence[Utterance], rates: tuple[float, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        evaluate_codec(items, round_trip, rates, workers=0, **options)


def test_a_codec_that_gives_nan_is_named() -> None:
    with pytest.raises(UserError, match="Codec 6 kbps gives NaN"):
        evaluate_codec(utterances(1), lambda wave, rate, kbps: (wave * np.nan, None), (6,), metrics=QUICK, workers=0)


def test_codes_need_the_size_of_their_codebook() -> None:
    with pytest.raises(ValueError, match="codebook_size"):
        evaluated(opus=False, codebook_size=None)


def test_the_notes_say_how_visqol_was_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "available", lambda feature: True)
    monkeypatch.setattr(codec_module, "visqol_mapping", lambda: "polynomial")
    plan = codec_module._plan(utterances(1), ("visqol",), False, None, 20)
    assert any("visqol-python[lattice]" in note for note in plan.notes)
