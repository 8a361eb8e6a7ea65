"""What holds for every page: no complaint of the browser, no sideways scrolling, both colours, the key."""

from typing import Any

import pytest
from driving import until

RUN = [f"run/codec{part}" for part in ("", "/samples", "/recipe", "/diff", "/disk")]
ROUTES = ["runs", *RUN, "voices", "edit", "pictures", "music", "listening"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_at_phone_width_and_in_both_colours(open_page: Any, scheme: str) -> None:
    page = open_page("runs", viewport={"width": 375, "height": 740}, color_scheme=scheme)
    for route in ROUTES:
        page.evaluate("route => { location.hash = '#/' + route }", route)
        until(page, "!!document.querySelector('main h1')")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), route
        assert page.locator("main [role=alert]").count() == 0, route
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, input, select, textarea')].filter(e => e.offsetParent"
            " && !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)"
        )
        assert unnamed == [], route
    back = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) > 600) == (scheme == "light")


@pytest.mark.parametrize("route", ["%", "constructor"])
def test_an_address_that_means_nothing_shows_the_runs(open_page: Any, route: str) -> None:
    open_page(route).locator("tr[data-run]").first.wait_for()


def test_the_colours_can_be_chosen_and_stay(open_page: Any) -> None:
    page = open_page("runs", color_scheme="light")
    colours = page.locator("#theme")
    colours.click()
    colours.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_key_is_asked_for_once(open_page: Any, make_app: Any, served: Any, troubles: list[str]) -> None:
    page = open_page("runs", at=served(make_app(api_key="a-key-for-tests")))
    page.get_by_label("Key", exact=True).wait_for()
    for _ in range(3):  # a browser lets the second one close any dialog
        page.keyboard.press("Escape")
        page.wait_for_timeout(100)
    for key in ("not-the-key", "a-key-for-tests"):
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
        if key.startswith("not"):
            page.get_by_text("does not know that key").wait_for()
    page.locator("tr[data-run]").first.wait_for()
    # Sounds and pictures cannot bring a key themselves; they come all the same.
    page.evaluate("location.hash = '#/run/codec/samples'")
    page.locator(".sample img").first.wait_for()
    until(page, "document.querySelector('audio').duration > 0")
    assert not page.locator("#key").evaluate("dialog => dialog.open")
    page.close()  # before its server goes
    troubles.clear()  # the browser notes every answer of 401


def test_who_must_wait_is_told_how_long(open_page: Any, troubles: list[str]) -> None:
    page = open_page("voices")
    refusal = {"error": {"message": "The line is full.", "type": "rate_limit_error", "param": None, "code": "busy"}}
    page.route(
        "**/v1/audio/speech", lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, json=refusal)
    )
    page.get_by_label("Text").fill("Hello.")
    page.get_by_role("button", name="Speak").click()
    page.get_by_text("The line is full. Try again in 7 s.").wait_for()
    troubles.clear()  # the browser notes every answer of 429
