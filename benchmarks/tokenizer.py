"""Byte-pair encoding: straightforward, incremental, and a library, in turn.

On Alice the straightforward form is the tokenizer of Chapter 2, with the vocabulary
that it learns there. On Tiny Shakespeare it is that of ``chapters/step7-tokens.md``, on
the whole corpus as one text. The incremental form is that of Step 7 on both. Beside
them runs the library ``tokenizers``, without its cut into words. One long text is what
its trainer is not made for: its time grows with the square of the length, which a few
prefixes show. So it is trained on the text cut into lines, against both forms of ours
on the text as one, and against the incremental form on the same lines.

Times are processor seconds of one thread, so that other work on the machine hardly
counts. The contestants take turns for a few rounds; the slow forms on Shakespeare need
minutes a round, which is why there are not more. Without the library the others run.

The ratios are printed, and everything goes to ``_build/bench/tokenizer.json``.
``--store`` renews the log of ``chapters/benchmarks.md``, ``--step7`` also that of
``chapters/step7-tokens.md``: fastest rounds, merges, and a fingerprint of the ids.

Usage: ``python -m benchmarks.tokenizer [--small] [--store] [--step7]``
"""

import os

os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.common import arguments, finish, in_turn, ratio, report
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
from tinygpt.corpus import load_corpus
from tinygpt.transformer import BytePairTokenizer
from tools.data import state_reference

PAGE_LOG = "step7_tokenizer.json"
VOCABULARY = 1_024
ALICE_VOCABULARY = 512  # as in Chapter 2
PREFIXES = (20_000, 40_000, 80_000)
ROUNDS = {"Alice": 7, "Shakespeare": 2}
AT_LEAST = 0.2  # seconds of a contestant in a round
SMALL = 2_000  # characters of each text that are enough to try it
SMALL_VOCABULARY = 280
PLAIN, OURS, THEIRS = "straightforward", "incremental", "tokenizers"
THEIRS_ON_LINES = "tokenizers on lines"


def digest(ids: list[int]) -> str:
    """A fingerprint of a list of ids."""
    return hashlib.sha256(json.dumps(ids).encode("ascii")).hexdigest()


class Library:
    """The library's byte-level byte-pair encoding, without a cut into words."""

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=False, use_regex=False
        )
        self.trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
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


def library_is_there() -> bool:
    """Can the library be imported? If not, say so in one line."""
    try:
        Library()
    except ImportError as error:
        print(f"tokenizer: left out, {error}; `make bench` installs it", flush=True)
        return False
    return True


class Text:
    """One text with all its tasks: what was measured, and whether the forms agree."""

    def __init__(self, name: str, text: str, vocabulary: int, rounds: int) -> None:
        self.name, self.text, self.vocabulary = name, text, vocabulary
        self.data = text_to_bytes(text)
        self.rounds = rounds
        self.measures: list[dict[str, Any]] = []
        self.ratios: list[dict[str, Any]] = []
        self.library: dict[str, Any] | None = None

    def run(
        self,
        task: str,
        contestants: dict[str, Callable[[], Any]],
        pairs: Sequence[tuple[str, str]],
        at_least: float,
    ) -> dict[str, Any]:
        """Run one task, keep its seconds and its ratios, return what came out."""
        if not contestants:
            return {}
        task = f"{task}, {self.name}"
        print(f"  {task} ...", flush=True)
        seconds, returned = in_turn(contestants, self.rounds, at_least)
        rounded = {
            name: [round(s, 5) for s in taken] for name, taken in seconds.items()
        }
        self.measures.append({"task": task, "unit": "s", "rounds": rounded})
        self.ratios += [
            ratio(task, seconds, *pair) for pair in pairs if set(pair) <= set(seconds)
        ]
        return returned

    def compare(
        self,
        plain_train: Callable[[], list[tuple[int, int]]],
        plain_encode: Callable[[], list[int]],
        with_library: bool,
        at_least: float,
        prefixes: Sequence[int] = (),
    ) -> None:
        """Train and encode in every way; compare what came out."""
        text, size = self.text, self.vocabulary
        lines = text.splitlines(keepends=True)
        chunks = [text_to_bytes(line) for line in lines]
        whole = {PLAIN: plain_train, OURS: lambda: FastBPE.train(text, size)}
        by_lines = {OURS: lambda: train_fast(chunks, size - 256)}
        encoders = {PLAIN: plain_encode, OURS: lambda: self.fast.encode(text)}
        if with_library:
            library = Library(size)
            theirs = library.train(lines)
            whole[THEIRS_ON_LINES] = by_lines[THEIRS] = lambda: library.train(lines)
            encoders[THEIRS] = lambda: library.tokenizer.encode(text)
        trained = self.run(
            "train", whole, [(OURS, PLAIN), (THEIRS_ON_LINES, PLAIN)], at_least
        )
        self.fast, self.merges = trained[OURS], trained[PLAIN]
        learned = self.run("train on lines", by_lines, [(OURS, THEIRS)], at_least)
        encoded = self.run(
            "encode",
            encoders,
            [(OURS, PLAIN), (THEIRS, PLAIN), (OURS, THEIRS)],
            at_least,
        )
        self.ids, self.plain_ids = encoded[OURS], encoded[PLAIN]
        if with_library:
            self.library, replayed = against_library(chunks, learned[OURS], theirs)
            spelled = [library.spelled(token) for token in encoded[THEIRS].tokens]
            self.library["encodes_as_its_merges_say"] = spelled == replayed
        for n in prefixes:
            start = text[:n]
            uncut = {OURS: lambda start=start: FastBPE.train(start, size)}
            if with_library:
                uncut[THEIRS] = lambda start=start: Library(size).train([start])
            self.run(f"train on {n:,} bytes", uncut, [(OURS, THEIRS)], at_least)

    def checks(self) -> dict[str, bool]:
        """Did all forms come to the same?"""
        found = {
            f"same merges, {self.name}": self.merges == list(self.fast.merges),
            f"same ids, {self.name}": self.plain_ids == self.ids,
        }
        if self.library is not None:
            found[f"the library differs only where pairs are level, {self.name}"] = (
                self.library["most_frequent_when_chosen"] == self.library["merges"]
                and self.library["encodes_as_its_merges_say"]
            )
        return found

    def seconds(self, task: str, name: str) -> float:
        """The fastest round of a contestant."""
        wanted = f"{task}, {self.name}"
        return min(
            taken
            for measure in self.measures
            if measure["task"] == wanted
            for taken in measure["rounds"][name]
        )


