"""Pictures in a real browser. The answers are made up here: what is asked for is what is tested."""

import base64
import io
import json
from typing import Any

from driving import until
from PIL import Image


def _answer(colour: str, count: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(file, "PNG")
    return json.dumps({"created": 1, "data": [{"b64_json": base64.b64encode(file.getvalue()).decode()}] * count})


def _with_muse(route: Any) -> None:
    told = route.fetch().json()
    told["models"].append({"id": "muse", "object": "model", "created": 1, "owned_by": "madrigal", "kind": "pictures"})
    route.fulfill(json=told)


def test_pictures_are_drawn_and_a_part_is_painted_anew(open_page: Any) -> None:
    page = open_page("runs")
    asked: dict[str, Any] = {}
    held: list[Any] = []

    def generate(route: Any) -> None:
        asked["drawn"] = route.request.post_data_json
        route.fulfill(body=_answer("teal", asked["drawn"]["n"]), content_type="application/json")

    def edit(route: Any) -> None:
        asked["edited"] = route.request.post_data_buffer
        held.append(route)

    page.route("**/api/studio", _with_muse)
    page.route("**/v1/images/generations", generate)
    page.route("**/v1/images/edits", edit)
    page.get_by_role("link", name="Pictures").click()
    page.get_by_label("Prompt").fill("a red circle")
    page.evaluate(
        "() => { window.kept = new Set(); const [make, revoke] = [URL.createObjectURL, URL.revokeObjectURL];"
        " URL.createObjectURL = (blob) => { const url = make(blob); window.kept.add(url); return url; };"
        " URL.revokeObjectURL = (url) => { window.kept.delete(url); revoke(url); }; }"
    )
    page.get_by_label("Without").fill("squares")
    page.get_by_label("How many").fill("3")
    page.get_by_label("Seed").fill("5")
    page.keyboard.press("Control+Enter")
    page.locator(".drawn img").nth(2).wait_for()
    told = {"model": "muse", "prompt": "a red circle", "negative": "squares", "n": 3, "seed": 5}
    assert asked["drawn"] == {**told, "response_format": "b64_json"}
    page.get_by_role("button", name="Paint over", exact=True).first.click()
    canvas = page.get_by_role("application", name="Arrow keys move the brush")  # as a screen reader finds it
    box = canvas.bounding_box()
    page.get_by_role("slider", name="Brush").fill("8")
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"], steps=3)
    page.mouse.up()
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.1 * box["height"])
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("button", name="Undo").click()
    paint = page.get_by_role("button", name="Make the painted part anew")
    page.get_by_label("What is to be there").fill(" ")
    paint.click()
    page.get_by_text("Say what is to be there first.").wait_for()
    page.get_by_label("What is to be there").fill("a blue circle")
    page.get_by_label("Steps").fill("9")
    page.get_by_label("Guidance").fill("4.5")
    paint.evaluate("button => { button.click(); button.click(); }")
    until(page, "button => button.disabled", paint.element_handle())
    page.wait_for_timeout(300)
    assert len(held) == 1
    held[0].fulfill(body=_answer("orange", 1), content_type="application/json")
    page.locator(".drawn img").nth(3).wait_for()
    until(page, "button => !button.disabled", paint.element_handle())
    assert page.evaluate("window.kept.size") == 0
    told = {"prompt": "a blue circle", "negative": "squares", "steps": 9, "cond_scale": 4.5, "seed": 5, "model": "muse"}
    for name, value in told.items():
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in asked["edited"]
    mask = Image.open(io.BytesIO(asked["edited"][asked["edited"].rindex(b"\x89PNG") :]))
    assert mask.size == (64, 64)
    values = mask.convert("L")
    assert values.getpixel((45, 32)) == 255
    assert [values.getpixel(place) for place in ((6, 6), (10, 32), (45, 45))] == [0, 0, 0]


def test_a_picture_that_cannot_be_read_is_told(open_page: Any) -> None:
    page = open_page("runs")
    page.route("**/api/studio", _with_muse)
    page.route(
        "**/v1/images/generations",
        lambda route: route.fulfill(json={"created": 1, "data": [{"b64_json": base64.b64encode(b"no png").decode()}]}),
    )
    page.get_by_role("link", name="Pictures").click()
    page.get_by_label("Prompt").fill("a red circle")
    page.get_by_role("button", name="Draw").click()
    page.locator(".drawn").get_by_text("no picture that the browser can read").wait_for()


def test_without_a_model_the_page_says_how_to_get_one(open_page: Any) -> None:
    page = open_page("pictures")
    page.get_by_text("madrigal train muse/cpu").wait_for()
    page.get_by_role("link", name="Music").click()
    page.get_by_text("madrigal train musiclm/cpu").wait_for()
