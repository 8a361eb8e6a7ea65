"""Speaking in a real browser, with the voice that is shipped."""

import io
from typing import Any

import soundfile
from driving import SENTENCE, until


def test_a_sentence_is_spoken_and_has_the_right_length(open_page: Any, spoken: bytes) -> None:
    page = open_page("voices")
    page.get_by_label("Text").fill(SENTENCE)
    page.get_by_label("Seed").fill("7")
    with page.expect_response("**/v1/audio/speech") as answer:
        page.get_by_role("button", name="Speak").click()
    asked = answer.value.request.post_data_json
    take = page.locator(".take")
    take.wait_for()
    assert asked["seed"] == 7
    # What the page kept is to the sample as long as the file that the server makes of the same text and seed.
    whole = soundfile.info(io.BytesIO(spoken))
    assert int(take.get_attribute("data-bytes")) == 2 * whole.frames
    assert float(take.get_attribute("data-first")) > 0
    audio = take.locator("audio")
    until(page, "audio => audio.duration > 0", audio.element_handle())
    assert abs(audio.evaluate("audio => audio.duration") - whole.duration) < 0.01
    assert 1.5 < whole.duration < 6
    with page.expect_download() as saved:
        take.get_by_role("button", name="wav", exact=True).click()
    assert saved.value.suggested_filename == "the-quick-brown-fox-jumps-over-the-lazy.wav"
    assert soundfile.info(saved.value.path()).frames == whole.frames
    with page.expect_download() as saved:
        take.get_by_role("button", name="flac").click()
    assert soundfile.info(saved.value.path()).frames == whole.frames


def test_what_is_built_into_a_voice_cannot_be_chosen(open_page: Any) -> None:
    page = open_page("voices")
    choice = page.locator("select[name=voice]")
    until(page, "document.querySelectorAll('select[name=voice] option').length > 1")
    assert choice.evaluate("select => select.selectedOptions[0].textContent") == "hibari-heart, voice-24k-live"
    steps, guidance = page.get_by_label("Steps"), page.get_by_label("Guidance")
    assert steps.is_disabled()
    assert guidance.is_disabled()
    assert steps.get_attribute("aria-valuetext") == "built in"
    choice.select_option(label="hibari-heart, voice-24k")
    assert steps.is_enabled()
    steps.fill("2")
    page.get_by_label("Text").fill("Yes.")
    with page.expect_response("**/v1/audio/speech") as answer:
        page.get_by_role("button", name="Speak").click()
    asked = answer.value.request.post_data_json
    assert (asked["model"], asked["steps"]) == ("voice-24k", 2)
    page.locator(".take").wait_for()


def test_speaking_needs_no_mouse(open_page: Any) -> None:
    page = open_page("runs")
    page.locator("h1", has_text="Runs").wait_for()
    page.locator("tr[data-run]").first.wait_for()
    _tab_to(page, "document.activeElement.textContent === 'Voices'")
    page.keyboard.press("Enter")
    page.get_by_label("Text").wait_for()
    _tab_to(page, "document.activeElement.name === 'input'")
    page.keyboard.type("Good morning.")
    page.keyboard.press("Control+Enter")
    page.locator(".take").wait_for()
    until(page, "document.querySelector('.speak .buttons button:nth-child(2)').disabled")
    _tab_to(page, "document.activeElement.matches('.take .play')")
    page.keyboard.press("Space")
    audio = page.locator(".take audio").element_handle()
    until(page, "audio => audio.currentTime > 0.1", audio)


def test_stop_ends_the_speech(open_page: Any) -> None:
    page = open_page("voices")
    page.get_by_label("Text").fill(" ".join([SENTENCE] * 12))
    page.keyboard.press("Control+Enter")
    page.get_by_text("First sound after").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Stopped.").wait_for()
    assert page.get_by_role("button", name="Stop").is_disabled()


def test_an_error_is_the_servers_sentence_at_its_field(open_page: Any, troubles: list[str]) -> None:
    page = open_page("voices")
    page.get_by_label("Text").fill("???")
    page.get_by_role("button", name="Speak").click()
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "nothing to say" in alert.inner_text()
    troubles.clear()  # the browser notes every answer of 400


def test_a_voice_is_made_from_a_recording_and_removed(open_page: Any, spoken: bytes) -> None:
    page = open_page("voices")
    page.get_by_text("A voice of your own").click()
    page.get_by_label("A recording").set_input_files({"name": "me.wav", "mimeType": "audio/wav", "buffer": spoken})
    page.get_by_label("Name", exact=True).fill("me-again")
    page.get_by_label("What is said in it").fill(SENTENCE)
    prompt = page.locator(".heard audio").element_handle()
    until(page, "audio => audio.duration > 0", prompt)
    page.get_by_role("button", name="Add the voice").click()
    until(page, "audio => !audio.src", prompt)
    until(page, "document.querySelector('select[name=voice]').selectedOptions[0]?.text.includes('me-again')")
    page.get_by_role("button", name="Remove this voice").click()
    until(page, "!document.querySelector('select[name=voice]').textContent.includes('me-again')")


def _tab_to(page: Any, where: str) -> None:
    """Tab until the focus is where it should be; a page that cannot be walked through fails here."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(where):
            return
    raise AssertionError(f"Tab never comes to where {where}")
