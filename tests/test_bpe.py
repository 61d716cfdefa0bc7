"""Step 7, tokens: the fast forms equal the plain ones, and no text is lost or faked."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest
import torch
from chapter2 import quick
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpt.bpe import (
    EMPTY,
    FastBPE,
    TokenChain,
    bits_per_byte,
    encode_fast,
    encode_plain,
    index_pairs,
    merge_everywhere,
    most_frequent,
    replace_pair,
    split_specials,
    text_to_bytes,
    train_fast,
    train_plain,
)
from tinygpt.corpus import load_corpus
from tinygpt.transformer import BytePairTokenizer
from tools.pages import ROOT

END = "<|endoftext|>"
EMOJI = "naïve 🙂 naïve 🙂🙂 café 🐇🐇"

thorough = settings(quick, max_examples=200)

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
one_letter = st.text("a", max_size=50)
few_letters = st.one_of(one_letter, st.text("ab", max_size=60), st.text("abc"))
texts = st.one_of(few_letters, any_text)


def chapter2_merges(text: str, n_merges: int) -> list[tuple[int, int]]:
    """What the tokenizer of Chapter 2 learns, as pairs."""
    merges = BytePairTokenizer.train(text, 256 + n_merges).merges
    return [(merge.left, merge.right) for merge in merges]


def literal_merges(chunks: list[bytes], n_merges: int) -> list[tuple[int, int]]:
    """Learn merges over chunks in the most literal way, sharing no code."""
    rows = [list(chunk) for chunk in chunks]
    learned = []
    for new_id in range(256, 256 + n_merges):
        pairs = [(a, b) for row in rows for a, b in zip(row, row[1:])]
        if not pairs:
            break
        best = min(sorted(set(pairs)), key=lambda pair: -pairs.count(pair))
        learned.append(best)
        for k, row in enumerate(rows):
            written: list[int] = []
            for token in row:
                if written and (written[-1], token) == best:
                    written[-1] = new_id
                else:
                    written.append(token)
            rows[k] = written
    return learned


@st.composite
def any_merges(draw):
    """Merges in a legal but arbitrary order, such as no training would give."""
    merges: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 8))):
        parts = st.sampled_from([97, 98, 99, *range(256, 256 + len(merges))])
        pair = (draw(parts), draw(parts))
        if pair not in merges:
            merges.append(pair)
    return merges


@pytest.fixture(scope="module")
def corpus() -> str:
    return load_corpus("tinyshakespeare", start=ROOT)


# The plain form


@pytest.mark.parametrize(
    ("n", "merged"), [(1, [97]), (3, [256, 97]), (4, [256] * 2), (5, [256, 256, 97])]
)
def test_a_token_of_a_run_is_used_once(n, merged):
    ids = [97] * n
    assert replace_pair(ids, (97, 97), 256) == merged
    assert ids == [97] * n
    assert encode_fast(ids, {(97, 97): 256}) == merged
    assert FastBPE([(97, 97)]).decode(merged) == "a" * n


def test_the_classic_example_merges_as_the_page_says():
    merges = [(97, 97), (97, 98), (256, 257)]
    example = b"aaabdaaabac"
    assert train_plain(example, 3) == merges == train_fast([example], 3)
    assert encode_plain(example, merges) == [258, 100, 258, 97, 99]
    assert FastBPE(merges).encode(example.decode()) == [258, 100, 258, 97, 99]


@thorough
@given(text=texts, n_merges=st.integers(0, 12))
def test_the_plain_trainer_is_that_of_chapter_2(text, n_merges):
    assert train_plain(text.encode(), n_merges) == chapter2_merges(text, n_merges)


@quick
@given(train=texts, text=texts, n_merges=st.integers(0, 12))
def test_the_plain_encoder_is_that_of_chapter_2(train, text, n_merges):
    theirs = BytePairTokenizer.train(train, 256 + n_merges)
    merges = chapter2_merges(train, n_merges)
    assert encode_plain(text.encode(), merges) == theirs.encode(text)


# The chain and its index


@quick
@given(text=few_letters, steps=st.lists(st.integers(0, 9**9), max_size=30))
def test_a_chain_joins_as_a_list_would(text, steps):
    row, chain = list(text.encode()), TokenChain([text.encode()])
    for new_id, step in enumerate(steps, start=256):
        if len(row) < 2:
            break
        live = [i for i, token in enumerate(chain.ids) if token != EMPTY]
        k = step % (len(row) - 1)
        assert chain.pair_at(live[k]) == (row[k], row[k + 1])
        row[k : k + 2] = [new_id]
        before, after = chain.join(live[k], new_id)
        assert chain.tokens() == row
        assert before == ([0, *live][k])
        assert chain.before[after] == live[k]


def test_chunks_are_no_neighbours():
    chain = TokenChain([b"ab", b"", b"ab"])
    assert chain.tokens() == list(b"abab")
    counts, places = index_pairs(chain)
    assert counts == {(97, 98): 2}
    assert [chain.pair_at(i) for i in places[97, 98]] == [(97, 98)] * 2


@thorough
@given(chunks=st.lists(st.text("ab", max_size=20), max_size=3), data=st.data())
def test_after_any_merge_the_index_is_what_a_fresh_count_gives(chunks, data):
    """Whichever pair is merged, the most frequent or not."""
    rows = [list(chunk.encode()) for chunk in chunks]
    chain = TokenChain(rows)
    counts, places = index_pairs(chain)
    for new_id in range(256, 264):
        alive = sorted(pair for pair in counts if counts[pair])
        if not alive:
            break
        pair = data.draw(st.sampled_from(alive))
        older = counts.copy()
        born = merge_everywhere(chain, counts, places, pair, new_id)
        rows = [replace_pair(row, pair, new_id) for row in rows]
        assert chain.tokens() == [token for row in rows for token in row]
        assert +counts == sum((Counter(zip(row, row[1:])) for row in rows), Counter())
        assert min(counts.values(), default=0) >= 0
        for new in born:
            assert new_id in new
            assert places[new] == sorted(set(places[new]))
        assert all(counts[p] <= older[p] for p in older)  # only the newborn rise
        for p in (p for p in counts if counts[p]):
            stand = [i for i, _ in enumerate(chain.ids) if at(chain, i) == p]
            assert [i for i in places[p] if at(chain, i) == p] == stand


def at(chain: TokenChain, i: int) -> tuple[int, int] | None:
    """The pair at a place, if a token stands there."""
    return None if chain.ids[i] == EMPTY else chain.pair_at(i)


def test_the_heap_gives_the_most_frequent_and_puts_old_claims_right():
    counts = Counter({(1, 2): 3, (0, 9): 3, (5, 5): 1, (7, 7): 0})
    heap = [(-9, (1, 2)), (-8, (7, 7)), (-3, (0, 9)), (-1, (5, 5))]
    taken = [most_frequent(heap, counts) for _ in range(4)]
    assert taken == [(0, 9), (1, 2), (5, 5), None]


# The incremental trainer


@thorough
@given(text=texts, n_merges=st.integers(0, 30))
def test_the_incremental_trainer_learns_the_same_merges(text, n_merges):
    plain = train_plain(text.encode(), n_merges)
    assert train_fast([text.encode()], n_merges) == plain


@pytest.mark.parametrize("letters", ["a", "ab", "abc"])
def test_runs_and_ties_do_not_part_the_trainers(letters):
    draw = random.Random(letters)
    for _ in range(150):
        text = "".join(draw.choices(letters, k=draw.randint(0, 40)))
        assert train_fast([text.encode()], 40) == chapter2_merges(text, 40), text


def test_on_shakespeare_the_trainers_agree(corpus):
    start = text_to_bytes(corpus[:20_000])
    assert train_fast([start], 100) == train_plain(start, 100)


@thorough
@given(
    chunks=st.lists(st.text("ab", max_size=15), max_size=4), n_merges=st.integers(0, 12)
)
def test_over_chunks_the_trainer_equals_the_literal_one(chunks, n_merges):
    rows = [chunk.encode() for chunk in chunks]
    assert train_fast(rows, n_merges) == literal_merges(rows, n_merges)


@pytest.mark.parametrize(
    ("text", "vocab_size", "merges"),
    [
        ("", 260, []),
        ("a", 260, []),
        ("ab", 300, [(97, 98)]),
        (" ", 260, []),
        ("   ", 300, [(32, 32), (256, 32)]),
        ("\n\n", 300, [(10, 10)]),
        ("abab", 256, []),
    ],
)
def test_training_stops_when_no_pair_is_left(text, vocab_size, merges):
    tokenizer = FastBPE.train(text, vocab_size)
    assert list(tokenizer.merges) == merges
    assert tokenizer.vocab_size == 256 + len(merges)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    if len(text) > 1 and vocab_size > 256:
        assert tokenizer.encode(text) == [255 + len(merges)]


@quick
@given(text=texts, few=st.integers(0, 10), more=st.integers(0, 10))
def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(text, few, more):
    assert train_fast([text.encode()], few + more)[:few] == train_fast(
        [text.encode()], few
    )


# The encoder


@thorough
@given(train=texts, text=texts, n_merges=st.integers(0, 30))
def test_the_fast_encoder_gives_the_ids_of_chapter_2(train, text, n_merges):
    theirs = BytePairTokenizer.train(train, 256 + n_merges)
    ours = FastBPE((merge.left, merge.right) for merge in theirs.merges)
    assert ours.encode(text) == theirs.encode(text)
    assert ours.token_bytes == theirs.token_bytes


@thorough
@given(merges=any_merges(), text=few_letters)
def test_any_legal_list_of_merges_is_replayed_in_order(merges, text):
    ids = list(text.encode())
    assert encode_fast(ids, FastBPE(merges).new_ids) == encode_plain(ids, merges)
    assert ids == list(text.encode())


@thorough
@given(merges=any_merges(), text=few_letters, cut=st.integers(0, 8))
def test_encoding_can_go_on_from_a_smaller_vocabulary(merges, text, cut):
    half = FastBPE(merges[:cut]).encode(text)
    tokenizer = FastBPE(merges)
    assert encode_fast(half, tokenizer.new_ids) == tokenizer.encode(text)


def test_the_corpus_is_encoded_as_the_plain_form_does(corpus):
    data = text_to_bytes(corpus[:30_000])
    merges = train_fast([data], 200)
    assert FastBPE(merges).encode(corpus[:30_000]) == encode_plain(data, merges)


# Nothing is lost


@quick
@given(train=texts, text=any_text)
def test_any_text_comes_back_from_any_tokenizer(train, text):
    for tokenizer in (FastBPE(), FastBPE.train(train, 280), FastBPE((), [END])):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        *("", "  Hello World.", "\t\t", " \n ", "end  ", "hello\nworld", "\n\n"),
        *("\r\n", "we'll  go", "\x00", "\ufeffbom", "e\u0301", "€🙂", "👩‍🚀"),
        *("\U0010ffff", END, "  Hello World." * 3),
    ],
)
def test_blanks_line_ends_and_joined_characters_come_back_exactly(text):
    for tokenizer in (FastBPE(), FastBPE.train(text * 3 + EMOJI, 290, [END])):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode(text, "all")) == text


def test_decoding_token_by_token_loses_what_decoding_together_keeps():
    tokenizer = FastBPE.train(EMOJI, 280)
    ids = tokenizer.encode("€🙂")
    assert tokenizer.decode(ids) == "€🙂"
    assert "".join(tokenizer.decode([i], errors="replace") for i in ids) != "€🙂"


def test_no_id_makes_a_replacing_decode_raise():
    tokenizer = FastBPE.train(EMOJI * 3, 300, [END, "🙂🙂"])
    for i in range(tokenizer.vocab_size):
        assert isinstance(tokenizer.decode([i], errors="replace"), str)
    assert tokenizer.decode([128], errors="replace") == "\ufffd"
    draw = random.Random(0)
    for _ in range(100):
        ids = draw.choices(range(tokenizer.vocab_size), k=10)
        spelled = b"".join(tokenizer.token_bytes[i] for i in ids)
        assert tokenizer.decode(ids, "replace") == spelled.decode("utf-8", "replace")


def test_the_errors_policy_is_the_callers():
    half = list("🐇".encode())[:3]
    with pytest.raises(ValueError, match="utf-8"):
        FastBPE().decode(half)
    assert FastBPE().decode([65, *half], errors="ignore") == "A"


def test_ids_may_be_a_tensor_or_run_out_once():
    assert FastBPE().decode(torch.tensor([104, 105])) == "hi"
    assert FastBPE().decode(i for i in (104, 105)) == "hi"


@pytest.mark.parametrize(
    ("ids", "place", "wrong"), [([258], 0, 258), ([1, -1], 1, -1), ([9**9], 0, 9**9)]
)
@pytest.mark.parametrize("errors", ["strict", "replace", "ignore"])
def test_decoding_names_an_id_outside_of_the_vocabulary(ids, place, wrong, errors):
    tokenizer = FastBPE([(97, 98)], [END])
    with pytest.raises(ValueError, match=rf"token {place} is {wrong}; .* 0 to 257"):
        tokenizer.decode(ids, errors)


# Special tokens


def test_text_that_looks_like_a_special_token_is_its_bytes_unless_allowed():
    tokenizer = FastBPE((), [END])
    text = f"a{END}b"
    assert tokenizer.encode(text) == list(text.encode())
    assert tokenizer.encode(text, allowed_special=[END]) == [97, 256, 98]
    assert tokenizer.encode(text, "all") == [97, 256, 98]
    assert tokenizer.decode([97, 256, 98]) == text


@thorough
@given(text=st.text("<e>f", max_size=30), train=st.text("<e>f", max_size=30))
def test_no_text_makes_a_special_token_by_itself(text, train):
    tokenizer = FastBPE.train(train, 270, ["<e>", "<e><f>"])
    special = set(tokenizer.special_tokens.values())
    assert not special & set(tokenizer.encode(text))
    allowed = tokenizer.encode(text, ["<e>"])
    assert allowed.count(tokenizer.special_tokens["<e>"]) == text.count("<e>")
    assert tokenizer.special_tokens["<e><f>"] not in allowed
    assert tokenizer.decode(allowed) == text


@pytest.mark.parametrize("specials", [["<e>", "<e><f>"], ["<e><f>", "<e>"]])
def test_of_overlapping_special_tokens_the_longest_wins(specials):
    tokenizer = FastBPE((), specials)
    ids = tokenizer.encode("<e><f><e>", "all")
    assert ids == [tokenizer.special_tokens[s] for s in ("<e><f>", "<e>")]


def test_special_tokens_are_texts_and_no_patterns():
    assert split_specials("a.b+c", [".", "b+"]) == ["a", ".", "", "b+", "c"]
    assert FastBPE((), ["."]).encode("ab.", "all") == [97, 98, 256]


def test_no_merge_holds_or_crosses_a_special_token():
    tokenizer = FastBPE.train("ab<|e|>ab<|e|>", 300, ["<|e|>"])
    assert tokenizer.merges == ((97, 98),)
    assert tokenizer.special_tokens == {"<|e|>": 257}
    assert tokenizer.vocab_size == 258


@thorough
@given(text=st.text("ab|", max_size=40), n_merges=st.integers(0, 12))
def test_training_with_special_tokens_is_training_on_the_pieces(text, n_merges):
    tokenizer = FastBPE.train(text, 257 + n_merges, ["|"])
    pieces = [piece.encode() for piece in text.split("|")]
    assert list(tokenizer.merges) == literal_merges(pieces, n_merges)
    assert not any(b"|" in spelling for spelling in tokenizer.token_bytes[256:-1])


@pytest.mark.parametrize(
    ("specials", "message"),
    [
        (END, "special tokens are '<|endoftext|>'; expected a list"),
        ([""], "special token 0 is ''; expected a text"),
        ([END, END], "special token 1 is '<|endoftext|>'"),
        ([7], "special token 0 is 7; expected a text"),
        (["a\ud800"], "character 1 of the text is '\\ud800', a lone surrogate"),
    ],
)
def test_bad_special_tokens_are_named(specials, message):
    for make in (
        lambda: FastBPE((), specials),
        lambda: FastBPE.train("", 300, specials),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            make()


def test_an_unknown_special_token_cannot_be_allowed():
    with pytest.raises(
        ValueError, match=r"'<x>' is unknown; expected some of \['<\|en"
    ):
        FastBPE((), [END]).encode("a", ["<x>"])
    with pytest.raises(ValueError, match="expected a list"):
        FastBPE((), [END]).encode("a", END)


# What is refused


@pytest.mark.parametrize(("vocab_size", "specials"), [(255, []), (0, []), (256, [END])])
def test_a_vocabulary_without_room_is_refused(vocab_size, specials):
    least = 256 + len(specials)
    with pytest.raises(ValueError, match=rf"{vocab_size}; need at least {least}"):
        FastBPE.train("some text", vocab_size, specials)


@pytest.mark.parametrize("before", ["", "ab", "é🙂", f"a{END}b"])
@pytest.mark.parametrize("code", [0xD800, 0xD83D, 0xDFFF])
def test_a_lone_surrogate_is_the_same_error_at_every_entry(before, code):
    text = f"{before}{chr(code)}!"
    tokenizer = FastBPE((), [END])
    uses = [
        text_to_bytes,
        tokenizer.encode,
        lambda t: tokenizer.encode(t, "all"),
        lambda t: FastBPE.train(t, 300),
        lambda t: FastBPE.train(t, 300, [END]),
        lambda t: FastBPE((), [t]),
    ]
    named = f"character {len(before)} of the text is {chr(code)!r}, a lone surrogate"
    for use in uses:
        with pytest.raises(ValueError, match=re.escape(named)) as caught:
            use(text)
        assert not isinstance(caught.value, UnicodeEncodeError)


@pytest.mark.parametrize("merges", [[(97, 256)], [(-1, 97)], [(97, 98), (97, 98)]])
def test_a_merge_that_cannot_follow_is_named(merges):
    named = re.escape(f"merge {255 + len(merges)} is {merges[-1]}; expected")
    with pytest.raises(ValueError, match=named):
        FastBPE(merges)


# Saving


@quick
@given(train=any_text, text=any_text, specials=st.sets(st.text("<é🙂>", min_size=1)))
def test_a_saved_tokenizer_gives_the_same_ids(tmp_path_factory, train, text, specials):
    path = tmp_path_factory.mktemp("saved") / "new" / "tokenizer.json"
    tokenizer = FastBPE.train(train, 300, sorted(specials))
    tokenizer.save(path)
    loaded = FastBPE.load(str(path))
    assert vars(loaded) == vars(tokenizer)
    assert loaded.encode(text, "all") == tokenizer.encode(text, "all")
    content = path.read_bytes()
    assert content.isascii()
    assert set(re.findall(rb"[a-z_]+", content)) == {b"merges", b"special_tokens"}


def test_a_saved_tokenizer_works_in_a_new_process_with_another_encoding(tmp_path):
    """Half an emoji is a token here, and no file is opened in the system's encoding."""
    path = tmp_path / "tokenizer.json"
    tokenizer = FastBPE.train(EMOJI * 3, 300, ["<é🙂>"])
    tokenizer.save(path)
    code = (
        "import sys, json\n"
        "from tinygpt.bpe import FastBPE\n"
        "tokenizer = FastBPE.load(sys.argv[1])\n"
        "text = json.loads(sys.argv[2])\n"
        "ids = tokenizer.encode(text, 'all')\n"
        "tokenizer.save(sys.argv[1])\n"
        "print(json.dumps([ids, tokenizer.decode(ids)]))\n"
    )
    text = "naïve 🙂<é🙂> x"
    command = [sys.executable, "-X", "warn_default_encoding", "-W"]
    command += ["error::EncodingWarning", "-c", code, str(path), json.dumps(text)]
    before = path.read_bytes()
    environ = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, env=environ, check=True)
    assert json.loads(done.stdout) == [tokenizer.encode(text, "all"), text]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        *("", "no json", "[]", "{}", "7", '{"merges": []}', "[" * 100_000, "\ufeff{}"),
        '{"merges": {}, "special_tokens": []}',
        '{"merges": [], "special_tokens": "<e>"}',
        '{"merges": [[97, 98, 99]], "special_tokens": []}',
        '{"merges": [[97]], "special_tokens": []}',
        '{"merges": [[97, 256]], "special_tokens": []}',
        '{"merges": [[97, 98.0]], "special_tokens": []}',
        '{"merges": [[true, 98]], "special_tokens": []}',
        '{"merges": [["a", "b"]], "special_tokens": []}',
        '{"merges": ["ab"], "special_tokens": []}',
        '{"merges": [97, 98], "special_tokens": []}',
        '{"merges": null, "special_tokens": []}',
        '{"merges": [], "special_tokens": [[]]}',
        '{"merges": [], "special_tokens": [[256]]}',
        '{"merges": [], "special_tokens": [[128]]}',
        '{"merges": [], "special_tokens": [[60], [60]]}',
    ],
)
def test_a_file_that_is_no_tokenizer_is_a_clear_error(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{path} is not a saved tokenizer")):
        FastBPE.load(path)


def test_bytes_that_are_no_utf8_and_a_missing_file(tmp_path):
    path = tmp_path / "other.json"
    with pytest.raises(FileNotFoundError):
        FastBPE.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not a saved tokenizer"):
        FastBPE.load(path)


# Bits per byte


@pytest.mark.parametrize(("n_tokens", "n_bytes", "bits"), [(10, 10, 1), (10, 20, 0.5)])
def test_a_nat_is_divided_by_ln_2_and_spread_over_the_bytes(n_tokens, n_bytes, bits):
    assert bits_per_byte(0.6931471805599453, n_tokens, n_bytes) == pytest.approx(bits)


@quick
@given(text=few_letters.filter(len), n_merges=st.integers(0, 8))
def test_the_price_of_a_text_does_not_depend_on_the_unit_of_the_loss(text, n_merges):
    """A model that pays 8 bits for each byte of a token pays 8 bits per byte."""
    tokenizer = FastBPE.train(text, 256 + n_merges)
    ids = tokenizer.encode(text)
    nats = [5.545177444479562 * len(tokenizer.token_bytes[i]) for i in ids]
    mean = sum(nats) / len(ids)
    assert bits_per_byte(mean, len(ids), len(text)) == pytest.approx(8)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (-1, 5)])
def test_an_empty_text_has_no_bits_per_byte(sizes):
    with pytest.raises(
        ValueError, match=f"{sizes[0]} tokens, {sizes[1]} bytes; expected"
    ):
        bits_per_byte(1.0, *sizes)
