"""Lecture 4: each claim is proven and checked, and the checks print what they must."""

import re

import pytest
from stored_page import printed_by

from tools.pages import ROOT

PAGE = ROOT / "chapters" / "lecture4-attention.md"

# What one cell prints, blanks made single.
PRINTED = {
    "a dictionary has no answer": ["at 15 o'clock: 18", "at 14 o'clock: None"],
    "attention is a kernel average": ["kernel average, gap < 1e-12: True", "17.6"],
    "the hull": ["range of the values: True", "no longer than the longest: True"],
    "the limits": ["0 11.88 0.8750 7 True", "80 18.00 0.0003 0.0024 True"],
    "the variance": [
        "standard deviation 2.8, over sqrt(8) 1.00",
        "over sqrt(512) 1.00",
    ],
    "the gradient": ["4 0.651 0.267 0.869 0.181", "1024 0.032 0.000 0.856 0.198"],
    "permutations": [
        "no mask, all positions, gap < 1e-12: True",
        "mask, all positions , gap < 1e-12: False",
        "mask, last position , gap < 1e-12: True",
    ],
    "ab and ba": [
        "without places: abc and bac, gap < 1e-12: True",
        "with places : abc and bac, gap < 1e-12: False",
    ],
    "a late zero": ["late zero is (1 - r) times causal, gap < 1e-12: True"],
    "bits": [
        "minus infinity before equal in every bit: True, to 1e-12: True",
        "zero after equal in every bit: False, to 1e-12: False",
        "zero after, renormalised equal in every bit: False, to 1e-12: True",
    ],
    "an extreme future": ["NaN somewhere: True", "before, equal: True"],
    "composition": [
        "nothing before, for every p: True",
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
    ],
    "half precision": [
        "torch.float16 [0.0, 0.5, 1.0, 1.5]",
        "torch.bfloat16 [0.0, 0.5, 1.0, 1.5]",
    ],
    "three masks": [
        "0 or 1 times -inf NaN: True",
        "finite, -10,000 NaN: False largest weight above: 1.00",
        "-inf where hidden NaN: False largest weight above: 0.00",
    ],
    "the cost": ["T = 1,024: 67,108,864 products, 4.00 MiB"],
    "the character before": ["kkind word, kind wor", "below the bound: True"],
}


def printed() -> list[str]:
    return printed_by("lecture4-attention")


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_every_bound_of_the_limits_holds():
    (table,) = [text for text in printed() if text.startswith("lead g")]
    assert re.findall("True|False", table) == ["True"] * 5


def test_scaled_rows_do_not_depend_on_the_width_and_the_others_do():
    (table,) = [text for text in printed() if "not scaled" in text]
    rows = [
        [float(number) for number in row]
        for row in re.findall(r"\b\d+ (0\.\d+) (0\.\d+) (0\.\d+) (0\.\d+)", table)
    ]
    raw, scaled = [row[0] for row in rows], [row[2] for row in rows]
    assert len(rows) == 5
    assert raw == sorted(raw, reverse=True)
    assert raw[0] > 10 * raw[-1]
    assert max(scaled) - min(scaled) < 0.05


def test_each_lookup_of_the_second_head_finds_its_place():
    (table,) = [text for text in printed() if "found what followed" in text]
    assert re.findall(r"followed: (\w+)", table) == ["True"] * 8
    assert (table.count("is right"), table.count("is wrong")) == (6, 2)


def test_each_proposition_is_followed_by_a_proof_and_in_its_section_by_a_cell():
    kinds = re.compile(r"^```\{(?:prf:)?([\w-]+)\}", re.MULTILINE)
    claims = 0
    for section in re.split(r"^##+ ", PAGE.read_text("utf-8"), flags=re.MULTILINE):
        order = kinds.findall(section)
        for i, kind in enumerate(order):
            if kind in ("proposition", "theorem"):
                claims += 1
                assert order[i + 1] == "proof", f"claim {claims} has no proof"
                if "prop-causal" not in section:  # its cells close the next section
                    assert "code-cell" in order[i + 2 :], f"claim {claims} has no cell"
    assert claims == 9
