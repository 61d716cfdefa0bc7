"""The finished book in a real browser: light, dark, and as wide as a phone."""

import functools
import gzip
import json
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from browsing import (
    CHAPTERS,
    PAGES,
    VIEWS,
    address,
    browser,
    need_a_browser,
    new_context,
    open_page,
    rest,
)

from tools.pages import ROOT, read_site
from tools.screenshots import photograph

need_a_browser()
__all__ = ["address", "browser"]

# Every page in every view; a page is loaded once for all that is asked of it there.
VISITS = [(page, view) for view in VIEWS for page in PAGES]
# Pages of which a run keeps pictures, for a person to look at.
KEPT = {
    "book/index",
    "book/glossary",
    "book/notation",
    "book/troubleshooting",
    "chapters/lecture5-architecture",
    "chapters/step5-gpt",
    "chapters/ch02-transformer",
}
CHAPTERS_HTML = {f"{page}.html" for page in CHAPTERS}


@pytest.fixture(scope="module")
def profiles(browser):
    """One profile for each view."""
    found = {view: new_context(browser, view) for view in VIEWS}
    yield found
    for context in found.values():
        context.close()


@pytest.fixture(
    scope="module",
    params=VISITS,
    ids=lambda param: f"{param[0]} {param[1]}",
)
def visit(request, browser, address, profiles):
    name, view = request.param
    target = f"{name}.html"
    found = open_page(browser, address, target, view, profiles[view], ready=rest)
    if name in KEPT:
        pictures = ROOT / "_build/screenshots"
        pictures.mkdir(exist_ok=True)
        photograph(found.page, pictures / f"{name.replace('/', '-')}-{view}", False)
    yield found
    found.page.close()


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
def test_no_width_between_phone_and_desk_scrolls_sideways(browser, address, name):
    """Tablets, and 1,280 pixels at twice the size."""
    found = open_page(browser, address, f"{name}.html", "light")
    widths = dict.fromkeys((576, 600, 640, 720, 767, 800, 960, 1100, 1200), 0)
    for width in widths:
        found.page.set_viewport_size({"width": width, "height": 450})
        widths[width] = found.query("document.documentElement.scrollWidth")
    assert {width: seen for width, seen in widths.items() if seen > width} == {}
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


def test_two_prints_in_a_row_put_the_page_back_as_it_was(browser, address):
    """A browser may say that it prints twice before it says that it has printed."""
    found = open_page(browser, address, "chapters/step5-gpt.html", "dark")
    look = (
        "[document.documentElement.dataset.theme,"
        "document.querySelectorAll('article details:not([open])').length,"
        "document.querySelectorAll('article .toggle-hidden').length]"
    )
    before = found.query(look)
    assert before[0] == "dark"
    assert min(before[1:]) > 0
    for events in (["before", "before", "after"], ["before", "after", "after"]):
        for event in events:
            found.query(f"dispatchEvent(new Event('{event}print'))")
            if event == "before":
                assert found.query(look) == ["light", 0, 0]
        assert found.query(look) == before
    found.page.context.close()


# Degrees by which an element is turned.
TURNED = """e => {
  const {a, b} = new DOMMatrix(getComputedStyle(e).transform);
  return Math.round(Math.atan2(b, a) * 180 / Math.PI);
}"""


def test_the_arrows_of_all_folds_point_the_same_way(browser, address):
    """Both are drawn pointing to the right; the styles turn them."""
    found = open_page(browser, address, "chapters/ch02-transformer.html", "light")
    hint = found.page.locator("details.sd-dropdown", has_text="Hint").first
    solution = found.page.locator("div.admonition.solution").first
    arrows = [
        hint.locator(".sd-summary-chevron-right"),
        solution.locator("svg.toggle-chevron-right"),
    ]

    def all_turn_to(degrees: int) -> None:
        for arrow in arrows:
            found.page.wait_for_function(
                f"([e, degrees]) => ({TURNED})(e) == degrees",
                arg=[arrow.element_handle(), degrees],
                timeout=5_000,
            )

    all_turn_to(0)
    hint.locator("summary").click()
    solution.locator("button.toggle-button").click()
    all_turn_to(90)
    found.page.context.close()


def test_the_formula_of_the_rate_fits_on_a_phone(browser, address):
    found = open_page(
        browser, address, "chapters/step6-training.html", "phone", ready=rest
    )
    formula = found.page.locator("div.math", has_text="cos").locator("mjx-container")
    assert formula.count() == 1
    shown, needed = formula.evaluate("e => [e.clientWidth, e.scrollWidth]")
    assert 300 < needed <= shown
    found.page.context.close()


def test_folded_code_opens(browser, address):
    found = open_page(browser, address, "book/status.html", "light")
    code = found.page.locator("details.hide div.cell_input").first
    assert not code.is_visible()
    found.page.locator("details.hide > summary").first.click()
    assert code.is_visible()
    found.page.context.close()


def test_search_finds_the_kv_cache(browser, address):
    found = open_page(browser, address, "search.html?q=KV+cache", "light")
    found.page.wait_for_selector("#search-results ul.search li a")
    found.page.wait_for_function(
        "[...document.querySelectorAll('#search-results ul.search li a')]"
        ".some(a => a.href.includes('chapters/ch02-transformer.html'))"
    )
    assert (found.external, found.refused, found.errors) == ([], [], [])
    found.page.context.close()


