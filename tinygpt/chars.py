# Generated from chapters/step1-data.md by `make export`.
# Change the page, not this file.
"""Step 1: text as a list of numbers.

The saved code of https://example.org/tinygpt/chapters/step1-data.html
"""

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["CharTokenizer", "split_corpus"]


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
