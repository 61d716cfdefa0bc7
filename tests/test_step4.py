"""Step 4, the page: its figures, and the properties behind them."""

import functools
import math
import re

import pytest
import torch
from chapter2 import one_thread  # noqa: F401
from stored_page import printed_by
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.attention import (
    OneHeadModel,
    assert_causal,
    find_leaks,
    fit_windows,
    windows_loss,
)
from tinygpt.bigram import bigram_bits, bigram_counts, bigram_probabilities
from tinygpt.chars import (
    CharTokenizer,
    bits_per_character,
    code_bits,
    split_corpus,
    unigram_probabilities,
)
from tinygpt.corpus import load_corpus
from tools.pages import ROOT

# What one cell prints, blanks made single.
PRINTED = {
    "three ways": ["as the loop, gap < 1e-6: True as the loop, gap < 1e-6: True"],
    "first rows": ["1.00 0.00 0.00 0.00 0.00 0.50 0.50", "above the diagonal: 0.0"],
    "the scale": [
        "head 1/sqrt(16) = 0.25000: True stream 1/sqrt(64) = 0.12500: False",
        "head 1/sqrt(8) = 0.35355: True stream 1/sqrt(16) = 0.25000: False",
    ],
    "measured scores": ["256 5.3 5.3 0.3"],
    "the bitwise test": ["moved by position 5: [5, 6, 7] no leak"],
    "broken heads": [
        "no mask 28 of 28 pairs leak",
        "one too late 7 of 28 pairs leak",
        "after softmax 28 of 28 pairs leak",
        "position 0 moved when the symbol at position 1 was changed",
    ],
    "gradients": [
        "output 3 depends on inputs [0, 1, 2, 3]",
        "after softmax: on inputs [0, 1, 2, 3, 4, 5, 6, 7]",
    ],
    "the model": ["22,721 parameters before training 4.20, ln 65 = 4.17"],
    "earlier rows": ["uniform 6.022 unigram 4.83 bigram 3.58"],
    "the cheating model is caught": ["more than 400 of 496: True"],
    "a bag": [
        "with positions gap < 1e-4: False",
        "without positions gap < 1e-4: True",
    ],
}


def printed() -> list[str]:
    return printed_by("step4-attention")


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


@functools.cache
def parts() -> tuple[Tensor, Tensor]:
    text = load_corpus("tinyshakespeare", start=ROOT)
    ids = torch.tensor(CharTokenizer.from_text(text).encode(text))
    return split_corpus(ids)


@functools.cache
def trained(kind: str) -> tuple[OneHeadModel, list[float]]:
    """A shorter run than the page's: the same findings at less than half the price."""
    torch.manual_seed(0)
    model = OneHeadModel(65, 32, 64)
    if kind == "no mask":
        model.attention.mask.zero_()
    if kind == "no positions":
        nn.init.zeros_(model.pos.weight).requires_grad_(False)
    return model, fit_windows(model, parts()[0], 400)


def test_the_earlier_rows_of_the_bits_table():
    train, held_out = parts()
    bigram = bigram_probabilities(bigram_counts(train, 65), add=1)
    assert f"{math.log2(65):.3f}" == "6.022"
    assert f"{code_bits(unigram_probabilities(train, 65), held_out):.2f}" == "4.83"
    assert f"{bigram_bits(bigram, held_out):.2f}" == "3.58"


def test_an_untrained_head_is_as_good_as_a_guess_on_the_whole_held_out_text():
    torch.manual_seed(0)
    loss = windows_loss(OneHeadModel(65, 32, 64), parts()[1])
    assert f"{loss:.2f}" == "4.20"
    assert abs(loss - math.log(65)) < 0.1


def test_one_head_lies_between_bigram_and_mlp():
    model, _ = trained("honest")
    bits = bits_per_character(windows_loss(model, parts()[1]))
    assert 3.2 < bits < 3.58  # the MLP's band ends at 2.95
    assert_causal(model, parts()[1][None, :32], 65)


def test_without_positions_it_is_worse_and_reads_a_bag():
    model, _ = trained("no positions")
    held_out = parts()[1]
    honest = windows_loss(trained("honest")[0], held_out)
    assert windows_loss(model, held_out) > honest + 0.04
    rows = held_out[: 32 * 20].view(20, 32)
    order = torch.cat([torch.randperm(31), torch.tensor([31])])
    with torch.no_grad():
        gap = model(rows)[0][:, -1] - model(rows[:, order])[0][:, -1]
    assert gap.abs().max() < 1e-4


def test_without_the_mask_three_symptoms_show():
    model, losses = trained("no mask")
    held_out = parts()[1]
    assert bits_per_character(sum(losses[-50:]) / 50) < 0.25
    assert bits_per_character(windows_loss(model, held_out)) < 0.25
    rows = held_out[: 33 * 50].view(50, 33)
    with torch.no_grad():
        single = [
            F.cross_entropy(model(rows[:, : t + 1])[0][:, -1], rows[:, t + 1])
            for t in range(32)
        ]
    assert bits_per_character(sum(loss.item() for loss in single) / 32) > 6.022
    leaks = find_leaks(model, held_out[None, :32], 65)
    assert 400 < len(leaks) <= 32 * 31 // 2  # a tiny weight may be lost in rounding


def test_with_the_mask_all_at_once_is_one_at_a_time():
    model, _ = trained("honest")
    rows = parts()[1][: 33 * 20].view(20, 33)
    with torch.no_grad():
        whole = model(rows[:, :-1])[0]
        single = [model(rows[:, : t + 1])[0][:, -1] for t in range(32)]
    torch.testing.assert_close(whole, torch.stack(single, 1), rtol=0, atol=1e-4)


def test_the_trained_bits_of_the_page_lie_in_their_bands():
    (row,) = [text for text in printed() if re.match(r"one head \d", text)]
    bits = [float(number) for number in re.findall(r"\d\.\d\d", row)]
    assert len(bits) == 2
    assert all(3.28 < b < 3.48 for b in bits)
