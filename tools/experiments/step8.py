"""The experiments of Step 8: three seeds, trained briefly, measured as the page does.

A claim about one trained model may be a claim about its seed. Each run here trains the
model of Step 5 on a shortened recipe of Step 6 and stores what the page's own functions
measure on it. The weights stay below ``_build/``, so that a measurement can be made
again without the training.
"""

import io
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.interpret import (
    Part,
    Record,
    ablated,
    ablation_effects,
    all_parts,
    bootstrap_interval,
    half_bits,
    head_scores,
    induction_strings,
    key_patterns,
    logit_lens,
    neuron_scores,
    part_changes,
    record,
    speaker_mask,
    spread_windows,
    target_bits,
)
from tinygpt.training import (
    TrainConfig,
    Trainer,
    fuse,
    load_reference,
    whole_text_loss,
)
from tools.reference import SIZES

SEEDS = (1, 2, 3)
SHORT = TrainConfig(
    steps=800, batch_size=32, eval_every=800, eval_batches=2, final_batches=20
)
WINDOWS = 64
RIVALS = 16  # neurons of the same block that a neuron is compared with
LOG = "step8_experiments.json"


def train_short(root: Path, data: tuple[Tensor, Tensor], seed: int) -> nn.Module:
    """The model of one seed after the short recipe, from its file if it is there."""
    torch.manual_seed(seed)
    model = GPT(**SIZES)
    file = root / "_build" / "experiments" / f"step8_seed{seed}.pt"
    Trainer(fuse(model), *data, SHORT, checkpoint=file).run()
    plain = GPT(**SIZES)  # head by head, so that each head can be asked
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def reference_model(root: Path) -> nn.Module:
    """The trained model of Step 6."""
    model = GPT(**SIZES)
    content = io.BytesIO(load_reference("step6_model.pt", root))
    model.load_state_dict(torch.load(content, weights_only=True))
    return model.eval()


def interval(values: Tensor, counts: Tensor | None = None) -> list[float]:
    """Mean and 95% interval of one number for each window."""
    return [value.item() for value in bootstrap_interval(values, counts)]


def head_table(weights: Tensor, pattern: Tensor) -> list[list[float]]:
    """The pooled score of every head, (L, H)."""
    return bootstrap_interval(*head_scores(weights, pattern))[0].tolist()


def neuron_row(
    model: GPT, windows: Tensor, seen: Record, label: Tensor, capital: Tensor
) -> dict[str, Any]:
    """The neuron that fits a label best in one half, and what it does in the other."""
    half = len(windows) // 2
    first = neuron_scores(seen.neurons[:, :half], label[:half])
    second = neuron_scores(seen.neurons[:, half:], label[half:])
    block, index = divmod(first.abs().argmax().item(), first.shape[1])
    part = Part("neuron", block, index)

    def effect(one: Part) -> list[float]:
        value = one.output(seen).mean()
        changes = part_changes(model, windows[half:], one, value, capital)
        there = label[half:]
        return [c[place].mean().item() for c in changes for place in (there, ~there)]

    generator = torch.Generator().manual_seed(2)
    others = torch.randperm(first.shape[1], generator=generator)[:RIVALS].tolist()
    rivals = [effect(Part("neuron", block, i)) for i in others if i != index]
    return {
        "part": str(part),
        "first": first[block, index].item(),
        "second": second[block, index].item(),
        "effect": effect(part),  # P(capital) there, elsewhere; bits there, elsewhere
        "rivals": torch.tensor(rivals).abs().amax(dim=0).tolist(),
    }


def joint_effect(
    model: GPT, windows: Tensor, means: dict[Part, Tensor], pair: list[Part]
) -> dict[str, Any]:
    """What the mean ablation of two heads at once costs."""
    one, other = pair
    with ablated(model, one, means[one]):
        after = target_bits(model, windows)
        with ablated(model, other, means[other]):
            both = target_bits(model, windows)
    before = target_bits(model, windows)
    return {
        "parts": [str(part) for part in pair],
        "first": interval((after - before).mean(dim=-1)),
        "both": interval((both - before).mean(dim=-1)),
    }


def measure(root: Path, model: GPT) -> dict[str, Any]:
    """What the page measures on its model, on the same windows and strings."""
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    held_out = split_corpus(text)[1]
    val_data = torch.tensor(tokenizer.encode(held_out))
    T, V = SIZES["T"], SIZES["V"]
    windows = spread_windows(val_data, T, WINDOWS)
    ids, targets = windows[:, :-1], windows[:, 1:]
    newline = tokenizer.encode("\n")[0]
    seen, parts = record(model, ids), all_parts(model)
    fuse(model)
    patterns = key_patterns(ids, newline)
    means = {part: part.output(seen).mean(dim=(0, 1)) for part in parts}
    effects = {
        "mean": ablation_effects(model, windows, means),
        "zero": ablation_effects(model, windows, dict.fromkeys(parts, 0.0)),
    }
    lens = F.cross_entropy(
        logit_lens(model, seen).movedim(-1, 1),
        targets.expand(2 * SIZES["L"] + 1, -1, -1),
        reduction="none",
    ) / math.log(2)  # (2L + 1, B, T)
    scores = {
        name: head_table(seen.attention, pattern) for name, pattern in patterns.items()
    }
    heads = [part for part in parts if part.kind == "head"]
    heads.sort(key=lambda part: -scores["previous"][part.block][part.index])
    strings = induction_strings(64, 32, V, torch.Generator().manual_seed(0))
    after_same = key_patterns(strings, newline)["after same"]
    piece = ids[:, :32]
    twice = half_bits(model, torch.cat([piece, piece], dim=1))[1]
    other = half_bits(model, torch.cat([piece.roll(1, dims=0), piece], dim=1))[1]
    capital = torch.tensor([character.isupper() for character in tokenizer.alphabet])
    labels = {
        "inside a speaker's name": spread_windows(speaker_mask(held_out), T, WINDOWS)[
            :, :-1
        ],
        "a capital comes next": capital[targets],
    }
    return {
        "bits": interval(target_bits(model, windows).mean(dim=-1)),
        "scores": scores,
        "two previous": joint_effect(model, windows, means, heads[:2]),
        "effects": {
            how: {str(part): interval(cost) for part, cost in costs.items()}
            for how, costs in effects.items()
        },
        "lens": lens.mean(dim=(1, 2)).tolist(),
        "copies": [half.mean().item() for half in half_bits(model, strings)],
        "saved by a copy": interval(other - twice),
        "induction": head_table(record(model, strings).attention, after_same),
        "neurons": {
            name: neuron_row(model, windows, seen, label, capital)
            for name, label in labels.items()
        },
    }


def seed_run(root: Path, seed: int) -> dict[str, Any]:
    """Train one seed and measure it."""
    text = load_corpus("tinyshakespeare", root)
    ids = CharTokenizer.from_text(text).encode(text)
    data = split_corpus(torch.tensor(ids))
    model = train_short(root, data, seed)
    loss = whole_text_loss(model, data[1])
    return {"steps": SHORT.steps, "validation_whole": loss} | measure(root, model)


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name; the first measures the reference run, which the page does."""
    by_name: dict[str, Callable[[], dict[str, Any]]] = {
        "reference": lambda: measure(root, reference_model(root))
    }
    for seed in SEEDS:
        by_name[f"seed {seed}"] = partial(seed_run, root, seed)
    return by_name
