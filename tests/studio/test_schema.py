"""The OpenAPI document is true: whatever fits it, or does not, no answer is a 500 or one that it does not declare."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from small_codecs import small_codec
from stand_ins import StandInVoice, write_run, write_voice_folder

from madrigal.studio.app import create_app
from madrigal.studio.settings import Limits, StudioSettings


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("schema")
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


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_request_is_answered_by_what_the_document_does_not_say(case: schemathesis.Case) -> None:
    response = case.call()
    assert response.status_code != 500
    case.validate_response(response, checks=[not_a_server_error, status_code_conformance, response_schema_conformance])
