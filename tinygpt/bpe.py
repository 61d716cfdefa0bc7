# Generated from chapters/step7-tokens.md by `make export`.
# Change the page, not this file.
"""Step 7, first part: tokens.

The saved code of https://example.org/tinygpt/chapters/step7-tokens.html
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path

from tinygpt.corpus import write_whole

__all__ = [
    "EMPTY",
    "FastBPE",
    "PairPlaces",
    "TokenChain",
    "bits_per_byte",
    "check_specials",
    "encode_fast",
    "encode_plain",
    "index_pairs",
    "merge_everywhere",
    "most_frequent",
    "replace_pair",
    "split_specials",
    "text_to_bytes",
    "train_fast",
    "train_plain",
]


def text_to_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of a text, the tokens that every tokenizer starts from.

    Raises:
        ValueError: the text holds a lone surrogate, which UTF-8 cannot express.

    Example: ``list(text_to_bytes("aé"))`` is ``[97, 195, 169]``.

    Built in Step 7, first part: tokens, section Bytes first:
    https://example.org/tinygpt/chapters/step7-tokens.html#bytes-first
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        place, half = error.start, text[error.start]
    raise ValueError(
        f"character {place} of the text is {half!r}, a lone surrogate; expected text "
        "that UTF-8 can encode"
    )


def replace_pair(ids: Sequence[int], pair: tuple[int, int], new_id: int) -> list[int]:
    """Write ``new_id`` for each ``pair``, from left to right, none of them overlapping.

    Returns a new list. Example: ``replace_pair([1, 1, 1], (1, 1), 9)`` is ``[9, 1]``.

    Built in Step 7, first part: tokens, section The plain form:
    https://example.org/tinygpt/chapters/step7-tokens.html#the-plain-form
    """
    written = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            written.append(new_id)
            i += 2
        else:
            written.append(ids[i])
            i += 1
    return written


def train_plain(ids: Sequence[int], n_merges: int) -> list[tuple[int, int]]:
    """Learn merges the straightforward way: count everything again for each merge.

    The most frequent pair of neighbours is merged, overlapping ones counted; among
    equals the numerically smallest pair. Fewer merges are learned if pairs run out.

    Args:
        ids: the bytes of a text.
        n_merges: how many merges to learn.

    Returns:
        the pairs in the order learned; the k-th, from 0, becomes token 256 + k.

    Built in Step 7, first part: tokens, section The plain form:
    https://example.org/tinygpt/chapters/step7-tokens.html#the-plain-form
    """
    merges: list[tuple[int, int]] = []
    for new_id in range(256, 256 + n_merges):
        counts = Counter(zip(ids, ids[1:]))
        if not counts:
            break
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        ids = replace_pair(ids, merges[-1], new_id)
    return merges


def encode_plain(ids: Sequence[int], merges: Iterable[tuple[int, int]]) -> list[int]:
    """Encode bytes the straightforward way: one pass over everything for each merge.

    Built in Step 7, first part: tokens, section The plain form:
    https://example.org/tinygpt/chapters/step7-tokens.html#the-plain-form
    """
    ids = list(ids)
    for new_id, pair in enumerate(merges, start=256):
        ids = replace_pair(ids, pair, new_id)
    return ids


EMPTY = -1  # the id of a place that holds no token


class TokenChain:
    """A row of tokens, linked so that joining two neighbours moves none of the others.

    Place i holds the token ``ids[i]``; ``before[i]`` and ``after[i]`` are the places
    beside it. An empty place stands at both ends and between two chunks, so that
    tokens of different chunks are never neighbours.

    Args:
        chunks: the rows of ids to be linked.

    Built in Step 7, first part: tokens, section What stands beside it: a chain:
    https://example.org/tinygpt/chapters/step7-tokens.html#what-stands-beside-it-a-chain
    """

    def __init__(self, chunks: Iterable[Sequence[int]]) -> None:
        self.ids = [EMPTY]
        for chunk in chunks:
            self.ids += [*chunk, EMPTY]
        n = len(self.ids)
        self.before = list(range(-1, n - 1))
        self.after = list(range(1, n + 1))

    def pair_at(self, i: int) -> tuple[int, int]:
        """Return the token at place i and the one after it."""
        return self.ids[i], self.ids[self.after[i]]

    def join(self, i: int, new_id: int) -> tuple[int, int]:
        """Put ``new_id`` for the tokens at i and after it; return the places beside."""
        gone = self.after[i]
        left, right = self.before[i], self.after[gone]
        self.ids[i], self.ids[gone] = new_id, EMPTY
        self.after[i], self.before[right] = right, i
        return left, right

    def tokens(self) -> list[int]:
        """List the tokens that are left, in order."""
        return [token for token in self.ids if token != EMPTY]


PairPlaces = dict[tuple[int, int], list[int]]


def index_pairs(chain: TokenChain) -> tuple[Counter[tuple[int, int]], PairPlaces]:
    """Count the pairs of neighbours of a fresh chain, and list the places of each.

    Returns:
        pair -> how often it occurs, overlapping ones counted; and
        pair -> the places of its left tokens, ascending.

    Built in Step 7, first part: tokens, section Where a pair stands: an index:
    https://example.org/tinygpt/chapters/step7-tokens.html#where-a-pair-stands-an-index
    """
    places = defaultdict(list)
    for i, pair in enumerate(zip(chain.ids, chain.ids[1:])):
        places[pair].append(i)
    places = {pair: where for pair, where in places.items() if EMPTY not in pair}
    return Counter({pair: len(where) for pair, where in places.items()}), places


def merge_everywhere(
    chain: TokenChain,
    counts: Counter[tuple[int, int]],
    places: PairPlaces,
    pair: tuple[int, int],
    new_id: int,
) -> list[tuple[int, int]]:
    """Apply one merge to the chain and keep its index true, at the changed places only.

    Args:
        chain, counts, places: changed in place; the index may list places that are
            out of date, and they are passed over.
        pair: a pair of neighbours of the chain.
        new_id: the token that replaces it; larger than every token so far.

    Returns:
        the pairs that were born, each of which holds ``new_id``.

    Built in Step 7, first part: tokens, section One merge, at its places only:
    https://example.org/tinygpt/chapters/step7-tokens.html#one-merge-at-its-places-only
    """
    left, right = pair
    born: PairPlaces = defaultdict(list)
    for i in places.pop(pair):
        if chain.pair_at(i) != pair:
            continue  # one of its tokens has been used since
        p, q = chain.join(i, new_id)
        x, y = chain.ids[p], chain.ids[q]
        if x != EMPTY:
            counts[x, left] -= 1
            counts[x, new_id] += 1
            born[x, new_id].append(p)
        if y != EMPTY:
            counts[right, y] -= 1
            counts[new_id, y] += 1
            born[new_id, y].append(i)
    del counts[pair]
    places.update(born)
    return list(born)


def most_frequent(
    heap: list[tuple[int, tuple[int, int]]], counts: Mapping[tuple[int, int], int]
) -> tuple[int, int] | None:
    """Take the most frequent pair off the heap, ties to the smallest; None if empty.

    Args:
        heap: one entry (minus a count, pair) for each pair. The count may be too high,
            since counts fall after an entry was made; it is then put right.
        counts: the true counts.

    Built in Step 7, first part: tokens, section Which pair is next: a heap:
    https://example.org/tinygpt/chapters/step7-tokens.html#which-pair-is-next-a-heap
    """
    while heap:
        claimed, pair = heap[0]
        if -claimed == counts[pair]:
            return heappop(heap)[1]
        if counts[pair]:
            heapreplace(heap, (-counts[pair], pair))
        else:
            heappop(heap)
    return None


def train_fast(chunks: Iterable[Sequence[int]], n_merges: int) -> list[tuple[int, int]]:
    """Learn the merges of ``train_plain`` without counting anything twice.

    Args:
        chunks: rows of bytes; no merge reaches from one into the next.
        n_merges: how many merges to learn, fewer if pairs run out.

    Returns:
        the pairs in the order learned.

    Built in Step 7, first part: tokens, section The trainer:
    https://example.org/tinygpt/chapters/step7-tokens.html#the-trainer
    """
    chain = TokenChain(chunks)
    counts, places = index_pairs(chain)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapify(heap)
    merges: list[tuple[int, int]] = []
    while len(merges) < n_merges:
        pair = most_frequent(heap, counts)
        if pair is None:
            break
        new_id = 256 + len(merges)
        merges.append(pair)
        for new in merge_everywhere(chain, counts, places, pair, new_id):
            if counts[new]:
                heappush(heap, (-counts[new], new))
    return merges


def encode_fast(
    ids: Sequence[int], new_ids: Mapping[tuple[int, int], int]
) -> list[int]:
    """Encode bytes as ``encode_plain`` does, visiting only the places that change.

    Args:
        ids: the bytes of a text.
        new_ids: pair -> the token that it becomes, larger than both of its parts. The
            pairs are merged in the order of these tokens.

    Built in Step 7, first part: tokens, section Encoding without passing over
    everything again:
    https://example.org/tinygpt/chapters/step7-tokens.html#encoding-without-passing-over-everything-again
    """
    chain = TokenChain([ids])
    waiting: dict[int, list[int]] = defaultdict(list)  # new token -> places
    for i, pair in enumerate(zip(chain.ids, chain.ids[1:])):
        if pair in new_ids:
            waiting[new_ids[pair]].append(i)
    heap = sorted(waiting)
    while heap:
        new_id = heappop(heap)
        for i in waiting.pop(new_id):
            if new_ids.get(chain.pair_at(i)) != new_id:
                continue  # one of its tokens has been used since
            before, _ = chain.join(i, new_id)
            for place in (before, i):
                later = new_ids.get(chain.pair_at(place))
                if later is not None:
                    if later not in waiting:
                        heappush(heap, later)
                    waiting[later].append(place)
    return chain.tokens()


def split_specials(text: str, specials: Iterable[str]) -> list[str]:
    """Cut a text at special tokens, the longest first where several fit.

    Returns:
        ordinary text at even places (it may be empty), special tokens at odd places.

    Example: ``split_specials("a<e>b", ["<e>"])`` is ``["a", "<e>", "b"]``.

    Built in Step 7, first part: tokens, section Special tokens:
    https://example.org/tinygpt/chapters/step7-tokens.html#special-tokens
    """
    longest_first = sorted(specials, key=len, reverse=True)
    if not longest_first:
        return [text]
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text)


def check_specials(special_tokens: Iterable[str]) -> list[str]:
    """Return special tokens as a list.

    Raises:
        ValueError: one of them is no text, empty, or a repetition; or a single text
            was given in place of several.

    Built in Step 7, first part: tokens, section Special tokens:
    https://example.org/tinygpt/chapters/step7-tokens.html#special-tokens
    """
    if isinstance(special_tokens, str):
        raise ValueError(f"special tokens are {special_tokens!r}; expected a list")
    specials = list(special_tokens)
    for i, special in enumerate(specials):
        if not isinstance(special, str) or not special or special in specials[:i]:
            raise ValueError(
                f"special token {i} is {special!r}; expected a text, not empty, that "
                "is not among those before"
            )
    return specials


class FastBPE:
    """Byte-level byte-pair encoding, trained and applied without repeated passes.

    Ids 0 to 255 are the bytes, then come the merges in the order learned, then the
    special tokens. Any text can be encoded, and ``decode(encode(text)) == text``. Text
    that looks like a special token is encoded as the bytes it is, unless allowed.

    Args:
        merges: pairs of ids; the k-th, from 0, becomes token 256 + k.
        special_tokens: texts that get a token of their own.

    Raises:
        ValueError: a merge repeats an earlier one or uses an unknown token; a special
            token is empty, repeated, no text, or holds a lone surrogate.

    Built in Step 7, first part: tokens, section The class:
    https://example.org/tinygpt/chapters/step7-tokens.html#the-class
    """

    def __init__(
        self,
        merges: Iterable[tuple[int, int]] = (),
        special_tokens: Iterable[str] = (),
    ) -> None:
        self.merges = tuple((left, right) for left, right in merges)
        self.token_bytes = [bytes([byte]) for byte in range(256)]
        self.new_ids: dict[tuple[int, int], int] = {}
        for pair in self.merges:
            new_id = len(self.token_bytes)
            if pair in self.new_ids or not all(0 <= part < new_id for part in pair):
                raise ValueError(
                    f"merge {new_id} is {pair}; expected a pair of tokens from 0 to "
                    f"{new_id - 1} that is not merged before"
                )
            self.new_ids[pair] = new_id
            self.token_bytes.append(b"".join(self.token_bytes[part] for part in pair))
        self.special_tokens: dict[str, int] = {}
        for special in check_specials(special_tokens):
            self.special_tokens[special] = len(self.token_bytes)
            self.token_bytes.append(text_to_bytes(special))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are: bytes, merges and special tokens."""
        return len(self.token_bytes)

    @classmethod
    def train(
        cls, text: str, vocab_size: int, special_tokens: Iterable[str] = ()
    ) -> "FastBPE":
        """Learn a tokenizer with ``vocab_size`` tokens, or fewer if pairs run out.

        Where a special token stands in the text, it is cut out: no merge holds a byte
        of it or reaches across it.

        Raises:
            ValueError: ``vocab_size`` has no room for the bytes and special tokens, or
                the text holds a lone surrogate.
        """
        specials = check_specials(special_tokens)
        least = 256 + len(specials)
        if vocab_size < least:
            raise ValueError(
                f"vocab_size is {vocab_size}; need at least {least}: 256 bytes and "
                f"{len(specials)} special tokens"
            )
        text_to_bytes(text)  # refuses a lone surrogate by its place in the whole text
        chunks = [text_to_bytes(chunk) for chunk in split_specials(text, specials)[::2]]
        return cls(train_fast(chunks, vocab_size - least), specials)

    def encode(self, text: str, allowed_special: Iterable[str] = ()) -> list[int]:
        """Turn text into ids, as if the merges were applied one after another.

        Args:
            text: any text.
            allowed_special: the special tokens that may be made from the text;
                ``"all"`` allows every one. By default the text is nothing but text.

        Raises:
            ValueError: an allowed token is unknown, or the text holds a lone surrogate.
        """
        if allowed_special == "all":
            allowed_special = self.special_tokens
        allowed = check_specials(allowed_special)
        for special in allowed:
            if special not in self.special_tokens:
                raise ValueError(
                    f"special token {special!r} is unknown; expected some of "
                    f"{list(self.special_tokens)}"
                )
        text_to_bytes(text)  # refuses a lone surrogate by its place in the whole text
        ids: list[int] = []
        for i, chunk in enumerate(split_specials(text, allowed)):
            if i % 2:
                ids.append(self.special_tokens[chunk])
            else:
                ids += encode_fast(text_to_bytes(chunk), self.new_ids)
        return ids

    def decode(self, ids: Iterable[int], errors: str = "strict") -> str:
        """Turn ids into text; ``errors`` is that of ``bytes.decode``.

        With ``errors="replace"`` bytes that are no UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is not in the vocabulary, or (strict) bytes are no UTF-8.
        """
        ids = list(ids)
        for place, i in enumerate(ids):
            if not 0 <= i < self.vocab_size:
                raise ValueError(
                    f"token {place} is {i}; expected 0 to {self.vocab_size - 1}"
                )
        return b"".join(self.token_bytes[i] for i in ids).decode("utf-8", errors)

    def save(self, path: str | Path) -> None:
        """Write merges and special tokens as JSON, numbers only, whole or not at all.

        A special token is written as the list of its bytes.
        """
        state = {
            "merges": self.merges,
            "special_tokens": [list(text_to_bytes(s)) for s in self.special_tokens],
        }
        write_whole(Path(path), json.dumps(state).encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> "FastBPE":
        """Read a tokenizer that ``save`` wrote; anything else is a ``ValueError``."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            merges, specials = state["merges"], state["special_tokens"]
            numbers = [i for row in (*merges, *specials) for i in row]
            if not all(type(rows) is list for rows in (merges, specials)):
                raise ValueError("expected two lists")
            if not all(type(i) is int for i in numbers):
                raise ValueError("expected whole numbers")
            return cls(merges, [bytes(row).decode("utf-8") for row in specials])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not a saved tokenizer: {error!r}") from error


def bits_per_byte(nats_per_token: float, n_tokens: int, n_bytes: int) -> float:
    """Turn a mean loss per token into bits per byte of the text that was predicted.

    Args:
        nats_per_token: mean cross-entropy of the tokens, in nats.
        n_tokens: how many tokens were predicted.
        n_bytes: how many bytes they spell.

    Example: a byte-level model without a guess pays ``math.log(256)`` nats, and
    ``bits_per_byte(math.log(256), 10, 10)`` is 8.

    Built in Step 7, first part: tokens, section Bits per byte:
    https://example.org/tinygpt/chapters/step7-tokens.html#bits-per-byte
    """
    if n_tokens < 1 or n_bytes < 1:
        raise ValueError(f"{n_tokens} tokens, {n_bytes} bytes; expected at least one")
    return nats_per_token / math.log(2) * n_tokens / n_bytes
