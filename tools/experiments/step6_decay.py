"""The experiment of an exercise of Step 6, by the solution's own functions.

Does it help to spare gains, offsets and tables from weight decay? The main experiments
of that page have a log of their own.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.training import whole_text_loss
from tools.experiments import definitions

PAGE = "step6-training"
ARMS = {"decay on everything": False, "gains, offsets and tables spared": True}
SEEDS = (0, 1)
LOG = "step6_decay_experiments.json"


def page_functions(root: Path) -> dict[str, Any]:
    """The page's functions, with the texts that they read."""
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    train_data, val_data = split_corpus(torch.tensor(tokenizer.encode(text)))
    return definitions(
        root,
        PAGE,
        V=tokenizer.vocab_size,
        train_data=train_data,
        val_data=val_data,
    )


def one_run(page: dict[str, Any], spare: bool, seed: int) -> dict[str, Any]:
    """Train one model from one seed; keep every loss, and the one on held-out text."""
    trainer = page["decay_trainer"](spare, seed)
    log = trainer.run()
    return {
        "spare": spare,
        "seed": seed,
        "steps": len(log["train_loss"]),
        "train_loss": [round(loss, 6) for loss in log["train_loss"]],
        "validation_whole": whole_text_loss(trainer.model, page["val_data"]),
    }


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    page = page_functions(root)
    return {
        f"{arm}, seed {seed}": partial(one_run, page, spare, seed)
        for arm, spare in ARMS.items()
        for seed in SEEDS
    }
