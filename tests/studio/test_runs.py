"""Runs as the page sees them: read from their folders, by names that are listed and by nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from PIL import Image
from stand_ins import write_run
from starlette.testclient import TestClient

from madrigal.engine.run import LOCK, RunFolder, trained_by
from madrigal.errors import UserError
from madrigal.studio.runs import Runs


def test_the_table_has_every_run(client: TestClient, root: Path) -> None:
    rows = {row["id"]: row for row in client.get("/api/runs").json()["runs"]}
    assert list(rows) == ["codec", "group/other", "stopped"]
    row = rows["codec"]
    assert (row["system"], row["state"], row["step"], row["total_steps"]) == ("soundstream", "finished", 40, 40)
    assert row["loss"] == {"name": "valid/loss", "value": 0.5}
    assert row["size_bytes"] > 1000
    assert row["has_samples"]
    assert not row["can_resume"]
    assert (rows["stopped"]["state"], rows["stopped"]["can_resume"]) == ("stopped", True)
    assert not rows["stopped"]["has_samples"]


def test_a_run_of_parts_is_a_parent_with_children(client: TestClient, root: Path) -> None:
    write_run(root / "whole/vocoder")
    write_run(root / "whole/flow", steps=20, total=100)
    (root / "whole/recipe.yaml").write_text("system: voicebox\nvocoder: {recipe: a}\nflow: {recipe: b}\n")
    rows = {row["id"]: row for row in client.get("/api/runs").json()["runs"]}
    assert rows["whole"]["parent"] is None
    assert rows["whole/flow"]["parent"] == rows["whole/vocoder"]["parent"] == "whole"
    assert rows["whole"]["state"] == "stopped"
    assert rows["whole"]["can_resume"]
    assert not rows["whole/flow"]["can_resume"]


def test_one_run_and_its_curves(client: TestClient, root: Path) -> None:
    found = client.get("/api/runs/group%2Fother").json()
    assert found["id"] == "group/other"
    assert "soundstream" in found["recipe_text"]
    assert found["checkpoints"] == [{"step": 40, "size_bytes": 1000}]
    assert found["metrics"] == ["loss", "lr", "valid/loss"]
    told = client.get("/api/runs/codec/metrics", params={"names": "loss,nothing", "points": 5}).json()
    assert list(told["series"]) == ["loss"]
    assert [point[0] for point in told["series"]["loss"]] == [1, 11, 21, 30, 40]
    with (root / "codec/metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 41, "time": 1.0, "loss": 0.25}) + '\n{"step": 42, "lo')
    told = client.get("/api/runs/codec/metrics", params={"since": 40}).json()
    assert told == {"series": {"loss": [[41, 0.25]], "lr": [], "valid/loss": []}, "last_step": 41}


def test_a_run_that_went_back_is_read_anew(client: TestClient, root: Path) -> None:
    client.get("/api/runs/codec/metrics")
    RunFolder(root / "codec").forget_after(10)
    told = client.get("/api/runs/codec/metrics").json()
    assert told["last_step"] == 10
    assert len(told["series"]["loss"]) == 10


def test_a_run_knows_the_name_of_its_recipe(client: TestClient, root: Path) -> None:
    assert client.get("/api/runs/codec").json()["recipe"] is None  # one that nobody has written down
    RunFolder(root / "codec").name_recipe("soundstream/cpu")
    write_run(root / "codec/part")
    (root / "codec/recipe.yaml").write_text("system: muse\npart: {recipe: vqgan/tiny}\n")
    named = {row["id"]: row["recipe"] for row in client.get("/api/runs").json()["runs"]}
    assert (named["codec"], named["codec/part"]) == ("soundstream/cpu", "vqgan/tiny")


def test_figures_are_told_while_others_read_on(root: Path) -> None:
    """Another thread may find a figure of a new name at any time."""

    figures, over = Runs(root).figures(root / "codec"), threading.Event()

    def add() -> None:
        for number in range(20_000):
            figures._take(json.dumps({"step": number, f"figure {number}": 1.0}).encode())
        over.set()

    thread = threading.Thread(target=add)
    thread.start()
    while not over.is_set():
        assert figures.loss is not None
        assert figures.names
    thread.join()


def test_damaged_figures_do_not_hide_a_run(client: TestClient, root: Path) -> None:
    (root / "codec/metrics.jsonl").write_text('[1]\n{"step": "x"}\n{}\n\x00\n{"step": 3, "loss": null, "a": "b"}\n')
    (root / "codec/recipe.yaml").write_text("[: {")
    row = client.get("/api/runs/codec").json()
    assert (row["state"], row["step"], row["loss"]) == ("unknown", 3, None)


def test_samples_are_listed_and_served_by_name(client: TestClient, root: Path) -> None:
    steps = client.get("/api/runs/group%2Fother/samples").json()["steps"]
    assert [step["step"] for step in steps] == [40, 20]
    items = {item["name"]: item for item in steps[0]["items"]}
    assert items["000-reconstruction-ema.wav"]["role"] == "reconstruction-ema"
    assert items["000-words.txt"]["kind"] == "text"
    answer = client.get(items["001-original.wav"]["url"])
    file = root / "group/other/samples/step-00000040/001-original.wav"
    assert answer.content == file.read_bytes()
    assert answer.headers["content-type"] == "audio/wav"
    picture = client.get("/api/runs/codec/spectrogram.png", params={"step": 40, "name": "000-original.wav"})
    assert picture.headers["content-type"] == "image/png"
    (root / "picture.png").write_bytes(picture.content)
    assert Image.open(root / "picture.png").height == 128


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/../../etc",
        "/api/runs/..%2F..%2Fetc%2Fpasswd",
        "/api/runs/%2Fetc",
        "/api/runs/codec%00",
        "/api/runs/codec/samples/40/..%2F..%2Frecipe.yaml",
        "/api/runs/codec/samples/40/%2Fetc%2Fpasswd",
        "/api/runs/codec/samples/40/nothing.wav",
        "/api/runs/codec/samples/7/000-original.wav",
        "/api/runs/codec/samples/40/link.txt",
        "/api/runs/codec/spectrogram.png?step=40&name=..%2F..%2Frecipe.yaml",
        "/api/diff?left=codec&right=..%2F..",
        "/api/runs/checkpoints",
    ],
)
def test_nothing_but_what_is_listed_is_found(client: TestClient, root: Path, path: str) -> None:
    (root / "codec/samples/step-00000040/link.txt").symlink_to(root / "codec/recipe.yaml")
    answer = client.get(path)
    assert answer.status_code == 404
    assert "soundstream" not in answer.text


def test_recipes_are_compared(client: TestClient) -> None:
    rows = client.get("/api/diff", params={"left": "codec", "right": "group/other"}).json()["rows"]
    assert rows == [{"key": "plan.lr", "left": "0.05", "right": "0.07"}]


def test_who_trains_a_run_is_seen_while_he_does(client: TestClient, root: Path) -> None:
    code = f"""
