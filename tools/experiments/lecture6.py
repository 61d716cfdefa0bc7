"""The experiment of an exercise of Lecture 6, by the solution's own functions.

Does the factor at the start help the training of eight blocks, with small embeddings
and with embeddings of size one?
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tinygpt.chars import CharTokenizer
from tinygpt.corpus import load_corpus
from tools.experiments import definitions

PAGE = "lecture6-training"
EMBEDDINGS = (0.02, 1.0)
SEEDS = (0, 1, 2)
STEPS = 200
READ = 100_000  # characters, as on the page
LOG = "lecture6_experiments.json"


def page_functions(root: Path) -> dict[str, Any]:
    """The page's functions, with the text that they read."""
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    data = torch.tensor(tokenizer.encode(text[:READ]))
    return definitions(root, PAGE, V=tokenizer.vocab_size, data=data)


def one_run(
    page: dict[str, Any], embedding: float, factor: bool, seed: int, steps: int = STEPS
) -> dict[str, Any]:
    """Train one model from one seed; keep every loss."""
    losses = page["factor_run"](factor, embedding, seed, steps)
    return {
        "embedding": embedding,
        "factor": factor,
        "seed": seed,
        "steps": steps,
        "train_loss": [round(loss, 6) for loss in losses],
    }


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    page = page_functions(root)
    return {
        f"embeddings {embedding:g}, {'with' if factor else 'without'}, seed {seed}": (
            partial(one_run, page, embedding, factor, seed)
        )
        for embedding in EMBEDDINGS
        for factor in (True, False)
        for seed in SEEDS
    }
