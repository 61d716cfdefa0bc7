"""The experiments of Step 6, all on the page's own functions.

How far do two seeds of the reference recipe differ, what does depth buy at a fixed
budget, and is it attention or the number of parameters?
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
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
from tools.reference import SEED, SIZES

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
    log = Trainer(model, *data, config).run(until)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": until,
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


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    text = load_corpus("tinyshakespeare", root)
    ids = CharTokenizer.from_text(text).encode(text)
    data = split_corpus(torch.tensor(ids))
    by_name: dict[str, Callable[[], dict[str, Any]]] = {}
    for depth in DEPTHS:
        by_name[f"depth {depth}"] = partial(depth_run, data, depth)
    for rate in MLP_RATES:
        by_name[f"mlp at {rate}"] = partial(mlp_run, data, rate)
    for seed in SEEDS:
        by_name[f"seed {seed}"] = partial(seed_run, data, seed)
    return by_name
