"""The book on paper: pages bound into one, printed, with an outline."""

import io
import re
from pathlib import Path

import pytest
from browsing import need_a_browser
from bs4 import BeautifulSoup
from pypdf import PdfReader, PdfWriter

from tools import book, pdf
from tools.bind import anchor_of, bind
from tools.pages import ROOT, PageError, pages_in_order, read_site

# A page of each kind: what the whole book has in it, at a tenth of its length.
PARTS = [
    ("", ["book/index"]),
    ("Two of the pages", ["book/how-to-read", "chapters/step5-gpt"]),
    ("Back matter", ["book/glossary"]),
]
NAMES = [page for _, pages in PARTS for page in pages]


@pytest.fixture(scope="module")
def folder() -> Path:
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    return ROOT / "_build" / "html"


@pytest.fixture(scope="module")
def bound(folder: Path):
    return bind(PARTS, read_site(), folder, pdf.title_page(ROOT))


@pytest.fixture(scope="module")
def page(bound) -> BeautifulSoup:
    return BeautifulSoup(bound.html, "html.parser")


@pytest.fixture(scope="module")
def printed(bound, folder: Path) -> PdfReader:
    need_a_browser()
    content = pdf.finish(pdf.print_book(bound, folder), bound, ROOT)
    return PdfReader(io.BytesIO(content))


@pytest.fixture(scope="module")
def sheets(printed: PdfReader) -> list[str]:
    """What each sheet of paper says."""
    return [" ".join(sheet.extract_text().split()) for sheet in printed.pages]


def test_the_parts_name_every_page_of_the_book_once():
    names = pages_in_order()
    chapters = sorted((ROOT / "chapters").glob("*.md"))
    assert len(names) == len(set(names))
    assert {f"chapters/{path.stem}" for path in chapters} <= set(names)


def test_no_id_stands_twice_and_every_inner_link_has_its_place(page):
    ids = [tag["id"] for tag in page.find_all(id=True)]
    assert len(ids) == len(set(ids))
    inner = [a["href"] for a in page.select("a[href^='#']")]
    assert inner
    bound_pages = {anchor_of(name) for name in NAMES}
    lost = [
        h for h in inner if h[1:] not in ids and h[1:].split("--")[0] in bound_pages
    ]
    assert lost == []


def test_links_lead_inside_the_book_or_to_the_published_site(page):
    found = {a["href"] for a in page.find_all("a", href=True)}
    assert f"#{anchor_of('book/glossary', 'term-softmax')}" in found
    assert all(re.match(r"#|https?:|mailto:", href) for href in found)


def test_nothing_that_only_a_screen_can_use_is_printed(page):
    assert page.select("main button, main script, a.headerlink") == []
    assert page.select("details:not([open])") == []
    assert page.select("details.hide > summary") == []


def test_figures_are_found_where_the_site_has_them(page, folder):
    sources = [image["src"] for image in page.select("main img")]
    assert sources
    missing = [s for s in sources if not s.startswith("data:")]
    missing = [s for s in missing if not (folder / s.partition("?")[0]).is_file()]
    assert missing == []


def test_a_page_that_is_not_built_is_named(folder):
    with pytest.raises(PageError, match=r"no-such-page.html is not there: run 'make"):
        bind([("", ["book/no-such-page"])], read_site(), folder, "")


def flat(items: list, depth: int = 0) -> list[tuple[int, object]]:
    """The lines of a PDF's outline, each with its depth."""
    found = []
    for item in items:
        found += flat(item, depth + 1) if isinstance(item, list) else [(depth, item)]
    return found


def lines_of(headings, depth: int = 0) -> list[tuple[int, str]]:
    found = []
    for heading in headings:
        found += [(depth, heading.text), *lines_of(heading.below, depth + 1)]
    return found


