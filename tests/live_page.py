"""What the tests of the live figures share: a small site of modules, and its pages.

The site is a folder with the modules of ``book/_static/live``, the data that the
writers of ``tools/`` make for them, and pages of a few lines. A test file imports the
fixtures:

    from browsing import browser  # noqa: F401
    from live_page import page, site  # noqa: F401

``page`` stands on a blank page of the site, where ``import("/live/NAME.js")`` works.
"""

import html
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright import sync_api
from tinygpt_live import writers

from tools.pages import ROOT
from tools.screenshots import serve

BLANK = (
    '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
    '<title>Blank</title><link rel="icon" href="data:,">'
)


@dataclass(frozen=True)
class Site:
    """A served folder: ``address`` ends in a slash."""

    folder: Path
    address: str

    def put(self, name: str, text: str) -> str:
        """Write a page; gives its address."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.address + name

    def figure(self, live: str, below: int = 0, **options: str) -> str:
        """Write a page with one live figure, ``below`` pixels down, like ``put``."""
        data = "".join(f' data-{k}="{html.escape(v)}"' for k, v in options.items())
        sheet = f"live/{live}.css"
        own = (self.folder / sheet).is_file()
        style = f'<link rel="stylesheet" href="{sheet}">\n' if own else ""
        name = "-".join(["figure", live, str(below), *options.values()]) + ".html"
        text = f"""{BLANK}
<meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="book.css"><link rel="stylesheet" href="live/live.css">
{style}<script defer src="live/live.js"></script>
<body style="margin-top: {below}px">
<section class="live" data-live="{live}" aria-label="A figure"{data}>
<div class="live-static"><p>The static figure.</p></div></section>
"""
        return self.put(name, text)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The modules, all data, and a blank page, served."""
    folder = tmp_path_factory.mktemp("live")
    static = ROOT / "book" / "_static"
    shutil.copytree(static / "live", folder / "live")
    shutil.copy(static / "book.css", folder)
    shutil.copytree(static / "fonts", folder / "fonts")  # book.css asks for them
    data = folder / "live" / "data"
    data.mkdir(exist_ok=True)
    for writer in writers():
        writer.write(ROOT, data)
    with serve(folder) as address:
        yield Site(folder, address)


@pytest.fixture(scope="module")
def page(browser: sync_api.Browser, site: Site) -> Iterator[sync_api.Page]:
    """A blank page of the site, for trying modules; it reports what goes wrong."""
    opened = browser.new_page()
    opened.goto(site.put("blank.html", BLANK))
    yield opened
    opened.close()
