"""What the tests in a browser share: the browser, the served book, and an open page."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from playwright import sync_api

from tools import book
from tools.pages import ROOT, pages_in_order
from tools.screenshots import LAUNCH_ARGS, find_browser, serve, settle

BROWSER = find_browser()
NO_BROWSER = "no Chromium or Chrome found (install chromium, or set CHROME to its path)"
HTML = ROOT / "_build/html"

VIEWS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
WIDE = {"viewport": {"width": 2560, "height": 1300}, "color_scheme": "light"}


def need_a_browser() -> None:
    """Skip a file or a test where there is no browser; fail where there must be one."""
    if BROWSER is None:
        if os.environ.get("TINYGPT_REQUIRE_BROWSER"):
            message = f"browser tests are required here: {NO_BROWSER}"
            pytest.fail(message, pytrace=False)
        pytest.skip(f"browser tests skipped: {NO_BROWSER}", allow_module_level=True)


PAGES = pages_in_order()
CHAPTERS = [page for page in PAGES if page.startswith("chapters/")]


@dataclass
class Visit:
    """An open page, what it asked for, and all that went wrong while it loaded."""

    name: str
    view: str
    page: Any
    requested: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def query(self, script: str):
        return self.page.evaluate(script)

    @property
    def files(self) -> set[Path]:
        """The files of the site that the page loaded."""
        paths = (unquote(urlsplit(url).path) for url in self.requested)
        return {HTML / path.lstrip("/") for path in paths}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address at which the finished book is served."""
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    with serve(HTML) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for a test file."""
    need_a_browser()
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=LAUNCH_ARGS)
        yield running
        running.close()


def new_context(browser, view: str):
    """A fresh profile that looks at pages in one way."""
    permissions = ["clipboard-read", "clipboard-write"]
    look = WIDE if view == "wide" else VIEWS[view]
    return browser.new_context(**look, permissions=permissions)


def open_page(
    browser,
    address: str,
    target: str,
    view: str,
    context=None,
    ready: Callable = settle,
) -> Visit:
    """Open a page; refuse and note every request to elsewhere."""
    context = context or new_context(browser, view)
    visit = Visit(target, view, context.new_page())

    def route(found) -> None:
        url = found.request.url
        if url.startswith((address, "data:", "blob:")):
            visit.requested += [url] if url.startswith(address) else []
            found.continue_()
        else:
            visit.external.append(url)
            found.abort()

    visit.page.route("**/*", route)
    visit.page.on(
        "response",
        lambda r: visit.refused.append(f"{r.status} {r.url}") if r.status > 399 else 0,
    )
    visit.page.on(
        "console",
        lambda m: (
            visit.errors.append(m.text) if m.type in ("error", "warning") else None
        ),
    )
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.page.goto(urljoin(address, target))
    ready(visit.page)
    return visit


def rest(page) -> None:
    """Wait until a page has loaded, its maths is typeset and its fonts are there."""
    page.wait_for_load_state("load")
    page.evaluate(
        "async () => { await window.MathJax?.startup?.promise;"
        " await document.fonts.ready }"
    )
