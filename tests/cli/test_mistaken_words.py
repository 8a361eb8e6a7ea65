"""Words that the command does not know, and mistakes that are ours: one sentence and status 2, or a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shell import done, madrigal, refused

from madrigal.cli import VERBS

# The command line itself.


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("prepar recordings", "prepar"),
        ("prepare", "'folder'"),
        ("prepare recordings --worker 2", "--worker"),
        ("prepare recordings --workers 0", "--workers"),
        ("prepare recordings --workers two", "--workers"),
        ("prepare recordings --min-seconds -1", "--min-seconds"),
        ("compress recordings/0.wav", "'target'"),
        ("compress recordings/0.wav a.mgl --kbps much", "--kbps"),
        ("decompress speech.mgl a.wav b.wav", "b.wav"),
        ("evaluate runs/codec --limit 0", "--limit"),
        ("train soundstream/tiny --run", "--run"),
    ],
)
def test_words_that_the_command_does_not_know(here: Path, words: str, about: str) -> None:
    sentence = refused(*words.split())
    assert about in sentence
    verb = words.split()[0]
    assert sentence.endswith(f"See madrigal {verb} --help." if verb in VERBS else "See madrigal --help.")


def test_a_real_process_tells_one_sentence_and_leaves_with_2(here: Path) -> None:
    command = [sys.executable, "-m", "madrigal.cli", "prepare", "nowhere"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == "madrigal: There is no folder nowhere; give the folder that holds the recordings.\n"


def test_a_mistake_of_ours_is_no_mistake_of_the_user(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("madrigal.data.prepare.prepare", broken)
    with pytest.raises(ZeroDivisionError):
        madrigal("prepare", "recordings")


# runs


def test_runs_where_there_are_none(here: Path) -> None:
    assert "There is no folder nowhere" in refused("runs", "nowhere")
    assert "speech.mgl" in refused("runs", "speech.mgl")
    assert done("runs", "recordings", "--json").json == []


@pytest.mark.parametrize("text", ["", "system: [", "- 1", "plan: {}", "system: soundstream\nplan: 3\n"])
def test_runs_lists_the_others_when_one_is_damaged(here: Path, text: str) -> None:
    Path("runs/codec/recipe.yaml").write_text(text)
    rows = done("runs", "--json").json
    assert [row["run"] for row in rows] == ["runs/codec", "runs/other"]
    done("runs")


def test_the_resolved_recipe_is_a_recipe(here: Path) -> None:
    done("train", "runs/codec/recipe.yaml", "--run", "runs/again")
    again, first = (yaml.safe_load(Path(f"runs/{name}/recipe.yaml").read_text()) for name in ("again", "codec"))
    assert again == first
