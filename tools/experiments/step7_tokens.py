"""The experiments of Step 7's first part: a GPT on characters against one on tokens.

Two models of as nearly the same size as the sizes allow. The one on tokens is trained
twice: with as many tokens a step as the one on characters reads characters, and with
windows of as many bytes. All are compared in bits per byte of the held-out text. One
pair is trained for longer, to see whether the order stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinygpt.bpe import FastBPE, bits_per_byte
from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.training import TrainConfig, Trainer, fuse, whole_text_loss

LOG = "step7_tokens_experiments.json"
SEEDS = (1337, 1338, 1339)
VOCABULARY = 512
CHARACTERS = {"V": 65, "T": 64, "d": 64, "H": 4, "L": 4}
TOKENS = {"V": VOCABULARY, "T": 64, "d": 56, "H": 4, "L": 4}
SAME_TEXT = {**TOKENS, "T": 32}
BUDGET = TrainConfig(
    steps=600, batch_size=32, eval_every=600, eval_batches=10, final_batches=20
)
LONGER = replace(BUDGET, steps=1_500, eval_every=1_500)


@dataclass(frozen=True)
class Text:
    """The two parts of the corpus as ids, and how many bytes each id spells."""

    train: Tensor
    held_out: Tensor
    id_bytes: Tensor

    def measure(self, model: GPT, stride: int) -> tuple[float, float]:
        """Nats per id and bits per byte, held out; windows start every ``stride``."""
        loss = whole_text_loss(model, self.held_out, stride)
        n_windows = (len(self.held_out) - model.T - 1) // stride + 1
        predicted = self.held_out[1 : 1 + model.T + (n_windows - 1) * stride]
        n_bytes = int(self.id_bytes[predicted].sum())
        return loss, bits_per_byte(loss, len(predicted), n_bytes)


def train_once(
    text: Text, sizes: dict[str, int], seed: int, config: TrainConfig = BUDGET
) -> dict[str, Any]:
    """Train one model on the budget, and measure it on the whole held-out text."""
    torch.manual_seed(seed)
    model = fuse(GPT(**sizes))
    log = Trainer(model, text.train, text.held_out, config).run()
    per_id = int(text.id_bytes[text.train].sum()) / len(text.train)
    nats, bits = text.measure(model, model.T)
    read = config.steps * config.batch_size * model.T
    return {
        "sizes": sizes,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": config.steps,
        "ids_read": read,
        "bytes_read": round(read * per_id),
        "window_bytes": model.T * per_id,
        "nats_per_id": nats,
        "bits_disjoint": bits,
        "bits_with_context": text.measure(model, model.T // 4)[1],
        "bits_train": bits_per_byte(
            log["evaluations"][-1]["train"],
            len(text.train),
            round(len(text.train) * per_id),
        ),
        "train_loss": [round(loss, 5) for loss in log["train_loss"]],
    }


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name, one seed after another."""
    parts = split_corpus(load_corpus("tinyshakespeare", root))
    characters = CharTokenizer.from_text(parts[0])
    tokenizer = FastBPE.train(parts[0], VOCABULARY)
    spelled = torch.tensor([len(spelling) for spelling in tokenizer.token_bytes])
    by_character = Text(
        *(torch.tensor(characters.encode(part)) for part in parts),
        torch.ones(characters.vocab_size, dtype=torch.long),
    )
    by_token = Text(*(torch.tensor(tokenizer.encode(part)) for part in parts), spelled)
    by_name: dict[str, Callable[[], dict[str, Any]]] = {}
    for seed in SEEDS:
        for name, text, sizes in (
            ("characters", by_character, CHARACTERS),
            ("tokens", by_token, TOKENS),
            ("tokens, same text", by_token, SAME_TEXT),
        ):
            by_name[f"{name}, seed {seed}"] = partial(train_once, text, sizes, seed)
    for name, text, sizes in (
        ("characters", by_character, CHARACTERS),
        ("tokens, same text", by_token, SAME_TEXT),
    ):
        by_name[f"{name}, longer"] = partial(train_once, text, sizes, SEEDS[0], LONGER)
    return by_name
