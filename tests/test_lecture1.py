"""Lecture 1: each claim is proven and checked, and the checks print what they must.

That the outputs are still true is proven by running the notebook; here, that they are
there at all, that no claim stands without its proof and its cell, and that the coder of
the page holds on texts and models that the page does not show.
"""

import ast
import math
from fractions import Fraction
from typing import Any

import nbformat
import pytest
from chapter2 import quick
from hypothesis import given
from hypothesis import strategies as st
from stored_page import proven_claims

from tools.pages import ROOT

NOTEBOOK = ROOT / "notebooks" / "lecture1-information.ipynb"

PRINTED = {
    "all texts of a length": [
        *("length 1: 3 texts, probabilities add up to 1", "length 6: 729 texts"),
        "after 'aab': 1/2 1/3 1/6",
    ],
    "surprise": ["p = 0.5 : 1.000 bits, 0.693 nats"],
    "a product underflows": ["product: 0.0", "-4321.9"],
    "Kraft": ["35 choices", "22 satisfy", "agree on 35; the recipe builds 22 codes"],
    "price of a symbol": ["1.750 1.750 1.750", "0.242 1.050 1.180"],
    "Gibbs": [
        *("H(p, q) > H(p) in every trial: True", "H(p) < log2(4) in every trial: True"),
        "H(p) <= best code < H(p) + 1: True",
    ],
    "the coder on all texts": [
        *("243 texts; all come back: True", "a prefix code: True"),
        "within two bits: True",
    ],
    "the coder on Shakespeare": [
        *("uniform 1204.47 1206 6.030 True", "unigram 1041.24 1043 5.215 True"),
        "bigram 796.56 798 3.990 True",
    ],
    "perplexity": ["uniform: 6.0224 bits, 4.1744 nats, perplexity 65.0", "28.4"],
    "proper": [
        *("surprise (bits) is least at q = 0.7", "squared error is least at q = 0.7"),
        *("distance is least at q = 0.99", "errors is least at q = 0.51 to 0.99"),
    ],
    "accuracy": ["14.9%, 4.829 bits", "14.9%, 6.020 bits"],
    "pairs": ["characters 4.829 4.829 28.4", "pairs 8.409 4.205 340.0"],
    "own and new text": ["n = 200: own text 2.819, entropy 2.846, new text 2.872"],
    "the split of the loss": [
        *("4.7740 bits, its own entropy", "4.8292 bits = 4.8147 + 0.0145"),
        "by its definition, gap < 1e-12: True",
    ],
    "chance": ["a hundred drawn texts: 4.76 to 4.78 bits", "4.83 bits"],
}


def cells() -> list[Any]:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    outputs = ["".join(o.get("text", "") for o in c.outputs) for c in cells()]
    texts = [" ".join(text.split()) for text in outputs]
    found = [text for text in texts if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_no_check_of_the_page_fails():
    printed = " ".join(o.get("text", "") for c in cells() for o in c.outputs)
    assert "False" not in printed
    assert printed.count("True") == 10


def test_each_proposition_is_followed_by_a_proof_and_in_its_section_by_a_cell():
    assert proven_claims("lecture1-information") == 7


# The functions of the page, on what the page does not show


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The page's functions on codes, taken from its cells without running the cells."""
    wanted = {"side_by_side", "is_prefix_code", "search", "write", "read"}
    names: dict[str, Any] = {}
    exec("import math\nfrom collections.abc import Callable", names)
    exec("from fractions import Fraction\nfrom itertools import product", names)
    exec("Model = Callable[[str], list[int]]", names)
    for cell in cells():
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.FunctionDef) and node.name in wanted:
                exec(ast.unparse(node), names)
    assert wanted <= names.keys()
    return names


@quick
@given(st.lists(st.integers(1, 8), min_size=1, max_size=9))
def test_the_recipe_gives_a_prefix_code_exactly_if_kraft_allows_one(page, lengths):
    allowed = sum(Fraction(1, 2**length) for length in lengths) <= 1
    if allowed:
        words = page["side_by_side"](lengths)
        assert sorted(map(len, words)) == sorted(lengths)
        assert page["is_prefix_code"](words)
    elif len(lengths) <= 3:
        assert not page["search"](tuple(min(length, 4) for length in lengths))


@quick
@given(
    st.text("abc", min_size=1, max_size=40), st.lists(st.integers(1, 99), min_size=3)
)
def test_any_text_comes_back_from_any_model_within_two_bits(page, text, salt):
    def model(prefix: str) -> list[int]:  # depends on the whole of the prefix
        place = hash_of(prefix) % (len(salt) - 2)
        return salt[place : place + 3]

    bits = page["write"](text, "abc", model)
    assert page["read"](bits, len(text), "abc", model) == text
    surprise = 0.0
    for t, symbol in enumerate(text):
        weights = model(text[:t])
        surprise -= math.log2(weights["abc".index(symbol)] / sum(weights))
    assert surprise < len(bits) < surprise + 2 + 1e-9


def hash_of(prefix: str) -> int:
    """The same number in every run, unlike ``hash``."""
    return sum((i + 1) * ord(symbol) for i, symbol in enumerate(prefix))
