"""The OpenAPI document is true: whatever fits it, or does not, no answer is a 500 or one that it does not declare."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from small_codecs import small_codec
from stand_ins import StandInVoice, write_run, write_voice_folder

from madrigal.studio.app import create_app
from madrigal.studio.settings import Limits, StudioSettings

EXAMPLES = 6
"""Of each operation, of requests that fit the document and of requests that do not."""
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("schema")
    write_run(folder / "runs/codec")
    write_voice_folder(folder / "voice")
    codec, voice = small_codec(16, 2), StandInVoice()
    told = StudioSettings(
        folder=folder / "runs",
        voice_runs=(folder / "voice",),
        names=("testserver", "localhost"),
        shipped=False,
        warm=False,
        limits=Limits(text_characters=200, timeout_seconds=20),
    )
    app = create_app(told, loaders={"speech": lambda *_: voice, "codec": lambda *_: codec})
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.fixture(autouse=True)
def _small_numbers() -> None:
    """Hypothesis draws numbers that a process which has trained takes for 0."""
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_every_answer_is_one_that_the_document_declares(document: Any, mode: GenerationMode) -> None:
    asked = 0
    for found in document.get_all_operations():
        operation = found.ok()
        told = operation.definition.raw
        if mode is GenerationMode.NEGATIVE and not (told.get("parameters") or told.get("requestBody")):
            continue  # there is nothing that could be wrong

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(checks=CHECKS, timeout=300)  # a machine may be busy

        with suppress(Unsatisfiable):  # a path of words is never wrong
            ask()
    assert asked > EXAMPLES * 12
