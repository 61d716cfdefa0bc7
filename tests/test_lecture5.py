"""Lecture 5: each claim is proven and checked, and the checks print what they must.

That the outputs are still true is proven by running the notebook; here, that they are
there at all, and that no box stands without its proof and its cell.
"""

import re

import pytest
from stored_page import printed_by, proven_claims

# What one cell prints; every check of a gap has to say True, with one exception.
PRINTED = {
    "the formulas are the model": ["formulas against model, gap < 1e-12: True"],
    "the image of LayerNorm": [
        *("sum of entries is 0, gap < 1e-12: True", "length is sqrt(d)"),
        *("scale and shift change nothing", "twice is once", "15 of 16 dimensions"),
    ],
    "the Jacobian of LayerNorm": ["rank 14 of 16", "rank 15 of 16"],
    "every key can win": ["on the circle: 40 of 40", "own query: True"],
    "the stream is a sum": ["logits from the sum, gap < 1e-12: True", "6 writes"],
    "a block's Jacobian": ["block, gap < 1e-12: True"],
    "rank of the stacks": ["pre-norm 16 32", "post-norm 16 24"],
    "back through a head": ["dX", "dW_Q", "dW_K", "dW_V", "rows of dS sum to 0"],
    "sizes of the model": ["816,640", "786,432", "791,552", "5,120"],
    "reach": ["depends on 32 positions; without attention on 1"],
    "a bag": [
        "L = 1, earlier tokens shuffled, gap < 1e-12: True",
        "L = 2, earlier tokens shuffled, gap < 1e-12: False",
    ],
    "two rulers": ["unigram 3.308", "bigram 2.525"],
}


def printed() -> list[str]:
    return printed_by("lecture5-architecture")


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_every_comparison_holds_but_the_one_that_must_not():
    verdicts = re.findall(r"gap < 1e-12: (\w+)", " ".join(printed()))
    assert verdicts.count("False") == 1
    assert verdicts.count("True") == len(verdicts) - 1 >= 15


def test_every_count_of_a_random_model_is_the_predicted_one():
    (table,) = [text for text in printed() if text.startswith("V ") and "H " in text]
    assert re.findall(r"True|False", table) == ["True"] * 8


def test_each_proposition_is_followed_by_a_proof_and_in_its_section_by_a_cell():
    assert proven_claims("lecture5-architecture") == 9
