"""The finished book in a real browser: light, dark, and as wide as a phone."""

import json
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import yaml
from playwright import sync_api

from tools import book
from tools.pages import ROOT, read_site
from tools.screenshots import LAUNCH_ARGS, find_browser, serve, settle

BROWSER = find_browser()
if BROWSER is None:
    missing = (
        "no Chromium or Chrome found (install chromium, or set CHROME to its path)"
    )
    if os.environ.get("TINYGPT_REQUIRE_BROWSER"):
        pytest.fail(f"browser tests are required here: {missing}", pytrace=False)
    pytest.skip(f"browser tests skipped: {missing}", allow_module_level=True)

VIEWS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
WIDE = {"viewport": {"width": 2560, "height": 1300}, "color_scheme": "light"}


def toc_pages() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [page for part in toc["parts"] for page in part["chapters"]]
    return [toc["root"], *(page["file"] for page in chapters)]


PAGES = toc_pages()
CHAPTERS = [page for page in PAGES if page.startswith("chapters/")]
# The first page and the chapters in every view, the rest where room is scarcest.
VISITS = [
    (page, view)
    for page in PAGES
    for view in (VIEWS if page in (PAGES[0], *CHAPTERS) else ("phone",))
]


@dataclass
class Visit:
    """An open page, and all that went wrong while it loaded."""

    name: str
    view: str
    page: object
    external: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def query(self, script: str):
        return self.page.evaluate(script)


@pytest.fixture(scope="module")
def address():
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    with serve(ROOT / "_build/html") as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=LAUNCH_ARGS)
        yield running
        running.close()


def open_page(browser, address: str, target: str, view: str) -> Visit:
    """Open a page in a fresh profile; refuse and note every request to elsewhere."""
    context = browser.new_context(
        **(VIEWS | {"wide": WIDE})[view],
        permissions=["clipboard-read", "clipboard-write"],
    )
    visit = Visit(target, view, context.new_page())

    def route(found) -> None:
        if found.request.url.startswith((address, "data:", "blob:")):
            found.continue_()
        else:
            visit.external.append(found.request.url)
            found.abort()

    context.route("**/*", route)
    visit.page.on(
        "response",
        lambda r: visit.refused.append(f"{r.status} {r.url}") if r.status > 399 else 0,
    )
    visit.page.on(
        "console", lambda m: visit.errors.append(m.text) if m.type == "error" else 0
    )
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.page.goto(urljoin(address, target))
    settle(visit.page)
    return visit


@pytest.fixture(
    scope="module",
    params=VISITS,
    ids=lambda param: f"{param[0]} {param[1]}",
)
def visit(request, browser, address):
    name, view = request.param
    found = open_page(browser, address, f"{name}.html", view)
    yield found
    found.page.context.close()


@pytest.fixture(params=CHAPTERS)
def chapter(request, browser, address):
    found = open_page(browser, address, f"{request.param}.html", "light")
    yield found
    found.page.context.close()


def test_a_page_needs_nothing_from_outside_and_reports_no_error(visit):
    assert visit.external == []
    assert visit.refused == []
    assert visit.errors == []


def test_the_page_follows_the_reader_s_colour_scheme(visit):
    expected = "dark" if visit.view == "dark" else "light"
    assert visit.query("document.documentElement.dataset.theme") == expected


def test_all_maths_is_typeset_without_an_error(visit):
    written = visit.page.locator("article .math").count()
    assert visit.page.locator("article .math mjx-container").count() == written
    assert visit.page.locator("mjx-merror, [data-mjx-error]").count() == 0


def test_every_image_is_loaded_and_described(visit):
    images = visit.query(
        "[...document.images].map(i => [i.src, i.alt.trim(), i.naturalWidth])"
    )
    for source, alt, width in images:
        assert alt, f"{source}: no alt text"
        assert width, f"{source}: not loaded"


def test_figures_are_opaque_and_undimmed(visit):
    figures = visit.query(
        "[...document.querySelectorAll('article img')].map(i => {"
        "const s = getComputedStyle(i);"
        "return [i.src, s.backgroundColor, s.filter, s.opacity]})"
    )
    for source, *look in figures:
        assert look == ["rgb(255, 255, 255)", "none", "1"], source


