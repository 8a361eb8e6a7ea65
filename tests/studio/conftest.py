from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from PIL import Image
from stand_ins import KEY, StandInVoice, small_models, wav_bytes, write_model, write_run, write_voice_folder
from starlette.testclient import TestClient
from voicebox_speaking import hum, speaking_run

from madrigal.studio.app import create_app
from madrigal.studio.settings import Limits, StudioSettings


@pytest.fixture
def voice() -> StandInVoice:
    return StandInVoice()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, one that was stopped, and a voice: written once, and copied."""
    folder = tmp_path_factory.mktemp("written")
    write_run(folder / "runs/codec")
    write_run(folder / "runs/group/other", tone=0.07)
    write_run(folder / "runs/stopped", steps=20, total=100, samples=False)
    write_voice_folder(folder / "voice")
    return folder


@pytest.fixture
def root(tmp_path: Path, written: Path) -> Path:
    """The folder of the runs, to do with as a test likes; the voice lies beside it."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs"


@pytest.fixture
def make_app(root: Path, voice: StandInVoice) -> Callable[..., FastAPI]:
    def make(
        *, limits: dict[str, Any] | None = None, loaders: dict[str, Any] | None = None, **settings: Any
    ) -> FastAPI:
        told = {"folder": root, "voice_runs": (root.parent / "voice",), "names": ("testserver",), "shipped": False}
        told |= {"warm": False, "limits": Limits(**(limits or {})), **settings}
        return create_app(StudioSettings(**told), loaders={**small_models(voice), **(loaders or {})})

    return make


@pytest.fixture
def make_client(make_app: Callable[..., FastAPI]) -> Iterator[Callable[..., TestClient]]:
    """Who asks a studio of such settings. What takes this, or one of the clients below, is asked of a fleet, too."""
    with ExitStack() as opened:
        yield lambda **told: opened.enter_context(TestClient(make_app(**told), raise_server_exceptions=False))


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()


@pytest.fixture
def keyed(make_client: Callable[..., TestClient]) -> TestClient:
    """Of a studio that wants a key, which is not sent by itself."""
    return make_client(api_key=KEY)


@pytest.fixture
def painted(make_client: Callable[..., TestClient], root: Path) -> TestClient:
    """Of a studio that has a small Muse."""
    write_model(root / "muse", "muse")
    return make_client()


@pytest.fixture(scope="session")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small voicebox as it is, other models that make sounds, and a recording."""
    folder = tmp_path_factory.mktemp("sounds")
    (folder / "runs").mkdir()
    speaking_run(folder / "runs/speaker")
    for name, system in (("music", "musiclm"), ("sounds", "audiolm"), ("coder", "soundstream")):
        write_model(folder / "runs" / name, system)
    hum(folder / "hum.wav", seconds=3.0, rate=16_000, channels=2)
    return folder


@pytest.fixture
def sounding(make_client: Callable[..., TestClient], sounds: Path) -> TestClient:
    """Of a studio that has these, and no other voice."""
    return make_client(folder=sounds / "runs", voice_runs=())


@pytest.fixture
def official(make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str]) -> Any:
    """The official client of OpenAI, of a studio that wants a key."""
    openai = pytest.importorskip("openai")
    return openai.OpenAI(base_url=f"{served(make_app(api_key=KEY))}/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="session")
def muse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole Muse of some steps."""
    from madrigal.verbs.systems import load_recipe

    folder = tmp_path_factory.mktemp("muse")
    pictures = folder / "pictures"
    pictures.mkdir()
    for number in range(12):
        shade = 255 * (number % 2)
        Image.new("RGB", (32, 32), (shade, shade, shade)).save(pictures / f"{number:02d}.png")
        (pictures / f"{number:02d}.txt").write_text("white" if shade else "black")
    changes = [f"data={pictures}", "vqgan.plan.num_train_steps=2"]
    load_recipe("muse/tiny", changes).trainer(folder / "run").train()
    return folder / "run"


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
