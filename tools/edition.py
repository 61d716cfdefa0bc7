"""Build the student's edition of the book: ``make book EDITION=student``.

The student's edition has no solution, no hidden check and no note to the instructor.
So that none can slip through, it is not the full book with parts hidden. It is built
from a copy of the tree, below ``_build/student``, whose chapters and notebooks do not
contain them in the first place. What the full book printed is taken over where it is at
hand, since the cells that stay are the same and stand in the same order.

Usage: ``python -m tools.edition student``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import copy
import os
import shutil
from collections import defaultdict

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbformat import NotebookNode

from tools.book import SEEN_BY_CELLS, cache_folder
from tools.book import build as build_book
from tools.execute import as_read
from tools.exercises import edition_text
from tools.leaks import leaks, readable, secrets
from tools.notebooks import built_notebooks, findings, serialise
from tools.pages import ROOT, PageError

EDITIONS = ("student",)
COPIED = ("_config.yml", "_toc.yml", "pyproject.toml", "requirements.lock")
COPIED += ("README.md", "CHANGELOG.md")
FOLDERS = ("book", "tools", *(name for name in SEEN_BY_CELLS if "." not in name))


def stage(root: Path, edition: str) -> Path:
    """Copy the tree, with chapters as the edition has them; return the copy's place."""
    place = root / "_build" / edition
    for name in ("chapters", "notebooks", *FOLDERS):
        shutil.rmtree(place / name, ignore_errors=True)
    (place / "notebooks").mkdir(parents=True)
    (place / "chapters").mkdir()
    for name in COPIED:
        if (root / name).is_file():
            shutil.copy2(root / name, place / name)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in FOLDERS:
        shutil.copytree(root / name, place / name, ignore=ignore, copy_function=os.link)
    for path in sorted((root / "chapters").glob("*.md")):
        text = edition_text(path.read_text(encoding="utf-8"), edition)
        (place / "chapters" / path.name).write_text(text, encoding="utf-8")
    (place / "EDITION").write_text(f"{edition}\n", encoding="utf-8")
    return place


def with_outputs(node: NotebookNode, full: NotebookNode) -> NotebookNode:
    """A notebook with the outputs that its cells have in the full edition.

    Raises:
        PageError: a cell of the notebook is not one of the full edition's.
    """
    waiting = defaultdict(list)
    for cell in full.cells:
        if cell.cell_type == "code":
            waiting[cell.source].append(cell)
    node = copy.deepcopy(node)
    codes = [cell for cell in node.cells if cell.cell_type == "code"]
    for count, cell in enumerate(codes, 1):
        if not waiting[cell.source]:
            raise PageError(f"no outputs are stored for the cell {cell.source[:60]!r}")
        cell.outputs = copy.deepcopy(waiting[cell.source].pop(0).outputs)
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    return node


def write_notebooks(root: Path, place: Path) -> None:
    """Write the edition's notebooks with the outputs of the stored ones."""
    for built in built_notebooks(place):
        name = f"{built.page.stem}.ipynb"
        full = nbformat.read(root / "notebooks" / name, as_version=4)
        try:
            node = with_outputs(built.node, full)
        except PageError as error:
            raise PageError(
                f"notebooks/{name}: {error}; run 'make notebooks'"
            ) from None
        path = place / "notebooks" / name
        path.write_text(serialise(node), encoding="utf-8", newline="\n")
        if wrong := findings(built, path):
            raise PageError(wrong[0])


def take_over_outputs(root: Path, place: Path) -> None:
    """Put what the full book printed into the edition's cache, page by page."""
    printed = get_cache(str(cache_folder(root)))
    kept = get_cache(str(cache_folder(place)))
    for path in sorted((place / "chapters").glob("*.md")):
        try:
            record = printed.match_cache_notebook(
                as_read(root / "chapters" / path.name)
            )
            run = printed.get_cache_bundle(record.pk).nb
            node = with_outputs(as_read(path), run)
        except (KeyError, PageError):
            continue  # then the edition's build runs the page itself
        node.metadata.language_info = run.metadata.language_info
        bundle = CacheBundleIn(node, str(path), data=record.data)
        kept.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def main(argv: list[str] | None = None) -> int:
    """Stage and build one edition."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.edition", description=__doc__.splitlines()[0]
    )
    parser.add_argument("edition", choices=EDITIONS)
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    root = options.root.resolve()
    try:
        place = stage(root, options.edition)
        write_notebooks(root, place)
    except PageError as error:
        print(error)
        return 1
    take_over_outputs(root, place)
    if build_book(place):
        return 1
    found = leaks(readable(place), secrets(root, options.edition))
    for line in found:
        print(f"tools.edition: a secret is shown: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