def test_the_outline_has_parts_chapters_and_sections(printed, bound):
    found = [(depth, str(item.title)) for depth, item in flat(printed.outline)]
    assert found == lines_of(bound.parts)
    assert {depth for depth, _ in found} == {0, 1, 2}


def test_the_outline_leads_to_the_page_with_that_heading(printed, sheets):
    lost = []
    for _, item in flat(printed.outline):
        sheet = sheets[printed.get_destination_page_number(item)]
        if letters(item.title) not in letters(sheet):
            lost.append(item.title)
    assert lost == []


def letters(text: str) -> str:
    """A text without blanks and without the signs that fonts join or replace."""
    return re.sub(r"[\W_]+", "", text).lower()


def test_the_contents_give_the_page_of_each_chapter(printed, bound, sheets):
    numbers = pdf.page_numbers(printed)
    first = min(numbers[heading.anchor] for heading in bound.parts)
    contents = letters(" ".join(sheets[1 : first - 1]))
    for part in bound.parts:
        for heading in [part, *part.below]:
            number = numbers[heading.anchor]
            assert letters(f"{heading.text} {number}") in contents
            assert letters(heading.text) in letters(sheets[number - 1])


def test_what_the_pages_say_can_be_searched_in_the_pdf(sheets):
    whole = " ".join(sheets)
    assert "816,640" in whole
    assert "file:" not in whole


def test_no_sheet_is_blank_and_every_sheet_has_its_number(sheets):
    for number, text in enumerate(sheets, 1):
        assert len(text) > 8, f"page {number} is blank"
        if number > 1:
            assert re.search(rf"\b{number}\b", text)


def test_links_of_the_pdf_go_to_places_in_it_or_to_the_web(printed):
    addresses, places = [], 0
    for sheet in printed.pages:
        for note in sheet.get("/Annots") or ():
            action = note.get_object().get("/A", {})
            if "/URI" in action:
                addresses.append(str(action["/URI"]))
            else:
                places += 1
    assert places > 100
    assert addresses
    assert [a for a in addresses if not a.startswith(("https:", "http:"))] == []


def test_the_pdf_says_what_it_is_and_carries_its_fonts(printed):
    assert printed.metadata.title == "TinyGPT"
    assert printed.metadata.author == "The TinyGPT authors"
    assert not set(pdf.CHANGING) & set(printed.metadata)
    fonts = set()
    for sheet in list(printed.pages)[:40]:
        for font in sheet["/Resources"].get("/Font", {}).values():
            font = font.get_object()
            inner = font["/DescendantFonts"][0] if "/DescendantFonts" in font else font
            inner = inner.get_object()
            if font["/Subtype"] != "/Type3":
                described = inner["/FontDescriptor"].get_object()
                assert {"/FontFile2", "/FontFile3", "/FontFile"} & set(described)
            fonts.add(font["/Subtype"])
    assert fonts


def test_the_index_links_the_pdf_when_there_is_one(tmp_path, printed):
    buffer = io.BytesIO()
    writer = PdfWriter()
    writer.append(printed, pages=(0, 3))
    writer.write(buffer)
    (tmp_path / "book").mkdir()
    index = tmp_path / "book" / "index.html"
    index.write_text('<p><span class="pdf-place">none</span></p>', encoding="utf-8")
    for _ in range(2):
        pdf.announce(tmp_path, buffer.getvalue())
        text = index.read_text(encoding="utf-8")
        assert '<a href="../tinygpt.pdf">The whole book as a PDF</a> (3 pages' in text
        assert (tmp_path / pdf.PRINTED).read_bytes() == buffer.getvalue()
    index.write_text("<p></p>", encoding="utf-8")
    with pytest.raises(PageError, match="0 places for the PDF"):
        pdf.announce(tmp_path, buffer.getvalue())


def test_the_index_keeps_one_place_for_the_pdf(folder):
    text = (folder / "book" / "index.html").read_text(encoding="utf-8")
    assert text.count('class="pdf-place"') == 1
