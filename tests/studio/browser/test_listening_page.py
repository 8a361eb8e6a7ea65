"""Listening tests in a real browser, from making one to the file with its answers."""

import json
from pathlib import Path
from typing import Any

from driving import until


def _make(page: Any, kind: str, title: str) -> str:
    page.locator("main h1").wait_for()
    form = page.locator("details.card")
    if not form.evaluate("details => details.open"):
        form.locator("summary").click()
    page.get_by_label("Title").fill(title)
    page.get_by_label(kind).check()
    for run in ("codec", "group/other"):
        page.locator(f"input[name=runs][value='{run}']").check()
    page.get_by_role("button", name="Make the test").click()
    page.wait_for_url("**/#/listen/*")
    return page.url.rsplit("/", 1)[1]


def _hear(page: Any, key: str) -> None:
    """A sound to its end, quicker than a listener would."""
    title = page.get_by_role("heading", name=key.upper(), exact=True)
    audio = page.locator(".trial .stimulus").filter(has=title).locator("audio").element_handle()
    until(page, "audio => audio.duration > 0", audio)
    audio.evaluate("audio => { audio.playbackRate = 4; audio.onended = () => { audio.dataset.heard = 'yes'; }; }")
    page.keyboard.press(key)
    until(page, "audio => audio.dataset.heard === 'yes'", audio)


def test_an_ab_test_is_taken_by_keys_and_its_file_is_right(open_page: Any, folder: Path) -> None:
    page = open_page("listening")
    test = _make(page, "A/B", "Which is better?")
    page.get_by_label("Your name").fill("Ann")
    page.keyboard.press("Enter")
    expected = []
    for key, choice in (("1", "a"), ("0", None)):
        page.locator(".trial.ab").wait_for()
        page.keyboard.press("a")
        playing = page.locator(".pair audio").first.element_handle()
        until(page, "audio => audio.currentTime > 0.05", playing)
        page.keyboard.press("b")
        until(page, "audio => audio.paused", playing)
        page.keyboard.press("b")
        state = page.locator("main p[role=status]").inner_text()
        expected.append((len(expected), choice))
        page.keyboard.press(key)
        page.get_by_text("Hear A and B to the end first.").wait_for()
        for name in "ab":
            _hear(page, name)
        if expected[1:]:  # the key that is still held down since the first trial
            page.keyboard.down("1")
            page.wait_for_timeout(300)
            page.keyboard.up("1")
        page.keyboard.down(key)
        until(page, "before => document.querySelector('main p[role=status]').textContent !== before", state)
    page.get_by_text("Thank you, Ann.").wait_for()
    lines = [json.loads(line) for line in (folder / "listening" / f"{test}.jsonl").read_text().splitlines()]
    assert [line["listener"] for line in lines] == ["Ann", "Ann"]
    assert {line["trial"] for line in lines} == {"0", "1"}
    # Which sound was whose: by the stimuli that the server keeps, not by what the answer says of itself.
    kept = json.loads((folder / "listening" / f"{test}.json").read_text())
    for line, (_, choice) in zip(lines, expected, strict=True):
        stimuli = next(trial["stimuli"] for trial in kept["trials"] if trial["id"] == line["trial"])
        token = next(iter(stimuli))
        heard = next((folder / "listening" / test).glob(f"{token}.*")).read_bytes()
        of = [run for run in ("codec", "group/other") if heard in _sounds(folder / run)]
        assert of == [line["a"]]
        assert line["preferred"] == (line["a"] if choice else None)
    page.get_by_role("button", name="Show the results").click()
    page.get_by_text("2 answers of 1 listener").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download every answer").click()
    assert [json.loads(line) for line in Path(saved.value.path()).read_text().splitlines()] == lines


def test_a_mushra_test_wants_every_score(open_page: Any, folder: Path) -> None:
    page = open_page("listening")
    test = _make(page, "MUSHRA", "How good is each?")
    page.get_by_label("Your name").fill("Bob")
    page.get_by_role("button", name="Begin").click()
    for trial in range(2):
        sliders = page.locator(".trial.mushra .score input")
        sliders.first.wait_for()
        go = page.get_by_role("button", name="Go on")
        assert sliders.count() == 3
        assert go.is_disabled()
        for index, score in enumerate((20, 50, 90)):
            sliders.nth(index).fill(str(score + trial))
        assert go.is_enabled()
        for name in "abc":
            _hear(page, name)
        state = page.locator("main p[role=status]").inner_text()
        page.keyboard.press("Enter")
        until(page, "before => document.querySelector('main p[role=status]').textContent !== before", state)
    page.get_by_text("Thank you, Bob.").wait_for()
    lines = [json.loads(line) for line in (folder / "listening" / f"{test}.jsonl").read_text().splitlines()]
    assert [sorted(line["scores"]) for line in lines] == [["codec", "group/other", "reference"]] * 2
    assert [sorted(line["scores"].values()) for line in lines] == [[20, 50, 90], [21, 51, 91]]
    page.get_by_role("button", name="Show the results").click()
    page.get_by_text("hidden reference").wait_for()


def _sounds(run: Path) -> list[bytes]:
    newest = max((run / "samples").glob("step-*"))
    return [file.read_bytes() for file in newest.glob("*.wav")]
