"""Step 1: characters as numbers and back, the split, the codes, and what is refused."""

import math
import re
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from chapter2 import quick
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.chars import (
    CharTokenizer,
    bits_per_character,
    code_bits,
    huffman_code,
    split_corpus,
    unigram_probabilities,
)
from tinygpt.corpus import load_corpus
from tools.pages import ROOT

# The tokenizer


@pytest.fixture(scope="module")
def shakespeare() -> str:
    return load_corpus("tinyshakespeare", start=ROOT)


@quick
@given(st.text(min_size=1, max_size=60))
def test_any_text_comes_back_exactly(text):
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text)


@quick
@given(st.text(min_size=1, max_size=60), st.randoms())
def test_numbers_depend_on_the_set_of_characters_alone(text, random):
    characters = list(text)
    random.shuffle(characters)
    shuffled = CharTokenizer.from_text("".join(characters) + text)
    assert shuffled.alphabet == CharTokenizer.from_text(text).alphabet


@quick
@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_every_text_is_encoded_whole_or_refused_by_name(known, text):
    tokenizer = CharTokenizer.from_text(known)
    unseen = [i for i, character in enumerate(text) if character not in known]
    if not unseen:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        return
    named = re.escape(f"character {unseen[0]} of the text is {text[unseen[0]]!r}")
    with pytest.raises(ValueError, match=f"^{named}"):
        tokenizer.encode(text)


def test_a_character_outside_of_shakespeare_is_named_with_its_position(shakespeare):
    tokenizer = CharTokenizer.from_text(shakespeare)
    with pytest.raises(ValueError, match=r"character 3 of the text is 'é'.* the 65 ch"):
        tokenizer.encode("café")


def test_the_cause_of_the_error_is_not_a_bare_key_error():
    with pytest.raises(ValueError, match="'z'") as caught:
        CharTokenizer("abc").encode("az")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(("ids", "position", "wrong"), [([0, 3], 1, 3), ([-1], 0, -1)])
def test_an_id_out_of_range_is_named_with_its_position(ids, position, wrong):
    with pytest.raises(ValueError, match=rf"id {position} is {wrong}; expected 0 to 2"):
        CharTokenizer("abc").decode(ids)


def test_another_text_has_another_alphabet():
    tokenizer = CharTokenizer.from_text("abcabc")
    assert tokenizer.alphabet == ("a", "b", "c")
    assert tokenizer.vocab_size == 3
    assert tokenizer.encode("cab") == [2, 0, 1]
    with pytest.raises(ValueError, match=r"character 0 of the text is '\\n'"):
        tokenizer.encode("\n")


@pytest.mark.parametrize("alphabet", ["aa", ["ab"], [""], "", []])
def test_an_alphabet_that_is_none_is_refused(alphabet):
    with pytest.raises(ValueError, match="alphabet"):
        CharTokenizer(alphabet)


def test_ids_may_be_a_tensor():
    tokenizer = CharTokenizer("abc")
    assert tokenizer.decode(torch.tensor([2, 1, 0])) == "cba"


def test_nothing_in_decodes_to_nothing():
    tokenizer = CharTokenizer("abc")
    assert (tokenizer.encode(""), tokenizer.decode([])) == ([], "")


def test_the_corpus_has_65_symbols_and_comes_back(shakespeare):
    tokenizer = CharTokenizer.from_text(shakespeare)
    ids = tokenizer.encode(shakespeare)
    assert (len(ids), min(ids), max(ids)) == (1_115_394, 0, 64)
    assert tokenizer.vocab_size == 65
    assert tokenizer.decode(ids) == shakespeare
    assert tokenizer.alphabet[0] == "\n"
    assert f"{math.log(65):.4f} {math.log2(65):.3f}" == "4.1744 6.022"


# The split


