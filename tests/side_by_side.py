"""How the tests share the cores: what stays together, what comes first, what is alone.

With ``pytest -n auto``, as ``make test`` calls it, workers take one group of tests
after the other. A group is what shares something that takes long to make: the run of
a notebook, a browser's profile, the fixtures of a file. The longest groups start
first, so that no worker is left with one when the others have nothing more to do.

A test that is marked ``alone`` has no neighbour while it runs, because it looks at the
clock or has threads of its own. No test waits for another in any other way.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tools.pages import ROOT, SEVERAL_THREADS

try:
    import fcntl
except ImportError:  # not on Windows, where marked tests have neighbours
    fcntl = None

# A worker may hold a model, a browser and a kernel: more of them need more memory.
MOST_WORKERS = 4
# The files that take longest of those that are one group, the longest first.
LONG_FILES = (
    *("test_leaks.py", "test_gates.py", "test_live_models.py", "test_pdf.py"),
    *("test_book.py", "test_grade.py", "test_two_gpts.py", "test_training.py"),
)
NOTEBOOK_FILES = ("test_standalone.py", "test_mutation.py")


def workers() -> int:
    """As many workers as cores, within reason."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST_WORKERS)
    return min(os.cpu_count() or 1, MOST_WORKERS)


def _notebook(nodeid: str) -> str | None:
    """The stem of the stored notebook that a test runs or compares."""
    file, _, test = nodeid.partition("::")
    if Path(file).name not in NOTEBOOK_FILES:
        return None
    stem = test.partition("[")[2].removesuffix("]")
    return stem if (ROOT / "notebooks" / f"{stem}.ipynb").is_file() else None


def group(nodeid: str) -> str:
    """The name of a test's group.

    Example: ``tests/test_browser.py::test_x[book/index phone]`` belongs to
    ``tests/test_browser.py phone``, since a view has one profile for all pages.
    """
    if stem := _notebook(nodeid):
        return f"notebook {stem}"
    file, _, test = nodeid.partition("::")
    view = test.partition("[")[2].removesuffix("]").partition(" ")[2]
    return f"{file} {view}" if view and file.endswith("test_browser.py") else file


def _several_threads(stem: str) -> bool:
    """Does a page train with more than one thread?"""
    text = (ROOT / "chapters" / f"{stem}.md").read_text(encoding="utf-8")
    return bool(SEVERAL_THREADS.search(text))


def rank(nodeid: str) -> tuple[int, float]:
    """Where a test's group stands in the queue: smaller numbers start earlier."""
    if stem := _notebook(nodeid):
        size = (ROOT / "chapters" / f"{stem}.md").stat().st_size
        return (0 if _several_threads(stem) else 1, -size)
    name = Path(nodeid.partition("::")[0]).name
    if name == "test_browser.py":
        return (2, 0)
    return (3, LONG_FILES.index(name)) if name in LONG_FILES else (4, 0)


class Groups(LoadScopeScheduling):
    """Give out the groups in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def arrange(items: list[pytest.Item], in_worker: bool) -> None:
    """Mark the notebooks with threads of their own, and put long groups first."""
    for item in items:
        stem = _notebook(item.nodeid)
        if stem and _several_threads(stem):
            item.add_marker(pytest.mark.alone)
    if in_worker:
        ranks = {item: rank(item.nodeid) for item in items}
        items.sort(key=ranks.__getitem__)


@contextmanager
def neighbours(allowed: bool, folder: Path = ROOT / "_build") -> Iterator[None]:
    """Run a test beside those of other workers, or while none of them runs one.

    Whoever wants in passes the gate, so that a test that waits to be alone, and holds
    the gate meanwhile, is not kept waiting by tests that start after it.
    """
    if fcntl is None:
        yield
        return
    folder.mkdir(exist_ok=True)
    with (
        (folder / ".tests-gate.lock").open("w", encoding="utf-8") as gate,
        (folder / ".tests-room.lock").open("w", encoding="utf-8") as room,
    ):
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_SH if allowed else fcntl.LOCK_EX)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
