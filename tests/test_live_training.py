"""The training scrubber: what it shows is the stored run, and nothing else."""

import json
import math
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from browsing import browser  # noqa: F401
from live_page import site  # noqa: F401
from safetensors.torch import load as load_tensors
from tinygpt_live import WRITERS

from tools import book, live_run
from tools.pages import ROOT

STORED = ROOT / "data" / "reference"
LOG = json.loads((STORED / "step6_log.json").read_text(encoding="utf-8"))
EVALUATIONS = LOG["evaluations"]
LIVE = 'section[data-state="live"]'
SHOWN = """() => ({
  valuetext: document.querySelector("input[type=range]").ariaValueText
    ?? document.querySelector("input[type=range]").getAttribute("aria-valuetext"),
  step: document.querySelector("output").textContent,
  numbers: [...document.querySelectorAll(".live-readings dd")].map(n => n.textContent),
  sample: document.querySelector(".live-sample").textContent,
  marks: [...document.querySelectorAll(".live-chart circle")].slice(-2)
    .map(c => [Number(c.getAttribute("cx")), Number(c.getAttribute("cy"))]),
})"""


# ---- the data ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    live_run.write(ROOT, folder)
    return folder


def test_the_evaluations_of_the_site_are_those_of_the_log_to_every_digit(written):
    run = json.loads((written / "run.json").read_text(encoding="utf-8"))
    samples = {int(step): text for step, text in LOG["samples"].items()}
    assert len(run["evaluations"]) == len(samples) == 11
    for ours, theirs in zip(run["evaluations"], EVALUATIONS, strict=True):
        assert ours == theirs | {"sample": samples[theirs["step"]]}
    assert run["passage"] == LOG["passage"]


def test_the_drawn_losses_are_some_of_the_logs(written):
    run = json.loads((written / "run.json").read_text(encoding="utf-8"))
    steps = [step for step, _ in run["losses"]]
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert steps[-1] == len(LOG["train_loss"]) - 1
    for step, loss in run["losses"]:
        assert abs(loss - LOG["train_loss"][step]) <= 0.00051


def test_drawn_losses_of_an_example():
    losses = [float(step) for step in range(25)]
    assert [step for step, _ in live_run.drawn_losses(losses)] == [0, 10, 20, 24]


def test_the_maps_of_the_site_are_the_stored_ones_bit_by_bit(written):
    packed = load_tensors((written / "run-attention.safetensors").read_bytes())
    stored = load_tensors((STORED / "step6_attention.safetensors").read_bytes())
    assert packed.keys() == stored.keys()
    for name, maps in stored.items():
        row, column = torch.tril_indices(64, 64)
        again = torch.zeros_like(maps)
        again[..., row, column] = packed[name]
        assert torch.equal(again, maps), name


def test_a_map_that_sees_the_future_is_not_packed():
    maps = torch.ones(1, 1, 3, 3).tril()
    assert live_run.pack_triangle(maps).shape == (1, 1, 6)
    maps[0, 0, 0, 2] = 0.5
    with pytest.raises(ValueError, match="looks into the future"):
        live_run.pack_triangle(maps)


def test_the_data_are_small_and_the_same_each_time(written, tmp_path):
    live_run.write(ROOT, tmp_path)
    for path in sorted(written.iterdir()):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name
    assert (written / "run.json").stat().st_size < 20_000
    assert (written / "run-attention.safetensors").stat().st_size < 800_000


def test_a_changed_writer_outdates_the_book():
    for name in WRITERS:
        assert f"{name.replace('.', '/')}.py" in book.SOURCES


def test_the_picture_without_javascript_is_drawn_from_the_stored_maps():
    drawn = live_run.draw_heads(live_run.read_maps(ROOT))
    stored = (ROOT / live_run.FIGURE).read_text(encoding="utf-8")
    assert stored == drawn, "run 'python -m tools.live_run'"


def test_a_map_is_drawn_as_runs_of_one_shade():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    dark, light = "M0 0h1v1h-1zM2 2h1v1h-1z", "M0 1h2v1h-2z"
    paths = live_run.draw_map(weights)
    assert [dark in path for path in paths] == [False, True]
    assert [light in path for path in paths] == [True, False]


# ---- the figure ----------------------------------------------------------------------


