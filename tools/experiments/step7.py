"""The experiments of Step 7: what samplers write, and how the loss falls with scale.

Texts that the trained model of Step 6 writes under twelve settings. Eight sizes at one
budget of characters, one size at five budgets, each budget with a schedule of its own,
and two sizes at other rates than the rule gives them.
"""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.sampling import write
from tinygpt.training import (
    TrainConfig,
    Trainer,
    fuse,
    load_reference,
    whole_text_loss,
)
from tools.reference import SIZES as TRAINED

V, T, BATCH = 65, 64, 32
SIZES = {  # width, heads, blocks
    "d16": (16, 2, 1),
    "d24": (24, 2, 2),
    "d32": (32, 4, 2),
    "d48": (48, 4, 3),
    "d64": (64, 4, 3),
    "d96": (96, 4, 4),
    "d128": (128, 4, 4),
    "d144": (144, 4, 4),
}
SEEDS = (1, 2, 3)
REPEATED = ("d16", "d32", "d48", "d64")  # under all seeds, others once
STEPS = 400
BUDGETS = (100, 200, 800)  # of d48, under all seeds, beside STEPS
LONGEST = 1_600  # of d48, once
FACTORS = (0.5, 2.0)  # on the rate of the rule, for d16 and d64
LOSSES = 60  # losses of the first steps that are kept
ROWS, WRITTEN = 24, 200  # texts of a setting, and characters of each
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"T {t}": {"temperature": t} for t in (0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5)},
    "top-k 10": {"top_k": 10},
    "top-p 0.9": {"top_p": 0.9},
    "min-p 0.1": {"min_p": 0.1},
    "T 1.5, min-p 0.1": {"temperature": 1.5, "min_p": 0.1},
    "penalty 1.3": {"penalty": 1.3},
}
LOG = "step7_experiments.json"


def recipe(d: int, steps: int, factor: float = 1.0) -> TrainConfig:
    """The recipe of Step 6 with a rate of its own for each width: one over it."""
    rate = factor / d
    return TrainConfig(
        steps=steps,
        batch_size=BATCH,
        max_rate=rate,
        min_rate=rate / 10,
        warmup=steps // 10,
        eval_every=steps,
        eval_batches=1,
        final_batches=10,
    )


def scaling_run(
    data: tuple[Tensor, Tensor],
    sizes: tuple[int, int, int],
    steps: int,
    seed: int,
    factor: float = 1.0,
) -> dict[str, Any]:
    """Train one size to the end of one schedule and say what came of it."""
    d, H, L = sizes
    torch.manual_seed(seed)
    model = fuse(GPT(V, T, d, H, L))
    config = recipe(d, steps, factor)
    log = Trainer(model, *data, config).run()
    total = sum(p.numel() for p in model.parameters())
    tables = model.tok.weight.numel() + model.pos.weight.numel()
    return {
        "d": d,
        "H": H,
        "L": L,
        "parameters": total,
        "without_tables": total - tables,
        "steps": steps,
        "characters": steps * BATCH * T,
        "seed": seed,
        "rate": config.max_rate,
        "first_losses": [round(loss, 6) for loss in log["train_loss"][:LOSSES]],
        "train": log["evaluations"][-1]["train"],
        "validation_whole": whole_text_loss(model, data[1]),
    }


def trained(root: Path) -> GPT:
    """The trained model of Step 6."""
    model = GPT(**TRAINED)
    stored = io.BytesIO(load_reference("step6_model.pt", root))
    model.load_state_dict(torch.load(stored, weights_only=True))
    return fuse(model)


def sampling_run(
    tokenizer: CharTokenizer, root: Path, settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Let the trained model write, each text from a newline."""
    prompt = torch.tensor([tokenizer.encode("\n")] * ROWS)  # (ROWS, 1)
    generator = torch.Generator().manual_seed(seed)
    ids = write(trained(root), prompt, WRITTEN, **settings, generator=generator)
    texts = [tokenizer.decode(row[1:].tolist()) for row in ids]
    return {"settings": settings, "texts": texts}


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    data = split_corpus(torch.tensor(tokenizer.encode(text)))
    by_name: dict[str, Callable[[], dict[str, Any]]] = {}

    def add(size: str, steps: int, seed: int) -> None:
        name = f"{size}, {steps} steps, seed {seed}"
        by_name[name] = partial(scaling_run, data, SIZES[size], steps, seed)

    for setting, settings in SETTINGS.items():
        name = f"texts, {setting}"
        by_name[name] = partial(sampling_run, tokenizer, root, settings)
    for size in SIZES:
        add(size, STEPS, SEEDS[0])
    for steps in (*BUDGETS, LONGEST):
        add("d48", steps, SEEDS[0])
    for seed in SEEDS[1:]:
        for size in REPEATED:
            add(size, STEPS, seed)
        for steps in BUDGETS:
            add("d48", steps, seed)
    for size in ("d16", "d64"):
        for factor in FACTORS:
            name = f"{size}, {STEPS} steps, rate times {factor}"
            by_name[name] = partial(
                scaling_run, data, SIZES[size], STEPS, SEEDS[0], factor
            )
    return by_name
