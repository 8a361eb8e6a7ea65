"""Who may ask, from where and how much; and what every answer carries."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from stand_ins import KEY, in_a_loop
from starlette.testclient import TestClient

from madrigal.studio.guards import Guard, JsonLines

SPEECH = {"model": "tts-1", "input": "hello"}


def test_a_key_is_wanted_of_every_route_but_the_page(keyed: TestClient) -> None:
    for path in ("/v1/models", "/api/runs", "/metrics", "/nothing", "/api/studio"):
        answer = keyed.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
    for path in ("/", "/healthz", "/favicon.ico", "/docs", "/openapi.json"):
        assert keyed.get(path).status_code in (200, 204), path
    assert keyed.get("/openapi.json").json()["security"] == [{"key": []}]


@pytest.mark.parametrize("given", ["", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}", "Bearer ä"])
def test_a_wrong_key_is_refused(keyed: TestClient, given: str) -> None:
    answer = keyed.get("/v1/models", headers={"Authorization": given.encode()})  # type: ignore[dict-item]
    assert answer.status_code == 401


def test_the_right_key_is_let_in(keyed: TestClient) -> None:
    assert keyed.get("/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
    assert keyed.get("/v1/models", headers={"Authorization": f"bearer {KEY}"}).status_code == 200
    # With a key no name can be bent to do harm.
    assert keyed.get("/v1/models", headers={"Authorization": f"Bearer {KEY}", "Host": "my.server"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8571", "localhost.evil.example", "", "127.0.0.1.evil"])
def test_a_name_that_is_not_ours_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/api/runs", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "unknown_host"


@pytest.mark.parametrize("host", ["localhost", "localhost:8571", "127.0.0.1:1", "[::1]:8571", "LOCALHOST", "10.0.0.5"])
def test_loopback_and_numbers_are_let_in(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://testserver:9"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_from_elsewhere_cannot_change_anything(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/v1/audio/speech", json=SPEECH, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "foreign_origin"
    assert client.delete("/v1/audio/voices/anna", headers=headers).status_code == 403


def test_our_own_page_may(client: TestClient) -> None:
    headers = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/audio/speech", json=SPEECH, headers=headers).status_code == 200


def test_every_answer_has_the_headers(client: TestClient) -> None:
    for path in ("/", "/v1/models", "/nothing", "/page/nothing.js"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert len(headers.get_list("x-request-id")[0]) == 32
        assert "access-control-allow-origin" not in headers


def test_a_large_body_is_refused_by_its_header_and_by_its_bytes(make_client: Callable[..., TestClient]) -> None:
    client = make_client(limits={"body_bytes": 10_000})
    told = client.post("/v1/audio/speech", content=b"x" * 20_000)
    assert told.status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000

    assert client.post("/v1/audio/speech", content=chunks()).status_code == 413
    files = {"file": ("a.wav", b"x" * 20_000)}
    assert client.post("/v1/audio/voices", data={"name": "me"}, files=files).status_code == 413
    assert client.get("/healthz").status_code == 200


def test_a_body_that_is_no_upload_is_small(client: TestClient) -> None:
    many = json.dumps({**SPEECH, **{f"k{i}": i for i in range(50_000)}})
    for headers in ({"Content-Type": "application/json"}, {}):
        answer = client.post("/v1/audio/speech", content=many, headers=headers)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
    codes = {"codes": [[-1]] * 90_000}
    assert client.post("/v1/audio/codes/decode", json=codes).status_code == 400


def test_a_body_that_trickles_is_cut_off(make_app: Callable[..., FastAPI]) -> None:
    app = make_app(limits={"timeout_seconds": 0.3})
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/audio/speech", "query_string": b"", "headers": headers}
    in_a_loop(asyncio.wait_for(app(scope, receive, send), 60))
    assert sent[0]["status"] == 408


def test_who_gives_up_just_as_a_body_comes_has_given_up(make_app: Callable[..., FastAPI]) -> None:
    app = make_app()
    guard = Guard(app, app.state.studio.settings, app.state.studio.watching)
    scope = {"type": "http", "path": "/v1/audio/speech", "headers": []}

    async def give_up() -> None:
        coming: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        reading = asyncio.ensure_future(guard._bounded(scope, lambda: coming)())
        await asyncio.sleep(0.05)
        coming.set_result({"type": "http.request", "body": b"", "more_body": False})
        reading.cancel()
        await asyncio.wait({reading}, timeout=10)
        assert reading.cancelled()

    in_a_loop(give_up())


def test_an_unknown_place_and_a_wrong_method_are_told_in_the_same_shape(client: TestClient) -> None:
    for answer, status in ((client.get("/nothing"), 404), (client.put("/v1/models"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


def test_no_path_climbs_out_of_the_page(client: TestClient) -> None:
    for path in ("/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page//etc/passwd"):
        assert client.get(path).status_code == 404, path


def test_what_is_counted_is_told(client: TestClient) -> None:
    client.post("/v1/audio/speech", json=SPEECH)
    client.get("/api/runs/codec")
    text = client.get("/metrics").text
    assert 'madrigal_requests_total{method="POST",route="/v1/audio/speech",status="200"} 1.0' in text
    assert 'route="/api/runs/{run_id:path}"' in text
    assert "madrigal_first_audio_seconds_count 1.0" in text
    assert 'madrigal_audio_seconds_total{model="voice"} 0.1' in text
    assert "madrigal_work_waiting 0.0" in text


def test_what_is_refused_at_the_door_is_counted_by_its_route(keyed: TestClient) -> None:
    allowed = {"Authorization": f"Bearer {KEY}"}
    assert keyed.get("/api/runs/codec/metrics").status_code == 401
    assert keyed.get("/metrics").status_code == 401
    assert keyed.post("/v1/audio/speech", content=b"x" * 300_000, headers=allowed).status_code == 413
    assert keyed.get("/nothing").status_code == 401
    text = keyed.get("/metrics", headers=allowed).text
    assert 'route="/api/runs/{run_id:path}/metrics",status="401"' in text
    assert 'route="/metrics",status="401"' in text
    assert 'route="/v1/audio/speech",status="413"' in text
    assert 'route="unknown",status="401"' in text


@pytest.mark.parametrize(
    ("body", "told"), [("{bad", "no valid JSON: "), ("[1]", "JSON object"), ('"x"', "JSON object")]
)
def test_a_body_that_is_no_json_object_is_told_in_a_sentence(client: TestClient, body: str, told: str) -> None:
    for path in ("/v1/audio/speech", "/v1/images/generations", "/api/listening"):
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert told in error["message"]
        assert (error["code"], error["param"]) == ("invalid_json", None)


def test_a_log_line_is_json_and_knows_no_text(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="madrigal.studio"):
        client.post("/v1/audio/speech", json={**SPEECH, "input": "my secret"})
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records if hasattr(record, "request")]
    assert lines[-1]["status"] == 200
    assert lines[-1]["route"] == "/v1/audio/speech"
    assert lines[-1]["bytes"] > 0
    assert "secret" not in json.dumps(lines)


def test_a_server_that_leaves_refuses_what_is_new(make_app: Callable[..., FastAPI]) -> None:
    app = make_app()
    with TestClient(app, raise_server_exceptions=False) as client:
        app.state.studio.watching.is_leaving = True
        for path in ("/v1/models", "/healthz"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