def alice(text: str, small: bool, with_library: bool) -> Text:
    """Alice, with Chapter 2's own tokenizer as the straightforward form."""
    vocabulary = SMALL_VOCABULARY if small else ALICE_VOCABULARY
    found = Text("Alice", text, vocabulary, 2 if small else ROUNDS["Alice"])
    chapter2 = BytePairTokenizer.train(text, vocabulary)

    def merges() -> list[tuple[int, int]]:
        trained = BytePairTokenizer.train(text, vocabulary)
        return [(merge.left, merge.right) for merge in trained.merges]

    found.compare(
        merges,
        lambda: chapter2.encode(text),
        with_library,
        0.0 if small else AT_LEAST,
    )
    return found


def shakespeare(text: str, small: bool, with_library: bool) -> Text:
    """Tiny Shakespeare, with the straightforward form of Step 7."""
    vocabulary = SMALL_VOCABULARY if small else VOCABULARY
    found = Text("Shakespeare", text, vocabulary, 2 if small else ROUNDS["Shakespeare"])
    merges = FastBPE.train(text, vocabulary).merges
    found.compare(
        lambda: train_plain(found.data, vocabulary - 256),
        lambda: encode_plain(found.data, merges),
        with_library,
        0.0,
        prefixes=(SMALL // 2,) if small else PREFIXES,
    )
    return found


def page_log(found: Text, log: dict[str, Any]) -> dict[str, Any]:
    """What the page of Step 7 reads, from the fastest rounds on Shakespeare."""
    taken: dict[str, dict[str, float]] = {}
    for measure in found.measures:
        task = measure["task"].removesuffix(f", {found.name}")
        taken[task] = {
            name: round(found.seconds(task, name), 3) for name in measure["rounds"]
        }
    return {
        "machine": log["machine"],
        "tokenizers": log["versions"]["tokenizers"],
        "vocabulary": found.vocabulary,
        "bytes": len(found.data),
        "tokens": len(found.ids),
        "seconds": taken,
        "same_merges": found.merges == list(found.fast.merges),
        "same_ids": found.plain_ids == found.ids,
        "straightforward_merges": found.merges,
        "straightforward_ids": digest(found.plain_ids),
        "library": found.library,
    }


def measure(texts: dict[str, str], small: bool) -> tuple[dict[str, Any], Text]:
    """Compare on both texts; return the log, and what was found on Shakespeare."""
    torch.set_num_threads(1)  # nothing here computes with it; the log says so
    with_library = library_is_there()
    cut = {name: text[:SMALL] if small else text for name, text in texts.items()}
    found = [
        alice(cut["alice"], small, with_library),
        shakespeare(cut["tinyshakespeare"], small, with_library),
    ]
    log = report(
        "tokenizer",
        small,
        [measure for text in found for measure in text.measures],
        [entry for text in found for entry in text.ratios],
        {name: held for text in found for name, held in text.checks().items()},
        packages=("tokenizers",),
        texts={
            text.name: {
                "vocabulary": text.vocabulary,
                "bytes": len(text.data),
                "tokens": len(text.ids),
                "fingerprint": digest(text.ids),
                "library": text.library,
            }
            for text in found
        },
    )
    return log, found[-1]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the ratios, write the figures; fail if two forms disagree."""
    options = arguments(
        "tokenizer",
        __doc__.splitlines()[0],
        argv,
        {"step7": f"renew {PAGE_LOG} as well, which the page of Step 7 reads"},
    )
    if (options.store or options.step7) and not library_is_there():
        return 1  # the pages read about the library as well
    names = ("alice", "tinyshakespeare")
    texts = {name: load_corpus(name, options.root) for name in names}
    log, found = measure(texts, options.small)
    status = finish(log, options.root, options.store)
    if (
        options.step7
        and not options.small
        and status == 0
        and found.library is not None
    ):
        content = (json.dumps(page_log(found, log)) + "\n").encode("utf-8")
        state_reference(options.root, PAGE_LOG, content)
    return status


if __name__ == "__main__":
    sys.exit(main())
