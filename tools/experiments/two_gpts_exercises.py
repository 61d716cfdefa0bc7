"""The longer runs behind the exercises of "Two GPTs": starts, rates and fresh seeds.

Every run is the page's short run with one thing changed, so that it pairs with the
stored run of the baseline that has the same seed, or with one that is made here.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.training import Trainer, whole_text_loss
from tinygpt.two_gpts import short_run
from tools.experiments.two_gpts import HELD_OUT, SEEDS

FRESH = tuple(range(2001, 2006))  # seeds that no other experiment has used
GROUPS = {
    "tables": ("tok", "pos"),
    "readers": ("query", "key", "value", "up", "head"),
    "writers": ("proj", "down"),
}
FACTORS = (0.5, 2.0)
LOG = "two_gpts_exercises.json"


def redraw(model: nn.Module, group: str, generator: torch.Generator) -> None:
    """Give one group of matrices, and their offsets, the normal start."""
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.rpartition(".")[2] in GROUPS[group]:
                module.weight.normal_(std=0.02, generator=generator)
                if getattr(module, "bias", None) is not None:
                    module.bias.zero_()


def finished(trainer: Trainer) -> dict[str, Any]:
    """Run to the end; the losses of all steps, and that on the held-out text."""
    log = trainer.run()
    return {
        "steps": len(log["train_loss"]),
        "train_loss": [round(loss, 4) for loss in log["train_loss"]],
        "held_out": whole_text_loss(trainer.model, trainer.val_data[:HELD_OUT]),
    }


def start_run(data: tuple[Tensor, Tensor], group: str, seed: int) -> dict[str, Any]:
    """The baseline with the normal start in one group of its matrices."""
    trainer = short_run("baseline", seed, *data)
    redraw(trainer.model, group, torch.Generator().manual_seed(seed))
    return finished(trainer)


def rate_run(
    data: tuple[Tensor, Tensor], name: str, factor: float, seed: int
) -> dict[str, Any]:
    """A variant's short run with another peak rate."""
    first = short_run(name, seed, *data)
    recipe = replace(first.config, max_rate=factor * first.config.max_rate)
    return finished(Trainer(first.model, *data, recipe))


def fresh_run(data: tuple[Tensor, Tensor], name: str, seed: int) -> dict[str, Any]:
    """A variant's short run with a seed that was not used before."""
    return finished(short_run(name, seed, *data))


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name, those of one seed together."""
    text = load_corpus("tinyshakespeare", root)
    data = split_corpus(torch.tensor(CharTokenizer.from_text(text).encode(text)))
    by_name: dict[str, Callable[[], dict[str, Any]]] = {}
    for seed in SEEDS:
        for group in GROUPS:
            by_name[f"{group}, seed {seed}"] = partial(start_run, data, group, seed)
    for seed in FRESH:
        for name in ("baseline", "QK-norm"):
            by_name[f"{name}, seed {seed}"] = partial(fresh_run, data, name, seed)
    for seed in SEEDS[:1]:
        for name in ("baseline", "N(0, 0.02)"):
            for factor in FACTORS:
                by_name[f"{name}, rate times {factor:g}, seed {seed}"] = partial(
                    rate_run, data, name, factor, seed
                )
    return by_name