@pytest.mark.parametrize("word", ["constructor", "__proto__", "toString"])
def test_search_takes_words_that_every_object_has(browser, address, word):
    """They were found in the objects that hold the index, and ended the search."""
    found = open_page(browser, address, f"search.html?q={word}", "light")
    summary = found.page.locator("#search-results .search-summary")
    summary.filter(has_text="earch").wait_for()
    links = found.page.locator("#search-results ul.search li > a")
    shown = {urlsplit(a.evaluate("a => a.href")).path[1:] for a in links.all()}
    assert shown <= {f"{page}.html" for page in PAGES}
    stored = found.query(
        "(word => [Search._index.terms[word] ?? []].flat()"
        ".map(i => `${Search._index.docnames[i]}.html`))"
        f"({json.dumps(word.lower())})"
    )
    assert bool(stored) == (word == "constructor")
    assert set(stored) <= shown
    assert (found.external, found.refused, found.errors) == ([], [], [])
    found.page.context.close()


def test_the_first_address_leads_to_the_three_doors(browser, address):
    found = open_page(browser, address, "", "light")
    found.page.wait_for_url("**/book/index.html")
    titles = found.page.locator(".sd-card-title").all_inner_texts()
    assert titles == ["Read", "Run", "Teach"]
    found.page.context.close()


def test_a_chapter_offers_its_notebook_on_colab_and_no_other_page_does(visit):
    button = visit.page.locator("a.btn-launch-colab-button")
    assert button.count() == (visit.name in CHAPTERS_HTML)
    if button.count():
        site = read_site()
        slug = site.repository.removeprefix("https://github.com/")
        prefix = f"/github/{slug}/blob/{site.branch}/"
        parts = urlsplit(button.get_attribute("href"))
        assert parts.netloc == "colab.research.google.com"
        assert parts.path.startswith(prefix)
        path = ROOT / parts.path.removeprefix(prefix)
        assert path == ROOT / "notebooks" / f"{Path(visit.name).stem}.ipynb"
        assert path.is_file()


def test_a_chapter_s_download_is_the_same_notebook(visit):
    button = visit.page.locator("a.btn-download-notebook-button")
    assert button.count() == (visit.name in CHAPTERS_HTML)
    if button.count():
        response = visit.page.request.get(button.evaluate("a => a.href"))
        assert response.ok
        stored = ROOT / "notebooks" / f"{Path(visit.name).stem}.ipynb"
        assert response.body() == stored.read_bytes()
        assert json.loads(response.body())["nbformat"] == 4


def test_every_code_cell_can_be_copied_and_no_output_can(visit):
    cells = visit.page.locator("div.cell_input div.highlight").count()
    assert cells > 0 or visit.name not in CHAPTERS_HTML
    assert visit.page.locator("div.cell_input button.copybtn").count() == cells
    assert visit.page.locator("div.cell_output button.copybtn").count() == 0


# ---- what a page asks of its readers' devices --------------------------------------

# What a first visit may load, in bytes; figures come on top. First as the files lie on
# the disk, then as a server sends them: every host of pages compresses text.
FIRST_VISIT, SENT = 1_600_000, 700_000
# Its own text is half a megabyte of highlighted code.
LONG_PAGES = {"chapters/ch02-transformer.html": 1_800_000}
IMAGES = {".png", ".svg", ".jpg", ".gif", ".ico"}
TEXT = {".html", ".css", ".js", ".json"}


@functools.cache
def sent(path: Path) -> int:
    """The bytes that a server sends for a file."""
    content = path.read_bytes()
    return len(gzip.compress(content) if path.suffix in TEXT else content)


def test_a_first_visit_is_light(visit):
    files = [path for path in visit.files if path.suffix not in IMAGES]
    sizes = {path.name: path.stat().st_size for path in files}
    heaviest = sorted(sizes.items(), key=lambda item: -item[1])[:8]
    limit = LONG_PAGES.get(visit.name, FIRST_VISIT)
    assert sum(sizes.values()) < limit, heaviest
    assert sum(map(sent, files)) < SENT, heaviest


# What axe would look at for minutes, and see the same each time: formulas, which bring
# their own MathML, and all code but the first cells. What follows finds the page so.
THIN_OUT = """() => {
  document.querySelectorAll('mjx-container').forEach(e => e.replaceWith('x'));
  [...document.querySelectorAll('div.highlight > pre')].slice(3).forEach(e => {
    e.textContent = e.textContent.slice(0, 40);
  });
}"""
# Colours are looked at in both schemes, all else once, what depends on room on a phone.
RULES = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    "dark": {"type": "rule", "values": ["color-contrast"]},
    "phone": {
        "type": "rule",
        "values": ["scrollable-region-focusable", "target-size", "meta-viewport"],
    },
}


def test_the_page_has_no_grave_fault_of_access(visit):
    """Nothing that axe calls serious or critical."""
    visit.page.evaluate(THIN_OUT)
    visit.page.evaluate(AXE_SCRIPT)
    options = {
        "resultTypes": ["violations"],
        "runOnly": RULES[visit.view],
        "preload": False,
    }
    result = visit.page.evaluate("options => axe.run(options)", options)
    grave = [
        (found["id"], node["html"][:160], node["failureSummary"][:300])
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"]
    ]
    assert grave == []


def test_the_copy_button_copies_the_cell(visit):
    """Asked last: it scrolls the page, which may bring figures to life."""
    if visit.name not in CHAPTERS_HTML:
        return
    cell = visit.page.locator("div.cell_input:visible").first
    code = cell.locator("pre").inner_text()
    cell.hover()
    cell.locator("button.copybtn").click()
    visit.page.wait_for_selector("button.copybtn.success")
    copied = visit.query("navigator.clipboard.readText()")
    assert copied.strip() == code.strip()