@pytest.fixture
def figure(browser, site):
    """The scrubber on a page of its own, with a clock that the test turns."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url.split("/")[-1]))
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.clock.install()
    page.goto(site.figure("training"))
    page.wait_for_selector(LIVE)
    yield page
    assert page.errors == []
    context.close()


def expected(index: int) -> dict:
    """What the scrubber has to show at one evaluation."""
    entry = EVALUATIONS[index]
    step, train, validation = entry["step"], entry["train"], entry["validation"]
    return {
        "valuetext": f"Step {step:,}: training loss {train:.3f}, "
        f"held-out loss {validation:.3f}.",
        "step": f"step {step:,}",
        "numbers": [
            f"{train:.3f}",
            f"{validation:.3f}",
            f"{validation - train:.3f}",
            f"{validation / math.log(2):.2f}",
        ],
        "sample": LOG["samples"][str(step)],
    }


def shown(page) -> dict:
    found = page.evaluate(SHOWN)
    del found["marks"]
    return found


def test_every_evaluation_shows_exactly_what_was_stored(figure):
    figure.locator("input[type=range]").focus()
    marks = []
    for index in range(len(EVALUATIONS)):
        assert shown(figure) == expected(index)
        marks.append(figure.evaluate(SHOWN)["marks"])
        figure.keyboard.press("ArrowRight")
    assert shown(figure) == expected(10), "the last one is the last"
    # The marks lie on one straight scale: pixels are an affine function of the loss.
    pairs = [
        (entry[group], mark[which])
        for entry, mark in zip(EVALUATIONS, marks, strict=True)
        for which, group in enumerate(("train", "validation"))
    ]
    (loss, (_, high)), (least, (_, low)) = pairs[0], pairs[-2]
    slope = (low - high) / (least - loss)
    for value, (_, pixel) in pairs:
        assert pixel == pytest.approx(high + slope * (value - loss), abs=0.01)
    columns = [mark[0][0] for mark in marks]
    assert columns == sorted(set(columns))
    assert columns == [mark[1][0] for mark in marks]


def test_it_can_be_used_by_keyboard_alone(figure):
    keys = figure.keyboard
    keys.press("Tab")
    assert figure.evaluate("document.activeElement.type") == "range"
    keys.press("End")
    assert shown(figure) == expected(10)
    keys.press("Home")
    assert shown(figure) == expected(0)
    names = []
    for _ in range(3):  # "Earlier" is off at the start and says so
        keys.press("Tab")
        names.append(figure.evaluate("document.activeElement.textContent"))
    assert [name.strip(" ◀▶") for name in names] == ["Earlier", "Play", "Later"]
    assert figure.get_by_role("button", name="Earlier").is_disabled()
    keys.press("Enter")
    assert shown(figure) == expected(1)
    assert figure.get_by_role("button", name="Earlier").is_enabled()
    assert (
        figure.locator("[role=status]").first.inner_text() == (expected(1)["valuetext"])
    )
    keys.press("Tab")
    assert figure.evaluate("document.activeElement.className").endswith("live-sample")
    keys.press("Tab")
    keys.press("Enter")
    figure.wait_for_selector(".live-attention")
    assert figure.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_button_at_the_end_of_its_way_keeps_the_focus(figure):
    later = figure.get_by_role("button", name="Later")
    later.focus()
    for _ in range(len(EVALUATIONS) + 2):
        figure.keyboard.press("Enter")
    assert shown(figure) == expected(10)
    assert later.is_disabled()
    figure.screenshot()  # what is drawn has its final focus
    assert later.evaluate("e => e === document.activeElement")


def test_a_click_on_the_curve_goes_there(figure):
    chart = figure.locator(".live-chart")
    place = figure.evaluate(SHOWN)["marks"][0]
    box = chart.bounding_box()
    scale = box["width"] / 430
    chart.click(position={"x": (place[0] + 40) * scale, "y": 100})
    assert figure.evaluate(SHOWN)["step"] != "step 0"


def test_it_plays_and_pauses_and_stops_at_the_end(figure):
    figure.get_by_role("button", name="Play").click()
    figure.clock.run_for(2_900)
    assert shown(figure) == expected(2)
    assert figure.locator("[role=status]").first.inner_text() == ""
    figure.get_by_role("button", name="Pause").click()
    figure.clock.run_for(10_000)
    assert shown(figure) == expected(2)
    figure.get_by_role("button", name="Play").click()
    figure.clock.run_for(60_000)
    assert shown(figure) == expected(10)
    assert figure.get_by_role("button", name="Play").is_visible()
    assert figure.get_by_role("button", name="Later").is_disabled()
    figure.get_by_role("button", name="Play").click()  # from the start again
    assert shown(figure) == expected(0)


def test_nothing_plays_for_a_reader_who_wants_less_motion(figure):
    figure.get_by_role("button", name="Play").click()
    figure.emulate_media(reduced_motion="reduce")
    figure.get_by_text("Pause").wait_for(state="detached")
    figure.clock.run_for(10_000)
    assert shown(figure) == expected(0)
    names = figure.locator("button:visible").all_inner_texts()
    assert names == ["◀ Earlier", "Later ▶"]


def test_the_attention_shown_at_a_step_is_the_stored_one(figure):
    maps = load_tensors((STORED / "step6_attention.safetensors").read_bytes())
    assert "run-attention.safetensors" not in figure.asked
    figure.locator("summary").first.click()
    figure.wait_for_selector(".live-attention")
    assert figure.asked.count("run-attention.safetensors") == 1
    tokens = figure.locator(".live-strip .token").all_inner_texts()
    assert len(tokens) == len(LOG["passage"]) == 64
    figure.get_by_text("The chosen row as a table").click()
    for index, head, query in [(0, (0, 3), 63), (1, (0, 3), 17), (10, (2, 0), 40)]:
        figure.locator("input[type=range]").fill(str(index))
        figure.locator(f'input[value="{head[0]}.{head[1]}"]').check()
        figure.locator(".live-strip button").nth(query).hover()
        row = figure.locator(".live-table tbody tr td:last-child").all_inner_texts()
        stored = maps[f"step_{EVALUATIONS[index]['step']}"][head][query].float()
        assert len(row) == query + 1
        assert (
            torch.tensor([float(w) for w in row]).sub(stored[: query + 1]).abs().max()
            <= 0.000051
        )
        assert stored[query + 1 :].eq(0).all()
        total = list(accumulate(stored.double().tolist()))[-1]
        sentence = figure.locator(".live-says").inner_text()
        assert f"weights sum to {total:.3f}." in sentence
        assert abs(total - 1) < 0.002
    assert figure.asked.count("run-attention.safetensors") == 1


def test_nothing_is_fetched_before_it_is_scrolled_into_view(browser, site):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    asked = []
    page.on("request", lambda request: asked.append(request.url.split("/")[-1]))
    page.goto(site.figure("training", below=5_000), wait_until="networkidle")
    assert not {"training.js", "run.json", "heads.js"} & set(asked)
    page.locator("section").scroll_into_view_if_needed()
    page.wait_for_selector(LIVE)
    assert {"training.js", "run.json"} <= set(asked)
    assert "run-attention.safetensors" not in asked
    page.close()


def test_missing_data_leave_the_static_figure_and_a_sentence(browser, site):
    page = browser.new_page()
    page.route("**/run.json", lambda route: route.fulfill(status=404))
    page.goto(site.figure("training"))
    page.wait_for_selector('section[data-state="failed"]')
    assert page.get_by_text("The static figure.").is_visible()
    assert "run.json did not come (404)" in page.locator(".live-note").inner_text()
    page.close()


def test_missing_maps_are_said_and_the_rest_goes_on(figure):
    figure.route("**/run-attention.safetensors", lambda r: r.fulfill(status=404))
    figure.locator("summary").first.click()
    note = figure.locator(".live-fold .live-note")
    note.filter(has_text="cannot be shown").wait_for()
    assert "run-attention.safetensors did not come (404)" in note.inner_text()
    figure.locator("input[type=range]").fill("4")
    assert shown(figure) == expected(4)
    # The reader closes the fold, opens it again, and this time the maps come.
    figure.unroute("**/run-attention.safetensors")
    figure.locator("summary").first.click()
    figure.locator("summary").first.click()
    figure.wait_for_selector(".live-attention")
    assert note.inner_text() == ""


def test_on_a_phone_nothing_is_cut_and_fingers_find_their_targets(figure):
    figure.set_viewport_size({"width": 390, "height": 844})
    figure.locator("summary").first.click()
    figure.wait_for_selector(".live-attention")
    assert figure.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = figure.evaluate(
        "[...document.querySelectorAll('button, summary, input, .live-heads label')]"
        ".filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect())"
        ".map(b => [b.width, b.height])"
    )
    assert len(boxes) > 80
    assert min(min(box) for box in boxes) >= 24
