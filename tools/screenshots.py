"""Take screenshots of the built book: light, dark and at a phone's width.

    python -m tools.screenshots _build/screenshots
    python -m tools.screenshots _build/screenshots chapters/setup --viewport-only

Needs any Chromium or Chrome; the variable CHROME may name one.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tools.pages import ROOT

# Sandboxes of containers refuse Chromium's own; the rest keeps it from calling home.
LAUNCH_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
# What a reader may have: name, width, height, colour scheme.
VIEWS = (
    ("light", 1280, 900, "light"),
    ("dark", 1280, 900, "dark"),
    ("phone", 390, 844, "light"),
    ("phone-dark", 390, 844, "dark"),
)
# The height of one picture of a long page, in pixels.
SLICE = 2400
PAGES = ("book/index", "chapters/ch02-transformer")


def find_browser() -> str | None:
    """The path of a Chromium or Chrome on this machine, or None."""
    named = os.environ.get("CHROME")
    candidates = [
        *([named] if named else []),
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
    ]
    return next((path for name in candidates if (path := shutil.which(name))), None)


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        """Say nothing: requests are not news."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on a free local port; gives the address, ending in a slash."""
    handler = functools.partial(_QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def settle(page) -> None:
    """Wait until the page is loaded and its maths is typeset."""
    page.wait_for_load_state("networkidle")
    page.evaluate("window.MathJax?.startup?.promise")


def photograph(page, target: Path, whole: bool) -> list[Path]:
    """Write a page's pictures, one for each stretch of it that a browser can draw."""
    total = page.evaluate("document.documentElement.scrollHeight") if whole else 0
    if total > page.viewport_size["height"]:
        page.set_viewport_size(page.viewport_size | {"height": min(total, SLICE)})
    height = page.viewport_size["height"]
    written = []
    for number, top in enumerate(range(0, max(total, 1), height), 1):
        page.evaluate(f"window.scrollTo({{top: {top}, behavior: 'instant'}})")
        written.append(target.with_name(f"{target.name}-{number:02}.png"))
        page.screenshot(path=written[-1])
    return written


def take(folder: Path, out: Path, pages: list[str], whole: bool) -> list[Path]:
    """Photograph each page in each view; gives the files written."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    written = []
    with serve(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=LAUNCH_ARGS
        )
        for name, width, height, scheme in VIEWS:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            for source in pages:
                page = context.new_page()
                page.goto(f"{address}{source}.html")
                settle(page)
                written += photograph(
                    page, out / f"{source.replace('/', '-')}-{name}", whole
                )
                page.close()
            context.close()
        browser.close()
    return written


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path, help="folder for the PNG files")
    parser.add_argument("pages", nargs="*", default=PAGES, help="such as book/index")
    parser.add_argument("--root", type=Path, default=ROOT, help="repository root")
    parser.add_argument(
        "--viewport-only", action="store_true", help="the first screen, not all of it"
    )
    args = parser.parse_args(argv)
    folder = args.root / "_build" / "html"
    if find_browser() is None:
        print("tools.screenshots: no Chromium or Chrome found; set CHROME to its path")
        return 1
    missing = [p for p in args.pages if not (folder / f"{p}.html").is_file()]
    if missing:
        print(f"tools.screenshots: not built: {', '.join(missing)}; run 'make book'")
        return 1
    for path in take(folder, args.out, list(args.pages), not args.viewport_only):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
