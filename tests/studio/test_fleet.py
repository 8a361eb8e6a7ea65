"""Two replicas on a Ray cluster of this machine: the server's own tests, shared voices, and what a death costs."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import schemathesis
import test_control
import test_guards
import test_hostile
import test_listening
import test_openai_client
import test_pictures_served
import test_runs
import test_shipped_voice_served
import test_sounds
import test_spoken_answers
import test_voices
from load import ANSWERED, BROKEN, FAILED, LOST, REFUSED, Answer, ask, fates, load
from schemathesis import GenerationMode
from stand_ins import KEY, OTHERWISE, WORD, in_a_loop, write_voice_folder
from test_schema import LIMITS, MODES, NEVER_DONE, ask_everything, names_of_what_is, write_everything

from madrigal.studio.fleet import FleetSettings, running
from madrigal.studio.settings import Limits

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'madrigal[ray]'")
pytestmark = pytest.mark.slow

ASKED = (
    test_control,
    test_guards,
    test_hostile,
    test_listening,
    test_openai_client,
    test_pictures_served,
    test_runs,
    test_shipped_voice_served,
    test_sounds,
    test_spoken_answers,
    test_voices,
)
"""Whose tests are the fleet's, too: all that ask over HTTP, but those that look behind it."""
ASKING = {"make_client", "client", "keyed", "painted", "sounding", "official"}
"""Who takes one of these asks over HTTP; here they ask the fleet."""
BEHIND = {"make_app", "served", "voice", "caplog"}
"""Who takes one of these looks at the application, its voice or its log, or makes them otherwise, in this process."""
LEFT_OUT = {
    test_guards.test_what_is_counted_is_told: "a copy counts what it has answered itself",
    test_guards.test_what_is_refused_at_the_door_is_counted_by_its_route: "a copy counts what it has answered itself",
    test_sounds.test_words_want_a_text_where_nobody_listens: "it tells the application that nobody listens",
}
"""Those who look behind it all the same, and how."""


def is_asked(test: Callable[..., None]) -> bool:
    needs = inspect.signature(test).parameters.keys()
    return bool(needs & ASKING) and not needs & BEHIND and test not in LEFT_OUT


for module in ASKED:
    found = {name: test for name, test in vars(module).items() if name.startswith("test_") and is_asked(test)}
    assert found, f"{module.__name__} asks nothing"
    assert not found.keys() & globals().keys(), "two tests of one name would be one test"
    globals().update(found)

