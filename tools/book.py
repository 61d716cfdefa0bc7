"""Build the book: run every cell, write _build/html, fail on any warning.

    python -m tools.book                 # build
    python -m tools.book --if-changed    # build unless the book is up to date

Executed outputs are kept in a cache below ``_build``. Jupyter Book recognises a page by
the text of its cells alone, so the cache's folder carries a key made of everything else
that a cell can see: the package, the corpora, the locked versions, the figure style.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

try:
    import fcntl
except ImportError:  # not on Windows, where two builds are on their own
    fcntl = None

from tools.pages import ROOT

STYLE = "book/tinygpt.mplstyle"
# What a cell can see beyond its own text.
SEEN_BY_CELLS = ("tinygpt", "data", "requirements.lock", STYLE)
# What the finished pages depend on besides.
SOURCES = (
    *("_config.yml", "_toc.yml", "CHANGELOG.md", "pyproject.toml"),
    *("book", "chapters", "notebooks"),
    *("tools/book.py", "tools/exercises.py", "tools/pages.py"),
    *("tools/live_models.py", "tools/live_run.py", "tools/live_tokens.py"),
    "tools/reference.py",
)


def digest(root: Path, names: Iterable[str]) -> str:
    """One hash over the names and bytes of all files below ``names``."""
    total = hashlib.sha256(platform.python_version().encode())
    for name in names:
        start = root / name
        files = [start] if start.is_file() else sorted(start.rglob("*"))
        for path in files:
            hidden = any(
                part.startswith(".") or part == "__pycache__"
                for part in path.relative_to(root).parts
            )
            if hidden or not path.is_file():
                continue
            total.update(path.relative_to(root).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def cache_folder(root: Path) -> Path:
    """Where executed outputs are kept while nothing that a cell can see changes."""
    return root / "_build" / ".jupyter_cache" / digest(root, SEEN_BY_CELLS)[:16]


def forget_old_caches(root: Path) -> None:
    """Remove the caches of earlier packages, corpora and versions."""
    current = cache_folder(root)
    for folder in current.parent.glob("*"):
        if folder != current:
            shutil.rmtree(folder)


def stamp(root: Path) -> Path:
    """The file that says which sources the finished book was built from."""
    return root / "_build" / "book.sha256"


def is_current(root: Path) -> bool:
    """Does ``_build/html`` hold the book of the present sources?"""
    return (
        (root / "_build/html/index.html").is_file()
        and stamp(root).is_file()
        and stamp(root).read_text(encoding="utf-8")
        == digest(root, SEEN_BY_CELLS + SOURCES)
    )


def environment(root: Path) -> dict[str, str]:
    """The environment of the build and of the kernels that it starts."""
    build = root / "_build"
    return os.environ | {
        "PYTHONPATH": str(root),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "MATPLOTLIBRC": str(root / STYLE),
        "MPLCONFIGDIR": str(build / ".matplotlib"),
        "IPYTHONDIR": str(build / ".ipython"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


@contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Let a second build of the same tree wait for the first one."""
    lock = root / "_build" / ".book.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w", encoding="utf-8") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(root: Path) -> int:
    """Build from the sources; a failing cell, a dead link, any warning is an error."""
    before = digest(root, SEEN_BY_CELLS + SOURCES)
    stamp(root).unlink(missing_ok=True)
    for name in ("html", ".doctrees", "jupyter_execute"):
        shutil.rmtree(root / "_build" / name, ignore_errors=True)
    forget_old_caches(root)
    fill = [sys.executable, "-m", "tools.execute", "--root", str(root)]
    subprocess.run(fill, cwd=root, env=environment(root), check=True)
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(root), "-W", "-n", "--keep-going", "--all"]
    status = subprocess.run(command, cwd=root, env=environment(root)).returncode
    first = root / "_build/html/index.html"
    if status:
        print("tools.book: the build failed; its warnings and errors stand above")
        return 1
    if not first.is_file():
        print(f"tools.book: no {first.relative_to(root)}: the build wrote no book")
        return 1
    stamp(root).write_text(before, encoding="utf-8")
    print(f"The book is built. Open {first.as_uri()}")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="repository root")
    parser.add_argument(
        "--if-changed", action="store_true", help="do nothing when up to date"
    )
    args = parser.parse_args(argv)
    root = args.root.resolve()
    with one_at_a_time(root):
        if args.if_changed and is_current(root):
            first = (root / "_build/html/index.html").as_uri()
            print(f"The book is up to date. Open {first}")
            return 0
        return build(root)


if __name__ == "__main__":
    sys.exit(main())
