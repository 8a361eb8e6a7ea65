"""The OpenAPI document is true: whatever fits it, or does not, no answer is a 500 or one that it does not declare."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import torch
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from PIL import Image
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from small_muse import SIDE
from stand_ins import wav_bytes, write_model, write_run
from starlette.testclient import TestClient
from voicebox_speaking import speaking_run

from madrigal.studio.errors import ApiError

EXAMPLES = 6
"""Of each operation, of requests that fit the document, of requests that do not, and of requests of what there is."""
MODES = {**{mode: str(mode.value) for mode in GenerationMode}, None: "of what is"}
LIMITS = {"text_characters": 200, "spoken_seconds": 20, "made_seconds": 5, "pictures": 2, "timeout_seconds": 200}
"""What is drawn may ask for the most."""
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
PAIRS = "GET /api/runs/{run_id}/metrics"
"""Its answer has pairs, which Schemathesis reads as an older JSON Schema wrote them, and cannot check."""
RUNS = ["codec", "group/other"]
WORDS = "one two"


def see_through() -> bytes:
    out = io.BytesIO()
    Image.new("RGBA", (SIDE, SIDE), (9, 9, 9, 0)).save(out, "PNG")
    return out.getvalue()


NEEDED: dict[str, dict[str, Any]] = {
    "POST /v1/audio/speech": {"model": "tts-1", "input": WORDS},
    "POST /v1/images/generations": {"prompt": WORDS, "size": "auto"},
    "POST /v1/images/edits": {"image": see_through(), "prompt": WORDS, "size": "auto"},
    "POST /v1/audio/continuations": {"file": wav_bytes(1.5)},
    "POST /v1/audio/music": {"prompt": WORDS},
    "POST /v1/audio/codes": {"file": wav_bytes(1.5)},
    "POST /v1/audio/codes/decode": {"codes": [[1, 2]] * 9},
    "POST /v1/audio/edits": {"file": wav_bytes(1.5), "fill": "0.5-0.7"},
    "POST /v1/audio/words": {"file": wav_bytes(1.5), "text": WORDS},
    "POST /v1/audio/voices": {"file": wav_bytes(1.5), "name": "somebody", "text": WORDS},
    "POST /api/runs": {"recipe": "soundstream/tiny", "name": "fresh"},
    "POST /api/listening": {"kind": "ab", "title": "a test", "runs": RUNS},
}
"""What nobody would guess of a body: files that can be read, and what goes together."""
LEFT_OUT = ("model", "voice", "mask", "replace_old", "replace_new", "output_format", "response_format")
"""Names of what there is not, and what does not go together with the above."""
NEVER_DONE = {
    "POST /api/runs",
    "POST /api/runs/{run_id}/stop",
    "POST /api/runs/{run_id}/resume",
    "DELETE /v1/audio/voices/{voice_id}",
    "DELETE /api/listening/{test_id}",
    "POST /api/listening/{test_id}/answers",
}
"""What is refused all the same: nothing is trained here, and what is removed is not there for others."""


def never_begun(name: str, folder: Path, words: list[str]) -> Any:
    """A training is a process of its own: the studio's part ends where that would begin."""
    if not any(folder.iterdir()):
        folder.rmdir()
    raise ApiError(400, f"The training {name} was refused.", code="training_refused")


def write_everything(runs: Path) -> None:
    """One small model of each kind."""
    for name in RUNS:
        write_run(runs / name)
    write_run(runs / "stopped", steps=20, total=100, samples=False)
    speaking_run(runs / "speaker")
    for system in ("muse", "musiclm", "audiolm"):
        write_model(runs / system, system)


@pytest.fixture
def app(make_app: Callable[..., FastAPI], tmp_path: Path) -> FastAPI:
    """With control. For one test: Schemathesis closes it behind each."""
    write_everything(tmp_path / "everything")
    (tmp_path / "data").mkdir()
    made: FastAPI = make_app(
        folder=tmp_path / "everything",
        voice_runs=(),
        names=("testserver", "localhost"),
        control=True,
        data_roots=(tmp_path / "data",),
        limits=LIMITS,
    )
    made.state.studio.control._begin = never_begun
    return made


def names_of_what_is(client: Any) -> dict[str, Any]:
    """What can be named in an address."""
    test = client.post("/api/listening", json=NEEDED["POST /api/listening"]).json()["id"]
    token = client.get(f"/api/listening/{test}").json()["trials"][0]["stimuli"][0]["token"]
    sample = {"run_id": RUNS[0], "step": 40, "name": "000-original.wav"}
    return {**sample, "left": RUNS[0], "right": RUNS[1], "model_id": RUNS[0], "test_id": test, "token": token}


def name_of(operation: Any) -> str:
    return f"{operation.method.upper()} {operation.path}"


def can_be_wrong(parameter: dict[str, Any]) -> bool:
    """Any word can stand in a path."""
    return parameter["in"] != "path" or parameter["schema"]["type"] != "string"


def of_what_is(case: schemathesis.Case, named: dict[str, Any]) -> schemathesis.Case:
    """The same request, of things that there are; those are not removed."""
    name = name_of(case.operation)
    for part in () if name.startswith("DELETE") else (case.path_parameters, case.query):
        part.update({key: value for key, value in named.items() if key in part})
    if name in NEEDED:
        drawn = {key: value for key, value in case.body.items() if key not in LEFT_OUT}
        case.body = {**drawn, **NEEDED[name]}
    return case


def ask_everything(schema: Any, named: dict[str, Any], mode: GenerationMode | None, **sending: Any) -> set[str]:
    """Ask for all that a document has, in one way, and check each answer by it: which operations were never done.

    `sending` goes with every request.
    """
    torch.set_flush_denormal(False)  # Hypothesis draws numbers that a process which has trained takes for 0
    asked, done, operations = 0, set(), set()
    for found in schema.get_all_operations():
        operation = found.ok()
        told = {"parameters": [], **operation.definition.raw}
        if mode is GenerationMode.NEGATIVE and not (
            told.get("requestBody") or any(map(can_be_wrong, told["parameters"]))
        ):
            continue
        operations.add(name_of(operation))
        drawn = operation.as_strategy(generation_mode=mode or GenerationMode.POSITIVE)

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=drawn if mode else drawn.map(lambda case: of_what_is(case, named)))
        def ask(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            checks = CHECKS[:-1] if name_of(case.operation) == PAIRS else CHECKS
            answer = case.call_and_validate(checks=checks, timeout=300, **sending)  # a machine may be busy
            if answer.status_code < 300:
                done.add(name_of(case.operation))

        with suppress(Unsatisfiable):  # nothing is wrong with it in any way
            ask()
    assert asked > EXAMPLES * 12
    return operations - done


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_every_answer_is_one_that_the_document_declares(app: FastAPI, mode: GenerationMode | None) -> None:
    named = names_of_what_is(TestClient(app))  # never entered: what is entered is closed afterwards
    never_done = ask_everything(schemathesis.openapi.from_asgi("/openapi.json", app), named, mode)
    assert mode is not None or never_done == NEVER_DONE
