"""Print the whole book as one PDF: ``make pdf``.

The pages of the built site are bound into one (``tools/bind.py``), printed by Chromium,
and given what a browser does not write: the numbers of the pages in the table of
contents, an outline by parts and chapters, title and author. No page runs again.

Usage: ``python -m tools.pdf``, after ``make book``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import io
import re
import tomllib
from typing import Any

import yaml
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Fit, IndirectObject

from tools.bind import BoundBook, Heading, bind
from tools.pages import ROOT, PageError, contents, read_site
from tools.screenshots import LAUNCH_ARGS, find_browser, serve, settle

PRINTED = "tinygpt.pdf"
ADDRESS = "book-as-one-page.html"
MINUTE = 60_000  # in the browser's milliseconds
# Chromium writes the time of printing; a book of the same pages is the same book.
CHANGING = ("/CreationDate", "/ModDate")

FORMULAS = """() => ["", " mjx-container"].map(
  below => document.querySelectorAll("article .math" + below).length)"""
FILL_IN = """pages => {
  for (const place of document.querySelectorAll("[data-page-of]")) {
    place.textContent = pages[place.dataset.pageOf] ?? "";
  }
}"""


def read_settings(root: Path) -> dict[str, Any]:
    """The book's title, author and the rest of ``_config.yml``."""
    return yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))


def title_page(root: Path) -> str:
    """What stands on the first page: title, what it is, version, where it lives."""
    settings = read_settings(root)
    with (root / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    site = read_site(root)
    return (
        f'<p class="title">{settings["title"]}</p>'
        '<p class="subtitle">A GPT from first principles, line by line, '
        "with every number proven</p>"
        f'<p class="by">{settings["author"]}</p>'
        f'<p class="edition">Version {project["version"]}. The book in your browser: '
        f'<a href="{site.url}">{site.url}</a></p>'
    )


def print_book(book: BoundBook, folder: Path) -> bytes:
    """Print the one page with Chromium, twice: the second time with page numbers."""
    from playwright.sync_api import sync_playwright

    with serve(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=LAUNCH_ARGS
        )
        page = browser.new_page()
        page.set_default_timeout(5 * MINUTE)
        page.route(
            f"**/{ADDRESS}",
            lambda route: route.fulfill(body=book.html, content_type="text/html"),
        )
        page.goto(address + ADDRESS)
        settle(page)
        page.evaluate("document.fonts.ready")
        written, typeset = page.evaluate(FORMULAS)
        if written != typeset:
            raise PageError(f"{written} formulas are written, {typeset} were typeset")
        first = _pdf(page)
        page.evaluate(FILL_IN, page_numbers(PdfReader(io.BytesIO(first))))
        printed = _pdf(page)
        browser.close()
    return printed


def _pdf(page) -> bytes:
    # Tags would double the file; whoever reads with a screen reader has the site.
    return page.pdf(
        prefer_css_page_size=True, print_background=True, tagged=False, outline=False
    )


def page_numbers(reader: PdfReader) -> dict[str, int]:
    """The page of every place that something in the book links to."""
    return {
        name.removeprefix("/"): reader.get_destination_page_number(place) + 1
        for name, place in reader.named_destinations.items()
    }


def finish(printed: bytes, book: BoundBook, root: Path) -> bytes:
    """Add the outline, title and author; leave out what differs each time."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(printed)))
    places = writer.named_destinations
    missing: list[str] = []

    def add(heading: Heading, parent: IndirectObject | None) -> None:
        place = places.get(heading.anchor) or places.get(f"/{heading.anchor}")
        if place is None:
            missing.append(heading.text)
            return
        number = writer.get_destination_page_number(place)
        fit = Fit.xyz(left=0, top=place.top)
        item = writer.add_outline_item(
            title=heading.text, page_number=number, parent=parent, fit=fit
        )
        for below in heading.below:
            add(below, item)

    for part in book.parts:
        add(part, None)
    if missing:
        raise PageError(f"not in the printed book: {'; '.join(missing[:5])}")
    settings = read_settings(root)
    said = dict(writer.metadata or {}) | {
        "/Title": settings["title"],
        "/Author": settings["author"],
    }
    writer.metadata = {k: v for k, v in said.items() if k not in CHANGING}
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def announce(folder: Path, content: bytes) -> None:
    """Put the PDF into the site, and a link to it in the place that the index keeps."""
    (folder / PRINTED).write_bytes(content)
    index = folder / "book" / "index.html"
    page = index.read_text(encoding="utf-8")
    count = len(PdfReader(io.BytesIO(content)).pages)
    link = (
        f'<a href="../{PRINTED}">The whole book as a PDF</a> '
        f"({count} pages, {len(content) / 1e6:.0f} MB)"
    )
    place = r'(<span class="pdf-place">).*?(</span>)'
    page, found = re.subn(place, rf"\g<1>{link}\g<2>", page, flags=re.DOTALL)
    if found != 1:
        raise PageError(f"{index} keeps {found} places for the PDF; expected 1")
    index.write_text(page, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Print the built book, write the PDF, and link it from the site's index."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pdf", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    root = parser.parse_args(argv).root.resolve()
    folder, out = root / "_build" / "html", root / "_build" / PRINTED
    if find_browser() is None:
        print("tools.pdf: no Chromium or Chrome found; set CHROME to its path")
        return 1
    try:
        book = bind(contents(root), read_site(root), folder, title_page(root))
        content = finish(print_book(book, folder), book, root)
        announce(folder, content)
    except PageError as error:
        print(f"tools.pdf: {error}")
        return 1
    out.write_bytes(content)
    print(f"The book is printed: {out}, {len(content) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
