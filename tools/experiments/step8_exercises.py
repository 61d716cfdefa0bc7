"""The longer runs behind the exercises of Step 8: can induction be taught?

A small model learns from batches of which half is text and half are strings that
repeat. In one run the strings have many lengths, in another they have one, and a third
has the same windows of text and no strings.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.interpret import (
    half_bits,
    head_scores,
    induction_strings,
    key_patterns,
    record,
    spread_windows,
    target_bits,
)
from tinygpt.training import fuse

V, T, BATCH, RATE, WARMUP = 65, 64, 32, 3e-3, 30
STEPS, EVERY = 1_000, 50
TESTED = (12, 20, 27)
LENGTHS = {"lengths 4 to 20": (4, 20), "length 20 only": (20, 20), "text only": None}
LOG = "step8_exercises.json"


def mixed_batch(
    data: Tensor, lengths: tuple[int, int] | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A batch of which half is text and half repeats itself, as the exercise asks.

    Without lengths it is the half that is text.
    """
    half = BATCH // 2
    starts = torch.randint(len(data) - T, (half,), generator=generator)
    rows = [data[start : start + T + 1] for start in starts.tolist()]
    for _ in range(half if lengths else 0):
        low, high = lengths
        length = torch.randint(low, high + 1, (1,), generator=generator).item()
        string = induction_strings(1, length, V, generator)[0]
        rows.append(string.repeat((T + 1) // len(string) + 1)[: T + 1])
    stacked = torch.stack(rows)
    return stacked[:, :-1], stacked[:, 1:]


def measured(model: GPT, windows: Tensor) -> dict[str, Any]:
    """Bits in each copy and the best induction score, by length; bits on the text."""
    found: dict[str, Any] = {"text": target_bits(model, windows).mean().item()}
    for length in TESTED:
        strings = induction_strings(32, length, V, torch.Generator().manual_seed(9))
        first, second = half_bits(model, strings)
        pattern = key_patterns(strings, 0)["after same"]
        means, asked = head_scores(record(model, strings).attention, pattern)
        score = (means @ asked.float() / asked.sum()).max().item()
        found[str(length)] = [first.mean().item(), second.mean().item(), score]
    return found


def taught(
    data: tuple[Tensor, Tensor], lengths: tuple[int, int] | None
) -> dict[str, Any]:
    """Train on mixed batches and measure every few steps."""
    torch.manual_seed(0)
    model = fuse(GPT(V, T, 64, 4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(0)
    windows = spread_windows(data[1], T, 32)
    course = []
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            course.append({"step": step, **measured(model, windows)})
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / WARMUP)
        _, loss = model(*mixed_batch(data[0], lengths, generator))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {"lengths": lengths, "steps": STEPS, "course": course}


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    text = load_corpus("tinyshakespeare", root)
    data = split_corpus(torch.tensor(CharTokenizer.from_text(text).encode(text)))
    return {name: partial(taught, data, pair) for name, pair in LENGTHS.items()}
