"""Step 1, the page: its figures, and beside each the property that explains it."""

import lzma
import math
import random
import re
import zlib
from collections import Counter

import pytest
import torch
from stored_page import printed_by

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


@pytest.fixture(scope="module")
def text() -> str:
    return load_corpus("tinyshakespeare", start=ROOT)


@pytest.fixture(scope="module")
def ids(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    return split_corpus(torch.tensor(CharTokenizer.from_text(text).encode(text)))


@pytest.fixture(scope="module")
def printed() -> list[str]:
    return printed_by("step1-data")


def shown(printed: list[str], *parts: str) -> bool:
    return any(all(part in text for part in parts) for text in printed)


# The series in bits per character


def test_the_uniform_code_costs_the_logarithm_of_the_alphabet(ids, printed):
    uniform = torch.full((65,), 1 / 65, dtype=torch.float64)
    for part in ids:
        assert code_bits(uniform, part) == pytest.approx(math.log2(65), abs=1e-12)
    assert bits_per_character(math.log(65)) == pytest.approx(math.log2(65))
    assert shown(printed, "ln 65 = 4.1744 nats, 6.022 bits")


def test_the_unigram_costs_its_entropy_and_on_held_out_text_more(ids, printed):
    train, held_out = ids
    p = unigram_probabilities(train, 65)
    entropy = -(p * p.log2()).sum().item()
    assert code_bits(p, train) == pytest.approx(entropy, abs=1e-9)
    r = unigram_probabilities(held_out, 65)
    assert code_bits(r, held_out) < code_bits(p, held_out)
    assert f"{code_bits(p, train):.4f} {code_bits(p, held_out):.4f}" == "4.7740 4.8292"
    assert shown(printed, "4.7740 bits on the training", "4.8292 bits on the held-out")


def test_the_table_has_its_first_two_rows(printed):
    assert shown(
        printed,
        "bits per character training held out",
        "uniform 6.022 6.022",
        "unigram 4.774 4.829",
    )


def test_huffman_lies_between_entropy_and_entropy_plus_one(ids, printed):
    train, held_out = ids
    words = huffman_code(torch.bincount(train, minlength=65).tolist())
    lengths = torch.tensor([len(word) for word in words]).double()
    on_training, on_held_out = (lengths[part].mean().item() for part in ids)
    assert code_bits(unigram_probabilities(train, 65), train) < on_training
    # Its lengths are those of a distribution: the same mean, measured as code_bits.
    assert code_bits(2.0**-lengths, held_out) == pytest.approx(on_held_out)
    assert f"{on_training:.4f} {on_held_out:.4f}" == "4.8114 4.8685"
    assert shown(printed, "training: 4.8114 bits", "held out: 4.8685 bits")
    assert shown(printed, "exact: True")


def test_most_words_are_within_a_bit_of_the_ideal_and_two_are_far_below(ids):
    counts = torch.bincount(ids[0], minlength=65)
    lengths = torch.tensor([len(word) for word in huffman_code(counts.tolist())])
    off = lengths + (counts / counts.sum()).log2()
    assert (off.abs() < 1).sum() == 63
    assert sorted(off.tolist())[:3] == pytest.approx([-3.94, -2.35, -0.6], abs=0.3)
    rarest = counts.argsort()[:3]
    assert lengths[rarest[:2]].tolist() == [lengths[rarest[2]] + 1] * 2
    assert counts[rarest[:2]].sum() < counts[rarest[2]]


def test_adding_one_saves_a_short_text_and_does_not_move_a_long_one(ids, printed):
    train, held_out = ids
    short = train[:20_000]
    assert len(short.unique()) == 58
    assert code_bits(unigram_probabilities(short, 65), held_out) == math.inf
    plain, smooth = (
        code_bits(unigram_probabilities(train, 65, add), held_out) for add in (0, 1)
    )
    assert abs(plain - smooth) < 1e-5
    assert shown(printed, "20,000 characters inf 4.861", "all of it 4.829 4.829")


# The split


def windows(text: str, n: int) -> set[str]:
    return {text[i : i + n] for i in range(len(text) - n + 1)}


def share_seen(known: str, asked: str, n: int = 20) -> float:
    stored = windows(known, n)
    pieces = [asked[i : i + n] for i in range(len(asked) - n)]
    return sum(piece in stored for piece in pieces) / len(pieces)


@pytest.mark.parametrize("seed", [0, 1])
def test_speeches_drawn_at_random_have_been_read_before_more_often(text, seed, printed):
    speeches = text.split("\n\n")
    count = len(speeches)
    chosen = set(random.Random(seed).sample(range(count), count // 10))
    asked = "\n\n".join(speeches[i] for i in sorted(chosen))
    known = "\n\n".join(s for i, s in enumerate(speeches) if i not in chosen)
    train, held_out = split_corpus(text)
    by_position = share_seen(train, held_out)
    assert 0.002 < by_position < 0.0025
    assert share_seen(known, asked) > 3 * by_position
    assert share_seen(known, asked) > 0.0125  # the tenth that has most has 0.012
    assert shown(printed, "0.3% 1.0% 1.2% 1.2% 0.2% 0.9% 0.8% 0.3% 0.7% 0.2%")
    assert shown(printed, "by position 0.2% 48.6%", "speeches 1.5% 49.8%")


def test_training_windows_hold_the_whole_text_if_windows_are_drawn(text, printed):
    starts = len(text) - 64
    drawn = set(random.Random(0).sample(range(starts), starts // 10))
    # A piece of 21 at place j lies in the windows that start at j - 44, ..., j.
    last_training, uncovered = -1, 0
    for j in range(starts):
        last_training = last_training if j in drawn else j
        uncovered += j - last_training > 44
    assert uncovered == 0
    assert shown(printed, "111,533 windows held out", "lies in 45 windows")
    assert shown(printed, "windows 100.0% 99.6%")


def test_the_two_parts_meet_nowhere_and_the_leak_of_the_alphabet_is_stated(
    text, printed
):
    train, held_out = split_corpus(text)
    assert train + held_out == text
    page = (ROOT / "chapters" / "step1-data.md").read_text("utf-8")
    assert "The alphabet was collected from the whole text" in page
    assert shown(printed, "only in the held-out part: []")


# The corpus, and what others make of it


def test_what_is_in_the_corpus(text, printed):
    assert shown(printed, "1,115,394 characters, 1,115,394 bytes", "First Citizen:")
    assert text.isascii()
    assert shown(printed, "40,000 lines, 7,222 blocks")
    assert shown(printed, "'é'; it is not among the 65", "character 11")
    assert shown(printed, "id 2 is 65; expected 0 to 64")


def test_words_follow_a_line_in_the_middle_and_characters_nowhere(printed):
    assert shown(printed, "rank 10 to 100: slope -0.89", "rank 100 to 1,000: slope -1.")
    assert shown(printed, "rank 1 to 10: slope -0.57", "rank 30 to 60: slope -4.92")


def test_programs_that_look_back_need_far_fewer_bits(text, ids, printed):
    train, held_out = (part.encode("utf-8") for part in split_corpus(text))
    per_character = 8 / len(held_out)
    unigram = code_bits(unigram_probabilities(ids[0], 65), ids[1])
    alone = len(zlib.compress(held_out, 9)) * per_character
    assert 3.15 < alone < 3.25 < unigram  # one decimal is safe to print
    longer = len(lzma.compress(train + held_out)) - len(lzma.compress(train))
    assert 2.45 < longer * per_character < 2.55
    assert shown(printed, "zlib 3.2", "bz2 2.6", "lzma, after the training part 2.5")


def test_a_name_whose_speech_is_empty_is_counted_too(text, printed):
    # Two heads can follow each other with nothing but a blank line between them.
    named = Counter(re.findall(r"(?<![^\n]\n)^(.+):$", text, flags=re.MULTILINE))
    heads = [block.split("\n")[0] for block in text.split("\n\n")]
    assert named["GLOUCESTER"] == heads.count("GLOUCESTER:")
    assert shown(printed, f"GLOUCESTER {named['GLOUCESTER']}")
