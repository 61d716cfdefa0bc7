"""Run the benchmarks, each in a process of its own, and show their ratios together.

Usage: ``python -m benchmarks [NAME ...] [--small] [--store]``; without a name, all.
A benchmark that cannot run is named in one line, and the others go on. The table is
printed, and the ratios of all that ran become ``_build/bench/ratios.png`` and ``.svg``.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ORDER
from benchmarks.common import FIELDS, FOLDER, table
from tinygpt.benchmarks import spread
from tools.pages import ROOT

BENCHMARKS = tuple(
    name for name in ORDER if Path(__file__).with_name(f"{name}.py").exists()
)


class BenchmarkError(Exception):
    """A benchmark broke down, which is more than that it lacks a library."""


def run(name: str, root: Path, flags: Sequence[str]) -> dict[str, Any] | None:
    """Run one benchmark in a process of its own.

    Returns:
        its log; ``None``, with a line that says so, if a library is missing.

    Raises:
        BenchmarkError: it ended without a log, with one that lacks a field, or with a
            failure that no check of its log tells of.
    """
    path = root / FOLDER / f"{name}.json"
    path.unlink(missing_ok=True)  # an old log must not pass for a new one
    print(f"{name}:", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", "--root", str(root), *flags]
    ended = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if ended.returncode and last.startswith(("ModuleNotFoundError", "ImportError")):
        print(f"{name}: left out, {last}; `make bench` installs what it needs")
        return None
    if not path.exists():
        raise BenchmarkError(f"{name} wrote no log:\n{ended.stderr.strip() or last}")
    log = json.loads(path.read_text(encoding="utf-8"))
    if lacking := [field for field in FIELDS if field not in log]:
        raise BenchmarkError(f"the log of {name} lacks {', '.join(lacking)}")
    if ended.returncode and all(log["checks"].values()):  # it broke after the log
        raise BenchmarkError(f"{name} ended with {ended.returncode}:\n{ended.stderr}")
    return log


def run_all(
    names: Sequence[str], root: Path, flags: Sequence[str]
) -> tuple[list[dict[str, Any]], int]:
    """Run benchmarks one after the other; return their logs and how many broke down."""
    logs, broken = [], 0
    for name in names:
        try:
            log = run(name, root, flags)
        except BenchmarkError as error:
            print(f"{name}: FAILED, {error}", flush=True)
            broken += 1
        else:
            logs += [log] if log else []
    return logs, broken


def draw(logs: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw every ratio with its spread on one axis; return the files written.

    Right of the line at 1 the contestant is ahead, left of it the reference.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [(log["benchmark"], entry) for log in logs for entry in log["ratios"]]
    figure, ax = plt.subplots(figsize=(8, 1.2 + 0.42 * len(rows)), layout="constrained")
    colours = {name: f"C{i}" for i, name in enumerate(ORDER)}
    for y, (name, entry) in enumerate(rows):
        least, middle, most = spread(entry["rounds"])
        ax.plot([least, most], [y, y], color=colours.get(name, "C4"), lw=4)
        ax.plot(middle, y, "o", color=colours.get(name, "C4"))
    ax.axvline(1, color="black", lw=1)
    labels = [
        f"{entry['task']}\n{entry['contestant']} / {entry['reference']}"
        for _, entry in rows
    ]
    ax.set_yticks(range(len(rows)), labels, fontsize=8)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel("times less than the reference (least, median, most)")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "ratios.png", folder / "ratios.svg"]
    for path in paths:
        figure.savefig(path)
    plt.close(figure)
    return paths


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a check failed, one broke down, or nothing ran."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--small", action="store_true", help="only try them, in seconds"
    )
    parser.add_argument("--store", action="store_true", help="renew the book's logs")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.names) - set(BENCHMARKS)):
        parser.error(
            f"no benchmark is called {unknown[0]}; there are {', '.join(BENCHMARKS)}"
        )
    if options.small and options.store:
        parser.error("a small run is not for the book: --small or --store, not both")
    flags = [f"--{flag}" for flag in ("small", "store") if getattr(options, flag)]
    names = [name for name in BENCHMARKS if name in (options.names or BENCHMARKS)]
    logs, broken = run_all(names, options.root, flags)
    if not logs:
        return 1
    where = set.intersection(*(set(log["machine"].items()) for log in logs))
    facts = [fact for fact in logs[0]["machine"].items() if fact in where]
    print("\nmachine:", ", ".join(f"{key} {value}" for key, value in facts))
    for log in logs if len(logs) > 1 else ():  # one alone has just been printed
        print("", *table(log), sep="\n")
    if any(log["ratios"] for log in logs):
        paths = draw(logs, options.root / FOLDER)
        print("\nfigure:", *paths)
    held = all(all(log["checks"].values()) for log in logs)
    return 0 if held and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
