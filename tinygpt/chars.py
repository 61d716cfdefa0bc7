# Generated from chapters/step1-data.md by `make export`.
# Change the page, not this file.
"""Step 1: text as a list of numbers.

The saved code of https://example.org/tinygpt/chapters/step1-data.html
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "CharTokenizer",
    "bits_per_character",
    "code_bits",
    "huffman_code",
    "split_corpus",
    "unigram_probabilities",
]


class CharTokenizer:
    """One number for each character: its place in the sorted alphabet.

    Args:
        alphabet: the characters that can be encoded, each once, in any order.

    Raises:
        ValueError: the alphabet is empty, repeats itself, or has an entry that is
            not one character.

    Example: ``CharTokenizer("ba").encode("abba")`` is ``[0, 1, 1, 0]``.

    Built in Step 1: text as a list of numbers, section There and back:
    https://example.org/tinygpt/chapters/step1-data.html#there-and-back
    """

    def __init__(self, alphabet: Sequence[str]) -> None:
        self.alphabet = tuple(sorted(alphabet))
        self.ids = {character: i for i, character in enumerate(self.alphabet)}
        if not self.alphabet:
            raise ValueError("the alphabet is empty; expected at least one character")
        if len(self.ids) < len(self.alphabet) or any(len(c) != 1 for c in self.ids):
            raise ValueError(
                f"alphabet is {self.alphabet!r}; expected single characters, each once"
            )

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        """Make a tokenizer whose alphabet is every character of ``text``."""
        return cls(sorted(set(text)))

    @property
    def vocab_size(self) -> int:
        """How many characters the alphabet has."""
        return len(self.alphabet)

    def encode(self, text: str) -> list[int]:
        """Turn text into ids, one for each character.

        Raises:
            ValueError: names the first character that is not in the alphabet, and
                its position in the text.
        """
        try:
            return [self.ids[character] for character in text]
        except KeyError as error:
            unseen = error.args[0]
        raise ValueError(
            f"character {text.index(unseen)} of the text is {unseen!r}; it is not "
            f"among the {self.vocab_size} characters of the alphabet"
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text; the opposite of ``encode``.

        Raises:
            ValueError: names the first id that is out of range, and its position.
        """
        characters = []
        for position, i in enumerate(ids):
            if not 0 <= i < self.vocab_size:
                raise ValueError(
                    f"id {position} is {i}; expected 0 to {self.vocab_size - 1}"
                )
            characters.append(self.alphabet[i])
        return "".join(characters)


def split_corpus(data: Any, fraction: float = 0.9) -> tuple[Any, Any]:
    """Split a text, list or tensor by position into a training and a held-out part.

    The first ``int(fraction * len(data))`` items are for training, the rest is held
    out.

    Raises:
        ValueError: one of the two parts would be empty.

    Built in Step 1: text as a list of numbers, section Two parts:
    https://example.org/tinygpt/chapters/step1-data.html#two-parts
    """
    n = int(fraction * len(data))
    if not 0 < n < len(data):
        raise ValueError(
            f"fraction {fraction} of {len(data)} items leaves a part empty; expected "
            "a fraction between 0 and 1, and data long enough for two parts"
        )
    return data[:n], data[n:]


def bits_per_character(nats: float) -> float:
    """Turn a mean loss in nats into bits: one bit is ln 2 nats.

    Example: ``bits_per_character(math.log(2))`` is ``1.0``.

    Built in Step 1: text as a list of numbers, section What a guess is worth:
    https://example.org/tinygpt/chapters/step1-data.html#what-a-guess-is-worth
    """
    return nats / math.log(2)


def _check_ids(ids: Tensor, vocab_size: int) -> None:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"ids are {ids.dtype}; expected integers")
    if ids.numel() == 0:
        raise ValueError("there are no ids; expected at least one")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise ValueError(f"an id is {wrong}; expected 0 to {vocab_size - 1}")


