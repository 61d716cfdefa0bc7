"""Training to the reference loss: Step 6, a public recipe, and the speed run.

- *Step 6, head by head*: the model of Step 5 and the recipe of Step 6, 5,000 steps. Its
  loss is that of the stored reference run.
- *nanoGPT-style*: a small model and recipe as people train it on a laptop, after the
  configuration for Shakespeare's characters that Karpathy's nanoGPT names for a
  processor: 4 layers of 4 heads, width 128, windows of 64, 12 of them a step, 2,000
  steps. Written here, with PyTorch's fused attention. It is trained in full.
- *speed run*: Step 9, trained in full.

All are judged on the whole validation text. Some steps of each are timed in rounds, in
turn with the others, by the clock; the time of a run is its steps times the mean of
those. Examinations are not counted. The ratio compares whole runs.

Usage: ``python -m benchmarks.training [--small] [--store]``
"""

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import arguments, finish, ratio, report, turns
from tinygpt.gpt import GPT
from tinygpt.speedrun import TARGET, SpeedConfig, speed_run
from tinygpt.training import (
    TrainConfig,
    get_batch,
    learning_rate,
    load_reference,
    whole_text_loss,
)
from tinygpt.transformer import parameter_count
from tools.experiments.step9 import split_text
from tools.experiments.step9_times import REFERENCE as STEP_6
from tools.experiments.step9_times import reference_seconds, speed_seconds
from tools.reference import SEED, SIZES, THREADS

NANO, OURS = "nanoGPT-style", "speed run"
ROUNDS = 15


class NanoGPT(nn.Module):
    """A GPT-2 of small size without biases, its table of tokens shared by the head.

    Args:
        V, T, d, H, L: tokens, positions, width, heads, layers.
    """

    def __init__(self, V: int, T: int, d: int, H: int, L: int) -> None:
        super().__init__()
        self.T, self.H = T, H
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(T, d)
        linear = partial(nn.Linear, bias=False)
        norm = partial(nn.LayerNorm, bias=False)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln1": norm(d),
                    "qkv": linear(d, 3 * d),
                    "out": linear(d, d),
                    "ln2": norm(d),
                    "up": linear(d, 4 * d),
                    "down": linear(4 * d, d),
                }
            )
            for _ in range(L)
        )
        self.lnf = norm(d)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * L) ** 0.5 if last else 0.02)

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Map ids (B, T) to logits (B, T, V), and to the loss of ``targets``."""
        B, T = idx.shape
        x = self.tok(idx) + self.pos.weight[:T]  # (B, T, d)
        for block in self.blocks:
            qkv = block["qkv"](block["ln1"](x)).view(B, T, 3, self.H, -1)
            query, key, value = qkv.permute(2, 0, 3, 1, 4)  # (B, H, T, dh) each
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + block["out"](mixed.transpose(1, 2).reshape(B, T, -1))
            x = x + block["down"](F.gelu(block["up"](block["ln2"](x))))
        logits = self.lnf(x) @ self.tok.weight.mT  # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


NANO_SIZES = {"V": 65, "T": 64, "d": 128, "H": 4, "L": 4}
NANO_RECIPE = TrainConfig(steps=2_000, batch_size=12, max_rate=1e-3, min_rate=1e-4)


def train_nano(
    train_data: Tensor, steps: int = NANO_RECIPE.steps
) -> tuple[NanoGPT, float]:
    """Train the nanoGPT-style model; return it and its seconds a step."""
    torch.manual_seed(SEED)
    model = NanoGPT(**NANO_SIZES)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [
        {"params": matrices, "weight_decay": NANO_RECIPE.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=NANO_RECIPE.betas)
    start = time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, NANO_RECIPE)
        _, loss = model(*get_batch(train_data, model.T, NANO_RECIPE.batch_size))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), NANO_RECIPE.clip)
        optimizer.step()
    return model, (time.perf_counter() - start) / steps


def measure(small: bool, root: Path) -> dict[str, Any]:
    """Train what is short enough, time a step of each in turn, compare whole runs."""
    data = split_text(root)
    train_data, val_data = data
    config = SpeedConfig()
    exam = val_data[: 20 * config.T] if small else val_data
    nano, _ = train_nano(train_data, 3 if small else NANO_RECIPE.steps)
    steps = 3 if small else config.steps
    fast, log = speed_run(config, train_data, exam, every=steps, until=steps)
    reference = json.loads(load_reference("step6_log.json", root))
    losses = {
        STEP_6: reference["validation_whole"],
        NANO: whole_text_loss(nano, exam),
        OURS: log["examinations"][-1]["validation"],
    }
    models = {STEP_6: GPT(**SIZES), NANO: nano, OURS: fast}
    parameters = {name: parameter_count(model) for name, model in models.items()}
    whole = {STEP_6: TrainConfig().steps, NANO: NANO_RECIPE.steps, OURS: config.steps}
    pieces = {STEP_6: 10, NANO: 100, OURS: 20}  # steps of each in a round
    rounds: dict[str, list[float]] = {name: [] for name in whole}
    seconds_a_step = {
        STEP_6: partial(reference_seconds, data),
        NANO: lambda steps: train_nano(train_data, steps)[1],
        OURS: partial(speed_seconds, data, {}),
    }
    for name in turns(seconds_a_step, 2 if small else ROUNDS):
        rounds[name].append(seconds_a_step[name](1 if small else pieces[name]))
    runs = {
        name: [seconds * whole[name] for seconds in taken]
        for name, taken in rounds.items()
    }
    task = "a whole run"
    checks = {"it has no more parameters": parameters[OURS] <= parameters[STEP_6]}
    if not small:  # a few steps reach nothing
        checks = {
            "the speed run reaches the loss of Step 6": losses[OURS] <= TARGET,
            "it is below the nanoGPT-style run": losses[OURS] < losses[NANO],
        } | checks
    return report(
        "training",
        small,
        measures=[
            {"task": "a step", "unit": "seconds", "rounds": rounds},
            {"task": task, "unit": "seconds", "rounds": runs},
        ],
        ratios=[ratio(task, runs, OURS, STEP_6), ratio(task, runs, OURS, NANO)],
        checks=checks,
        losses=losses,
        steps=whole,
        parameters=parameters,
        threads=torch.get_num_threads(),
        bfloat16=log["bfloat16"],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures; fail if a check does not hold."""
    options = arguments("training", __doc__.splitlines()[0], argv)
    torch.set_num_threads(1 if options.small else THREADS)  # two wait for each other
    return finish(measure(options.small, options.root), options.root, options.store)


if __name__ == "__main__":
    sys.exit(main())
