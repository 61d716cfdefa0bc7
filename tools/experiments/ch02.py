"""The experiments that Chapter 2's exercises ask for, all on the page's own functions.

What changes the turn of the held-out loss, and what does a head of its own change? One
knob at a time, against the distance between three seeds.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tinygpt.corpus import load_corpus
from tinygpt.transformer import BytePairTokenizer, GPTConfig, TinyGPT, train_model

SEEDS = (20, 21, 22)  # the first is the page's
KNOBS: dict[str, dict[str, Any]] = {
    "decay 0.1": {"decay": 0.1},
    "decay 1.0": {"decay": 1.0},
    "decay 0.1, gains spared": {"decay": 0.1, "spare": True},
    "decay 1.0, gains spared": {"decay": 1.0, "spare": True},
    "width 32": {"width": 32},
    "width 128": {"width": 128},
    "100 steps": {"steps": 100},
    "200 steps": {"steps": 200},
}
LOG = "ch02_experiments.json"


def run_once(
    data: tuple[Tensor, Tensor],
    seed: int = SEEDS[0],
    width: int = 64,
    steps: int = 400,
    decay: float = 0.01,
    spare: bool = False,
    untie: bool = False,
) -> dict[str, Any]:
    """Train the page's model with one thing changed, and say what came of it."""
    torch.manual_seed(seed)
    model = TinyGPT(GPTConfig(512, d_model=width))
    if untie:
        weight = torch.empty_like(model.lm_head.weight).detach().normal_(std=0.02)
        model.lm_head.weight = nn.Parameter(weight)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    gains = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": gains, "weight_decay": 0.0 if spare else decay},
    ]
    optimizer = torch.optim.AdamW(groups)
    history = train_model(model, *data, steps=steps, optimizer=optimizer)
    step, best = history.best()
    return {
        "parameters": model.parameter_count(),
        "train": history.final_train_loss(),
        "best": best,
        "at": step,
        "end": history.heldout_loss[-1],
    }


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    corpus = load_corpus("alice", root)
    stream = torch.tensor(BytePairTokenizer.train(corpus, 512).encode(corpus))
    n_train = int(0.85 * len(stream))
    data = stream[:n_train], stream[n_train:]
    by_name = {f"seed {seed}": partial(run_once, data, seed=seed) for seed in SEEDS}
    for seed in SEEDS:
        by_name[f"untied, seed {seed}"] = partial(run_once, data, seed=seed, untie=True)
    for name, knob in KNOBS.items():
        by_name[name] = partial(run_once, data, **knob)
    return by_name
