"""Run the experiments of Step 6 and store their log: what ``make experiments`` runs.

Three questions, all asked of the page's own functions: how far do two seeds of the
reference recipe differ, what does depth buy at a fixed budget, and is it attention or
the number of parameters? Each finished run is written to
``data/reference/step6_experiments.json`` at once, and one that stands there is not run
again, so an interrupted command is continued by giving it again.

Usage: ``python -m tools.experiments``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.training import (
    TrainConfig,
    Trainer,
    WindowMLP,
    estimate_loss,
    fuse,
    get_batch,
    whole_text_loss,
)
from tools.data import state_reference
from tools.pages import ROOT
from tools.reference import SEED, SIZES, machine

SEEDS = (1338, 1339)  # the reference run itself is the third
SEED_STEPS = 1_500
DEPTHS = (1, 2, 4, 8)
BUDGET = TrainConfig(steps=400, eval_every=400, final_batches=50)
MLP_SIZES = {"e": 16, "hidden": 748}
MLP_RATES = (3e-3, 1e-3)
MLP_BATCH = BUDGET.batch_size * SIZES["T"]  # as many targets a step as the GPT has
LOG = "step6_experiments.json"


def train_once(
    model: nn.Module, data: tuple[Tensor, Tensor], config: TrainConfig, until: int
) -> dict[str, Any]:
    """Train one model and say what came of it."""
    start = time.perf_counter()
    log = Trainer(model, *data, config).run(until)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": until,
        "seconds": time.perf_counter() - start,
        "evaluations": log["evaluations"],
        "train_loss": log["train_loss"],
    }


def seed_run(data: tuple[Tensor, Tensor], seed: int) -> dict[str, Any]:
    """The beginning of the reference recipe under another seed."""
    torch.manual_seed(seed)
    model = GPT(**SIZES)
    get_batch(data[0], SIZES["T"], BUDGET.batch_size)  # as the reference run draws
    return train_once(fuse(model), data, TrainConfig(), SEED_STEPS)


def depth_run(data: tuple[Tensor, Tensor], depth: int) -> dict[str, Any]:
    """A GPT of another depth on the short budget."""
    torch.manual_seed(SEED)
    model = fuse(GPT(**{**SIZES, "L": depth}))
    result = train_once(model, data, BUDGET, BUDGET.steps)
    return result | {"validation_whole": whole_text_loss(model, data[1])}


def mlp_run(data: tuple[Tensor, Tensor], rate: float) -> dict[str, Any]:
    """An MLP with the parameters and the targets of the GPT, and no attention."""
    torch.manual_seed(SEED)
    model = WindowMLP(SIZES["V"], SIZES["T"], **MLP_SIZES)
    settings = {**vars(BUDGET), "batch_size": MLP_BATCH, "max_rate": rate}
    config = TrainConfig(**settings | {"min_rate": rate / 10, "eval_batches": 5})
    result = train_once(model, data, config, BUDGET.steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        result["validation_many"] = estimate_loss(model, data[1], 27, MLP_BATCH)
    return result


def main(argv: list[str] | None = None) -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.experiments", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # so that other work can go on beside it
    text = load_corpus("tinyshakespeare", options.root)
    ids = CharTokenizer.from_text(text).encode(text)
    data = split_corpus(torch.tensor(ids))
    runs: dict[str, Callable[[], dict[str, Any]]] = {}
    for depth in DEPTHS:
        runs[f"depth {depth}"] = lambda depth=depth: depth_run(data, depth)
    for rate in MLP_RATES:
        runs[f"mlp at {rate}"] = lambda rate=rate: mlp_run(data, rate)
    for seed in SEEDS:
        runs[f"seed {seed}"] = lambda seed=seed: seed_run(data, seed)
    target = options.root / "data" / "reference" / LOG
    log: dict[str, Any] = {"machine": machine(), "runs": {}}
    if target.is_file():
        log = json.loads(target.read_text(encoding="utf-8"))
    for name, run in runs.items():
        if name in log["runs"]:
            print(f"{name}: done before")
            continue
        log["runs"][name] = run()
        state_reference(options.root, LOG, (json.dumps(log) + "\n").encode("utf-8"))
        print(f"{name}: {log['runs'][name]['seconds']:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