def test_the_corpus_is_split_by_position(shakespeare):
    train, held_out = split_corpus(shakespeare)
    assert (len(train), len(held_out)) == (1_003_854, 111_540)
    assert train + held_out == shakespeare
    assert set(held_out) <= set(train)
    assert sorted(set(train) - set(held_out)) == ["$", "&", "3", "X"]


@quick
@given(st.lists(st.integers(), min_size=2, max_size=50), st.floats(0.01, 0.99))
def test_a_split_loses_nothing_and_repeats_nothing(items, fraction):
    n = int(fraction * len(items))
    if n == 0:
        with pytest.raises(ValueError, match=f"of {len(items)} items leaves a part"):
            split_corpus(items, fraction)
        return
    train, held_out = split_corpus(items, fraction)
    assert (train, held_out) == (items[:n], items[n:])


def test_a_tensor_of_a_hundred_is_split_at_ninety():
    train, held_out = split_corpus(torch.arange(100))
    assert train.tolist() == list(range(90))
    assert held_out.tolist() == list(range(90, 100))


@pytest.mark.parametrize("fraction", [0.0, 1.0, 1.5, -0.1])
def test_a_fraction_that_leaves_a_part_empty_is_named(fraction):
    with pytest.raises(ValueError, match=f"fraction {fraction} of 10 items"):
        split_corpus("0123456789", fraction)


# Frequencies and the bits that they cost

some_ids = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(torch.tensor)


def entropy(p: torch.Tensor) -> float:
    return -torch.special.xlogy(p, p).sum().item() / math.log(2)


@quick
@given(some_ids, st.floats(0, 10))
def test_frequencies_are_counts_over_their_sum(ids, add):
    p = unigram_probabilities(ids, 6, add)
    assert (p.dtype, p.shape) == (torch.float64, (6,))
    for i in range(6):
        expected = ((ids == i).sum().item() + add) / (len(ids) + 6 * add)
        assert p[i].item() == pytest.approx(expected, rel=1e-12, abs=0)


@quick
@given(some_ids, st.lists(st.floats(0.01, 1), min_size=6, max_size=6))
def test_nothing_beats_the_frequencies_on_their_own_text(ids, weights):
    p = unigram_probabilities(ids, 6)
    q = torch.tensor(weights, dtype=torch.float64)
    own = code_bits(p, ids)
    assert own == pytest.approx(entropy(p), abs=1e-12)
    assert own <= code_bits(q / q.sum(), ids) + 1e-12


@quick
@given(some_ids, st.lists(st.floats(0.01, 1), min_size=6, max_size=6))
def test_a_text_costs_the_sum_of_what_its_symbols_cost(ids, weights):
    p = torch.tensor(weights, dtype=torch.float64)
    p = p / p.sum()
    total = sum(-math.log2(p[i]) for i in ids.tolist())
    assert code_bits(p, ids) * len(ids) == pytest.approx(total, rel=1e-12)
    in_nats = -p.log()[ids].mean().item()
    assert bits_per_character(in_nats) == pytest.approx(code_bits(p, ids), rel=1e-12)


def test_the_examples_of_the_docstrings():
    p = unigram_probabilities(torch.tensor([0, 0, 1]), 2, add=1)
    assert p.tolist() == pytest.approx([0.6, 0.4])
    assert code_bits(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0, 1])) == 1.5
    assert bits_per_character(math.log(2)) == 1.0
    assert huffman_code([2, 1, 1]) == ["0", "10", "11"]


def test_an_unseen_symbol_costs_infinity_unless_something_is_added():
    seen, new = torch.tensor([0, 1, 1]), torch.tensor([[0, 1], [2, 1]])
    assert code_bits(unigram_probabilities(seen, 3), new) == math.inf
    assert math.isfinite(code_bits(unigram_probabilities(seen, 3, add=1), new))
    assert code_bits(unigram_probabilities(seen, 3), seen) < math.inf


def test_a_certainty_costs_nothing_and_prints_no_minus():
    assert str(code_bits(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))) == "0.0"


