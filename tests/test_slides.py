"""The lecture slides: what stands on them, and that they need nothing from outside."""

import re
from pathlib import Path

import nbformat
import pytest
from browsing import BROWSER, need_a_browser

from tools.pages import ROOT
from tools.screenshots import LAUNCH_ARGS
from tools.slides import Deck, main, sentences, slide_notebook

LECTURE = "lecture4-attention"


def made_up() -> nbformat.NotebookNode:
    """A small lecture with one of everything."""
    v4 = nbformat.v4
    hidden = {"tags": ["hide-input"]}
    picture = v4.new_output("display_data", {"image/png": "aGk="})
    printed = v4.new_output("stream", name="stdout", text="42\n")
    return v4.new_notebook(
        cells=[
            v4.new_markdown_cell("This notebook is the chapter ..."),
            v4.new_code_cell("import torch", metadata=hidden),
            v4.new_markdown_cell("# Lecture 9\n\nIt begins here. It goes on."),
            v4.new_code_cell("import math", metadata=hidden),
            v4.new_markdown_cell(
                "## Sums\n\nWe can add. More of it.\n\n### Two\n\nThe sum $a. B$ is\n\n"
                "$$\na + b .\n$$\n\nProse only spoken.\n\n"
                "> **Definition 1 (Sum)**\n>\n> A sum.\n\n"
                "> **Proposition 1**\n>\n> It is so.\n\n> **Proof.**\n>\n> See.\n"
            ),
            v4.new_code_cell("print(6 * 7)", outputs=[printed]),
            v4.new_code_cell("draw()", metadata=hidden, outputs=[picture]),
            v4.new_markdown_cell("**Figure 1.** What is it?"),
            v4.new_markdown_cell("### Words\n\nFirst words. Not these.\n\nSecond."),
            v4.new_markdown_cell("## Summary\n\nOne. Two."),
            v4.new_markdown_cell(
                "## Exercises\n\n> **Exercise 1 (Try)**\n>\n> Do it.\n\n"
                "<details>\n<summary>Hint</summary>\n\nThink.\n\n</details>\n\n"
                "#### Solution to Exercise 1\n\nThe secret."
            ),
            v4.new_code_cell("answer()", metadata={"tags": ["exercise-solution"]}),
        ]
    )


def seen() -> list[tuple[str, str, str]]:
    """The slides of the made-up lecture: kind, title, and all that is seen."""
    return [
        (slide.kind, slide.title, "\n".join(cell.source for cell in slide.shown))
        for slide in Deck().read(made_up())
    ]


def test_sections_boxes_code_and_figures_stand_on_slides_of_their_own():
    assert seen() == [
        ("slide", "Lecture 9", "It begins here."),
        ("slide", "Sums", "We can add."),
        ("subslide", "Two", "The sum $a. B$ is\n$$\na + b .\n$$"),
        ("subslide", "Two", "> **Definition 1 (Sum)**\n>\n> A sum."),
        ("subslide", "Two", "> **Proposition 1**\n>\n> It is so."),
        ("subslide", "Two", "> **Proof.**\n>\n> See."),
        ("subslide", "Two", "print(6 * 7)"),
        ("subslide", "Two", "draw()\n**Figure 1.** What is it?"),
        ("subslide", "Words", "- First words.\n- Second."),
        ("slide", "Summary", "- One.\n- Two."),
        ("slide", "Exercises", "- Exercise 1 (Try)"),
    ]


def test_prose_is_spoken_and_solutions_are_neither_seen_nor_spoken():
    deck = slide_notebook(made_up())
    notes = [c.source for c in deck.cells if c.metadata.slideshow.slide_type == "notes"]
    assert any("Prose only spoken." in note for note in notes)
    everything = "\n".join(cell.source for cell in deck.cells)
    for secret in ("The secret", "answer()", "Think.", "import"):
        assert secret not in everything


def test_a_drawing_shows_its_figure_without_its_code():
    deck = slide_notebook(made_up())
    drawing = next(cell for cell in deck.cells if cell.source == "draw()")
    assert drawing.metadata.tags == ["hide-input"]
    assert drawing.outputs


def test_a_formula_is_never_cut_into_sentences():
    text = "Let $a. B$ be `x. Y`. Then [A. B](c) holds! So *it is.* All."
    assert sentences(text) == [
        "Let $a. B$ be `x. Y`.",
        "Then [A. B](c) holds!",
        "So *it is.",
        "All.",
    ]


def test_a_page_without_a_notebook_is_named(capsys, tmp_path: Path):
    assert main(["nothing", "--out", str(tmp_path)]) == 1
    assert "notebooks/nothing.ipynb is missing" in capsys.readouterr().out


# ---- in a browser --------------------------------------------------------------------


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """An open lecture, from the disk, and all that went wrong while it was shown."""
    need_a_browser()
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("slides")
    assert main([LECTURE, "--out", str(folder)]) == 0
    wrong: list[str] = []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=LAUNCH_ARGS)
        page = running.new_page(viewport={"width": 1280, "height": 800})

        def route(found) -> None:
            inside = found.request.url.startswith((folder.as_uri(), "data:", "blob:"))
            if not inside:
                wrong.append(f"outside: {found.request.url}")
            found.continue_() if inside else found.abort()

        page.context.route("**/*", route)
        page.on("requestfailed", lambda r: wrong.append(f"failed: {r.url}"))
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else 0)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((folder / f"{LECTURE}.html").as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        yield page, wrong
        running.close()


def test_a_lecture_is_shown_from_the_disk_without_an_error(slides):
    page, wrong = slides
    total = page.evaluate("Reveal.getTotalSlides()")
    seen = set()
    for _ in range(total):
        box = page.locator("section.present:not(.stack)").bounding_box()
        assert box["height"] > 20
        assert 0 <= box["y"] <= 100
        seen.add(page.evaluate("JSON.stringify(Reveal.getIndices())"))
        page.keyboard.press("Space")
    assert len(seen) == total > 20
    assert page.evaluate("Reveal.isLastSlide()")
    assert wrong == []


def test_the_maths_of_a_lecture_is_typeset(slides):
    page, _ = slides
    assert page.locator(".slides mjx-container").count() > 20
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0
    visible = page.evaluate("document.querySelector('.slides').innerText")
    assert not re.search(r"\$[^$]+\$|\\(frac|sum|lVert)", visible)


def test_every_slide_fits_and_every_figure_is_described(slides):
    page, _ = slides
    page.evaluate("Reveal.slide(0, 0)")
    too_tall = []
    for _ in range(page.evaluate("Reveal.getTotalSlides()")):
        if page.evaluate("Reveal.getCurrentSlide().matches('.scrolls')"):
            too_tall.append(page.evaluate("Reveal.getCurrentSlide().innerText"))
        page.keyboard.press("Space")
    assert too_tall == []
    images = page.evaluate(
        "[...document.images].map(i => [i.alt.trim(), i.naturalWidth])"
    )
    assert images
    assert all(alt and width and "No description" not in alt for alt, width in images)


def test_every_lecture_has_slides():
    lectures = sorted(path.stem for path in (ROOT / "chapters").glob("lecture*.md"))
    assert lectures
    for stem in lectures:
        node = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
        kinds = [slide.kind for slide in Deck().read(node)]
        assert kinds.count("slide") >= 4, stem
