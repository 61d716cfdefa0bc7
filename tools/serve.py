"""Serve the built book on this machine, and open it where there is a browser.

The pages open as files too; served, the search can also show a line of each page found.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import errno
import os
import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

ROOT = Path(__file__).resolve().parents[1]


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and says nothing about each of them."""

    def log_message(self, format: str, *args: object) -> None:
        """Keep the terminal for the address alone."""


def listen(folder: Path, port: int) -> ThreadingHTTPServer:
    """Listen on this machine only; a taken port gives way to any free one."""
    handler = partial(QuietHandler, directory=str(folder))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as problem:
        if problem.errno != errno.EADDRINUSE:
            raise
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def has_screen(platform: str, environ: dict[str, str]) -> bool:
    """Can a browser window open here?"""
    if platform in ("darwin", "win32"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("--port", type=int, default=8000, help="8000 unless taken")
    options = parser.parse_args(argv)
    folder = options.root / "_build" / "html"
    if not (folder / "index.html").is_file():
        print(f"{folder}/index.html is not there: run 'make book'.", file=sys.stderr)
        return 1
    with listen(folder, options.port) as server:
        address = f"http://127.0.0.1:{server.server_port}/index.html"
        print(f"The book is at {address} (Ctrl-C ends the server).", flush=True)
        if has_screen(sys.platform, dict(os.environ)):
            # The socket already listens, so the browser's first request waits for us.
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
