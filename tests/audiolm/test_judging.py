"""What the judge shows a stage: tokens as it was trained on them, of as many recordings as were asked for."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commanding import Command
from stages import coarse_stage, semantic_stage

from madrigal import audiolm_evaluation as judge
from madrigal.audiolm.loading import load_audiolm
from madrigal.audiolm.pipeline import AudioLM
from madrigal.data.manifest import Manifest
from madrigal.data.prepare import prepare
from madrigal.data.turns import in_turn
from madrigal.errors import UserError
from madrigal.verbs.sampling import one_scale, per_stage, samplings


def parts(unique: bool) -> Any:
    return SimpleNamespace(
        semantic_transformer=semantic_stage(unique_consecutive=unique, window_seconds=0.3),
        coarse_transformer=coarse_stage(unique_consecutive=unique),
        fine_transformer=None,
        codec=SimpleNamespace(frame_rate=20.0),
        wav2vec=SimpleNamespace(frame_rate=10.0),
    )


@pytest.mark.parametrize("unique", [True, False])
def test_repeats_are_judged_as_they_were_trained(unique: bool) -> None:
    tokens = judge.Tokens(np.array([1, 1, 2, 2, 3, 3, 4, 5]), np.zeros((16, 3), dtype=np.int64))
    semantic = [w.semantic.tolist() for w in judge.StageView(parts(unique), "semantic").windows(tokens)]
    assert semantic == ([[1, 2], [2, 3], [4, 5]] if unique else [[1, 1, 2], [2, 3, 3], [4, 5]])
    (whole,) = judge.StageView(parts(unique), "coarse").windows(tokens)
    assert whole.semantic.tolist() == ([1, 2, 3, 4, 5] if unique else [1, 1, 2, 2, 3, 3, 4, 5])
    assert len(whole.acoustic) == 16


@pytest.fixture
def manifest(tmp_path: Path, sounds: Path) -> Manifest:
    """Eight recordings, the first five of one speaker."""
    prepare(sounds, tmp_path / "prepared")
    file = tmp_path / "prepared" / "manifest.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for number, line in enumerate(row for row in lines if "path" in row):
        line["speaker"] = "anna" if number < 5 else "boris"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Manifest.load(tmp_path / "prepared")


def test_the_first_recordings_are_of_all_speakers(manifest: Manifest) -> None:
    assert [entry.speaker for entry in in_turn(manifest)[:4]] == ["anna", "boris", "anna", "boris"]
    assert len(in_turn(manifest)) == len(manifest)


def test_the_limit_is_of_the_perplexities_too(
    run: Path, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    seen: list[tuple[int, int]] = []

    def count(model: AudioLM, train: Any, test: Any, **_: Any) -> None:
        seen.append((len(train), len(test)))
        raise Stop

    monkeypatch.setattr(judge, "perplexities", count)
    with pytest.raises(Stop):
        judge.evaluate_audiolm([run], data=manifest.root, out=tmp_path / "out", limit=3)
    with pytest.raises(Stop):  # the stages by themselves, in any order, are the same
        judge.evaluate_audiolm([run / "coarse", run / "semantic"], data=manifest.root, out=tmp_path / "out", limit=3)
    assert seen == [(8, 3), (8, 3)]


def test_stages_are_judged_on_the_tokens_that_they_were_trained_on(run: Path) -> None:
    stages = [run / "semantic", run / "coarse"]
    model = load_audiolm([run])
    places = [judge.learned_from(runs) for runs in ([run], stages)]
    whole, apart = (judge.training_tokens(place, model, known) for known, place in places)
    anew = judge.training_tokens(None, model, judge.learned_from([run])[0])
    assert len(whole) == len(apart) == len(anew) > 0
    for one, other, made in zip(whole, apart, anew, strict=True):
        for name in ("semantic", "acoustic"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            np.testing.assert_array_equal(getattr(one, name), getattr(made, name))


def test_one_stage_alone_or_one_of_another_kind_is_refused(
    run: Path, manifest: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Command(capsys, "evaluate").refused
    said = refused(run / "coarse", "--data", manifest.root)
    assert "name the runs of all its stages (semantic, coarse, fine)" in said
    assert "There are two coarse stages" in refused(run / "coarse", run, "--data", manifest.root)
    assert "is a run of masked-prediction: evaluate takes one run, or the runs of an AudioLM's stages" in refused(
        run / "tokenizer", run / "coarse", "--data", manifest.root
    )


def test_continuations_are_drawn_as_the_command_says(
    run: Path, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[np.ndarray] = []
    evaluate, command = judge.evaluate_continuations, Command(capsys, "evaluate")

    def heard(items: Any, **options: Any) -> Any:
        made.append(np.concatenate([item.continuation for item in items]))
        return evaluate(items, **options)

    monkeypatch.setattr(judge, "evaluate_continuations", heard)
    monkeypatch.setattr(judge, "perplexities", lambda *_, **__: {})
    for absent in ("find_recogniser", "find_second_recogniser", "find_word_list"):
        monkeypatch.setattr(judge, absent, lambda: None)
    monkeypatch.setattr(judge, "find_speaker_judges", list)
    words = (run, "--data", manifest.root, "-o", tmp_path / "out", "--limit", "2", "--prompt-seconds", "0.2")

    def notes(*how: str) -> list[str]:
        how = how if "--recall" in how else (*how, "--recall", "0")
        said = command.done(*words, "--seconds", "0.2", "--seed", "3", "--json", "--temperature", *how)
        return list(json.loads(said)["notes"])

    assert "Drawn with seeds from 3 on: semantic with temperature 0; coarse with temperature 0; fine" in notes("0")[0]
    assert "semantic with temperature 1, top_k 1; coarse with temperature 1, top_k 1;" in notes("1", "--top-k", "1")[0]
    assert notes("0.8,0.9,1", "--top-p", "1e-5")[0].endswith("; fine with temperature 1, top_p 1e-05.")
    notes("1")
    likeliest, first, share, freely = made
    np.testing.assert_array_equal(first, likeliest)
    np.testing.assert_array_equal(share, likeliest)
    assert not np.array_equal(freely, likeliest)
    assert notes("0.8", "--recall", "0,0.5,0.9")[0].endswith(
        "semantic with temperature 0.8; coarse with temperature 0.8, recall 0.5; fine with temperature 0.8, recall 0.9."
    )
    assert "top_p is 0.0" in command.refused(*words, "--top-p", "0")


@pytest.mark.parametrize("text", ["nan", "inf", "0.8,nan,0.8", "-1", "0.8,0.9"])
def test_a_temperature_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write one number from 0 on"):
        per_stage("--temperature", text)


def test_each_stage_may_have_its_own_guidance() -> None:
    found = samplings("0.8,1,1", "3,1,1", top_k=5)
    assert [(one.temperature, one.cond_scale, one.top_k) for one in found.values()] == [
        (0.8, 3.0, 5),
        (1.0, 1.0, 5),
        (1.0, 1.0, 5),
    ]
    assert {one.cond_scale for one in samplings("1").values()} == {1.0}
    assert one_scale(None) is None
    assert one_scale("2.5") == 2.5
    with pytest.raises(UserError, match="--cond-scale is '2,1,1'; write one number"):
        one_scale("2,1,1")
