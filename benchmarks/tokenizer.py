"""Byte-pair encoding on Tiny Shakespeare: three trainers and three encoders, timed.

The straightforward forms and the incremental ones are those of the page
``chapters/step7-tokens.md``, on the whole corpus as one text. Beside them runs the
library ``tokenizers``, without its cut into words. One long text is what its trainer is
not made for: its time grows with the square of the length, which a few prefixes show.
So the two are also trained on the corpus cut into lines, the same for both.

Times are processor seconds of one thread, so that other work on the machine hardly
counts. The slow forms run once, the others three times, and the fastest run counts.

The table is printed, the figures go to ``_build/bench/tokenizer.json``. With
``--store`` they become the log that the page reads.

Usage: ``python -m benchmarks.tokenizer [--store]``
"""

import os

os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import argparse
import hashlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tinygpt.bpe import (
    FastBPE,
    TokenChain,
    encode_plain,
    index_pairs,
    merge_everywhere,
    text_to_bytes,
    train_fast,
    train_plain,
)
from tinygpt.corpus import load_corpus, write_whole
from tools.data import state_reference
from tools.pages import ROOT
from tools.reference import machine

LOG = "step7_tokenizer.json"
VOCABULARY = 1_024
PREFIXES = (20_000, 40_000, 80_000)


def seconds(action: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """The processor seconds of the fastest of some runs, and what they returned."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        result = action()
        taken.append(time.process_time() - start)
    return min(taken), result


def digest(ids: list[int]) -> str:
    """A fingerprint of a list of ids."""
    return hashlib.sha256(json.dumps(ids).encode("ascii")).hexdigest()


class Library:
    """The library's byte-level byte-pair encoding, without a cut into words."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=False, use_regex=False
        )
        self.trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        # It writes each byte as a printable character: the byte's own where it has
        # one, else the next character from 256 on.
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        self.bytes = {chr(byte): byte for byte in printable}
        self.bytes |= {chr(256 + i): byte for i, byte in enumerate(others)}

    def spelled(self, token: str) -> bytes:
        return bytes(self.bytes[character] for character in token)

    def train(self, texts: list[str]) -> list[tuple[bytes, bytes]]:
        """Learn merges, each as the spellings of its two parts."""
        self.tokenizer.train_from_iterator(texts, self.trainer)
        merges = json.loads(self.tokenizer.to_str())["model"]["merges"]
        return [(self.spelled(left), self.spelled(right)) for left, right in merges]


def against_library(
    chunks: list[bytes],
    merges: list[tuple[int, int]],
    theirs: list[tuple[bytes, bytes]],
) -> tuple[dict[str, Any], list[bytes]]:
    """Replay the library's merges on our index: is each a most frequent pair?

    Returns:
        the figures, and the spellings of the tokens at the end.
    """
    spelled = FastBPE(merges).token_bytes
    ours = [(spelled[left], spelled[right]) for left, right in merges]
    chain = TokenChain(chunks)
    counts, places = index_pairs(chain)
    spellings = [bytes([byte]) for byte in range(256)]
    ids = {spelling: i for i, spelling in enumerate(spellings)}
    most_frequent = tied = 0
    for new_id, (left, right) in enumerate(theirs, start=256):
        pair = ids[left], ids[right]
        top = max(counts.values())
        most_frequent += counts[pair] == top
        tied += sum(count == top for count in counts.values()) > 1
        merge_everywhere(chain, counts, places, pair, new_id)
        spellings.append(left + right)
        ids[left + right] = new_id
    same = [mine == other for mine, other in zip(ours, theirs)]
    figures = {
        "merges": len(theirs),
        "at_the_same_place": sum(same),
        "first_difference": same.index(False) if False in same else None,
        "in_both": len(set(ours) & set(theirs)),
        "most_frequent_when_chosen": most_frequent,
        "tied_when_chosen": tied,
    }
    return figures, [spellings[i] for i in chain.tokens()]


def measure(text: str) -> dict[str, Any]:
    """Train and encode in every way; compare what came out."""
    data = text_to_bytes(text)
    n_merges = VOCABULARY - 256
    taken: dict[str, dict[str, float]] = {}

    def timed(kind: str, name: str, action: Callable[[], Any], times: int = 3) -> Any:
        spent, result = seconds(action, times)
        taken.setdefault(kind, {})[name] = round(spent, 3)
        print(f"{kind:<20} {name:<16} {spent:>8.2f} s", flush=True)
        return result

    fast = timed("train", "incremental", lambda: FastBPE.train(text, VOCABULARY))
    ids = timed("encode", "incremental", lambda: fast.encode(text))
    lines = text.splitlines(keepends=True)
    chunks = [text_to_bytes(line) for line in lines]
    by_lines = timed(
        "train on lines", "incremental", lambda: train_fast(chunks, n_merges)
    )
    library = Library()
    theirs = timed("train on lines", "tokenizers", lambda: library.train(lines))
    encoded = timed("encode", "tokenizers", lambda: library.tokenizer.encode(text))
    figures, replayed = against_library(chunks, by_lines, theirs)
    spelled = [library.spelled(token) for token in encoded.tokens]
    figures["encodes_as_its_merges_say"] = spelled == replayed
    for n in PREFIXES:
        kind, start = f"train on {n:,} bytes", text[:n]
        timed(kind, "incremental", lambda start=start: FastBPE.train(start, VOCABULARY))
        timed(kind, "tokenizers", lambda start=start: Library().train([start]))
    plain_ids = timed(
        "encode", "straightforward", lambda: encode_plain(data, fast.merges), 1
    )
    merges = timed("train", "straightforward", lambda: train_plain(data, n_merges), 1)
    return {
        "machine": machine(),
        "tokenizers": importlib.metadata.version("tokenizers"),
        "vocabulary": VOCABULARY,
        "bytes": len(data),
        "tokens": len(ids),
        "seconds": taken,
        "same_merges": merges == list(fast.merges),
        "same_ids": plain_ids == ids,
        "straightforward_merges": merges,
        "straightforward_ids": digest(plain_ids),
        "library": figures,
    }


def times_as_fast(result: dict[str, Any], kind: str, name: str, slow: str) -> float:
    """How many times as fast one form is as another, in the same run."""
    taken = result["seconds"][kind]
    return taken[slow] / taken[name]


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table, write the figures; fail if two forms disagree."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tokenizer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--store", action="store_true", help=f"renew {LOG}")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    result = measure(load_corpus("tinyshakespeare", options.root))
    for kind in ("train", "encode"):
        ratio = times_as_fast(result, kind, "incremental", "straightforward")
        print(f"{kind}: incremental is {ratio:.0f} times as fast as straightforward")
    for kind in ("train on lines", "encode"):
        ratio = times_as_fast(result, kind, "tokenizers", "incremental")
        print(f"{kind}: the library is {ratio:.1f} times as fast as incremental")
    print("same merges:", result["same_merges"], "same ids:", result["same_ids"])
    print("against the library:", result["library"])
    content = (json.dumps(result) + "\n").encode("utf-8")
    write_whole(options.root / "_build" / "bench" / "tokenizer.json", content)
    if options.store:
        state_reference(options.root, LOG, content)
    return 0 if result["same_merges"] and result["same_ids"] else 1


if __name__ == "__main__":
    sys.exit(main())
