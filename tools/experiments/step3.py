"""The experiments of Step 3, all on the page's own functions.

What is a longer context worth at a fixed budget? The same question again with the
number of parameters held fixed, with half the rate, and with four times the steps; and
which rate is best for three characters.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.mlp import CharMLP, falling_rates, mlp_loss, train_mlp

V, E, HIDDEN = 65, 10, 100
STEPS, BATCH, RATE = 8_000, 64, 1e-2
CONTEXTS = (1, 2, 3, 5, 8, 12)
SEEDS = (0, 1, 2)
LONGER = 4  # times as many steps
RATES = (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2)
KEPT = 100  # first losses that the log keeps
LOG = "step3_experiments.json"


def parameters(k: int, hidden: int) -> int:
    """Parameters of a model: embedding, hidden layer, head."""
    return V * E + (k * E + 1) * hidden + (hidden + 1) * V


def equal_width(k: int) -> int:
    """The hidden width with which k characters need as many parameters as three do."""
    spare = parameters(3, HIDDEN) - V * E - V
    return round(spare / (k * E + 1 + V))


def one_run(
    data: tuple[Tensor, Tensor],
    k: int,
    seed: int,
    hidden: int = HIDDEN,
    rate: float = RATE,
    steps: int = STEPS,
) -> dict[str, Any]:
    """Train one model from one seed; measure it on both whole texts."""
    torch.manual_seed(seed)
    model = CharMLP(V, k, E, hidden)
    generator = torch.Generator().manual_seed(seed)
    log = train_mlp(model, data[0], falling_rates(rate, steps), generator, BATCH)
    return {
        "k": k,
        "seed": seed,
        "hidden": hidden,
        "rate": rate,
        "steps": steps,
        "parameters": sum(p.numel() for p in model.parameters()),
        "first_losses": [round(loss, 5) for loss in log["loss"][:KEPT]],
        "train": mlp_loss(model, data[0]),
        "held_out": mlp_loss(model, data[1]),
    }


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    text = load_corpus("tinyshakespeare", root)
    ids = CharTokenizer.from_text(text).encode(text)
    data = split_corpus(torch.tensor(ids))
    by_name: dict[str, Callable[[], dict[str, Any]]] = {}
    for seed in SEEDS:
        for k in CONTEXTS:
            run, place = partial(one_run, data, k, seed), f"k {k}, seed {seed}"
            by_name[f"same width, {place}"] = run
            by_name[f"same size, {place}"] = partial(run, hidden=equal_width(k))
            by_name[f"half the rate, {place}"] = partial(run, rate=RATE / 2)
            by_name[f"longer, {place}"] = partial(
                run, rate=RATE / 2, steps=LONGER * STEPS
            )
        for rate in RATES:
            by_name[f"rate {rate}, seed {seed}"] = partial(
                one_run, data, 3, seed, rate=rate
            )
    return by_name
