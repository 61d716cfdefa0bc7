"""Run the pages whose outputs are not in the cache, several at a time.

Jupyter Book runs one page after the other. The pages do not depend on each other, so
this fills its cache beforehand, with as many kernels as there are cores, the longest
page first. A page that trains with more than one thread runs alone: beside another it
would be slower than after it. A page that fails is left to the build, which runs it
again and reports the error in its own way.

Usage: ``python -m tools.execute``, by ``tools/book.py``, in the environment of kernels
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import os
from concurrent.futures import ThreadPoolExecutor, as_completed

import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbformat import NotebookNode

from tools.book import cache_folder
from tools.exercises import edition_text
from tools.pages import MYST_EXTENSIONS, ROOT, SEVERAL_THREADS, pages_in_order

QUIET = ["--log-level=ERROR"]  # kernels warn that they do not encrypt what they say


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit(root: Path) -> int:
    """The seconds that the build gives one cell, as ``_config.yml`` says."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    return config["execute"]["timeout"]


def pages_with_code(root: Path) -> list[Path]:
    """The sources in the table of contents that have cells."""
    paths = [root / f"{name}.md" for name in pages_in_order(root)]
    return [path for path in paths if "{code-cell}" in path.read_text(encoding="utf-8")]


def as_read(path: Path) -> NotebookNode:
    """A page's cells, as the build reads them."""
    text = path.read_text(encoding="utf-8")
    if path.parent.name == "chapters":
        text = edition_text(text, "reader", keep_lines=True)
    config = MdParserConfig(enable_extensions=set(MYST_EXTENSIONS))
    return read_myst_markdown_notebook(text, config)


def fill(root: Path, workers: int) -> list[str]:
    """Run what the cache does not have; returns the pages that failed."""
    cache = get_cache(str(cache_folder(root)))
    seconds = limit(root)
    missing = {}
    for path in pages_with_code(root):
        node = as_read(path)
        try:
            cache.match_cache_notebook(node)
        except KeyError:
            missing[path] = node
    alone = [
        path for path in missing if SEVERAL_THREADS.search(path.read_text("utf-8"))
    ]
    beside = sorted(missing.keys() - set(alone), key=lambda path: -path.stat().st_size)
    failed = []

    def run(path: Path) -> tuple[Path, ExecutionResult]:
        print(f"tools.execute: running {path.relative_to(root)}", flush=True)
        folder = str(path.parent)
        return path, single_nb_execution(
            missing[path], folder, seconds, False, extra_arguments=QUIET
        )

    def keep(path: Path, result: ExecutionResult) -> None:
        if result.err is not None:
            failed.append(path.relative_to(root).as_posix())
            return
        data = {"execution_seconds": result.time}
        bundle = CacheBundleIn(result.nb, str(path), data=data)
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)

    for path in alone:
        keep(*run(path))
    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(run, path) for path in beside]):
            keep(*done.result())
    return failed


def main(argv: list[str] | None = None) -> int:
    """Fill the cache of outputs; what fails is the build's to report."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.execute", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    root = parser.parse_args(argv).root.resolve()
    for name in fill(root, cores()):
        print(f"tools.execute: {name} failed; the build runs it again and says why")
    return 0


if __name__ == "__main__":
    sys.exit(main())
