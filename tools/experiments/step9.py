"""The experiments of Step 9: the record, runs without one ingredient, one with more.

Each row is run with three seeds, in as many steps as the record. A row that misses the
target by this may reach it with more steps: those are run again for longer, with the
same seeds. The rate falls to zero at the end of a run, so a longer one is a run of its
own. The seeds are the outer loop, so that a log which is not finished has every row of
one.

The seconds in this log are those of whatever machine made it, with whatever else it
did; the times that the page speaks of are in the log of ``step9_times``.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.speedrun import INGREDIENTS, SpeedConfig, speed_run

SEEDS = (1337, 1338, 1339)
RECORD = "the record"
ADDED = "with qk_norm"
NOTHING = "none of them"
# The rows that miss the target. With none of the ingredients the recipe is close to
# that of Step 6, and the long run of that is known.
MISSED = (
    *("without muon", "without rotary", "without token_shift"),
    *("without linear_decay", "without every_window"),
)
LONGER = 1.5  # times the steps of the record
EVERY = 360
LOG = "step9_experiments.json"


def recipes() -> dict[str, dict[str, bool]]:
    """The rows by name: the switches that are not as in the record."""
    rows = {RECORD: {}}
    rows |= {f"without {name}": {name: False} for name in INGREDIENTS}
    return rows | {ADDED: {"qk_norm": True}, NOTHING: dict.fromkeys(INGREDIENTS, False)}


def one_run(
    data: tuple[Tensor, Tensor], switches: dict[str, bool], seed: int, **given: Any
) -> dict[str, Any]:
    """One run of a row from one seed: every loss, and what the examinations gave."""
    _, log = speed_run(SpeedConfig(seed=seed, **switches, **given), *data, every=EVERY)
    return log | {
        "seed": seed,
        "switches": switches,
        "steps": len(log["train_loss"]),
        "train_loss": [round(loss, 5) for loss in log["train_loss"]],
        "validation_whole": log["examinations"][-1]["validation"],
    }


def split_text(root: Path) -> tuple[Tensor, Tensor]:
    """The training text and the validation text of Tiny Shakespeare, as ids."""
    text = load_corpus("tinyshakespeare", root)
    return split_corpus(torch.tensor(CharTokenizer.from_text(text).encode(text)))


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name: the row, the seed, and the steps where they are more."""
    data = split_text(root)
    made = {
        f"{name}, seed {seed}": partial(one_run, data, switches, seed)
        for seed in SEEDS
        for name, switches in recipes().items()
    }
    steps = round(LONGER * SpeedConfig().steps)
    return made | {
        f"{name}, seed {seed}, {steps} steps": partial(
            one_run, data, recipes()[name], seed, steps=steps
        )
        for seed in SEEDS
        for name in MISSED
    }