WORDS = 10
PATIENT = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
}
"""A full machine starts processes slowly."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture
def root(folder: Path, written: Path) -> Path:
    """What the server's tests find there, anew for each of them, below replicas that stay."""
    for place in (folder / "runs", folder / "voice"):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(written, folder, dirs_exist_ok=True)
    return folder / "runs"


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    write_voice_folder(folder / "voice")
    (folder / "runs").mkdir()
    (folder / "key").write_text(KEY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = FleetSettings(
        folder=folder / "runs",
        voice_runs=(folder / "voice",),
        api_key_file=folder / "key",
        shipped=False,
        limits=Limits(waiting=8, grace_seconds=2),
        replicas=2,
        cpus=0.5,
        app="stand_ins:create_replica",
    )
    with pytest.MonkeyPatch.context() as patch:
        here = Path(__file__).parent
        paths = [here.parents[1], here, here.parent / "shared", os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
        patch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", "100000000")
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        with running(settings, "local", host="127.0.0.1", port=port):
            yield f"http://127.0.0.1:{port}"


@pytest.fixture
def make_client(address: str, root: Path) -> Iterator[Callable[..., httpx.Client]]:
    """Who asks the fleet as it is, which wants a key, or the studio of other settings in each of its replicas."""
    made: list[httpx.Client] = []

    def make(**told: Any) -> httpx.Client:
        changes = {"api_key": None, **told}
        headers = {} if changes == {"api_key": KEY} else {OTHERWISE: json.dumps(changes, default=str)}
        made.append(httpx.Client(base_url=address, timeout=120, headers=headers))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def official(address: str, root: Path) -> Any:
    return test_openai_client.openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)


@pytest.fixture
def bounded(address: str) -> Iterator[None]:
    """The proxy's memory, too."""
    below = psutil.Process().children(recursive=True)
    fleet = [process.pid for process in below if process.name().startswith("ray::")]
    assert len(fleet) >= 3  # the replicas and the proxy
    with test_hostile.in_bounded_memory(*fleet):
        yield


def pids(address: str, wanted: int, seconds: float = 30.0) -> set[int]:
    """Who answers, until so many have."""
    seen: set[int] = set()
    until = time.monotonic() + seconds
    with httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {KEY}"}) as client:
        while len(seen) < wanted and time.monotonic() < until:
            seen.add(client.get("/pid").json())
    return seen


def asking(number: int) -> dict[str, Any]:
    return {"model": "tts-1", "input": "word " * WORDS, "response_format": "pcm", "seed": number % 1000}


def is_whole(answer: Answer) -> bool:
    return answer.size == 2 * WORD * WORDS


def test_a_voice_that_one_replica_was_given_is_known_to_all(address: str, client: httpx.Client, wav: bytes) -> None:
    assert len(pids(address, 2)) == 2
    done = client.post("/v1/audio/voices", data={"name": "carla"}, files={"file": ("carla.wav", wav, "audio/wav")})
    assert done.status_code == 201, done.text
    lists = [client.get("/v1/audio/voices").json()["voices"] for _ in range(12)]
    assert all("carla" in {voice["id"] for voice in voices} for voices in lists)
    assert client.delete("/v1/audio/voices/carla").status_code < 300
    lists = [client.get("/v1/audio/voices").json()["voices"] for _ in range(12)]
    assert all("carla" not in {voice["id"] for voice in voices} for voices in lists)


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_every_answer_of_the_fleet_is_one_that_the_document_declares(
    address: str, make_client: Callable[..., httpx.Client], folder: Path, mode: GenerationMode | None
) -> None:
    shutil.rmtree(folder / "everything", ignore_errors=True)
    write_everything(folder / "everything")
    client = make_client(folder=folder / "everything", voice_runs=(), limits=LIMITS)
    sent = {OTHERWISE: client.headers[OTHERWISE]}
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", headers=sent)
    # What a single studio does not do here, a fleet does not do anywhere: it starts, stops and resumes nothing.
    never_done = ask_everything(schema, names_of_what_is(client), mode, headers=sent)
    assert mode is not None or never_done == NEVER_DONE


def test_an_answer_has_the_id_of_its_copy_and_the_proxys(client: httpx.Client) -> None:
    for path in ("/", "/v1/models", "/nothing"):
        # The replica's, which its log has, and the proxy's, which Ray's logs have.
        assert len(client.get(path).headers.get_list("x-request-id")) == 2


def test_clients_who_leave_the_proxy_make_room_in_both_copies(address: str, root: Path) -> None:
    long = {**asking(0), "input": "word " * 800}  # 16 seconds, if somebody still worked for them

    async def come_and_go() -> tuple[list[Answer], list[Answer]]:
        left = await asyncio.gather(*(ask(address, long, patience=2, key=KEY) for _ in range(4)))
        return left, await asyncio.gather(*(ask(address, asking(0), patience=12, key=KEY) for _ in range(2)))

    for _ in range(3):
        left, later = in_a_loop(come_and_go())
        assert fates(left) == {LOST: 4}
        assert fates(later) == {ANSWERED: 2}


def test_fifty_clients_of_two_replicas_are_answered_or_told_when_to_come_back(address: str, root: Path) -> None:
    answers = in_a_loop(load(address, asking, clients=50, seconds=4, wait_at_most=0.5, key=KEY))
    assert set(fates(answers)) == {ANSWERED, REFUSED}
    assert all(is_whole(answer) for answer in answers if answer.fate == ANSWERED)
    assert {answer.status for answer in answers if answer.fate == REFUSED} == {429}


def test_a_replica_that_is_killed_under_load_takes_no_request_with_it_unseen(address: str, root: Path) -> None:
    victim = min(pids(address, 2))

    async def kill_under_load() -> tuple[list[Answer], list[Answer]]:
        loading = asyncio.ensure_future(load(address, asking, clients=14, seconds=6, wait_at_most=0.5, key=KEY))
        await asyncio.sleep(2)
        os.kill(victim, signal.SIGKILL)
        answers = await loading
        return answers, [await ask(address, asking(0), key=KEY) for _ in range(4)]

    answers, later = in_a_loop(kill_under_load())
    seen = fates(answers)
    assert seen[LOST] == 0, seen  # nobody waits for ever
    assert all(is_whole(answer) for answer in answers if answer.fate == ANSWERED)  # and no half is taken for a whole
    # Who was with the victim was told so: by a status, or by an answer that broke off.
    assert 1 <= seen[FAILED] + seen[BROKEN] <= 14, seen
    assert {answer.status for answer in answers if answer.fate == FAILED} <= {500, 503}
    assert [answer.fate for answer in later] == [ANSWERED] * 4
    assert victim not in pids(address, 1)
