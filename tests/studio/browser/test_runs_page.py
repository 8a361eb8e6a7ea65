"""Runs in a real browser: the table, curves that move while a training goes on, samples that sound."""

from typing import Any

from driving import until


def test_runs_are_listed_and_filtered(open_page: Any) -> None:
    page = open_page("runs")
    page.locator("tr[data-run]").nth(2).wait_for()
    assert set(page.locator("tr[data-run]").evaluate_all("rows => rows.map(row => row.dataset.run)")) >= {
        "codec",
        "group/other",
        "stopped",
    }
    page.get_by_label("Filter").fill("stopped")
    until(page, "document.querySelectorAll('tr[data-run]').length === 1")
    assert "20 / 100" in page.locator("tr[data-run]").inner_text()


def test_a_training_is_started_its_curve_moves_and_it_is_stopped(open_page: Any, folder: Any) -> None:
    page = open_page("runs")
    page.get_by_role("button", name="Start a run").click()
    page.get_by_label("Recipe", exact=True).fill("soundstream/tiny")
    page.get_by_label("Name of the run").fill("live")
    changes = [f"data={folder.parent / 'recordings'}", "plan.num_train_steps=5000", "plan.save_results_every=5000"]
    page.get_by_label("Changes").fill("\n".join(changes))
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/#/run/live")
    drawn = page.locator("figure.chart", has_text="generator/mel").locator("canvas")
    drawn.wait_for()
    until(page, "e => Number(e.dataset.points) > 0", drawn.element_handle())
    first, picture = int(drawn.get_attribute("data-last")), drawn.evaluate("canvas => canvas.toDataURL()")
    until(page, "([e, n]) => Number(e.dataset.last) > n", [drawn.element_handle(), first])
    assert drawn.evaluate("canvas => canvas.toDataURL()") != picture
    page.get_by_role("button", name="Save and stop").click()
    page.locator(".facts .state.stopped").wait_for()
    assert list((folder / "live" / "checkpoints").glob("step-*"))
    page.get_by_role("button", name="Resume").wait_for()


def test_curves_zoom_by_drag_and_keys_and_lie_over_each_other(open_page: Any) -> None:
    page = open_page("run/codec")
    chart = page.locator("figure.chart").first
    canvas = chart.get_by_role("application")  # as a screen reader finds it
    until(page, "e => Number(e.dataset.points) > 0", canvas.element_handle())
    page.wait_for_timeout(300)
    whole = canvas.evaluate("canvas => canvas.chart.domain")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    zoomed = canvas.evaluate("canvas => canvas.chart.domain")
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    canvas.focus()
    page.keyboard.press("0")
    assert canvas.evaluate("canvas => canvas.chart.domain") == whole
    page.keyboard.press("+")
    assert canvas.evaluate("canvas => canvas.chart.domain") != whole
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert chart.locator(".at").inner_text().startswith("step ")
    page.get_by_label("Compare with").select_option("group/other")
    page.locator(".legend li").nth(1).wait_for()
    assert page.locator(".legend").inner_text().split("\n")[0] == "codec"
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("Log scale").check()
    assert canvas.evaluate("canvas => canvas.chart.lines.length") == 2
    page.mouse.dblclick(box["x"] + 100, box["y"] + 60)


def test_a_sample_plays_beside_its_original(open_page: Any) -> None:
    page = open_page("run/codec/samples")
    page.get_by_role("button", name="Play original of item 0").click()
    audio = page.locator(".sample", has_text="original").first.locator("audio")
    until(page, "audio => audio.currentTime > 0.1", audio.element_handle())
    titles = page.locator(".sample-group").first.locator("figcaption").all_inner_texts()
    assert titles == ["original", "reconstruction", "reconstruction (EMA)", "words"]
    page.locator(".sample img").first.wait_for()
    # Another sound of the same item, at the same place, and the first is silent.
    page.keyboard.press("2")
    until(page, "audio => audio.paused", audio.element_handle())
    page.get_by_role("button", name="Pause reconstruction of item 0").wait_for()
    page.get_by_role("button", name="Older").click()
    assert page.get_by_label("Step").input_value() == "20"


def test_recipes_of_two_runs_are_compared(open_page: Any) -> None:
    page = open_page("run/codec/diff")
    page.get_by_label("Compare with").select_option("group/other")
    row = page.locator("table.diff tbody tr")
    row.first.wait_for()
    assert row.first.inner_text().split() == ["plan.lr", "0.05", "0.09"]
    page.get_by_role("tab", name="Disk").click()
    page.get_by_text("in 1 checkpoint").wait_for()
    page.get_by_role("tab", name="Recipe", exact=True).click()
    assert "num_train_steps: 40" in page.locator("pre.recipe").inner_text()