def test_headings_descend_one_level_at_a_time(visit):
    levels = visit.query(
        "[...document.querySelectorAll('article :is(h1,h2,h3,h4,h5,h6)')]"
        ".map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    jumps = [(a, b) for a, b in pairwise(levels) if b > a + 1]
    assert jumps == []


def test_the_page_is_no_wider_than_the_screen(visit):
    width = visit.page.viewport_size["width"]
    assert visit.query("document.documentElement.scrollWidth") <= width
    cut = visit.query(
        "[...document.querySelectorAll('article > section *, .bd-header-article *')]"
        ".filter(e => e.tagName == 'IMG' || e.tagName == 'BUTTON')"
        f".filter(e => e.getBoundingClientRect().right > {width} + 1)"
        ".map(e => e.outerHTML.slice(0, 120))"
    )
    assert cut == []


BOXES = """selector => [...document.querySelectorAll(selector)].map(e => {
  const r = e.getBoundingClientRect();
  return [r.left, r.right, r.width];
})"""


def test_the_line_below_the_title_is_there_and_fits(visit):
    line = visit.page.locator("article ul.tg-facts")
    assert line.count() == 1
    assert line.locator("li").first.inner_text().endswith("to read")
    width = visit.page.viewport_size["width"]
    for left, right, _ in visit.page.evaluate(BOXES, "ul.tg-facts li a"):
        assert left >= 0
        assert right <= width


def test_a_margin_note_stands_beside_the_text_or_on_a_phone_in_it(visit):
    column = visit.page.evaluate(BOXES, "article h1")[0]
    width = visit.page.viewport_size["width"]
    for left, right, _ in visit.page.evaluate(BOXES, "article aside.margin"):
        assert right <= width
        if visit.view == "phone":
            assert left >= column[0] - 1
            assert right <= column[1] + 1
        else:
            assert left >= column[1]


def test_the_foot_says_what_comes_next(visit):
    links = visit.page.locator(".prev-next-area a")
    assert links.count() >= 1
    for number in range(links.count()):
        assert links.nth(number).locator(".tg-sentence").inner_text().endswith(".")


def test_the_faces_of_the_book_are_loaded(visit):
    assert visit.query("document.fonts.check('16px \"TG Serif\"')")
    loaded = visit.query(
        "[...document.fonts].filter(f => f.status == 'loaded').map(f => f.family)"
    )
    assert {"TG Serif", "TG Sans"} <= {name.strip('"') for name in loaded}


def test_the_icons_are_drawn(visit):
    icon = visit.page.locator(".article-header-buttons i.fa-download").first
    assert icon.is_visible()
    assert visit.query(
        "[...document.fonts].some("
        "f => f.family.includes('Awesome') && f.status == 'loaded')"
    )
    drawn = "getComputedStyle(e, '::before').content"
    assert icon.evaluate(f"e => {drawn}") not in ("none", "normal", '""')


def test_every_code_cell_can_be_copied_and_no_output_can(chapter):
    cells = chapter.page.locator("div.cell_input div.highlight").count()
    assert cells > 0
    assert chapter.page.locator("div.cell_input button.copybtn").count() == cells
    assert chapter.page.locator("div.cell_output button.copybtn").count() == 0


def test_the_copy_button_copies_the_cell(chapter):
    cell = chapter.page.locator("div.cell_input:visible").first
    code = cell.locator("pre").inner_text()
    cell.hover()
    cell.locator("button.copybtn").click()
    chapter.page.wait_for_selector("button.copybtn.success")
    copied = chapter.query("navigator.clipboard.readText()")
    assert copied.strip() == code.strip()


def test_a_marked_shape_is_copied_as_the_plain_comment(browser, address):
    found = open_page(browser, address, "chapters/step5-gpt.html", "light")
    cell = found.page.locator("div.cell_input:has(.tg-shape)").first
    shape = cell.locator(".tg-shape").first
    grounds = "e => getComputedStyle(e).backgroundColor"
    assert shape.evaluate(grounds) != cell.evaluate(grounds)
    cell.hover()
    cell.locator("button.copybtn").click()
    found.page.wait_for_selector("button.copybtn.success")
    copied = found.query("navigator.clipboard.readText()")
    assert f"# {shape.inner_text()}" in copied
    assert copied.strip() in (ROOT / "chapters/step5-gpt.md").read_text("utf-8")
    found.page.context.close()


@pytest.mark.parametrize("name", ["book/index", "chapters/step5-gpt"])
def test_a_wide_screen_neither_stretches_the_text_nor_loses_it(browser, address, name):
    found = open_page(browser, address, f"{name}.html", "wide")
    assert found.query("document.documentElement.scrollWidth") <= 2560
    size = float(
        found.query("getComputedStyle(document.querySelector('article p')).fontSize")[
            :-2
        ]
    )
    for left, right, width in found.page.evaluate(BOXES, "article section > p"):
        assert 30 * size < width < 50 * size
        assert left > 300
        assert right < 2000
    (edges,) = found.page.evaluate(BOXES, ".bd-container__inner")
    assert abs(edges[0] - (2560 - edges[1])) < 40  # in the middle of the screen
    assert edges[2] > 1700
    notes = found.page.evaluate(BOXES, "article aside.margin")
    contents = found.page.evaluate(BOXES, ".bd-sidebar-secondary")
    assert all(right <= contents[0][0] for _, right, _ in notes)
    found.page.context.close()


def test_on_paper_everything_is_open_and_nothing_is_there_to_click(browser, address):
    found = open_page(browser, address, "chapters/step5-gpt.html", "dark")
    found.page.emulate_media(media="print")
    closed = "document.querySelectorAll('article details:not([open])').length"
    before = found.query(closed)
    assert before > 0
    found.query("dispatchEvent(new Event('beforeprint'))")
    assert found.query(closed) == 0
    assert found.query("document.documentElement.dataset.theme") == "light"
    shown = found.query(
        "[...document.querySelectorAll('.bd-sidebar-primary, .bd-sidebar-secondary,"
        ".bd-header-article, .prev-next-footer, .bd-footer-content, button,"
        "#jb-print-docs-body, .tg-action, .headerlink')]"
        ".filter(e => e.checkVisibility()).map(e => e.className)"
    )
    assert shown == []
    assert found.page.locator("article h1").is_visible()
    hidden = found.query(
        "[...document.querySelectorAll('article .cell_input pre')]"
        ".filter(e => !e.checkVisibility({contentVisibilityAuto: true}) ||"
        " e.clientHeight == 0).map(e => e.innerText.slice(0, 60))"
    )
    assert hidden == []
    split = found.query(
        "[...document.querySelectorAll('article figure')]"
        ".map(e => getComputedStyle(e).breakInside)"
    )
    assert set(split) == {"avoid"}
    found.query("dispatchEvent(new Event('afterprint'))")
    assert found.query(closed) == before
    assert found.query("document.documentElement.dataset.theme") == "dark"
    found.page.context.close()


def test_folded_code_opens(browser, address):
    found = open_page(browser, address, "book/status.html", "light")
    code = found.page.locator("details.hide div.cell_input").first
    assert not code.is_visible()
    found.page.locator("details.hide > summary").first.click()
    assert code.is_visible()
    found.page.context.close()


def test_the_colab_button_leads_to_a_notebook_of_the_repository(chapter):
    target = chapter.page.locator("a.btn-launch-colab-button").get_attribute("href")
    site = read_site()
    slug = site.repository.removeprefix("https://github.com/")
    prefix = f"/github/{slug}/blob/{site.branch}/"
    parts = urlsplit(target)
    assert parts.netloc == "colab.research.google.com"
    assert parts.path.startswith(prefix)
    path = ROOT / parts.path.removeprefix(prefix)
    assert path == ROOT / "notebooks" / f"{Path(chapter.name).stem}.ipynb"
    assert path.is_file()


def test_the_download_is_the_same_notebook(chapter, address):
    target = chapter.page.locator("a.btn-download-notebook-button").evaluate(
        "a=>a.href"
    )
    response = chapter.page.request.get(target)
    assert response.ok
    stored = ROOT / "notebooks" / f"{Path(chapter.name).stem}.ipynb"
    assert response.body() == stored.read_bytes()
    assert json.loads(response.body())["nbformat"] == 4


def test_search_finds_the_kv_cache(browser, address):
    found = open_page(browser, address, "search.html?q=KV+cache", "light")
    found.page.wait_for_selector("#search-results ul.search li a")
    found.page.wait_for_function(
        "[...document.querySelectorAll('#search-results ul.search li a')]"
        ".some(a => a.href.includes('chapters/ch02-transformer.html'))"
    )
    assert (found.external, found.refused, found.errors) == ([], [], [])
    found.page.context.close()


def test_the_first_address_leads_to_the_three_doors(browser, address):
    found = open_page(browser, address, "", "light")
    found.page.wait_for_url("**/book/index.html")
    titles = found.page.locator(".sd-card-title").all_inner_texts()
    assert titles == ["Read", "Run", "Teach"]
    found.page.context.close()
