"""The times of Step 9: a step of the reference recipe beside steps of the speed run.

To be made on a machine that does nothing else, with the threads of the reference run.
All rows are measured in turn, several rounds long. Of the rounds the fastest counts:
what slows one down is the machine, and no part of the recipe. Remove the log to measure
anew.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.gpt import GPT
from tinygpt.speedrun import SpeedConfig, speed_run
from tinygpt.training import TrainConfig, Trainer
from tools.experiments.step9 import recipes, split_text
from tools.reference import SEED, SIZES, THREADS

ROUNDS = 9
STEPS = 15  # of each row in each round
LOG = "step9_times.json"
REFERENCE = "Step 6, head by head"


def with_threads(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a measurement gives under the threads of the reference run."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        return measure() | {"threads": THREADS}
    finally:
        torch.set_num_threads(before)


def reference_seconds(data: tuple[Tensor, Tensor], steps: int) -> float:
    """Seconds a step of the recipe of Step 6 on the model of Step 5."""
    torch.manual_seed(SEED)
    config = TrainConfig(eval_batches=1)
    trainer = Trainer(GPT(**SIZES), *data, config)
    trainer.run(until=1)  # it is examined before the first step, and not again
    start = time.perf_counter()
    trainer.run(until=1 + steps)
    return (time.perf_counter() - start) / steps


def speed_seconds(
    data: tuple[Tensor, Tensor], switches: dict[str, bool], steps: int
) -> float:
    """Seconds a step of one row of the speed run, examinations not counted."""
    train_data, val_data = data
    config = SpeedConfig(**switches)
    exam = val_data[: config.T + 1]  # the least there is: one window, at the end
    _, log = speed_run(config, train_data, exam, every=steps, until=steps)
    return log["examinations"][-1]["seconds"] / steps


def step_times(
    data: tuple[Tensor, Tensor], rounds: int = ROUNDS, steps: int = STEPS
) -> dict[str, Any]:
    """Seconds a step of every row, in its fastest round."""
    measures: dict[str, Callable[[], float]] = {
        REFERENCE: partial(reference_seconds, data, steps)
    }
    for name, switches in recipes().items():
        measures[name] = partial(speed_seconds, data, switches, steps)
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            taken[name].append(measure())
    return {"step_seconds": {name: min(seconds) for name, seconds in taken.items()}}


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """The table of the steps."""
    data = split_text(root)
    return {"steps": partial(with_threads, partial(step_times, data))}
