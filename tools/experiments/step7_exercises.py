"""The longer runs that solutions to the exercises of Step 7 report.

Of the first part: the merges of the corpus when the largest pair wins a tie, the merges
inside words, and a model with a vocabulary of 2,048 at the size of the page's models.
Of the second part: texts at low temperatures, which may run in circles; texts of two
samplers, each with two seeds; and one more size, by the page's recipe.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path
from typing import Any

import torch

from tinygpt.bpe import (
    FastBPE,
    TokenChain,
    index_pairs,
    merge_everywhere,
    text_to_bytes,
    train_fast,
)
from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.sampling import write
from tools.experiments.step7 import STEPS, sampling_run, scaling_run, trained
from tools.experiments.step7_tokens import TOKENS, Text, train_once

LOG = "step7_exercises.json"
MERGES = 768
WORDS = r" ?\w+|\s| ?[^\w\s]+"
TABLE = {**TOKENS, "V": 2_048, "d": 36}
TABLE_SEED = 1337
SIZE = 80, 4, 3  # width, heads, blocks
SIZE_SEEDS = (1, 2)
SAMPLERS: dict[str, dict[str, Any]] = {
    "T 0.92": {"temperature": 0.92},
    "T 1.0, top-k 10": {"top_k": 10},
    "T 0.95, min-p 0.03": {"temperature": 0.95, "min_p": 0.03},
}
SAMPLER_SEEDS = (0, 1)
COOL: dict[str, dict[str, Any]] = {
    **{f"T {t}": {"temperature": t} for t in (0.05, 0.1, 0.2, 0.3)},
    "top-k 2": {"top_k": 2},
}
PROMPTS, PROMPT, CIRCLE = 3, 32, 560  # prompts, their length, what is written


def train_largest(
    chunks: Iterable[Sequence[int]], n_merges: int
) -> list[tuple[int, int]]:
    """Learn merges as ``train_fast`` does, but the largest pair wins a tie."""
    chain = TokenChain(chunks)
    counts, places = index_pairs(chain)
    heap = [(-n, -left, -right) for (left, right), n in counts.items()]
    heapify(heap)
    merges: list[tuple[int, int]] = []
    while heap and len(merges) < n_merges:
        claimed, left, right = heap[0]
        pair = -left, -right
        if not counts[pair]:
            heappop(heap)
        elif -claimed != counts[pair]:
            heapreplace(heap, (-counts[pair], left, right))
        else:
            heappop(heap)
            new_id = 256 + len(merges)
            merges.append(pair)
            for new in merge_everywhere(chain, counts, places, pair, new_id):
                if counts[new]:
                    heappush(heap, (-counts[new], -new[0], -new[1]))
    return merges


def ties_run(root: Path) -> dict[str, Any]:
    """The merges of the whole corpus when the largest pair wins a tie."""
    data = text_to_bytes(load_corpus("tinyshakespeare", root))
    return {"merges": train_largest([data], MERGES)}


def words_run(root: Path) -> dict[str, Any]:
    """The merges of the training part, inside words only."""
    part = split_corpus(load_corpus("tinyshakespeare", root))[0]
    chunks = [text_to_bytes(word) for word in re.findall(WORDS, part)]
    return {"merges": train_fast(chunks, MERGES), "chunks": len(chunks)}


def table_run(root: Path) -> dict[str, Any]:
    """Train a narrow model with large tables on the page's budget."""
    parts = split_corpus(load_corpus("tinyshakespeare", root))
    tokenizer = FastBPE.train(parts[0], TABLE["V"])
    spelled = torch.tensor([len(spelling) for spelling in tokenizer.token_bytes])
    ids = [torch.tensor(tokenizer.encode(part)) for part in parts]
    seen = Counter(ids[0].tolist())
    rare = sum(seen[i] < 100 for i in range(TABLE["V"]))
    result = train_once(Text(*ids, spelled), TABLE, TABLE_SEED)
    return {**result, "seen_less_than_100_times": rare}


def circle_run(
    data: torch.Tensor, tokenizer: CharTokenizer, root: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    """Continue three passages of the held-out text at a low temperature."""
    prompts = torch.stack([data[i * 20_000 :][:PROMPT] for i in range(PROMPTS)])
    generator = torch.Generator().manual_seed(0)
    ids = write(trained(root), prompts, CIRCLE, **settings, generator=generator)
    texts = [tokenizer.decode(row.tolist()) for row in ids]
    return {"settings": settings, "texts": texts}


def runs(root: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name."""
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    data = split_corpus(torch.tensor(tokenizer.encode(text)))
    by_name: dict[str, Callable[[], dict[str, Any]]] = {
        "merges, the largest pair wins": partial(ties_run, root),
        "merges, inside words": partial(words_run, root),
        "vocabulary of 2,048": partial(table_run, root),
    }
    for name, settings in COOL.items():
        by_name[f"circle, {name}"] = partial(
            circle_run, data[1], tokenizer, root, settings
        )
    for name, settings in SAMPLERS.items():
        for seed in SAMPLER_SEEDS:
            by_name[f"texts, {name}, seed {seed}"] = partial(
                sampling_run, tokenizer, root, settings, seed
            )
    for seed in SIZE_SEEDS:
        by_name[f"d80, {STEPS} steps, seed {seed}"] = partial(
            scaling_run, data, SIZE, STEPS, seed
        )
    return by_name
