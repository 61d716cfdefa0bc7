"""Memory of a training step and of the cache: counted, predicted, and of the process.

The bytes of tensors are counted with the functions of ``chapters/benchmarks.md``, for
the GPT of Step 5 head by head and with its heads at once, and for the TinyGPT of
Chapter 2, over several sizes of a batch. They are the same on every machine, so one
round is enough. What the operating system says of a process is not: each trains in
fresh processes, in turn, and how far their memory rises is measured from outside.

Usage: ``python -m benchmarks.memory [--small] [--store]``
"""

import contextlib
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.common import arguments, finish, ratio, report
from tinygpt.benchmarks import (
    forward_bytes,
    gpt_kept_bytes,
    kept_for_backward,
    step_bytes,
    storage_bytes,
    tinygpt_kept_bytes,
)
from tinygpt.gpt import GPT
from tinygpt.training import fuse
from tinygpt.transformer import GPTConfig, TinyGPT, kv_cache_bytes
from tools.pages import ROOT

BATCHES = {False: (2, 8, 16, 32, 64), True: (2, 3, 5)}
ROUNDS = {False: 5, True: 1}
SIZES = {
    False: {"V": 65, "T": 64, "d": 128, "H": 4, "L": 4},  # Steps 5 and 6
    True: {"V": 11, "T": 6, "d": 8, "H": 2, "L": 1},
}
CONFIGS = {
    False: GPTConfig(512),  # Chapter 2
    True: GPTConfig(13, block_size=10, d_model=8, n_heads=2, n_layers=1),
}
MODELS = ("heads", "fused", "tiny")
HEADS, FUSED = "head by head", "heads at once"


def make(kind: str, small: bool) -> tuple[nn.Module, int, int]:
    """One of the models, its vocabulary and its number of positions."""
    torch.manual_seed(0)
    if kind == "tiny":
        config = CONFIGS[small]
        return TinyGPT(config), config.vocab_size, config.block_size
    sizes = SIZES[small]
    model = GPT(**sizes)
    return (fuse(model) if kind == "fused" else model), sizes["V"], sizes["T"]


def predicted(kind: str, small: bool, B: int) -> dict[str, int]:
    """The parts of what the model keeps for its backward pass, by its formula."""
    if kind == "tiny":
        return tinygpt_kept_bytes(CONFIGS[small], B, CONFIGS[small].block_size)
    return gpt_kept_bytes(B, **SIZES[small], fused=kind == "fused")


def batch(B: int, T: int, V: int) -> tuple[Tensor, Tensor]:
    """Ids and targets, (B, T) each, with storages of their own."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randint(V, (B, T), generator=generator) for _ in range(2))


def count(kind: str, small: bool, B: int) -> dict[str, Any]:
    """Count one training step, beside what the formulas say."""
    model, V, T = make(kind, small)
    ids = batch(B, T, V)
    numbers = sum(p.numel() for p in model.parameters())
    kept = kept_for_backward(model, *ids)
    counted = step_bytes(model, *ids)
    parts = predicted(kind, small, B)
    return {
        "model": kind,
        "batch": B,
        "positions": T,
        "parameters": numbers,
        "state": 16 * numbers,
        "kept": kept,
        "predicted": parts,
        "after_forward": counted["after the forward pass"],
        "after_forward_predicted": forward_bytes(model, parts["total"]),
        "peak": counted["peak"],
    }


def is_linear(rows: Sequence[dict[str, Any]]) -> bool:
    """Do the kept bytes grow by the same amount for each sequence of the batch?"""
    (first, second, *others) = rows
    slope = (second["kept"] - first["kept"]) / (second["batch"] - first["batch"])
    return all(
        row["kept"] - first["kept"] == slope * (row["batch"] - first["batch"])
        for row in others
    )


def count_cache(small: bool) -> list[dict[str, int]]:
    """Bytes of the cache after prompts, and after one more token; with its storages."""
    model, V, T = make("tiny", small)
    config = model.config
    rows = []
    with torch.no_grad():
        for n in sorted({1, T // 8, T // 2, T - 1}):
            tokens = batch(1, n + 1, V)[0]
            prompt = model(tokens[:, :n])[2]
            longer = model(tokens[:, n:], cache=prompt)[2]
            for kind, cache in (("prompt", prompt), ("one more", longer)):
                positions = cache[0][0].shape[-2]
                rows.append(
                    {
                        "after": kind,
                        "positions": positions,
                        "predicted": 8 * config.n_layers * config.d_model * positions,
                        "tensors": kv_cache_bytes(cache),
                        "storages": storage_bytes(t for pair in cache for t in pair),
                    }
                )
    return rows


def resident(kind: str) -> int:
    """Bytes of this process: ``now``, or the most since it was last forgotten.

    Linux counts both in ``/proc``. Elsewhere there is only the most of all times, so a
    rise is the least that it can have been. What ``getrusage`` says on Linux is not
    used: a process that is started there inherits the most of the one that starts it.
    """
    if platform.system() == "Linux":
        field = {"now": "VmRSS:", "most": "VmHWM:"}[kind]
        for line in Path("/proc/self/status").read_text("utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1_024
    unit = 1 if platform.system() == "Darwin" else 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def train(model: nn.Module, ids: tuple[Tensor, Tensor], steps: int) -> None:
    """Take some steps with AdamW, as the book does."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*ids)[1]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def rise(kind: str, small: bool, B: int) -> int:
    """By how many bytes this process grows while the model trains for three steps.

    A tiny model of the same kind has trained before, so that the code is loaded.
    """
    torch.set_num_threads(1)
    model, V, T = make(kind, small=True)
    train(model, batch(2, T, V), 1)
    with contextlib.suppress(OSError):  # not Linux: the most of all times counts
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # forget the most
    before = resident("now")
    model, V, T = make(kind, small)
    train(model, batch(B, T, V), 3)
    grown = resident("most") - before
    return max(resource.getpagesize(), grown)  # it counts in pages; none has no ratio


