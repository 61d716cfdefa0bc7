"""Lecture 7: its checks print what they must, and its propositions hold elsewhere too.

The notebook's run proves that the outputs are still true. Here: that they are there,
that no proposition stands without its proof, and that each holds for random examples
under the functions that the next pages save.
"""

import itertools
import math
import re

import pytest
import torch
from chapter2 import one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from stored_page import printed_by
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tinygpt.gpt import GPT
from tinygpt.sampling import apply_temperature, keep_min_p, keep_top_k, keep_top_p
from tools.pages import ROOT

PAGE = ROOT / "chapters" / "lecture7-tokens-and-scale.md"

# What one cell prints, blanks made single.
PRINTED = {
    "three cuts": ["characters 200,000 3.30 4.76", "words and signs 83,995 4.36 2.64"],
    "the swindle": ["swindle 1.65", "swindle 4.76"],
    "replaying is not shortest": ["ab a bb bb b", "shortest: ab ab bb bb"],
    "merging is not best": ["greedy merges: b aa ab a", "better merges: ba aa ba"],
    "an upper bound": ["8 spellings; by the loss 7.53 bits; in truth 6.74 bits"],
    "the limits": ["[0.5, 0.5, 0.0, 0.0]", "[0.25, 0.25, 0.25, 0.25]"],
    "three truncations": ["sure 0.97 (3) 0.90 (1) 0.90 (1)", "flat 0.55 (3) 0.86 (5)"],
    "the projection": ["none of 10,000 others is nearer: True"],
    "order": ["top-k 2: keeps 2 before the temperature, 2 after", "0.4**2 before: 4"],
    "typical": ["1,000 1.000 0.967 2^-737", "H = 0.971", "greedy text has 0.737"],
    "the tail": ["0.01 63.4% 100.0% 100", "drawn: 0.63"],
    "a floor": ["ln(L): -0.080", "ln(L - E): -0.300"],
    "flops": ["816,640 800,128 0.95 0.93", "the count, exactly: True"],
    "two optima": ["Hoffmann et al. 32 B", "Besiroglu et al. 72 B", "minima: True"],
}

# Tenths, so that no two logits are so close that a division makes them equal.
logits = st.lists(st.integers(-80, 80), min_size=2, max_size=9).map(
    lambda tenths: torch.tensor(tenths, dtype=torch.float64) / 10
)


def printed() -> list[str]:
    return printed_by("lecture7-tokens-and-scale")


def entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_every_comparison_holds():
    verdicts = re.findall(r"gap < 1e-\d+: (\w+)", " ".join(printed()))
    assert set(verdicts) == {"True"}
    assert len(verdicts) >= 6


def test_every_proposition_is_followed_by_its_proof():
    text = PAGE.read_text(encoding="utf-8")
    boxes = re.findall(r"^```\{prf:(proposition|proof)\}", text, re.MULTILINE)
    assert len(boxes) == 2 * boxes.count("proof")
    for proposition, proof in zip(boxes[::2], boxes[1::2]):
        assert (proposition, proof) == ("proposition", "proof")
    assert boxes.count("proof") >= 10


# Tokens


def test_all_spellings_of_a_text_add_up_to_more_than_one_of_them():
    """The exact price of every short text, by listing all token strings."""
    q, end = {"a": 0.3, "b": 0.2, "ab": 0.3}, 0.2
    price: dict[str, float] = {}
    for n in range(1, 7):
        for tokens in itertools.product(q, repeat=n):
            text = "".join(tokens)
            price[text] = price.get(text, 0) + math.prod(q[t] for t in tokens) * end
    for text in ("ab", "abab", "ababab"):
        longest_tokens = q["ab"] ** (len(text) // 2) * end
        assert price[text] > longest_tokens
    assert price["ababab"] == pytest.approx(0.36**3 * end)
    assert f"{-math.log2(price['ababab']):.2f}" == "6.74"
    assert price["ba"] == pytest.approx(0.2 * 0.3 * end)  # one spelling: equality


# Temperature


@quick
@given(logits, st.floats(0.2, 5))
def test_the_slope_of_the_entropy_is_the_variance_over_t_cubed(z, T):
    step = 1e-5 * T
    up, down = (entropy((z / t).softmax(-1)) for t in (T + step, T - step))
    p = (z / T).softmax(-1)
    variance = (p * z**2).sum() - (p * z).sum() ** 2
    slope = ((up - down) / (2 * step)).item()
    assert slope == pytest.approx(variance.item() / T**3, rel=1e-3, abs=1e-6)


# Truncation


@quick
@given(logits, st.integers(1, 9), st.floats(0.2, 5))
def test_top_k_and_temperature_commute(z, k, T):
    one = keep_top_k(apply_temperature(z, T), k).softmax(-1)
    other = apply_temperature(keep_top_k(z, k), T).softmax(-1)
    torch.testing.assert_close(one, other)


@quick
@given(logits, st.floats(0.05, 0.95), st.floats(0.2, 5))
def test_min_p_after_a_temperature_is_its_power_before(z, share, T):
    after = keep_min_p(apply_temperature(z, T), share).softmax(-1)
    before = apply_temperature(keep_min_p(z, share**T), T).softmax(-1)
    border = ((z - z.max()) / T - math.log(share)).abs().min()
    if border > 1e-9:
        torch.testing.assert_close(after, before)


@pytest.mark.parametrize(("keep", "setting"), [(keep_top_p, 0.7), (keep_min_p, 0.4)])
def test_top_p_and_min_p_do_not_commute(keep, setting):
    z = torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64).log()
    after = keep(apply_temperature(z, 2.0), setting).isfinite().sum()
    before = apply_temperature(keep(z, setting), 2.0).isfinite().sum()
    assert after > before


