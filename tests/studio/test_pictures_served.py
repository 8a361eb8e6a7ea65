"""Pictures drawn and painted over by a small Muse, as it is."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image
from small_muse import SIDE
from starlette.testclient import TestClient


def png(colour: int) -> bytes:
    out = io.BytesIO()
    Image.new("L", (SIDE, SIDE), colour).save(out, "PNG")
    return out.getvalue()


def repainted(client: TestClient, **form: Any) -> Any:
    files = {"image": ("a.png", png(9)), "mask": ("m.png", png(255))}
    return client.post("/v1/images/edits", data={"prompt": "white", "seed": 3, **form}, files=files)


@pytest.mark.parametrize("told", [{"steps": 7}, {"cond_scale": 20}, {"negative": "black and grey"}], ids=str)
def test_a_part_is_painted_as_the_request_says(painted: TestClient, told: dict[str, Any]) -> None:
    plain, other, again = (repainted(painted, **form) for form in ({}, told, told))
    assert [answer.status_code for answer in (plain, other, again)] == [200] * 3, other.text
    assert other.json()["data"] == again.json()["data"] != plain.json()["data"]


@pytest.mark.parametrize(
    "told",
    [{"prompt": ""}, {"prompt": "a\0b"}, {"steps": 0}, {"cond_scale": "nan"}, {"negative": "x" * 3000}],
    ids=lambda told: next(iter(told)),
)
def test_what_cannot_be_painted_is_refused_as_what_cannot_be_drawn(painted: TestClient, told: dict[str, Any]) -> None:
    assert repainted(painted, **told).status_code == 400
    drawn = painted.post("/v1/images/generations", json={"prompt": "white", **told})
    assert drawn.status_code == 400
    assert repainted(painted, **told).json()["error"]["param"] == drawn.json()["error"]["param"] == next(iter(told))
