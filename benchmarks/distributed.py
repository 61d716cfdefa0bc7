"""One process, two processes, two threads: the same training run, timed in turn.

Each is started by ``torchrun`` with the program of ``chapters/beyond-one-machine.md``,
on Tiny Shakespeare with the sizes and the batch of the reference run. The processes
have one thread each. A round is one run of each, one after the other, so that other
work on the machine meets all three alike; what counts is the ratio inside a round. A
time is the mean of a run's steps on the clock, without the first ones and without
evaluations. The losses of all runs are compared.

The table is printed, the figures go to ``_build/bench/distributed.json``. With
``--store`` they become the log that the page reads. ``--small`` shows that it runs.

Usage: ``python -m benchmarks.distributed [--store] [--small] [--rounds N] [--steps N]``
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tinygpt.corpus import load_corpus, write_whole
from tools.data import state_reference
from tools.pages import ROOT
from tools.reference import machine

LOG = "distributed.json"
LAUNCH = "from tinygpt.distributed import main; main()"
# The name of a way to train: processes, and threads of each.
WAYS = {"one": (1, 1), "two": (2, 1), "threads": (1, 2)}
SMALL = ("--sizes", "16", "32", "2", "2", "--batch-size", "12")


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


def measure(root: Path, rounds: int, steps: int, small: bool) -> dict[str, Any]:
    """Train in every way, several rounds; compare the times and the losses."""
    arguments = ["--steps", str(steps), "--eval-every", str(steps)]
    arguments += ["--eval-batches", "4", *(SMALL if small else ())]
    table, gap = [], 0.0
    for turn in range(rounds):
        row, losses = {}, {}
        for name, (processes, threads) in WAYS.items():
            record, printed = train(root, processes, threads, *arguments)
            row[name] = record["seconds_per_step"]
            losses[name] = record["train_loss"]
            if turn == 0:
                print(f"{processes} process(es), {threads} thread(s) each\n{printed}")
            difference = zip(losses["one"], losses[name], strict=True)
            gap = max(gap, *(abs(a - b) for a, b in difference))
        table.append(row)
        print(f"round {turn + 1}:", {k: f"{v * 1e3:.1f} ms" for k, v in row.items()})
    return {
        "machine": machine(),
        "small": small,
        "steps": steps,
        "rounds": table,
        "largest_gap": gap,
    }


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table, write the figures; fail if the losses differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distributed", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--store", action="store_true", help=f"renew {LOG}")
    parser.add_argument("--small", action="store_true", help="a small model, few steps")
    parser.add_argument("--rounds", type=int, help="of all ways; 5, with --small 1")
    parser.add_argument("--steps", type=int, help="of a run; 100, with --small 12")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    rounds = options.rounds or (1 if options.small else 5)
    steps = options.steps or (12 if options.small else 100)
    if rounds < 1 or steps < 6:
        parser.error(f"{rounds} rounds of {steps} steps; expected 1 and 6 or more")
    result = measure(options.root, rounds, steps, options.small)
    for name in ("two", "threads"):
        ratios = [row["one"] / row[name] for row in result["rounds"]]
        print(
            f"{name:<8} {statistics.median(ratios):.2f} times as fast as one "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(f"largest difference of a loss: {result['largest_gap']:.1e}")
    content = (json.dumps(result) + "\n").encode("utf-8")
    write_whole(options.root / "_build" / "bench" / LOG, content)
    if options.store:
        state_reference(options.root, LOG, content)
        digest = hashlib.sha256(content).hexdigest()
        print(f"the page states: {LOG}, {len(content):_} bytes, {digest}")
    return 0 if result["largest_gap"] < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
