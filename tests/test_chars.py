"""Step 1: characters as numbers, the exact way back, the split, and what is refused."""

import math
import re

import pytest
import torch
from chapter2 import quick
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.chars import CharTokenizer, split_corpus
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
