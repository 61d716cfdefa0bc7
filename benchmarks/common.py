"""What all benchmarks share: rounds taken in turn, ratios, and what is written down.

The contestants of a task take turns within a round, so that a machine that slows down
slows all of them. What counts is the ratio within a round, and how far the ratios of
several rounds lie apart. An absolute figure means something only beside the machine it
came from, so each log names its machine and the versions.
"""

import argparse
import hashlib
import importlib.metadata
import json
import math
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tinygpt.benchmarks import ratios_by_round, spread
from tinygpt.corpus import write_whole
from tools.data import state_reference
from tools.pages import ROOT
from tools.reference import machine

FOLDER = Path("_build") / "bench"
FIELDS = ("benchmark", "small", "machine", "versions", "measures", "ratios", "checks")


def processor() -> str:
    """The name of the processor, or ``unknown``."""
    try:
        if platform.system() == "Darwin":
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.check_output(command, text=True, timeout=10).strip()
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2] for line in lines if "model name" in line]
        return " ".join(names[0].split())
    except (OSError, IndexError, subprocess.SubprocessError):
        return platform.processor() or "unknown"


def versions(*packages: str) -> dict[str, str | None]:
    """The installed version of each package; ``None`` for one that is missing."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def turns(names: Iterable[str], rounds: int) -> Iterator[str]:
    """Name whoever runs next, each once a round; every other round backward."""
    forward = list(names)
    for turn in range(rounds):
        yield from forward if turn % 2 == 0 else reversed(forward)


def in_turn(
    contestants: dict[str, Callable[[], Any]],
    rounds: int,
    at_least: float = 0.0,
    clock: Callable[[], float] = time.process_time,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Let contestants take turns, each once a round; every other round backward.

    Args:
        contestants: name -> what to run, without arguments.
        rounds: how many rounds count.
        at_least: seconds; a contestant that is faster is run several times a round,
            and its mean counts. One untimed run comes before, which warms it up too.
        clock: counts seconds. The default counts those of this process alone, in all
            its threads, so that other work on the machine hardly matters.

    Returns:
        name -> seconds of a run in each round; and name -> what its last run returned.

    Raises:
        ValueError: there are no contestants or no rounds.
    """
    if not contestants or rounds < 1:
        raise ValueError(
            f"{len(contestants)} contestants and {rounds} rounds; expected one or more "
            "of each"
        )
    returned: dict[str, Any] = {}
    times = dict.fromkeys(contestants, 1)
    for name, action in contestants.items() if at_least else ():
        start = clock()
        action()
        times[name] = max(1, math.ceil(at_least / max(clock() - start, 1e-9)))
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for name in turns(contestants, rounds):
        start = clock()
        for _ in range(times[name]):
            returned[name] = contestants[name]()
        seconds[name].append((clock() - start) / times[name])
    return seconds, returned


def ratio(
    task: str,
    measures: dict[str, list[float]],
    contestant: str,
    reference: str,
) -> dict[str, Any]:
    """How many times less one contestant took than another, in each round.

    Above 1 the contestant is ahead, below 1 the reference.

    Raises:
        ValueError: the two have no rounds, not equally many, or one that took nothing.
    """
    try:
        rounds = ratios_by_round(measures[contestant], measures[reference])
    except ValueError as error:
        raise ValueError(f"{task}, {contestant} and {reference}: {error}") from None
    return {
        "task": task,
        "contestant": contestant,
        "reference": reference,
        "rounds": [float(f"{value:.4g}") for value in rounds],
    }


def report(
    benchmark: str,
    small: bool,
    measures: list[dict[str, Any]],
    ratios: list[dict[str, Any]],
    checks: dict[str, bool],
    packages: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """One log: what was measured where, in which unit, and what came out the same.

    Args:
        benchmark: its name, that of its module.
        small: was it only tried?
        measures: one dictionary a task: ``task``, ``unit``, and ``rounds``, which maps
            each contestant to its figures.
        ratios: what ``ratio`` made of them.
        checks: what had to be true, such as that two contestants agree.
        packages: what it was compared with; their versions are written down.
        more: whatever else the benchmark has to tell.
    """
    where = {"processor": processor()} | machine()
    return {
        "benchmark": benchmark,
        "small": small,
        "machine": where,
        "versions": versions(*packages),
        "measures": measures,
        "ratios": ratios,
        "checks": checks,
        **more,
    }


def table(log: dict[str, Any]) -> list[str]:
    """The lines that show the ratios of a log, and its checks."""
    rows = [
        (
            entry["task"],
            f"{entry['contestant']} against {entry['reference']}",
            *(f"{value:.3g}" for value in spread(entry["rounds"])),
            f"{len(entry['rounds'])}",
        )
        for entry in log["ratios"]
    ]
    head = (log["benchmark"], "times less", "least", "median", "most", "rounds")
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:]))
        for row in (head, *rows)
    ]
    for name, held in log["checks"].items():
        lines.append(f"{name}: {'yes' if held else 'NO'}")
    return lines


def arguments(
    module: str,
    description: str,
    argv: Sequence[str] | None,
    more: dict[str, str] | None = None,
) -> argparse.Namespace:
    """Read what every benchmark understands; ``more`` maps further flags to a help."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}", description=description
    )
    parser.add_argument("--small", action="store_true", help="only try it, in seconds")
    parser.add_argument("--store", action="store_true", help="renew the book's log")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    for flag, meaning in (more or {}).items():
        parser.add_argument(f"--{flag}", action="store_true", help=meaning)
    return parser.parse_args(argv)


def finish(log: dict[str, Any], root: Path, store: bool) -> int:
    """Print a log and write it below ``_build/bench``; ``store`` renews the book's.

    Returns:
        the status to exit with: 1 if a check does not hold, else 0.

    Raises:
        ValueError: a small run is to be stored.
    """
    name = log["benchmark"]
    if store and log["small"]:
        raise ValueError(f"{name}: a small run is not for the book; leave out --small")
    print(*table(log), sep="\n", flush=True)
    content = (json.dumps(log) + "\n").encode("utf-8")
    write_whole(root / FOLDER / f"{name}.json", content)
    held = all(log["checks"].values())
    if store and held:
        stored = f"benchmarks_{name}.json"
        state_reference(root, stored, content)
        sha256 = hashlib.sha256(content).hexdigest()
        print(f'for the page: "{name}": ("{stored}", {len(content):_}, "{sha256}"),')
    return 0 if held else 1
