"""Write what the live tokenizers of the book read: the merges of two pages.

``write(root, folder)`` is called at the end of a build (``book/_ext/tinygpt_live.py``).
The merges of Chapter 2 are learned again from its corpus, which takes a second. Those
of Step 7 are the ones that its page compares its own with, stored below
``data/reference/``.
"""

import json
from pathlib import Path

TOKENIZERS = ("ch02", "step7")


def merges(root: Path, name: str) -> list[list[int]]:
    """The merges of one page as rows of left, right and new id, in the order learned.

    Raises:
        ValueError: there is no tokenizer of that name.
    """
    if name == "ch02":
        from tinygpt.transformer import BytePairTokenizer

        corpus = (root / "data/ch02/alice.txt").read_text(encoding="utf-8")
        learned = BytePairTokenizer.train(corpus, vocab_size=512).merges
        return [[merge.left, merge.right, merge.new_id] for merge in learned]
    if name == "step7":
        stored = root / "data/reference/step7_tokenizer.json"
        pairs = json.loads(stored.read_text(encoding="utf-8"))["straightforward_merges"]
        return [[left, right, i] for i, (left, right) in enumerate(pairs, start=256)]
    raise ValueError(f"no tokenizer is called {name!r}; expected one of {TOKENIZERS}")


def write(root: Path, folder: Path) -> None:
    """Write ``NAME-merges.json`` for each tokenizer into ``folder``."""
    for name in TOKENIZERS:
        rows = json.dumps(merges(root, name), separators=(",", ":"))
        (folder / f"{name}-merges.json").write_text(rows + "\n", encoding="utf-8")
