"""One process, two processes, two threads: the same training run, timed in turn.

Each is started by ``torchrun`` with the program of ``chapters/beyond-one-machine.md``,
on Tiny Shakespeare with the sizes and the batch of the reference run. The processes
have one thread each. A round is one run of each, one after the other, so that other
work on the machine meets all three alike; what counts is the ratio inside a round. A
time is the mean of a run's steps on the clock, without the first ones and without
evaluations. The losses of all runs are compared.

Usage: ``python -m benchmarks.distributed [--small] [--store]``
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, finish, ratio, report
from tinygpt.corpus import load_corpus
from tools.pages import ROOT

LAUNCH = "from tinygpt.distributed import main; main()"
# The name of a way to train: processes, and threads of each.
ONE, TWO, THREADS = "one process", "two processes", "one process, two threads"
WAYS = {ONE: (1, 1), TWO: (2, 1), THREADS: (1, 2)}
SMALL = ("--sizes", "16", "32", "2", "2", "--batch-size", "12")
ROUNDS, STEPS = 4, 30


def command(processes: int, *arguments: str) -> list[str]:
    """The command line that trains in some processes on this machine."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={processes}", "--no-python"),
        *(sys.executable, "-c", LAUNCH, *arguments),
    ]


def train(
    root: Path, processes: int, threads: int, *arguments: str
) -> tuple[dict[str, Any], str]:
    """Train in some processes; return the record of the run and what it printed.

    Raises:
        RuntimeError: the job failed; the message ends with what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        text = Path(folder) / "text.txt"
        text.write_text(load_corpus("tinyshakespeare", root), "utf-8")
        rest = ["--threads", str(threads), "--text", str(text)]
        rest += ["--record", str(record), *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(
            command(processes, *rest),
            env=environment,
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode:
            raise RuntimeError(
                f"{processes} processes ended with {done.returncode}:\n"
                f"{done.stdout[-1_000:]}\n{done.stderr[-3_000:]}"
            )
        return json.loads(record.read_text("utf-8")), done.stdout


def measure(root: Path, small: bool) -> dict[str, Any]:
    """Train in every way, several rounds; compare the times and the losses."""
    rounds, steps = (1, 12) if small else (ROUNDS, STEPS)
    given = ["--cpu", "--steps", str(steps), "--eval-every", str(steps)]
    given += ["--eval-batches", "4", *(SMALL if small else ())]
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    gap = 0.0
    for turn in range(rounds):
        losses = {}
        for name, (processes, threads) in WAYS.items():
            record, printed = train(root, processes, threads, *given)
            seconds[name].append(record["seconds_per_step"])
            losses[name] = record["train_loss"]
            if turn == 0:
                print(f"{name}, {threads} thread(s) each\n{printed}", flush=True)
            pairs = zip(losses[ONE], losses[name], strict=True)
            gap = max(gap, *(abs(a - b) for a, b in pairs))
    task = "a training step"
    return report(
        "distributed",
        small,
        measures=[{"task": task, "unit": "s", "rounds": seconds}],
        ratios=[ratio(task, seconds, name, ONE) for name in (TWO, THREADS)],
        checks={"the losses are those of one process, to 1e-4": gap < 1e-4},
        steps=steps,
        largest_gap=gap,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures; fail if the losses differ."""
    options = arguments("distributed", __doc__.splitlines()[0], argv)
    return finish(measure(options.root, options.small), options.root, options.store)


if __name__ == "__main__":
    sys.exit(main())