def test_small_integers_are_ids_and_not_a_mask():
    ids = torch.tensor([0, 1, 1], dtype=torch.uint8)
    p = unigram_probabilities(ids, 2)
    assert code_bits(p, ids) == pytest.approx(entropy(p))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([], dtype=torch.long), "there are no ids"),
        (torch.tensor([0, 3]), "an id is 3; expected 0 to 2"),
        (torch.tensor([[-1, 0]]), "an id is -1; expected 0 to 2"),
        (torch.tensor([0.0, 1.0]), "ids are torch.float32; expected integers"),
        (torch.tensor([True]), "ids are torch.bool; expected integers"),
    ],
)
def test_ids_that_are_none_are_refused_by_both(ids, message):
    with pytest.raises(ValueError, match=message):
        unigram_probabilities(ids, 3)
    with pytest.raises(ValueError, match=message):
        code_bits(torch.full((3,), 1 / 3), ids)


@pytest.mark.parametrize("add", [-1, -1e-9, math.inf, math.nan])
def test_what_is_added_is_a_number_that_is_not_negative(add):
    with pytest.raises(ValueError, match=f"add is {add}; expected a finite number"):
        unigram_probabilities(torch.tensor([0]), 2, add)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.9, 0.9], "with sum 1.8"),
        ([1.5, -0.5], "probabilities from -0.5"),
        ([math.nan, 0.5], "sum nan"),
        ([[0.5, 0.5]], r"shape \(1, 2\); expected \(V,\)"),
    ],
)
def test_probabilities_that_are_none_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        code_bits(torch.tensor(values), torch.tensor([0]))


def test_frequencies_change_neither_their_input_nor_the_random_state():
    ids = torch.tensor([0, 1, 1])
    before, state = ids.clone(), torch.get_rng_state()
    code_bits(unigram_probabilities(ids, 2), ids)
    assert torch.equal(ids, before)
    assert torch.equal(torch.get_rng_state(), state)


# Huffman's code


def kraft_lengths(V: int) -> Iterator[tuple[int, ...]]:
    """Every choice of word lengths that a prefix code on V symbols can use."""
    for lengths in product(range(1, V), repeat=V):
        if sum(2 ** (V - length) for length in lengths) <= 2**V:
            yield lengths


def cost(weights: list[int], lengths: tuple[int, ...]) -> int:
    return sum(weight * length for weight, length in zip(weights, lengths))


@quick
@given(st.lists(st.integers(0, 50), min_size=2, max_size=12))
def test_no_word_begins_another_and_no_word_is_wasted(weights):
    words = huffman_code(weights)
    for i, word in enumerate(words):
        assert not any(w.startswith(word) for j, w in enumerate(words) if i != j)
    assert sum(2.0 ** -len(word) for word in words) == 1


@quick
@given(st.lists(st.integers(0, 30), min_size=2, max_size=5))
def test_no_prefix_code_is_shorter(weights):
    lengths = tuple(map(len, huffman_code(weights)))
    best = min(cost(weights, choice) for choice in kraft_lengths(len(weights)))
    assert cost(weights, lengths) == best


@quick
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20))
def test_the_mean_length_is_within_one_bit_of_the_entropy(weights):
    p = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    lengths = tuple(map(len, huffman_code(weights)))
    mean = cost(weights, lengths) / sum(weights)
    assert entropy(p) - 1e-9 <= mean < entropy(p) + 1


def test_powers_of_two_leave_nothing_to_round():
    assert [len(word) for word in huffman_code([1, 8, 1, 4, 2])] == [4, 1, 4, 2, 3]


@pytest.mark.parametrize("weights", [[], [1]])
def test_a_code_needs_two_symbols(weights):
    with pytest.raises(ValueError, match=f"there are {len(weights)} weights"):
        huffman_code(weights)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf])
def test_a_weight_that_is_none_is_named(wrong):
    with pytest.raises(ValueError, match=f"weight 1 is {wrong}; expected a finite"):
        huffman_code([1, wrong, 2])
