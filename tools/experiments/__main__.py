"""Run what is missing of the pages' experiments: what ``make experiments`` runs.

Each finished run is written at once to the page's log below ``data/reference/``, and
one that stands there is not run again, so an interrupted command is continued by giving
it again. A run is made again when its entry is removed from the log.

Usage: ``python -m tools.experiments [step6 ...]``
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from tools.data import state_reference
from tools.pages import ROOT
from tools.reference import machine

PAGES = ("step6", "step7")


def run_missing(page: str, root: Path) -> None:
    """Make the runs of one page that its log does not have yet."""
    experiments = importlib.import_module(f"tools.experiments.{page}")
    target = root / "data" / "reference" / experiments.LOG
    log: dict[str, Any] = {"machine": machine(), "runs": {}}
    if target.is_file():
        log = json.loads(target.read_text(encoding="utf-8"))
    for name, run in experiments.runs(root).items():
        if name in log["runs"]:
            print(f"{page}, {name}: done before")
            continue
        start = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - start
        log["runs"][name] = {**result, "seconds": seconds}
        content = (json.dumps(log) + "\n").encode("utf-8")
        state_reference(root, experiments.LOG, content)
        print(f"{page}, {name}: {seconds:.0f} s", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run what is missing of the pages that are named, or of all."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.experiments", description=__doc__.splitlines()[0]
    )
    parser.add_argument("pages", nargs="*", metavar="page", help=", ".join(PAGES))
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.pages) - set(PAGES))
    if unknown:
        parser.error(f"no experiments of {unknown}; the pages are {list(PAGES)}")
    torch.set_num_threads(1)  # so that other work can go on beside it
    for page in options.pages or PAGES:
        run_missing(page, options.root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