def rise_elsewhere(kind: str, small: bool, B: int) -> int:
    """``rise`` in a fresh process."""
    asked = f"from benchmarks.memory import rise; print(rise({kind!r}, {small}, {B}))"
    command = [sys.executable, "-c", asked]
    return int(subprocess.check_output(command, cwd=ROOT, text=True))


def measure(
    small: bool, rise_of: Callable[[str, bool, int], int] | None = None
) -> dict[str, Any]:
    """Count tensors, predict them, and let processes grow; return the log.

    Args:
        small: only try it, and in this one process.
        rise_of: measures a rise, in place of ``rise_elsewhere``.
    """
    if rise_of is None:
        rise_of = rise if small else rise_elsewhere
    torch.set_num_threads(1)
    rows = [count(kind, small, B) for kind in MODELS for B in BATCHES[small]]
    cache = count_cache(small)
    B = BATCHES[small][-1]
    process: dict[str, list[int]] = {kind: [] for kind in MODELS}
    for _ in range(ROUNDS[small]):
        for kind in MODELS:
            process[kind].append(rise_of(kind, small, B))
    last = {row["model"]: row for row in rows}  # the largest batch of each model
    names = {HEADS: "heads", FUSED: "fused"}

    def of(figure: str) -> dict[str, list[int]]:
        return {name: [last[kind][figure]] for name, kind in names.items()}

    prompt = next(r for r in reversed(cache) if r["after"] == "prompt")
    tasks = {
        f"kept for the backward pass, B = {B}": of("kept"),
        f"most bytes in a step, B = {B}": of("peak"),
        f"rise of the process, B = {B}": {
            name: process[kind] for name, kind in names.items()
        },
    }
    measures = [
        {"task": task, "unit": "bytes", "rounds": rounds}
        for task, rounds in tasks.items()
    ]
    ratios = [ratio(task, rounds, FUSED, HEADS) for task, rounds in tasks.items()]
    checks = {
        "kept bytes are as predicted": all(
            row["kept"] == row["predicted"]["total"] for row in rows
        ),
        "bytes after the forward pass are as predicted": all(
            row["after_forward"] == row["after_forward_predicted"] for row in rows
        ),
        "kept bytes grow evenly with the batch": all(
            is_linear([row for row in rows if row["model"] == kind]) for kind in MODELS
        ),
        "cache bytes are as predicted": all(
            row["tensors"] == row["predicted"] for row in cache
        ),
    }
    held = {
        "task": f"cache after a prompt of {prompt['positions']}",
        "unit": "bytes",
        "rounds": {
            "its tensors": [prompt["tensors"]],
            "their storages": [prompt["storages"]],
        },
    }
    measures.append(held)
    ratios.append(ratio(held["task"], held["rounds"], "its tensors", "their storages"))
    return report(
        "memory",
        small,
        measures,
        ratios,
        checks,
        rows=rows,
        cache=cache,
        process=process,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the ratios, write the figures; fail if a formula does not hold."""
    options = arguments("memory", __doc__.splitlines()[0], argv)
    log = measure(options.small)
    print(json.dumps(log["process"]))
    return finish(log, options.root, options.store)


if __name__ == "__main__":
    sys.exit(main())
