"""A span of a recording is edited in a real browser."""

import io
from typing import Any

import soundfile
from driving import SENTENCE, until


def test_a_span_is_marked_by_words_and_replaced(open_page: Any, spoken: bytes) -> None:
    page = open_page("edit")
    before, rate = soundfile.read(io.BytesIO(spoken))
    page.locator("input[type=file]").set_input_files({"name": "fox.wav", "mimeType": "audio/wav", "buffer": spoken})
    page.get_by_label("What is said").fill(SENTENCE)
    page.get_by_role("button", name="Find the words").click()
    words = page.locator(".words button")
    words.first.wait_for()
    assert [word.strip(".") for word in words.all_inner_texts()] == SENTENCE.strip(".").split()
    # Two words by keys alone: the second by Shift and the arrow.
    words.nth(7).click()
    page.keyboard.press("Shift+ArrowRight")
    assert page.get_by_label("Replace", exact=True).input_value() == "lazy dog."
    words.nth(7).click()
    start, end = (float(page.get_by_label(name).input_value()) for name in ("From, s", "To, s"))
    assert 0 < start < end < len(before) / rate
    page.get_by_label("by", exact=True).fill("sleepy")
    page.get_by_role("button", name="Replace").click()
    result = page.locator(".compared")
    result.wait_for()
    assert "sleepy dog" in result.inner_text()
    spans = [tuple(map(float, span.split("-"))) for span in result.get_attribute("data-spans").split(",")]
    with page.expect_download() as saved:
        result.get_by_role("button", name="Download wav").click()
    after, after_rate = soundfile.read(saved.value.path())
    assert after_rate == rate
    assert abs(float(result.get_attribute("data-seconds")) - len(after) / rate) < 0.01
    # What lies before the new part is the recording itself.
    untouched = int(spans[0][0] * rate) - rate // 10
    assert (before[:untouched] == after[:untouched]).all()
    result.get_by_role("button", name="Play the recording after").click()
    audio = result.locator("audio").nth(1).element_handle()
    until(page, "audio => audio.currentTime > 0.1", audio)


def test_a_span_is_marked_by_mouse_and_by_keys(open_page: Any) -> None:
    page = open_page("edit")
    tone = io.BytesIO()
    soundfile.write(tone, [0.1, -0.1] * 24_000, 24_000, format="WAV")
    page.locator("input[type=file]").set_input_files(
        {"name": "a.wav", "mimeType": "audio/wav", "buffer": tone.getvalue()}
    )
    wave = page.get_by_role("application", name="Waveform")  # as a screen reader finds it
    wave.wait_for()
    box = wave.bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    assert abs(float(page.get_by_label("From, s").input_value()) - 0.5) < 0.02
    assert abs(float(page.get_by_label("To, s").input_value()) - 1.0) < 0.02
    wave.focus()
    page.keyboard.press("Shift+ArrowRight")
    assert abs(float(page.get_by_label("To, s").input_value()) - 1.05) < 0.02
    assert page.get_by_role("button", name="Speak the span anew").is_enabled()
    page.keyboard.press("Escape")
    assert page.get_by_label("To, s").input_value() == ""


def test_a_recording_is_made_by_the_microphone(open_page: Any) -> None:
    page = open_page("edit", permissions=["microphone"])
    page.get_by_role("button", name="Record", exact=True).click()
    page.get_by_role("button", name="Stop (1 s)").click()
    # The browser records webm; what is opened, and would be sent, is a wav file of the same length.
    page.locator("h2", has_text="recording.wav").wait_for()
    assert 0.5 < float(page.get_by_label("To, s").get_attribute("max")) < 10


def test_the_microphone_is_taken_once_and_let_go_on_leaving(open_page: Any) -> None:
    page = open_page("edit", permissions=["microphone"])
    record = page.get_by_role("button", name="Record", exact=True)
    record.wait_for()
    page.evaluate(
        "() => { const devices = navigator.mediaDevices; const ask = devices.getUserMedia.bind(devices);"
        " window.given = []; devices.getUserMedia = async (wanted) => {"
        " const stream = await ask(wanted); window.given.push(stream); return stream; }; }"
    )
    record.evaluate("button => { button.click(); button.click(); }")
    page.get_by_role("button", name="Stop (1 s)").wait_for()
    assert page.evaluate("window.given.map(stream => stream.active)") == [True]
    page.evaluate("location.hash = '#/voices'")
    until(page, "window.given.every(stream => !stream.active)")
    # Left before the microphone is there, it is let go as soon as it is.
    page.locator(".record").wait_for(state="attached")
    page.locator("select[name=voice] option").first.wait_for(state="attached")
    page.locator(".record").evaluate("button => { button.click(); location.hash = '#/edit'; }")
    until(page, "window.given.length === 2 && window.given.every(stream => !stream.active)")
    record.wait_for()
    assert page.locator("h2", has_text="recording").count() == 0
