"""Music in a real browser. The answers are made up here: what is asked for is what is tested."""

from typing import Any

from stand_ins import wav_bytes


def _with_musiclm(route: Any) -> None:
    told = route.fetch().json()
    told["models"].append({"id": "band", "object": "model", "created": 1, "owned_by": "madrigal", "kind": "music"})
    route.fulfill(json=told)


def test_music_is_asked_for_kept_with_its_seed_and_refused_in_words(open_page: Any, troubles: list[str]) -> None:
    page = open_page("runs")
    asked: list[dict[str, Any]] = []

    def compose(route: Any) -> None:
        asked.append(route.request.post_data_json)
        if len(asked) == 1:
            route.fulfill(body=wav_bytes(1.5), content_type="audio/wav")
        elif len(asked) == 2:
            error = {"message": "seconds is 9, and 8 is the most.", "type": "x", "param": "seconds", "code": "too_much"}
            route.fulfill(status=400, json={"error": error})  # the third is never answered

    page.route("**/api/studio", _with_musiclm)
    page.route("**/v1/audio/music", compose)
    page.get_by_role("link", name="Music").click()
    page.get_by_label("Prompt").fill(" a slow waltz ")
    page.get_by_label("Length").fill("9")
    page.get_by_label("Seed").fill("5")
    page.keyboard.press("Control+Enter")
    page.locator(".take").get_by_text("seed 5 · ").wait_for()
    told = {"model": "band", "prompt": "a slow waltz", "seconds": 9, "n": 1, "seed": 5, "response_format": "wav"}
    assert asked == [told]
    go = page.get_by_role("button", name="Play Ctrl Enter")
    go.click()
    page.get_by_role("alert").get_by_text("8 is the most").wait_for()
    troubles.clear()  # the browser notes every answer that is an error
    assert page.get_by_label("Length").get_attribute("aria-invalid") == "true"
    go.click()
    page.get_by_text("Composing …").wait_for()
    assert go.is_disabled()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("Stopped.").wait_for()
    assert go.is_enabled()
    assert page.locator(".take").count() == 1
