"""The experiments of "Two GPTs": one part changed at a time, at equal parameters.

Each variant makes the same short run with three seeds. The seeds are the outer loop, so
that a log which is not finished has every variant of a seed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.training import whole_text_loss
from tinygpt.two_gpts import HYBRID_PARTS, short_run

SEEDS = (1337, 1338, 1339)
HELD_OUT = 50_000  # the first characters of the validation text
LOG = "two_gpts_experiments.json"


def variant_run(data: tuple[Tensor, Tensor], name: str, seed: int) -> dict[str, Any]:
    """The short run of one variant, and its loss on the held-out text."""
    trainer = short_run(name, seed, *data)
    log = trainer.run()
    return {
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "hidden": trainer.model.config.mlp_hidden,
        "steps": len(log["train_loss"]),
        "train_loss": [round(loss, 6) for loss in log["train_loss"]],
        "held_out": whole_text_loss(trainer.model, data[1][:HELD_OUT]),
    }


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name: the variant and the seed."""
    text = load_corpus("tinyshakespeare", root)
    data = split_corpus(torch.tensor(CharTokenizer.from_text(text).encode(text)))
    return {
        f"{name}, seed {seed}": partial(variant_run, data, name, seed)
        for seed in SEEDS
        for name in HYBRID_PARTS
    }
