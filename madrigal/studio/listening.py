"""Blind listening tests over the samples of runs: made, taken, and counted.

FOLDER/listening/ID.json      what the test is: trials, and which stimulus is of which run
FOLDER/listening/ID/TOKEN.wav the stimuli, under names that say nothing
FOLDER/listening/ID.jsonl     one line an answer, with the stimuli resolved to runs
"""

import json
import math
import os
import re
import secrets
import shutil
import threading
import time
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from madrigal.engine.run import replace_file
from madrigal.errors import UserError
from madrigal.studio.errors import ApiError, missing, shown
from madrigal.studio.runs import Runs, listed_files, sample_steps

ID = re.compile(r"[0-9a-f]{12}")
REFERENCE = "reference"
MOST_RUNS, MOST_TRIALS, MOST_TESTS, MOST_ANSWERS = 8, 60, 500, 100_000
Kind = Literal["ab", "mushra"]


class Listening:
    """The tests of a folder."""

    def __init__(self, root: Path, runs: Runs) -> None:
        self._folder, self._runs = root / "listening", runs
        self._lock = threading.Lock()

    def rows(self) -> list[dict[str, Any]]:
        """All tests, the newest first."""
        tests = [self._test(name) for name in self._names()]
        found = [self._row(test) for test in tests if test is not None]
        return sorted(found, key=lambda row: -row["created"])

    def create(self, kind: Kind, title: str, runs: list[str]) -> dict[str, Any]:
        """A test over the newest samples that all these runs have."""
        if len(set(runs)) != len(runs) or not 2 <= len(runs) <= MOST_RUNS:
            raise ApiError(400, f"Name 2 to {MOST_RUNS} different runs.", code="invalid_runs", param="runs")
        if len(self._names()) >= MOST_TESTS:
            raise ApiError(409, f"There are {MOST_TESTS} tests already; remove some first.", code="too_many_tests")
        heard = {run: self._newest(run) for run in runs}
        shared = [name for name in _told_apart(heard[runs[0]]) if all(name in files for files in heard.values())]
        if not shared:
            raise ApiError(
                400, "These runs have no samples of the same name to compare.", code="nothing_shared", param="runs"
            )
        test_id = secrets.token_hex(6)
        test = {"id": test_id, "kind": kind, "title": title, "created": round(time.time(), 3), "runs": runs}
        try:
            (self._folder / test_id).mkdir(parents=True)
            test["trials"] = self._trials(test_id, kind, shared, runs, heard)
            replace_file(self._folder / f"{test_id}.json", json.dumps(test, indent=1) + "\n")
        except (OSError, UserError) as error:
            shutil.rmtree(self._folder / test_id, ignore_errors=True)
            raise ApiError(503, "The test could not be written.", code="storage_failed") from error
        return self._row(test)

    def remove(self, test_id: str) -> None:
        """The test, its sounds and its answers."""
        self.find(test_id)
        with self._lock:
            try:
                # What makes it a test goes first: half of one is never listed.
                (self._folder / f"{test_id}.json").unlink(missing_ok=True)
                (self._folder / f"{test_id}.jsonl").unlink(missing_ok=True)
            except OSError as error:
                raise ApiError(503, "The test could not be removed.", code="storage_failed") from error
            shutil.rmtree(self._folder / test_id, ignore_errors=True)

    def taken(self, test_id: str) -> dict[str, Any]:
        """A test as its listeners see it: nothing says which stimulus is whose."""
        test = self.find(test_id)

        def stimulus(token: str) -> dict[str, str]:
            return {"token": token, "url": f"/api/listening/{test_id}/stimuli/{token}"}

        trials = [
            {
                "id": trial["id"],
                "item": trial["item"],
                "reference": None if trial["reference"] is None else stimulus(trial["reference"]),
                "stimuli": [stimulus(token) for token in trial["stimuli"]],
            }
            for trial in test["trials"]
        ]
        return {"id": test_id, "kind": test["kind"], "title": test["title"], "trials": trials}

    def stimulus(self, test_id: str, token: str) -> Path:
        self.find(test_id)
        for file in listed_files(self._folder / test_id):
            if file.stem == token:
                return file
        raise missing("stimulus", token, "stimulus_not_found")

    def answer(
        self, test_id: str, listener: str, trial: str, choice: str | None, scores: dict[str, float] | None
    ) -> None:
        """Append one answer to the test's file."""
        test = self.find(test_id)
        asked = next((one for one in test["trials"] if one["id"] == trial), None)
        if asked is None:
            raise ApiError(400, f"There is no trial {shown(trial)}.", code="trial_not_found", param="trial")
        line: dict[str, Any] = {"time": round(time.time(), 3), "listener": listener, "trial": trial}
        line["item"] = asked["item"]
        if test["kind"] == "ab":
            if choice is None or scores is not None:
                raise ApiError(400, "An A/B trial is answered by a choice.", code="invalid_answer", param="choice")
            line |= {letter: asked["stimuli"][token] for letter, token in zip("ab", asked["stimuli"], strict=True)}
            line |= {"choice": choice, "preferred": line.get(choice)}
        else:
            if scores is None or choice is not None or set(scores) != set(asked["stimuli"]):
                raise ApiError(400, "Score every stimulus of the trial.", code="invalid_answer", param="scores")
            line["scores"] = {run: scores[token] for token, run in asked["stimuli"].items()}
        with self._lock:
            if len(self._answers(test_id)) >= MOST_ANSWERS:
                raise ApiError(409, "The test has all the answers that it takes.", code="too_many_answers")
            self._append(test_id, line)

    def results(self, test_id: str) -> dict[str, Any]:
        """Counts and intervals; of several answers of one listener to one trial the last counts."""
        test = self.find(test_id)
        answers = {(line["listener"], line["trial"]): line for line in self._answers(test_id)}.values()
        return {
            "kind": test["kind"],
            "title": test["title"],
            "listeners": len({line["listener"] for line in answers}),
            "answers": len(answers),
            "pairs": _pairs(test["runs"], answers) if test["kind"] == "ab" else [],
            "scores": _scores([*test["runs"], REFERENCE], answers) if test["kind"] == "mushra" else [],
            "file": f"listening/{test_id}.jsonl",
        }

    def answers_file(self, test_id: str) -> bytes:
        """All answers as they were given."""
        self.find(test_id)
        try:
            return (self._folder / f"{test_id}.jsonl").read_bytes()
        except OSError:
            return b""

    def find(self, test_id: str) -> dict[str, Any]:
        test = self._test(test_id) if test_id in self._names() else None
        if test is None:
            raise missing("test", test_id, "test_not_found")
        return test

    def _trials(
        self, test_id: str, kind: Kind, shared: list[str], runs: list[str], heard: dict[str, dict[str, Path]]
    ) -> list[dict[str, Any]]:
        groups = list(combinations(runs, 2)) if kind == "ab" else [tuple(runs)]
        places = [(name, group) for name in shared for group in groups][:MOST_TRIALS]
        trials = []
        for number, (name, group) in enumerate(places):
            original = next((files[o] for files in heard.values() if (o := _original(name)) in files), None)
            reference = None if original is None else self._copied(test_id, original)
            stimuli = {self._copied(test_id, heard[run][name]): run for run in group}
            if kind == "mushra" and original is not None:
                stimuli[self._copied(test_id, original)] = REFERENCE
            shuffled = list(stimuli)
            secrets.SystemRandom().shuffle(shuffled)
            trials.append(
                {
                    "id": str(number),
                    "item": name.partition("-")[0],
                    "reference": reference,
                    "stimuli": {token: stimuli[token] for token in shuffled},
                }
            )
        secrets.SystemRandom().shuffle(trials)
        return trials

    def _copied(self, test_id: str, file: Path) -> str:
        """The runs forget samples; a test keeps its own."""
        token = secrets.token_hex(8)
        shutil.copyfile(file, self._folder / test_id / f"{token}{file.suffix}")
        return token

    def _newest(self, run: str) -> dict[str, Path]:
        steps = sample_steps(self._runs.find(run))
        files = listed_files(steps[max(steps)]) if steps else []
        return {file.name: file for file in files if file.suffix in (".wav", ".flac")}

    def _row(self, test: dict[str, Any]) -> dict[str, Any]:
        answers = self._answers(test["id"])
        told = {name: test[name] for name in ("id", "kind", "title", "created", "runs")}
        listeners = len({line["listener"] for line in answers})
        return {**told, "trials": len(test["trials"]), "answers": len(answers), "listeners": listeners}

    def _names(self) -> list[str]:
        try:
            names = [entry.name.removesuffix(".json") for entry in os.scandir(self._folder) if entry.is_file()]
        except OSError:
            return []
        return [name for name in names if ID.fullmatch(name)]

    def _test(self, name: str) -> dict[str, Any] | None:
        try:
            test = json.loads((self._folder / f"{name}.json").read_text())
            return test if test["id"] == name and test["trials"] is not None else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _answers(self, name: str) -> list[dict[str, Any]]:
        try:
            lines = (self._folder / f"{name}.jsonl").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return [line for line in found if isinstance(line, dict) and {"listener", "trial"} <= line.keys()]

    def _append(self, name: str, line: dict[str, Any]) -> None:
        try:
            # In one write, unbuffered: several processes may append to the file.
            with (self._folder / f"{name}.jsonl").open("ab", buffering=0) as file:
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise ApiError(503, "The answer could not be written.", code="storage_failed") from error


