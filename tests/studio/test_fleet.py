"""Two replicas on a Ray cluster of this machine: the same answers, shared voices, and what a death costs."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from fastapi import FastAPI
from load import ANSWERED, BROKEN, FAILED, LOST, REFUSED, Answer, ask, fates, load
from PIL import Image
from small_codecs import small_codec
from small_muse import SIDE, small_muse
from stand_ins import WORD, StandInVoice, in_a_loop, write_model, write_run, write_voice_folder

# The tests of the server that ask through `client` and look into `root`, asked of the fleet: ruff would take them for
# names that nobody uses.
from test_guards import (  # noqa: F401
    test_a_name_that_is_not_ours_is_refused,
    test_a_page_from_elsewhere_cannot_change_anything,
    test_an_unknown_place_and_a_wrong_method_are_told_in_the_same_shape,
    test_no_path_climbs_out_of_the_page,
)
from test_hostile import PICTURES, SOUNDS, png
from test_listening import (  # noqa: F401
    test_a_mushra_test_hides_the_reference_among_the_stimuli,
    test_an_ab_test_from_beginning_to_end,
    test_three_runs_are_compared_in_pairs_and_a_test_outlives_their_samples,
)
from test_runs import (  # noqa: F401
    test_a_run_that_went_back_is_read_anew,
    test_nothing_but_what_is_listed_is_found,
    test_one_run_and_its_curves,
    test_recipes_are_compared,
    test_samples_are_listed_and_served_by_name,
    test_the_table_has_every_run,
)
from test_spoken_answers import (  # noqa: F401
    test_a_bad_voice_is_told_which_there_are,
    test_a_mistake_is_told_in_openai_shape,
    test_every_format_decodes_to_the_right_length,
    test_pcm_is_plain_samples_and_the_default_is_mp3,
    test_streamed_bytes_are_the_whole_bytes,
)
from test_voices import (  # noqa: F401
    test_a_file_name_is_never_used,
    test_a_name_is_plain,
    test_a_name_is_taken_once,
    test_only_uploaded_voices_are_removed,
    test_the_voices_of_a_model_are_listed,
)
from voicebox_speaking import speaking_run

from madrigal.studio.app import create_app
from madrigal.studio.fleet import FleetSettings, running
from madrigal.studio.models import LOADERS
from madrigal.studio.settings import Limits, StudioSettings

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'madrigal[ray]'")
pytestmark = pytest.mark.slow

WORDS = 10
PATIENT = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
}
"""A full machine starts processes slowly."""


def stand_in_app(settings: StudioSettings) -> FastAPI:
    """What a replica serves here: the studio with a voice that takes its time, and a word on who answers."""

    def speaker(folder: Path, device: str) -> Any:
        is_run = (folder / "recipe.yaml").is_file()
        return LOADERS["speech"](folder, device) if is_run else StandInVoice(slow=0.02)

    small: dict[Any, Any] = {"codec": lambda *_: small_codec(16, 2), "pictures": lambda *_: small_muse()}
    app = create_app(settings, loaders={"speech": speaker, **small})
    app.add_api_route("/pid", lambda: os.getpid())
    return app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture
def root(folder: Path) -> Path:
    """What the server's tests find there, anew for each of them, below replicas that stay."""
    for place in (folder / "runs", folder / "voice"):
        shutil.rmtree(place, ignore_errors=True)
    write_run(folder / "runs/codec")
    write_run(folder / "runs/group/other", tone=0.07)
    write_run(folder / "runs/stopped", steps=20, total=100, samples=False)
    write_voice_folder(folder / "voice")
    return folder / "runs"


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    write_voice_folder(folder / "voice")
    (folder / "runs").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = FleetSettings(
        folder=folder / "runs",
        voice_runs=(folder / "voice",),
        no_key=True,
        shipped=False,
        limits=Limits(waiting=8, grace_seconds=2),
        replicas=2,
        cpus=0.5,
        app="test_fleet:stand_in_app",
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
def client(address: str, root: Path) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


def pids(client: httpx.Client, wanted: int, seconds: float = 30.0) -> set[int]:
    """Who answers, until so many have."""
    seen: set[int] = set()
    until = time.monotonic() + seconds
    while len(seen) < wanted and time.monotonic() < until:
        seen.add(client.get("/pid").json())
    return seen


def asking(number: int) -> dict[str, Any]:
    return {"model": "tts-1", "input": "word " * WORDS, "response_format": "pcm", "seed": number % 1000}


def is_whole(answer: Answer) -> bool:
    return answer.size == 2 * WORD * WORDS


def test_a_voice_that_one_replica_was_given_is_known_to_all(client: httpx.Client, wav: bytes) -> None:
    assert len(pids(client, 2)) == 2
    done = client.post("/v1/audio/voices", data={"name": "carla"}, files={"file": ("carla.wav", wav, "audio/wav")})
    assert done.status_code == 201, done.text
    lists = [client.get("/v1/audio/voices").json()["voices"] for _ in range(12)]
    assert all("carla" in {voice["id"] for voice in voices} for voices in lists)
    assert client.delete("/v1/audio/voices/carla").status_code < 300
    lists = [client.get("/v1/audio/voices").json()["voices"] for _ in range(12)]
    assert all("carla" not in {voice["id"] for voice in voices} for voices in lists)


def test_the_official_client_of_openai_is_served(address: str, root: Path, tmp_path: Path) -> None:
    official = pytest.importorskip("openai", reason="the openai client is not installed")
    tests = pytest.importorskip("test_openai_client")
    client = official.OpenAI(base_url=f"{address}/v1", api_key="none is wanted", max_retries=0)
    tests.test_it_speaks_a_sentence(client, tmp_path)
    tests.test_it_streams_a_sentence(client)
    tests.test_it_lists_models(client)
    with pytest.raises(official.BadRequestError) as refused:
        client.audio.speech.create(model="tts-1", voice="alloy", input="hello")
    assert refused.value.code == "voice_not_found"


def test_recordings_and_pictures_pass_the_proxy(client: httpx.Client, root: Path, wav: bytes) -> None:
    speaking_run(root / "speaker")
    write_model(root / "muse", "muse")
    recording = {"file": ("in.wav", wav)}
    said = {"model": "speaker", "text": "one two"}
    words = client.post("/v1/audio/words", data=said, files=recording)
    assert [word["word"] for word in words.json()["words"]] == ["one", "two"]
    edited = client.post("/v1/audio/edits", data={"model": "speaker", "fill": "0.5-0.8"}, files=recording)
    assert edited.headers["x-madrigal-span"] == "0.500-0.800"
    coded = client.post("/v1/audio/codes", data={"model": "codec"}, files=recording).json()
    decoded = client.post("/v1/audio/codes/decode", json=coded)
    assert len(soundfile.read(io.BytesIO(decoded.content))[0]) == coded["samples"]
    drawn = client.post("/v1/images/generations", json={"prompt": "white"}).json()["data"][0]["b64_json"]
    assert Image.open(io.BytesIO(base64.b64decode(drawn))).size == (SIDE, SIDE)


def test_hostile_uploads_are_refused_behind_the_proxy(client: httpx.Client, root: Path) -> None:
    write_model(root / "muse", "muse")
    for name, sound in SOUNDS.items():
        answer = client.post("/v1/audio/voices", data={"name": "evil"}, files={"file": (name, sound())})
        assert 400 <= answer.status_code < 500, (name, answer.text)
    for name, picture in PICTURES.items():
        files = {"image": ("a.png", picture()), "mask": ("m.png", png(64, 64))}
        answer = client.post("/v1/images/edits", data={"prompt": "x"}, files=files)
        assert 400 <= answer.status_code < 500, (name, answer.text)
    assert client.get("/healthz").status_code == 200


def test_answers_pass_the_proxy_with_their_headers(client: httpx.Client) -> None:
    for path in ("/", "/v1/models", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        # The replica's, which its log has, and the proxy's, which Ray's logs have.
        assert len(headers.get_list("x-request-id")) == 2


def test_fifty_clients_of_two_replicas_are_answered_or_told_when_to_come_back(address: str, root: Path) -> None:
    answers = in_a_loop(load(address, asking, clients=50, seconds=4, wait_at_most=0.5))
    assert set(fates(answers)) == {ANSWERED, REFUSED}
    assert all(is_whole(answer) for answer in answers if answer.fate == ANSWERED)
    assert {answer.status for answer in answers if answer.fate == REFUSED} == {429}


def test_a_replica_that_is_killed_under_load_takes_no_request_with_it_unseen(
    address: str, client: httpx.Client
) -> None:
    victim = min(pids(client, 2))

    async def kill_under_load() -> tuple[list[Answer], list[Answer]]:
        loading = asyncio.ensure_future(load(address, asking, clients=14, seconds=6, wait_at_most=0.5))
        await asyncio.sleep(2)
        os.kill(victim, signal.SIGKILL)
        answers = await loading
        return answers, [await ask(address, asking(0)) for _ in range(4)]

    answers, later = in_a_loop(kill_under_load())
    seen = fates(answers)
    assert seen[LOST] == 0, seen  # nobody waits for ever
    assert all(is_whole(answer) for answer in answers if answer.fate == ANSWERED)  # and no half is taken for a whole
    # Who was with the victim was told so: by a status, or by an answer that broke off.
    assert 1 <= seen[FAILED] + seen[BROKEN] <= 14, seen
    assert {answer.status for answer in answers if answer.fate == FAILED} <= {500, 503}
    assert [answer.fate for answer in later] == [ANSWERED] * 4
    assert victim not in pids(client, 1)
