from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from stand_ins import StandInVoice, wav_bytes, write_run, write_voice_folder
from starlette.testclient import TestClient

from madrigal.studio.app import create_app
from madrigal.studio.settings import Limits, StudioSettings


@pytest.fixture
def voice() -> StandInVoice:
    return StandInVoice()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two finished runs, one that was stopped, and a voice."""
    runs = tmp_path / "runs"
    write_run(runs / "codec")
    write_run(runs / "group/other", tone=0.07)
    write_run(runs / "stopped", steps=20, total=100, samples=False)
    write_voice_folder(tmp_path / "voice")
    return runs


@pytest.fixture
def make_app(root: Path, voice: StandInVoice) -> Callable[..., FastAPI]:
    def make(
        *, limits: dict[str, Any] | None = None, loaders: dict[str, Any] | None = None, **settings: Any
    ) -> FastAPI:
        told = {"folder": root, "voice_runs": (root.parent / "voice",), "names": ("testserver",), "shipped": False}
        told |= {"warm": False, "limits": Limits(**(limits or {})), **settings}
        return create_app(StudioSettings(**told), loaders={"speech": lambda *_: voice, **(loaders or {})})

    return make


@pytest.fixture
def client(make_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    with TestClient(make_app(), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def served() -> Iterator[Callable[[FastAPI], str]]:
    """The address of an application on a real socket."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def serve(app: FastAPI) -> str:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield serve
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def wav() -> bytes:
    return wav_bytes(2.0)
