"""Lecture 2: each claim has its proof and its cell, and the cells print what they must.

The propositions themselves are tried here on random tables, apart from the page.
"""

import math
import re

import pytest
import torch
from chapter2 import quick
from hypothesis import given
from hypothesis import strategies as st
from stored_page import printed_by, proven_claims
from torch.nn import functional as F

from tinygpt.bigram import bigram_counts, bigram_probabilities

PRINTED = {
    "underflow": ["product: 0.0", "sum of logarithms: -1609.4"],
    "excess": ["loss is entropy plus excess", "none is below counting: True"],
    "softmax": ["a shift changes nothing", "by the formula: [nan, nan]"],
    "gradient": ["autograd and formula", "each row of it sums to 0"],
    "Hessian": ["Hessian and formula", "10,000 random rows: 0.500"],
    "descent": ["the loss never rose: True", "after 10,000 steps: 0.00009"],
    "one over the steps": ["excess times s: 0.80, (V - 1) / V = 0.80"],
    "the factor": ["factor 9.03", "factor 9.04"],
    "the end": ["factor 0.9881, predicted 0.9881", "factor 0.9987, predicted 0.9987"],
    "a rare pair": ["the bound holds: True"],
    "Adam": ["both rows, all steps, gap < 1e-12: True", "factor 1.00"],
    "a lone gradient": [
        *("formula 10.47, measured 10.47 10.47", "formula 31.77, measured 31.77 31.77"),
    ],
    "a penalty": ["descent finds the smoothed row, gap < 1e-12: True"],
    "a belief": ["mean of draws: 0.42 0.25", "add-one: 0.42 0.25"],
}


def printed() -> list[str]:
    return printed_by("lecture2-likelihood")


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_every_comparison_holds():
    verdicts = re.findall(r": (True|False)", " ".join(printed()))
    assert verdicts == ["True"] * len(verdicts)
    assert len(verdicts) == 13


def test_the_gap_falls_and_stays_below_its_bound():
    (table,) = [text for text in printed() if "bound 0." in text]
    pairs = re.findall(r"steps: ([\d.]+) above counting, bound ([\d.]+)", table)
    gaps = [float(gap) for gap, _ in pairs]
    assert len(gaps) == 4
    assert gaps == sorted(gaps, reverse=True)
    assert all(float(gap) < float(bound) for gap, bound in pairs)


def test_each_proposition_is_followed_by_a_proof_and_in_its_section_by_a_cell():
    assert proven_claims("lecture2-likelihood") == 13


# The claims themselves, on other examples than the page's

numbers = st.lists(st.floats(-8, 8), min_size=4, max_size=4).map(
    lambda row: torch.tensor(row, dtype=torch.float64)
)
positive = st.lists(st.floats(0.05, 5), min_size=4, max_size=4).map(
    lambda row: torch.tensor(row, dtype=torch.float64)
)


@quick
@given(numbers, positive)
def test_the_gradient_at_the_logits_is_predicted_minus_observed(z, weights):
    p = weights / weights.sum()
    z = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(-(p * z.log_softmax(0)).sum(), z)
    torch.testing.assert_close(gradient, z.softmax(0) - p, rtol=0, atol=1e-12)


@quick
@given(numbers, numbers, st.floats(0, 1), positive)
def test_the_loss_lies_below_its_chords(z, other, part, weights):
    p = weights / weights.sum()

    def loss(z):
        return -(p * z.log_softmax(0)).sum().item()

    between = loss(part * z + (1 - part) * other)
    assert between <= part * loss(z) + (1 - part) * loss(other) + 1e-9


@quick
@given(numbers)
def test_curvature_lies_between_zero_and_one_half(z):
    q = z.softmax(0)
    values = torch.linalg.eigvalsh(q.diag() - torch.outer(q, q))
    assert values[0].abs() < 1e-12
    assert values[-1] <= 0.5 + 1e-12


@quick
@given(st.lists(st.integers(0, 2), min_size=2, max_size=40), st.floats(0.1, 1))
def test_descent_at_a_safe_rate_never_raises_the_loss(ids, part):
    ids = torch.tensor(ids)
    counts = bigram_counts(ids, 3)
    share = counts.sum(1) / counts.sum()
    p = bigram_probabilities(counts)
    rate, W, last = part * 4 / share.max(), torch.zeros(3, 3).double(), math.inf
    for _ in range(40):
        loss = F.cross_entropy(W[ids[:-1]], ids[1:]).item()
        assert loss <= last + 1e-12
        last = loss
        W = W - rate * share[:, None] * (W.softmax(1) - p)


def test_a_rate_above_the_bound_can_raise_it():
    """The bound is met where a row splits its probability between two symbols."""
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    for rate, rises in ((3.9, False), (4.1, True)):
        z = torch.tensor([1e-3, -1e-3], dtype=torch.float64)
        after = z - rate * (z.softmax(0) - p)
        gap = -(p * after.log_softmax(0)).sum() + (p * z.log_softmax(0)).sum()
        assert bool(gap > 0) == rises


@quick
@given(positive, st.floats(0.001, 1))
def test_a_row_depends_on_rate_times_share_alone(weights, share):
    p = weights / weights.sum()
    rows = [torch.zeros(4, dtype=torch.float64) for _ in range(2)]
    for _ in range(30):
        rows[0] = rows[0] - 2.0 * (share * (rows[0].softmax(0) - p))
        rows[1] = rows[1] - (2.0 * share) * (rows[1].softmax(0) - p)
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_adam_forgets_the_share_but_for_eps(eps):
    """A share of 1e-6 with eps is a share of 1 with a million times eps."""
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)

    def run(share, eps):
        z = torch.zeros(3, dtype=torch.float64)
        optimizer = torch.optim.Adam([z], lr=0.05, eps=eps)
        for _ in range(50):
            z.grad = share * (z.softmax(0) - p)
            optimizer.step()
        return z

    torch.testing.assert_close(run(1e-6, eps), run(1.0, 1e6 * eps), rtol=0, atol=1e-9)
    moved_alike = torch.allclose(run(1e-6, eps), run(1.0, eps), atol=1e-6)
    assert moved_alike == (eps == 0)


@quick
@given(positive)
def test_the_mean_of_a_dirichlet_is_its_parameters_normalised(parameters):
    mean = torch.distributions.Dirichlet(parameters).mean
    torch.testing.assert_close(mean, parameters / parameters.sum())