def unigram_probabilities(ids: Tensor, vocab_size: int, add: float = 0.0) -> Tensor:
    """Relative frequency of each symbol, after ``add`` is added to every count.

    With ``add`` 0 these are the probabilities that make the ids as likely as can be.
    With a positive ``add`` no symbol has probability 0, seen or not.

    Args:
        ids: symbols as integers from 0 to ``vocab_size - 1``, in any shape.
        vocab_size: number V of symbols.
        add: what each count is raised by; 1 is Laplace's rule.

    Returns:
        Probabilities (V,), float64, on the device of ``ids``.

    Raises:
        ValueError: no ids, an id out of range, or ``add`` negative or not finite.

    Example: ``unigram_probabilities(torch.tensor([0, 0, 1]), 2, add=1)`` is
    ``[0.6, 0.4]``.

    Built in Step 1: text as a list of numbers, section Counting: the unigram code:
    https://example.org/tinygpt/chapters/step1-data.html#counting-the-unigram-code
    """
    _check_ids(ids, vocab_size)
    if not 0 <= add < math.inf:
        raise ValueError(f"add is {add}; expected a finite number, 0 or more")
    counts = torch.bincount(ids.flatten(), minlength=vocab_size).double() + add  # (V,)
    return counts / counts.sum()


def code_bits(probabilities: Tensor, ids: Tensor) -> float:
    """Mean of -log2 p over the ids: the bits a symbol that an ideal code would spend.

    Args:
        probabilities: one for each symbol (V,); they add up to at most 1.
        ids: symbols as integers from 0 to V - 1, in any shape.

    Returns:
        Bits per symbol, ``inf`` if a symbol with probability 0 occurs among the ids.

    Raises:
        ValueError: no ids, an id out of range, or probabilities that are none.

    Example: ``code_bits(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0, 1]))`` is
    ``1.5``.

    Built in Step 1: text as a list of numbers, section Counting: the unigram code:
    https://example.org/tinygpt/chapters/step1-data.html#counting-the-unigram-code
    """
    if probabilities.dim() != 1:
        raise ValueError(
            f"probabilities have shape {tuple(probabilities.shape)}; expected (V,)"
        )
    _check_ids(ids, len(probabilities))
    p = probabilities.double()
    total = p.sum().item()
    if not (bool((p >= 0).all()) and total <= 1 + 1e-4):
        raise ValueError(
            f"probabilities from {p.min().item():g}, with sum {total:g}; expected none "
            "below 0, and a sum of at most 1"
        )
    return p[ids.long()].log2().mean().abs().item()


def huffman_code(weights: Sequence[float]) -> list[str]:
    """Find the prefix code whose mean word length is least, for symbols so frequent.

    The two lightest groups are joined again and again; each joining puts one more
    digit in front of the words of both (Huffman, 1952). Among equals, the group with
    the smallest symbol comes first, so the code is the same everywhere.

    Args:
        weights: a count or probability for each symbol; zero is allowed.

    Returns:
        One word of "0" and "1" for each symbol.

    Raises:
        ValueError: fewer than two symbols, or a weight negative or not finite.

    Example: ``huffman_code([2, 1, 1])`` is ``["0", "10", "11"]``.

    Built in Step 1: text as a list of numbers, section Bits that can be sent:
    https://example.org/tinygpt/chapters/step1-data.html#bits-that-can-be-sent
    """
    if len(weights) < 2:
        raise ValueError(f"there are {len(weights)} weights; expected two or more")
    for i, weight in enumerate(weights):
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight {i} is {weight}; expected a finite number >= 0")
    words = [""] * len(weights)
    heap = [(weight, i, [i]) for i, weight in enumerate(weights)]
    heapq.heapify(heap)
    while len(heap) > 1:
        groups = heapq.heappop(heap), heapq.heappop(heap)
        for digit, (_, _, symbols) in zip("01", groups):
            for symbol in symbols:
                words[symbol] = digit + words[symbol]
        (a, i, left), (b, j, right) = groups
        heapq.heappush(heap, (a + b, min(i, j), left + right))
    return words