from pathlib import Path
from madrigal.engine.run import RunFolder
with RunFolder(Path({str(root / "stopped")!r})).held():
    print("held", flush=True)
    input()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert trained_by(root / "stopped") == process.pid
        with pytest.raises(UserError, match=f"another process .{process.pid}."), RunFolder(root / "stopped").held():
            pass
        row = client.get("/api/runs/stopped").json()
        assert (row["state"], row["can_resume"], row["can_stop"]) == ("training", False, True)
        process.kill()  # however it goes, it is seen no more
        process.wait(30)
        assert trained_by(root / "stopped") is None
        assert client.get("/api/runs/stopped").json()["state"] == "stopped"
    finally:
        process.kill()
        process.wait(30)
    with RunFolder(root / "stopped").held():
        assert (root / "stopped" / LOCK).exists()
    assert not (root / "stopped" / LOCK).exists()


def test_what_the_page_asks_first(client: TestClient) -> None:
    told = client.get("/api/studio").json()
    assert told["limits"]["text_chars"] == 4096
    assert told["limits"]["prompt_seconds"] == [1.0, 30.0]
    assert told["formats"] == ["mp3", "opus", "flac", "wav", "pcm"]
    assert (told["control"], told["key_required"]) == (False, False)
    assert told["models"][0]["defaults"] == {"steps": 5.0, "cond_scale": 2.5}
    assert [model["distilled"] for model in told["models"]] == [False] * 4
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [
        "voice",
        "codec",
        "group/other",
        "stopped",
    ]
    assert client.get(f"/v1/models/{quote('group/other', safe='')}").json()["kind"] == "codec"
    assert client.get("/v1/models/nothing").status_code == 404
    assert "soundstream/cpu" in client.get("/api/recipes").json()["recipes"]


def test_what_only_makes_pictures_larger_draws_none(client: TestClient, root: Path) -> None:
    def write(name: str, **recipe: Any) -> None:
        (root / name / "checkpoints/step-00000001").mkdir(parents=True)
        (root / name / "recipe.yaml").write_text(yaml.safe_dump(recipe))

    write("a-larger", system="maskgit", model={"image_size": 32, "cond_image_size": 16})
    write("b-critic-of-larger", system="token-critic", maskgit=str(root / "a-larger"), model={})
    write("c-base", system="maskgit", model={"image_size": 16, "cond_image_size": None})
    write("d-critic", system="token-critic", maskgit=str(root / "c-base"), model={})
    models = client.get("/v1/models").json()["data"]
    assert [model["id"] for model in models if model["kind"] == "pictures"] == ["c-base", "d-critic"]
    assert client.get("/v1/models/a-larger").status_code == 404


def test_a_voice_whose_steps_are_built_in_says_so(client: TestClient, root: Path) -> None:
    flow = root.parent / "voice" / "flow"
    flow.mkdir()
    for told, distilled in (('{"distilled_steps": null}', False), ('{"distilled_steps": 4}', True)):
        (flow / "config.json").write_text(told)
        assert client.get("/v1/models/voice").json()["distilled"] is distilled


def test_the_page_and_the_documents_need_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/docs"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "https://" not in answer.text
    assert "/v1/audio/speech" in client.get("/docs").text
