"""Lecture 8: each claim is proven and checked, and the checks print what they must."""

import re

import pytest
from stored_page import printed_by, proven_claims

# What one cell prints.
PRINTED = {
    "direct logit attribution": ["shares add up, gap < 1e-12: True", "8 writes"],
    "the scale that was held": [
        "logits without the write, gap < 1e-12: True",
        "naive difference right, gap < 0.1: False",
    ],
    "two circuits": ["sum over heads, gap < 1e-12: True", "circuits: 8 of 32"],
    "no axes": ["same logits, gap < 1e-10: True", "of one head < 0.2: True"],
    "almost orthogonal": ["d times the mean square: 1.00", "4096 directions in 128"],
    "induction by hand": [
        "weight on the position before is 1, gap < 1e-12: True",
        "weight behind the first is 1, gap < 1e-12: True",
        "second copy, loss < 1e-6: True",
    ],
    "both heads, and a flat lens": [
        "all in place, < 1e-6: True",
        "lens after block 0 is uniform, gap < 1e-12: True",
    ],
    "Jensen": ["resampling costs more than the mean: True"],
    "redundancy": ["the bound holds for all margins: True", "gap < 1e-6: True"],
    "the twins": [
        "without the one, < 1e-6: True",
        "without the other, < 1e-6: True",
        "without both: 3.30, ln 27 = 3.30",
        "block 1 in the logit: 50%",
        "block 2 in the logit: 50%",
    ],
    "many tests": ["16 tests at 5%: a false call 0.56, measured 0.5"],
    "one seed": ["one in H^2: 0.062"],
}


def printed() -> list[str]:
    return printed_by("lecture8-residual-stream")


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_every_comparison_holds_but_the_one_that_must_not():
    verdicts = re.findall(r"< (?:1e-\d+|0\.1): (\w+)", " ".join(printed()))
    assert verdicts.count("False") == 1
    assert verdicts.count("True") == len(verdicts) - 1 >= 12


def test_the_best_of_sixteen_is_surprising_only_as_if_it_were_alone():
    (text,) = [text for text in printed() if text.startswith("best is head")]
    single, joint = map(float, re.findall(r"p = ([\d.]+\d)", text))
    assert single < 0.05 < joint


def test_each_proposition_is_followed_by_a_proof_and_in_its_section_by_a_cell():
    assert proven_claims("lecture8-residual-stream") == 9
