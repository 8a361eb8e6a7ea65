"""The line of work: full, late, or left by whoever asked."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlparse

import httpx
import pytest
import torch
from fastapi import FastAPI
from stand_ins import StandInVoice, in_a_loop
from starlette.testclient import TestClient
from torch import nn

from madrigal.studio.errors import ApiError, BrokenOff
from madrigal.studio.server import bound, set_up_logs
from madrigal.studio.streaming import PART, Streamed
from madrigal.studio.work import Cancelled, Job, WorkLine, interruptible

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


@pytest.fixture
def logs(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What the log of the command would say, and what its server would."""
    loggers = [logging.getLogger(name) for name in ("madrigal.studio", "uvicorn")]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield lambda: capfd.readouterr().err
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def outcomes(app: FastAPI) -> dict[str, float]:
    """How often speech was asked for, by what it came to."""
    counted = app.state.studio.watching.requests.collect()
    samples = [sample for family in counted for sample in family.samples if sample.name.endswith("_total")]
    return {s.labels["status"]: s.value for s in samples if s.labels["route"] == "/v1/audio/speech"}


def test_a_client_that_leaves_in_mid_stream_is_counted_as_one(
    make_app: Callable[..., FastAPI],
    served: Callable[[FastAPI], str],
    voice: StandInVoice,
    logs: Callable[[], str],
) -> None:
    voice.slow = 0.05
    app = make_app()
    address = served(app)
    set_up_logs(as_json=True)
    with httpx.stream("POST", f"{address}/v1/audio/speech", json=LONG, timeout=60) as answer:
        next(answer.iter_raw())
    wait_for(lambda: bool(outcomes(app)))
    assert outcomes(app) == {"499": 1.0}
    told = logs()
    assert '"status": 499' in told
    assert "error" not in told


def test_time_that_is_up_in_mid_stream_is_no_crash(
    make_app: Callable[..., FastAPI],
    served: Callable[[FastAPI], str],
    voice: StandInVoice,
    logs: Callable[[], str],
) -> None:
    voice.slow = 0.1
    app = make_app(limits={"timeout_seconds": 1.5})
    address = served(app)
    set_up_logs(as_json=True)
    with pytest.raises(httpx.RemoteProtocolError):  # never a short answer that looks whole
        httpx.post(f"{address}/v1/audio/speech", json=LONG, timeout=60)
    wait_for(lambda: bool(outcomes(app)))
    assert outcomes(app) == {"504": 1.0}
    told = logs()
    assert '"status": 504' in told
    assert "error" not in told


def test_a_client_that_reads_nothing_frees_the_worker_and_is_left(
    make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str]
) -> None:
    app = make_app(limits={"stall_seconds": 0.5})
    address = urlparse(served(app))
    body = json.dumps({**LONG, "input": "a " * 2_000}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((address.hostname, address.port))
        lazy.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        wait_for(lambda: bool(outcomes(app)))
    assert outcomes(app) == {"499": 1.0}
    wait_for(lambda: app.state.studio.line.working == 0)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system does not know how to")
def test_a_connection_whose_bytes_are_never_taken_is_cut_off() -> None:
    with bound("127.0.0.1", 0, 0.5) as listening, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(listening.getsockname())
        listening.setblocking(True)
        with listening.accept()[0] as connection:
            connection.settimeout(60)
            with pytest.raises(OSError, match="timed out") as cut:
                connection.sendall(b"x" * (1_000 * PART))
            assert cut.value.errno == errno.ETIMEDOUT  # the system's word, and not that of this test's patience


@pytest.mark.parametrize("pause", [0.02, 60.0], ids=["too slowly", "not at all"])
def test_a_client_that_does_not_read_is_left(pause: float) -> None:
    """A piece may be large, and is taken in parts: whoever takes some of it now and then is not at rest."""
    closed, sent = threading.Event(), []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * (1_000 * PART)

    async def receive() -> dict[str, str]:
        await asyncio.sleep(600)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(0 if message["type"] == "http.response.start" else pause)

    async def close() -> None:
        closed.set()

    async def answer() -> None:
        end = time.monotonic() + 0.5
        streamed = Streamed(pieces(), "audio/wav", stall_seconds=0.3, until=lambda: end, close=close)
        await streamed({"type": "http"}, receive, send)

    with pytest.raises(BrokenOff) as broken:
        in_a_loop(asyncio.wait_for(answer(), 60))
    assert (broken.value.why.status, broken.value.why.code) == (499, "client_stalled")
    assert closed.is_set()
    assert 2 <= len(sent) < 1_000


@pytest.mark.parametrize("moment", range(6))
def test_who_stops_listening_just_as_something_comes_has_stopped(moment: int) -> None:
    async def ask() -> None:
        job: Job[bytes] = Job(lambda: (), time.monotonic() + 600)

        async def listen() -> None:
            async for _ in job.items():
                pass

        listening = asyncio.ensure_future(listen())
        await asyncio.sleep(0.05)
        job._tell(b"sound")
        for _ in range(moment):
            await asyncio.sleep(0)
        listening.cancel()
        await asyncio.wait({listening}, timeout=10)
        assert listening.cancelled()
        with pytest.raises(Cancelled):
            job.check()

    in_a_loop(ask())


@pytest.mark.parametrize("moment", range(12))
def test_a_client_that_leaves_just_as_a_part_is_sent_is_left(moment: int) -> None:
    sent: list[Any] = []

    async def answer() -> None:
        left = asyncio.Event()

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(2_000):
                yield b"sound"

        async def receive() -> dict[str, str]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            await asyncio.sleep(0)

        answering = asyncio.ensure_future(Streamed(pieces(), "audio/wav")({"type": "http"}, receive, send))
        for _ in range(10 + moment):
            await asyncio.sleep(0)
        left.set()
        with pytest.raises(BrokenOff):
            await answering

    in_a_loop(asyncio.wait_for(answer(), 60))
    assert len(sent) < 1_000


@pytest.mark.parametrize("is_late", [False, True])
def test_a_socket_that_takes_all_at_once_hides_neither_a_client_that_leaves_nor_the_end_of_time(is_late: bool) -> None:
    sent: list[Any] = []

    async def answer() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(2_000):
                yield b"sound"

        async def receive() -> dict[str, str]:
            if is_late:
                await asyncio.Event().wait()
            for _ in range(20):
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        end = time.monotonic() + (-1 if is_late else 600)
        with pytest.raises(BrokenOff):
            await Streamed(pieces(), "audio/wav", until=lambda: end)({"type": "http"}, receive, send)

    in_a_loop(asyncio.wait_for(answer(), 60))
    assert len(sent) < 100


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
