"""A live figure that did not start: what the page says, and the second try."""

import pytest
from browsing import browser  # noqa: F401
from live_page import site  # noqa: F401
from playwright import sync_api

FAILED, LIVE = 'section[data-state="failed"]', 'section[data-state="live"]'
# A figure, and a file that does not come: the figure's own module, one that it imports,
# the program of its thread, its data.
MISSING = [
    ("calculators", {"view": "parameters"}, "**/calculators.js"),
    ("calculators", {"view": "parameters"}, "**/formulas.js"),
    ("generation", {"model": "ch02"}, "**/worker.js"),
    ("generation", {"model": "ch02"}, "**/*.safetensors"),
    ("training", {}, "**/run.json"),
]


def again(page: sync_api.Page) -> sync_api.Locator:
    return page.get_by_role("button", name="Try again")


@pytest.mark.parametrize(("figure", "options", "missing"), MISSING)
def test_a_second_try_brings_the_figure_to_life(
    browser, site, figure, options, missing
):
    page = browser.new_page()
    page.context.route(missing, lambda found: found.abort())
    page.goto(site.figure(figure, **options))
    page.wait_for_selector(FAILED)
    assert page.get_by_text("The static figure.").is_visible()
    note = page.locator("section > .live-note")
    assert note.inner_text().startswith("The live figure could not start: ")
    page.context.unroute(missing)
    again(page).press("Enter")
    page.wait_for_selector(LIVE)
    assert page.locator("section > .live-panel").count() == 1
    assert page.get_by_text("The static figure.").is_hidden()
    assert (note.count(), again(page).count()) == (0, 0)
    # Whoever came by keyboard goes on in the figure.
    assert page.evaluate("document.activeElement.className") == "live-panel"
    page.context.close()


def test_a_try_that_fails_once_more_says_so_and_offers_the_next(browser, site):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    held = []
    page.route("**/run.json", lambda found: found.fulfill(status=404))
    page.goto(site.figure("training"))
    page.wait_for_selector(FAILED)
    page.unroute("**/run.json")
    page.route("**/run.json", lambda found: held.append(found))
    with page.expect_request("**/run.json"):
        again(page).click()
    note = page.locator(".live-note")
    sync_api.expect(note).to_have_text("The live figure is starting …")
    assert note.get_attribute("role") == "status"
    assert again(page).get_attribute("aria-disabled") == "true"
    again(page).click(force=True)  # an impatient second click starts nothing
    held.pop().fulfill(status=503)
    page.wait_for_selector(FAILED)
    assert held == []
    assert "loading the page again may help" in note.inner_text()
    assert "run.json did not come (503)" in note.inner_text()
    assert again(page).count() == 1
    assert again(page).get_attribute("aria-disabled") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = again(page).bounding_box()
    assert min(box["width"], box["height"]) >= 24
    page.emulate_media(media="print")
    assert again(page).is_hidden()
    assert note.is_hidden()
    page.close()


def test_without_a_server_there_is_nothing_to_try_again(browser, site):
    page = browser.new_page()
    site.figure("training")
    page.goto((site.folder / "figure-training-0.html").as_uri())
    page.wait_for_selector(".live-note")
    assert again(page).count() == 0
    page.close()
