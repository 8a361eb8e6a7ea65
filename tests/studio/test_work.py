"""The line of work: full, late, or left by whoever asked."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlparse

import httpx
import pytest
import torch
from fastapi import FastAPI
from stand_ins import StandInVoice, in_a_loop
from starlette.testclient import TestClient
from torch import nn

from madrigal.studio.errors import ApiError
from madrigal.studio.work import WorkLine, interruptible

LONG = {"model": "tts-1", "input": "word " * 400, "response_format": "pcm"}
SHORT = {"model": "tts-1", "input": "one two", "response_format": "pcm"}


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


def test_a_full_line_says_when_to_come_back(make_app: Callable[..., FastAPI], voice: StandInVoice) -> None:
    voice.slow = 0.05
    app = make_app(limits={"waiting": 1})
    with TestClient(app, raise_server_exceptions=False) as client, ThreadPoolExecutor(2) as pool:
        line = app.state.studio.line
        first = pool.submit(client.post, "/v1/audio/speech", json={**LONG, "input": "word " * 40})
        wait_for(lambda: line.working == 1)
        second = pool.submit(client.post, "/v1/audio/speech", json=SHORT)
        wait_for(lambda: line.waiting == 1)
        refused = client.post("/v1/audio/speech", json=SHORT)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert client.get("/api/runs").status_code == 200  # what is light does not wait
        assert first.result().status_code == second.result().status_code == 200
        assert client.post("/v1/audio/speech", json=SHORT).status_code == 200


def test_what_takes_too_long_is_a_504(make_app: Callable[..., FastAPI], voice: StandInVoice) -> None:
    voice.slow = 1.0
    with TestClient(make_app(limits={"timeout_seconds": 0.3}), raise_server_exceptions=False) as client:
        answer = client.post("/v1/audio/speech", json={**LONG, "response_format": "flac"})
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "timeout"
        wait_for(voice.closed.is_set)


@pytest.mark.parametrize("heard", [True, False], ids=["after the first sound", "before any sound"])
def test_a_client_that_leaves_frees_the_worker(
    make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str], voice: StandInVoice, heard: bool
) -> None:
    voice.slow = 0.05 if heard else 1.0
    app = make_app()
    address = urlparse(served(app))
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    connection.request("POST", "/v1/audio/speech", json.dumps(LONG), {"Content-Type": "application/json"})
    line = app.state.studio.line
    if heard:
        assert connection.getresponse().read(100)
    else:
        wait_for(lambda: line.working == 1)
    connection.close()
    wait_for(lambda: line.working == 0)
    assert voice.closed.is_set()
    assert voice.said < 400
    voice.slow = 0.0
    assert httpx.post(f"{address.geturl()}/v1/audio/speech", json=SHORT, timeout=60).status_code == 200


def test_who_leaves_while_waiting_is_never_worked_for(
    make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str], voice: StandInVoice
) -> None:
    voice.slow = 0.05
    app = make_app()
    address = served(app)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(httpx.post, f"{address}/v1/audio/speech", json={**LONG, "input": "a " * 60}, timeout=60)
        wait_for(lambda: app.state.studio.line.working == 1)
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{address}/v1/audio/speech", json={**SHORT, "input": "left left"}, timeout=0.3)
        assert first.result().status_code == 200
    wait_for(lambda: app.state.studio.line.working == app.state.studio.line.waiting == 0)
    assert all("left" not in asked["text"] for asked in voice.asked)


def test_a_call_without_pieces_ends_at_the_next_call_of_a_network() -> None:
    net = interruptible(nn.Sequential(nn.Linear(2, 2)), (nn.Linear,))
    calls, ended = 0, threading.Event()

    def work() -> None:
        nonlocal calls
        try:
            while True:
                calls += 1
                time.sleep(0.01)
                net(torch.zeros(2))
        finally:
            ended.set()

    async def ask() -> None:
        line = WorkLine(workers=1, waiting=1, timeout=60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.once(work), 0.2)
        await asyncio.to_thread(ended.wait, 30)
        line.close()

    in_a_loop(ask())
    assert ended.is_set()
    net(torch.zeros(2))  # out of a job it asks nobody


def test_several_workers_work_at_once_and_errors_come_through() -> None:
    both = threading.Barrier(2, timeout=30)

    def fail() -> Iterator[int]:
        yield 1
        raise ApiError(400, "no")

    async def ask() -> list[int]:
        line = WorkLine(workers=2, waiting=4, timeout=60)
        assert await asyncio.gather(*(line.once(both.wait) for _ in range(2))) in ([0, 1], [1, 0])
        items = line.submit(fail).items()
        heard = [await anext(items)]
        with pytest.raises(ApiError):
            await anext(items)
        assert line.overdue == 0.0
        line.close()
        return heard

    assert in_a_loop(ask()) == [1]
