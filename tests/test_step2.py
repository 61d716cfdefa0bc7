"""Step 2's page: its figures, and the properties behind them, on the real text."""

import functools
import math
import re

import pytest
import torch
from chapter2 import one_thread  # noqa: F401
from stored_page import printed_by
from torch import Tensor

from tinygpt.bigram import (
    bigram_bits,
    bigram_counts,
    bigram_probabilities,
    sample_bigram,
)
from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tools.pages import ROOT

V = 65

# What one cell prints, blanks made single.
PRINTED = {
    "the counts": [
        *("1,003,853 pairs to learn from, 111,539 held out", "1,380 of 4,225 cells"),
        "'$' 1, '&' 3, '3' 27",
    ],
    "bits": [
        "no smoothing training 3.5374, held out inf",
        "add-one training 3.5412, held out 3.5806",
    ],
    "new pairs": ["23 kinds", "187 times among 111,539", "SP: 63", "EB: 42", "NZ: 37"],
    "the best alpha": ["best alpha 0.79: held out 3.5805"],
    "the first loss": ["first loss 4.1744 nats, ln 65 = 4.1744"],
    "the gradient": ["formula and autograd agree, gap < 1e-12: True"],
    "descent approaches counting": [
        *("100,000 3.5378 0.0004", "rose between two copies: False"),
    ],
    "the slopes": ["slope in logarithms: descent -0.87, Adam -0.05"],
    "the slope with one target": ["slope with the same target in all rows: -1.00"],
    "own clocks": ["takes 2.3 to 15.8", "slope of that over the share: 0.13"],
    "eps": ["3 takes 37.0 steps, $ takes 37.0"],
    "batches": ["the same table after 100 batches, gap < 1e-9: True"],
    "four runs": ["descent, exact 0.014", "Adam, batches 0.004", "-0.25"],
    "no gradient": ["a row moved before it was ever seen: False"],
    "early stopping": ["best 3.582", "best 3.584", "at the end 3.598"],
    "the series": [
        *("uniform 6.022", "unigram, training 4.77", "unigram, held out 4.83"),
        *("bigram, training 3.54", "bigram, held out, add-one 3.58"),
        *("bigram, learned, training 3.54", "bigram, learned, held out 3.58"),
    ],
}


@functools.cache
def printed() -> list[str]:
    return printed_by("step2-bigram")


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


@functools.cache
def halves() -> tuple[Tensor, Tensor]:
    text = load_corpus("tinyshakespeare", start=ROOT)
    data = torch.tensor(CharTokenizer.from_text(text).encode(text))
    return split_corpus(data)


@functools.cache
def counts() -> Tensor:
    return bigram_counts(halves()[0], V)


def test_the_counted_bigram_costs_what_the_series_says():
    train, held_out = halves()
    bare, smooth = bigram_probabilities(counts()), bigram_probabilities(counts(), 1)
    assert f"{bigram_bits(bare, train):.4f}" == "3.5374"
    assert bigram_bits(bare, held_out) == math.inf
    assert f"{bigram_bits(smooth, held_out):.4f}" == "3.5806"
    assert f"{bigram_bits(smooth, train):.4f}" == "3.5412"
    assert f"{bigram_bits(torch.full((V, V), 1 / V), held_out):.3f}" == "6.022"


def test_the_bits_are_the_conditional_entropy_of_the_pairs():
    n = counts()
    by_rows = (
        torch.special.xlogy(n, n).sum() - torch.special.xlogy(*[n.sum(1)] * 2).sum()
    )
    bits = bigram_bits(bigram_probabilities(n), halves()[0])
    assert bits == pytest.approx(
        -by_rows.item() / n.sum().item() / math.log(2), abs=1e-9
    )


def test_every_character_opens_a_pair_and_most_pairs_never_occur():
    assert (counts().sum(1) > 0).all()
    assert int((counts() > 0).sum()) == 1_380
    assert int(counts().sum()) == 1_003_853


def test_smoothing_costs_on_the_training_text_whatever_is_added():
    train, held_out = halves()
    alphas = [0.0, 0.01, 0.1, 1.0, 10.0, 100.0]
    bits = [bigram_bits(bigram_probabilities(counts(), a), train) for a in alphas]
    assert bits == sorted(bits)
    held = [bigram_bits(bigram_probabilities(counts(), a), held_out) for a in alphas]
    assert min(held) == held[3]


def test_a_sample_writes_no_pair_that_the_text_does_not_have():
    generator = torch.Generator().manual_seed(1)
    ids = sample_bigram(bigram_probabilities(counts()), 0, 2_000, generator)
    assert (counts()[ids[:-1], ids[1:]] > 0).all()


# The clocks


def steps_until(row: int, rate: float, part: float = 0.5, target=None) -> int:
    """Steps of gradient descent until a row has only this part of its excess."""
    n = counts()
    share = n[row].sum() / n.sum()
    p = n[row] / n[row].sum() if target is None else target
    floor = -torch.special.xlogy(p, p).sum()
    z, first = torch.zeros(V, dtype=torch.float64), math.log(V) - floor
    for step in range(20_000):
        if -(p * z.log_softmax(0)).sum() - floor <= part * first:
            return step
        z = z - rate * share * (z.softmax(0) - p)
    raise AssertionError(f"row {row} has not come so far")


def test_time_is_inverse_to_frequency_where_targets_are_equal():
    """Three rows with shares near these, at a rate at which steps are small."""
    n = counts()
    target = bigram_probabilities(n)[0]
    shares = n.sum(1) / n.sum()
    rows = [int((shares - s).abs().argmin()) for s in (0.01, 0.03, 0.09)]
    products = [steps_until(a, 5.0, target=target) * shares[a].item() for a in rows]
    assert max(products) / min(products) == pytest.approx(1, abs=0.05)


def test_the_rarest_of_the_frequent_takes_as_long_as_the_page_says():
    tokenizer = CharTokenizer.from_text(load_corpus("tinyshakespeare", start=ROOT))
    by_page = {
        match[1]: int(match[2].replace(",", ""))
        for text in printed()
        for match in re.finditer(r"'(.)': share [\d.]+, steps to halve ([\d,]+)", text)
    }
    assert set(by_page) == set(" eTQ3&$")
    for character in "eTQ3":
        steps = steps_until(tokenizer.ids[character], 25.0)
        assert steps == pytest.approx(by_page[character], rel=0.01, abs=1)


def test_descent_reaches_the_counted_table_and_never_its_zeros():
    n = counts()
    share, p = n.sum(1) / n.sum(), bigram_probabilities(n)
    floor = bigram_bits(p, halves()[0])
    W, before = torch.zeros(V, V, dtype=torch.float64), math.inf
    for step in range(1, 1_001):
        W = W - 25 * share[:, None] * (W.softmax(1) - p)
        if step in (1, 10, 100, 1_000):
            gap = bigram_bits(W.softmax(1), halves()[0]) - floor
            assert 0 < gap < before
            before = gap
    assert gap < 0.05
    assert (W.softmax(1) > 0).all()
    assert bigram_bits(W.softmax(1), halves()[1]) < math.inf