def _told_apart(files: dict[str, Path]) -> list[str]:
    """What can be compared: of averaged weights where there are such samples, and never the original itself."""
    names = [name for name in files if _role(name) != "original"]
    averaged = [name for name in names if _role(name).endswith("-ema")]
    return averaged or names


def _role(name: str) -> str:
    return Path(name).stem.partition("-")[2]


def _original(name: str) -> str:
    return f"{name.partition('-')[0]}-original{Path(name).suffix}"


def _pairs(runs: list[str], answers: Any) -> list[dict[str, Any]]:
    rows = []
    for left, right in combinations(runs, 2):
        asked = [line for line in answers if {line.get("a"), line.get("b")} == {left, right}]
        wins, losses = (sum(line.get("preferred") == run for line in asked) for run in (left, right))
        decided = wins + losses
        rows.append(
            {
                "left": left,
                "right": right,
                "left_wins": wins,
                "right_wins": losses,
                "none": len(asked) - decided,
                "preference": wins / decided if decided else None,
                "interval": list(wilson(wins, decided)) if decided else None,
            }
        )
    return rows


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share, after Wilson."""
    share, spread = successes / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _scores(runs: list[str], answers: Any) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        given = [line["scores"][run] for line in answers if run in line.get("scores", {})]
        if not given:
            continue
        mean = sum(given) / len(given)
        interval = None
        if len(given) > 1:
            half = 1.96 * math.sqrt(sum((g - mean) ** 2 for g in given) / (len(given) - 1) / len(given))
            interval = [max(0.0, mean - half), min(100.0, mean + half)]
        rows.append({"run": run, "mean": mean, "interval": interval, "n": len(given)})
    return rows
