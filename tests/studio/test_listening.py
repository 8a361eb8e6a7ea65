"""Blind tests over the samples of runs: made, taken, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stand_ins import write_run
from starlette.testclient import TestClient

from madrigal.studio.listening import wilson

RUNS = ["codec", "group/other"]


def make(client: TestClient, kind: str = "ab", runs: list[str] | None = None) -> Any:
    return client.post("/api/listening", json={"kind": kind, "title": "Two codecs", "runs": runs or RUNS})


def whose(root: Path, test_id: str) -> dict[str, str]:
    """Which run every token is of: what listeners cannot know."""
    told = json.loads((root / f"listening/{test_id}.json").read_text())
    return {token: run for trial in told["trials"] for token, run in trial["stimuli"].items()}


def test_an_ab_test_from_beginning_to_end(client: TestClient, root: Path) -> None:
    row = make(client).json()
    assert (row["trials"], row["answers"], row["runs"]) == (2, 0, RUNS)
    test = client.get(f"/api/listening/{row['id']}").json()
    assert "codec" not in json.dumps(test["trials"])
    owner = whose(root, row["id"])
    for trial in test["trials"]:
        heard = [client.get(stimulus["url"]).content for stimulus in trial["stimuli"]]
        names = [owner[stimulus["token"]] for stimulus in trial["stimuli"]]
        for name, sound in zip(names, heard, strict=True):
            file = root / name / f"samples/step-00000040/{trial['item']}-reconstruction-ema.wav"
            assert sound == file.read_bytes()
        original = root / f"codec/samples/step-00000040/{trial['item']}-original.wav"
        assert client.get(trial["reference"]["url"]).content == original.read_bytes()
        choice = "ab"[names.index("codec")]
        for listener in ("ann", "bob"):
            told = {"listener": listener, "trial": trial["id"], "choice": choice}
            assert client.post(f"/api/listening/{row['id']}/answers", json=told).json() == {"ok": True}
    # The last answer of a listener to a trial counts.
    told = {"listener": "bob", "trial": "0", "choice": "none"}
    client.post(f"/api/listening/{row['id']}/answers", json=told)
    results = client.get(f"/api/listening/{row['id']}/results").json()
    assert (results["answers"], results["listeners"]) == (4, 2)
    (pair,) = results["pairs"]
    assert (pair["left"], pair["left_wins"], pair["right_wins"], pair["none"]) == ("codec", 3, 0, 1)
    assert pair["preference"] == 1.0
    assert pair["interval"] == pytest.approx([0.4385, 1.0], abs=1e-3)
    lines = [json.loads(line) for line in (root / f"listening/{row['id']}.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    assert lines[0]["preferred"] == "codec"
    assert {lines[0]["a"], lines[0]["b"]} == set(RUNS)
    assert client.get(f"/api/listening/{row['id']}/results.jsonl").text.count("\n") == 5
    (listed,) = client.get("/api/listening").json()["tests"]
    assert listed["answers"] == 5


def test_a_mushra_test_hides_the_reference_among_the_stimuli(client: TestClient, root: Path) -> None:
    row = make(client, "mushra").json()
    test = client.get(f"/api/listening/{row['id']}").json()
    owner = whose(root, row["id"])
    wished = {"codec": 60.0, "group/other": 30.0, "reference": 100.0}
    for trial in test["trials"]:
        assert len(trial["stimuli"]) == 3
        tokens = [stimulus["token"] for stimulus in trial["stimuli"]]
        assert trial["reference"]["token"] not in tokens
        scores = {token: wished[owner[token]] for token in tokens}
        told = {"listener": "ann", "trial": trial["id"], "scores": scores}
        assert client.post(f"/api/listening/{row['id']}/answers", json=told).status_code == 201
    results = client.get(f"/api/listening/{row['id']}/results").json()
    assert {score["run"]: score["mean"] for score in results["scores"]} == wished
    assert all(score["n"] == 2 for score in results["scores"])


def test_a_test_is_removed_with_its_sounds_and_answers(client: TestClient, root: Path) -> None:
    kept, row = make(client).json(), make(client).json()
    told = {"listener": "ann", "trial": "0", "choice": "a"}
    assert client.post(f"/api/listening/{row['id']}/answers", json=told).status_code == 201
    assert client.delete(f"/api/listening/{row['id']}").status_code == 204
    assert [test["id"] for test in client.get("/api/listening").json()["tests"]] == [kept["id"]]
    assert not list((root / "listening").glob(f"{row['id']}*"))
    for name in (row["id"], "..%2F..%2Fcodec", "codec"):
        assert client.delete(f"/api/listening/{name}").status_code == 404
    assert (root / "codec").is_dir()


def test_three_runs_are_compared_in_pairs_and_a_test_outlives_their_samples(client: TestClient, root: Path) -> None:
    write_run(root / "third", tone=0.09)
    row = make(client, runs=[*RUNS, "third"]).json()
    assert row["trials"] == 6
    test = client.get(f"/api/listening/{row['id']}").json()
    for file in root.glob("*/samples/*/*.wav"):
        file.unlink()
    assert client.get(test["trials"][0]["stimuli"][0]["url"]).status_code == 200


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"kind": "ab", "title": "x", "runs": ["codec"]}, 400),
        ({"kind": "ab", "title": "x", "runs": ["codec", "codec"]}, 400),
        ({"kind": "ab", "title": "x", "runs": ["codec", "stopped"]}, 400),
        ({"kind": "ab", "title": "x", "runs": ["codec", "../.."]}, 404),
        ({"kind": "abx", "title": "x", "runs": RUNS}, 400),
        ({"kind": "ab", "title": "", "runs": RUNS}, 400),
    ],
)
def test_a_test_that_cannot_be_made_is_refused(client: TestClient, root: Path, told: Any, status: int) -> None:
    assert client.post("/api/listening", json=told).status_code == status
    assert client.get("/api/listening").json() == {"tests": []}


def test_answers_that_do_not_fit_are_refused(client: TestClient) -> None:
    row = make(client).json()
    place = f"/api/listening/{row['id']}/answers"
    for told in (
        {"listener": "ann", "trial": "0"},
        {"listener": "ann", "trial": "9", "choice": "a"},
        {"listener": "", "trial": "0", "choice": "a"},
        {"listener": "ann", "trial": "0", "choice": "c"},
        {"listener": "ann", "trial": "0", "scores": {"x": 1}},
        {"listener": "ann", "trial": "0", "choice": "a", "scores": {}},
    ):
        assert client.post(place, json=told).status_code == 400, told
    assert client.post("/api/listening/..%2F..%2Fcodec/answers", json=told).status_code == 404
    assert client.get("/api/listening/000000000000").status_code == 404
    assert client.get(f"/api/listening/{row['id']}/stimuli/..%2Fx").status_code == 404
    assert client.get(f"/api/listening/{row['id']}/results").json()["answers"] == 0


def test_the_interval_of_a_share() -> None:
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 4)[0] == 0.0
