"""The experiment of an exercise of Lecture 5, by the page's own training loop.

Do the rows of the table that differ by no more than noise come apart when the training
is longer, and does the answer depend on the rate?
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tools.experiments import definitions

PAGE = "lecture5-architecture"
ROWS = {  # of the page's table, and the function that makes the change
    "everything in place": None,
    "no norm at all": "no_norms",
    "no final norm": "no_final_norm",
}
TABLE = (1e-2, 150)  # rate and steps of the table on the page
SETTINGS = (TABLE, (1e-2, 1_500), (3e-3, 1_500))
SEEDS = (0, 1, 2)
T, WINDOWS = 32, 100
LOG = "lecture5_experiments.json"


def page_functions(root: Path) -> dict[str, Any]:
    """The page's functions, with the texts that they read."""
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    train, heldout = split_corpus(torch.tensor(tokenizer.encode(text)))
    windows: Tensor = heldout[: WINDOWS * (T + 1)].view(WINDOWS, T + 1)
    return definitions(
        root,
        PAGE,
        V=tokenizer.vocab_size,
        T=T,
        train=train,
        inputs=windows[:, :-1],
        targets=windows[:, 1:],
    )


def one_run(
    page: dict[str, Any], row: str, rate: float, steps: int, seed: int
) -> dict[str, Any]:
    """Train one row of the table from one seed."""
    change = page[ROWS[row]] if ROWS[row] else lambda model: None
    loss = page["trained_loss"](change, seed, steps, rate)
    return {"row": row, "rate": rate, "steps": steps, "seed": seed, "held_out": loss}


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    page = page_functions(root)
    return {
        f"{row}, rate {rate:g}, {steps} steps, seed {seed}": partial(
            one_run, page, row, rate, steps, seed
        )
        for rate, steps in SETTINGS
        for row in ROWS
        for seed in SEEDS
    }