@quick
@given(logits, st.integers(1, 8), st.integers(0, 10**6))
def test_renormalising_is_the_nearest_distribution_on_the_kept_set(z, k, seed):
    p = z.softmax(-1)
    kept = keep_top_k(z, k).isfinite()
    mass = p[kept].sum()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(int(kept.sum()), generator=generator, dtype=torch.float64)
    q = (p[kept].log() + noise).softmax(-1)
    divergence = (q * (q / p[kept]).log()).sum()
    assert divergence >= -mass.log() - 1e-12
    any_k = torch.randperm(len(p), generator=generator)[: int(kept.sum())]
    assert p[any_k].sum() <= mass + 1e-12  # so no other k symbols come nearer


@quick
@given(logits, st.floats(0.05, 0.95))
def test_no_smaller_set_has_the_mass_of_top_p(z, p):
    probabilities = z.softmax(-1)
    n = int(keep_top_p(z, p).isfinite().sum())
    fewer = probabilities.sort(descending=True).values[: n - 1].sum()
    assert fewer < p + 1e-12


# Typical texts


@pytest.mark.parametrize("n", [1, 5, 12])
def test_no_text_is_likelier_than_the_greedy_one(n):
    """All texts of the two-letter language, listed, for a given first letter."""
    chances = {}
    for repeats in itertools.product((True, False), repeat=n):
        chances[repeats] = math.prod(0.6 if same else 0.4 for same in repeats)
    assert max(chances, key=chances.__getitem__) == (True,) * n
    assert sum(chances.values()) == pytest.approx(1)
    entropy_rate = -sum(p * math.log2(p) for p in chances.values()) / n
    assert f"{entropy_rate:.3f}" == "0.971"


def test_the_typical_set_fills_up_and_the_bound_holds():
    H = -(0.6 * math.log2(0.6) + 0.4 * math.log2(0.4))
    variance = 0.24 * math.log2(1.5) ** 2
    for n, printed_chance in ((10, "0.251"), (100, "0.918"), (1_000, "1.000")):
        chance = sum(
            math.comb(n, r) * math.exp(r * math.log(0.6) + (n - r) * math.log(0.4))
            for r in range(n + 1)
            if abs(-(r * math.log2(0.6) + (n - r) * math.log2(0.4)) / n - H) <= 0.05
        )
        assert f"{chance:.3f}" == printed_chance
        assert chance >= 1 - variance / (n * 0.05**2)


# Scale


@pytest.mark.parametrize(("d", "H", "L", "T"), [(8, 2, 1, 4), (16, 4, 3, 10)])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_count_of_operations_is_the_formula(d, H, L, T, batch):
    V = 11
    ids = torch.randint(V, (batch, T))
    with FlopCounterMode(display=False) as counter:
        loss = GPT(V, T, d, H, L)(ids, ids)[1]
        forward = counter.get_total_flops()
        loss.backward()
    expected = batch * T * (2 * (12 * L * d**2 + V * d) + 4 * L * T * d)
    assert forward == expected
    assert counter.get_total_flops() == 3 * expected


laws = st.tuples(
    st.floats(0, 3), *[st.floats(10, 1000)] * 2, *[st.floats(0.1, 0.9)] * 2
)


@quick
@given(laws, st.floats(18, 24), st.floats(-2, 2))
def test_no_other_split_of_the_budget_is_better(law, log_budget, away):
    E, A, B, a, b = law
    product = 10**log_budget / 6

    def loss(N: float) -> float:
        return E + A * N**-a + B * (product / N) ** -b

    G = (a * A / (b * B)) ** (1 / (a + b))
    best = G * product ** (b / (a + b))
    assert product / best == pytest.approx(product ** (a / (a + b)) / G)
    assert loss(best) <= loss(best * math.exp(away)) + 1e-12
    gain = a * A * best**-a  # of a relative growth of N, and of D
    assert gain == pytest.approx(b * B * (product / best) ** -b)
