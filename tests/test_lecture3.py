"""Lecture 3: each claim is proven and checked, and the checks print what they must.

That the outputs are still true is proven by running the notebook; here, that they are
there at all, and that no box stands without its proof and its cell.
"""

import math
import re

import pytest
import torch
from chapter2 import quick
from hypothesis import given
from hypothesis import strategies as st
from stored_page import printed_by, proven_claims

from tools.pages import ROOT, read_pages

PAGE = ROOT / "chapters" / "lecture3-backpropagation.md"

# What one cell prints; every check of a gap has to say True.
PRINTED = {
    "the chain rule": ["chain rule, gap < 1e-12: True", "central differences"],
    "the order of the product": [
        *("reverse: 46,500 multiplications", "forward: 4,969,500 multiplications"),
        "same row, gap < 1e-12: True",
    ],
    "the formulas for both orders": ["left to right 46,500; right to left 4,969,500"],
    "a number used three times": ["value 12.0, derivative 7.0"],
    "the tape against autograd": ["17 derivatives, gap < 1e-12: True"],
    "the price of a sweep": ["30 operations forward, 54 multiplications back"],
    "a linear layer": ["W, gap < 1e-12", "X, gap < 1e-12", "b, gap < 1e-12"],
    "an embedding": ["E, gap < 1e-12: True", "9 absent rows, largest entry 0.0"],
    "mean squares": ["forward / predicted", "0.000977", "1.02e+03"],
    "both ways to draw": ["with replacement, 216", "without replacement, 20 batches"],
    "the slopes": ["slope: loss -1.0, gradient -1.0"],
    "the floor": ["0.2 1 0.111", "0.2 4 0.028", "0.05 1 0.026"],
}


def printed() -> list[str]:
    return printed_by("lecture3-backpropagation")


@pytest.fixture(scope="module")
def names() -> dict:
    """The page's own definitions: each cell that defines something, executed."""
    (page,) = [page for page in read_pages(ROOT) if page.path == PAGE]
    found = {"math": math, "torch": torch, "Tensor": torch.Tensor}
    for cell in page.code_cells:
        if re.match(r"(class Number|def central_differences)", cell.source):
            exec(compile(cell.source, PAGE.name, "exec"), found)
    return found


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_every_comparison_holds():
    verdicts = re.findall(r"gap < 1e-\d\d: (\w+)", " ".join(printed()))
    assert len(verdicts) >= 16
    assert set(verdicts) == {"True"}


def test_errors_times_the_batch_are_the_variance_of_one_example():
    (table,) = [text for text in printed() if "gradient error * B" in text]
    rows = re.findall(r"(\d+) (\d\.\d\d) (\d\.\d\d)", table)
    assert [int(B) for B, _, _ in rows] == [1, 4, 16, 64, 256, 1024]
    for _, loss, gradient in rows:
        assert 0.8 < float(loss) < 1.25
        assert 0.95 < float(gradient) < 1.05


def test_each_proposition_is_followed_by_a_proof_and_in_its_section_by_a_cell():
    assert proven_claims("lecture3-backpropagation") == 10


# The tape, tried on programs that the page does not show


def program(x, y, steps):
    """A computation that uses its numbers again and again, on floats or on a tape."""
    for step in steps:
        if step == 0:
            x, y = x * y, x + y
        elif step == 1:
            x, y = x - y, x.tanh()
        else:
            x = (x.tanh() + y.tanh()).exp().log()
    return x * x + y


@quick
@given(st.floats(-1, 1), st.floats(-1, 1), st.lists(st.integers(0, 2), max_size=6))
def test_the_tape_gives_autograds_derivatives_of_any_program(names, x, y, steps):
    tape = []
    leaves = [names["Number"](tape, value) for value in (x, y)]
    out = program(*leaves, steps)
    bars = names["sweep"](out)
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x, y)]
    theirs = program(*tensors, steps)
    gradients = torch.autograd.grad(theirs, tensors, allow_unused=True)
    assert out.value == pytest.approx(theirs.item(), rel=1e-9, abs=1e-9)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        expected = 0.0 if gradient is None else gradient.item()
        assert bars[leaf.place] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_sweep_from_the_middle_ignores_what_was_made_later(names):
    tape = []
    x = names["Number"](tape, 2.0)
    y = x * x
    y.exp()
    assert names["sweep"](y)[x.place] == 4.0


def test_a_sweep_needs_at_most_two_products_for_each_operation(names):
    tape = []
    out = program(*(names["Number"](tape, v) for v in (0.3, -0.2)), [0, 1, 2, 0])
    assert sum(len(number.sources) for number in out.tape) <= 2 * (len(tape) - 2)


def test_central_differences_know_a_cubic(names):
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    slopes = names["central_differences"](lambda t: t.pow(3).sum(), x)
    torch.testing.assert_close(slopes, 3 * x**2, rtol=1e-8, atol=1e-8)
