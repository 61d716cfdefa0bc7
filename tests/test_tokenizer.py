"""Byte-pair encoding: what it learns, that nothing is lost, and what it refuses."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from chapter2 import alice, alice_stream, alice_tokenizer, quick
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.transformer import (
    BytePairTokenizer,
    Merge,
    count_pairs,
    learn_merges,
    merge_pair,
)
from tools.pages import ROOT

RABBIT = "Alice waited by the rabbit-hole 🐇"
RABBIT_IDS = [322, 269, 271, 317, 98, 121, 270, 114, 423]
RABBIT_IDS += [271, 45, 429, 303, 240, 159, 144, 135]
EMOJI = "naïve 🙂 naïve 🙂🙂 café 🐇🐇"

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
few_letters = st.text("abc", max_size=40)


def naive_merges(text: str, n_merges: int) -> list[tuple[int, int]]:
    """Learn merges in the most literal way, sharing no code with the book."""
    ids = list(text.encode("utf-8"))
    learned = []
    for new_id in range(256, 256 + n_merges):
        pairs = [(ids[i], ids[i + 1]) for i in range(len(ids) - 1)]
        if not pairs:
            break
        best = min(sorted(set(pairs)), key=lambda pair: -pairs.count(pair))
        learned.append(best)
        rewritten: list[int] = []
        for token in ids:
            if rewritten and (rewritten[-1], token) == best:
                rewritten[-1] = new_id
            else:
                rewritten.append(token)
        ids = rewritten
    return learned


def encode_by_rank(tokenizer: BytePairTokenizer, text: str) -> list[int]:
    """Encode the other way: always apply the earliest learned pair that is present."""
    rank = {(merge.left, merge.right): merge.new_id for merge in tokenizer.merges}
    ids = list(text.encode("utf-8"))
    while True:
        present = [rank[pair] for pair in zip(ids, ids[1:]) if pair in rank]
        if not present:
            return ids
        new_id = min(present)
        for i in range(len(ids) - 1):
            if rank.get(tuple(ids[i : i + 2])) == new_id:
                ids[i : i + 2] = [new_id]


def pairs_of(merges: list[Merge]) -> list[tuple[int, int]]:
    return [(merge.left, merge.right) for merge in merges]


def test_the_first_merges_of_alice_are_the_commonest_joints():
    tokenizer = alice_tokenizer()
    assert tokenizer.vocab_size == 512 == 256 + len(tokenizer.merges)
    assert [merge.new_id for merge in tokenizer.merges] == list(range(256, 512))
    spellings = [b"e ", b" t", b"t ", b"er", b" th", b"in", b" a", b" s"]
    assert tokenizer.token_bytes[256:264] == spellings
    counts = count_pairs(list(alice().encode("utf-8")))
    assert counts.most_common(1)[0][0] == tuple(b"e ")


def test_the_merges_of_alice_equal_those_of_a_naive_trainer():
    text = alice()[:1500]
    merges = BytePairTokenizer.train(text, vocab_size=256 + 60).merges
    assert pairs_of(merges) == naive_merges(text, 60)


def test_the_rabbit_sentence_is_17_tokens_and_comes_back():
    tokenizer = alice_tokenizer()
    assert len(RABBIT.encode("utf-8")) == 36
    assert tokenizer.encode(RABBIT) == RABBIT_IDS
    assert len(RABBIT_IDS) == 17
    assert tokenizer.decode(RABBIT_IDS) == RABBIT
    assert "🐇" not in alice()
    assert bytes(RABBIT_IDS[-4:]) == "🐇".encode()  # unseen: one token for each byte


def test_the_corpus_is_3912_tokens_that_spell_it_whole():
    stream, spelled = alice_stream(), alice_tokenizer().token_bytes
    assert len(stream) == 3912
    assert f"{len(alice().encode('utf-8')) / len(stream):.2f}" == "2.39"
    assert stream[:9] == (322, 291, 442, 261, 110, 468, 474, 418, 257)
    pieces = [b"Alice ", b"was ", b"beg", b"in", b"n", b"ing to ", b"get ", b"very"]
    assert [spelled[i] for i in stream[:9]] == [*pieces, b" t"]
    assert alice_tokenizer().decode(stream) == alice()


def test_the_vocabulary_is_256_bytes_and_then_sums_of_two_tokens():
    tokenizer = alice_tokenizer()
    assert tokenizer.token_bytes[:256] == [bytes([i]) for i in range(256)]
    for merge in tokenizer.merges:
        parts = tokenizer.token_bytes[merge.left], tokenizer.token_bytes[merge.right]
        assert tokenizer.token_bytes[merge.new_id] == b"".join(parts)


@pytest.mark.parametrize(
    ("n", "merged"), [(1, [97]), (3, [256, 97]), (4, [256] * 2), (5, [256, 256, 97])]
)
def test_a_token_of_a_run_is_used_once(n, merged):
    ids = [97] * n
    assert merge_pair(ids, Merge(97, 97, 256)) == merged
    assert ids == [97] * n
    assert BytePairTokenizer([Merge(97, 97, 256)]).decode(merged) == "a" * n


@pytest.mark.parametrize("ids", [[], [1], [1, 2], [2, 1], [1, 2, 2], [2, 1, 2, 1]])
def test_merging_touches_only_the_pair_in_its_order(ids):
    merged = merge_pair(ids, Merge(1, 2, 256))
    back = [part for token in merged for part in ([1, 2] if token == 256 else [token])]
    assert back == ids
    assert (1, 2) not in zip(merged, merged[1:])


def test_pairs_are_counted_overlapping():
    assert count_pairs([1, 1, 1]) == {(1, 1): 2}
    assert count_pairs([1, 2, 1, 2]) == {(1, 2): 2, (2, 1): 1}
    assert count_pairs([1]) == {}


def test_ties_go_to_the_smallest_pair():
    tokenizer = BytePairTokenizer.train("aaabdaaabac", 256 + 3)
    assert pairs_of(tokenizer.merges) == [(97, 97), (97, 98), (256, 257)]
    assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]
    assert pairs_of(learn_merges(list(b"zyxw"), 1)) == [tuple(b"xw")]


@quick
@given(text=st.one_of(few_letters, any_text), n_merges=st.integers(0, 12))
def test_merges_equal_those_of_a_naive_trainer(text, n_merges):
    tokenizer = BytePairTokenizer.train(text, 256 + n_merges)
    assert pairs_of(tokenizer.merges) == naive_merges(text, n_merges)


@quick
@given(train=few_letters, text=few_letters, n_merges=st.integers(0, 12))
def test_replaying_merges_equals_applying_the_earliest_pair_present(
    train, text, n_merges
):
    tokenizer = BytePairTokenizer.train(train, 256 + n_merges)
    assert tokenizer.encode(text) == encode_by_rank(tokenizer, text)


def test_encoding_alice_by_rank_gives_the_same_ids():
    text = alice()[:1000]
    assert alice_tokenizer().encode(text) == encode_by_rank(alice_tokenizer(), text)


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
    tokenizer = BytePairTokenizer.train(text, vocab_size)
    assert pairs_of(tokenizer.merges) == merges
    assert tokenizer.vocab_size == 256 + len(merges)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    if len(text) > 1 and vocab_size > 256:
        assert tokenizer.encode(text) == [255 + len(merges)]


@pytest.mark.parametrize("vocab_size", [255, 1, 0, -1])
def test_a_vocabulary_without_room_for_the_bytes_is_refused(vocab_size):
    with pytest.raises(ValueError, match=rf"{vocab_size}\b.*at least 256"):
        BytePairTokenizer.train("some text", vocab_size)


@quick
@given(text=any_text)
def test_any_text_comes_back_from_any_tokenizer(text):
    for tokenizer in (
        BytePairTokenizer(),
        alice_tokenizer(),
        BytePairTokenizer.train(text, 300),
    ):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        *("", "  Hello World.", "\t\t", " \n ", "end  ", "hello\nworld", "\n\n"),
        *("\r\n", "we'll  go", "\x00", "\ufeffbom", "e\u0301", "€🙂", "👩‍🚀"),
        "\U0010ffff",
    ],
)
def test_blanks_line_ends_and_joined_characters_come_back_exactly(text):
    for tokenizer in (BytePairTokenizer(), alice_tokenizer()):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_text_that_looks_like_a_special_token_is_its_bytes():
    text = "a<|endoftext|>b"
    assert BytePairTokenizer().encode(text) == list(text.encode("utf-8"))
    tokenizer = alice_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("<|endoftext|>")) > 1
    assert not any(b"<" in spelling for spelling in tokenizer.token_bytes[256:])


def test_decoding_token_by_token_loses_what_decoding_together_keeps():
    tokenizer = alice_tokenizer()
    ids = tokenizer.encode("€🙂")
    assert tokenizer.decode(ids) == "€🙂"
    assert "".join(tokenizer.decode([i], errors="replace") for i in ids) != "€🙂"


@pytest.mark.parametrize("make", [alice_tokenizer, lambda: trained_on_emoji()])
def test_no_single_id_makes_a_replacing_decode_raise(make):
    tokenizer = make()
    for i in range(tokenizer.vocab_size):
        assert isinstance(tokenizer.decode([i], errors="replace"), str)
    assert tokenizer.decode([128], errors="replace") == "\ufffd"


@quick
@given(ids=st.lists(st.integers(0, 511), max_size=20))
def test_no_list_of_ids_makes_a_replacing_decode_raise(ids):
    decoded = alice_tokenizer().decode(ids, errors="replace")
    spelled = b"".join(alice_tokenizer().token_bytes[i] for i in ids)
    assert decoded == spelled.decode("utf-8", "replace")


def test_the_errors_policy_is_the_callers():
    tokenizer = BytePairTokenizer()
    half = list("🐇".encode())[:3]
    with pytest.raises(ValueError, match="utf-8"):
        tokenizer.decode(half)
    assert tokenizer.decode(half, errors="replace") == "\ufffd"
    assert tokenizer.decode([65, *half], errors="ignore") == "A"


@pytest.mark.parametrize(
    ("ids", "position", "token"), [([512], 0, 512), ([1, -1], 1, -1), ([9**9], 0, 9**9)]
)
@pytest.mark.parametrize("errors", ["strict", "replace", "ignore"])
def test_decoding_names_an_id_outside_of_the_vocabulary(ids, position, token, errors):
    message = rf"token {position} is {token}\b.*0 to 511"
    with pytest.raises(ValueError, match=message):
        alice_tokenizer().decode(ids, errors=errors)


@pytest.mark.parametrize("before", ["", "ab", "é🙂"])
@pytest.mark.parametrize("code", [0xD800, 0xD83D, 0xDC80, 0xDFFF])
def test_a_lone_surrogate_is_the_same_error_at_every_entry(before, code):
    text = f"{before}{chr(code)}!"
    messages = []
    for use in (alice_tokenizer().encode, lambda t: BytePairTokenizer.train(t, 300)):
        with pytest.raises(ValueError, match="lone surrogate") as caught:
            use(text)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert f"character {len(before)} " in messages[0]
    assert repr(chr(code)) in messages[0]


def trained_on_emoji() -> BytePairTokenizer:
    return BytePairTokenizer.train(EMOJI * 3, 256 + 40)


@quick
@given(train=any_text, text=any_text)
def test_a_saved_tokenizer_gives_the_same_ids(tmp_path_factory, train, text):
    path = tmp_path_factory.mktemp("saved") / "tokenizer.json"
    tokenizer = BytePairTokenizer.train(train, 280)
    tokenizer.save(path)
    loaded = BytePairTokenizer.load(str(path))
    assert loaded.merges == tokenizer.merges
    assert loaded.token_bytes == tokenizer.token_bytes
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == text


def test_the_file_holds_numbers_and_no_text(tmp_path):
    path = tmp_path / "tokenizer.json"
    trained_on_emoji().save(path)
    assert path.read_bytes().isascii()
    pairs = json.loads(path.read_text(encoding="utf-8"))["merges"]
    assert [tuple(pair) for pair in pairs] == pairs_of(trained_on_emoji().merges)


def test_a_saved_tokenizer_works_in_a_new_process_with_another_encoding(tmp_path):
    """Half an emoji is a token here, and no file is opened in the system's encoding."""
    path = tmp_path / "tokenizer.json"
    tokenizer = trained_on_emoji()
    tokenizer.save(path)
    code = (
        "import sys, json\n"
        "from tinygpt.transformer import BytePairTokenizer\n"
        "tokenizer = BytePairTokenizer.load(sys.argv[1])\n"
        "text = json.loads(sys.argv[2])\n"
        "ids = tokenizer.encode(text)\n"
        "tokenizer.save(sys.argv[1])\n"
        "print(json.dumps([ids, tokenizer.decode(ids)]))\n"
    )
    command = [sys.executable, "-X", "warn_default_encoding"]
    command += [
        "-W",
        "error::EncodingWarning:tinygpt.transformer",
        "-c",
        code,
        str(path),
    ]
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    environment |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, json.dumps(EMOJI)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [tokenizer.encode(EMOJI), EMOJI]
    assert BytePairTokenizer.load(path).merges == tokenizer.merges


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not JSON",
        "null",
        "[]",
        "{}",
        "<!DOCTYPE html>",
        '{"merges": null}',
        '{"merges": 5}',
        '{"merges": ""}',
        '{"merges": {}}',
        '{"merges": "ab"}',
        '{"merges": [5]}',
        '{"merges": ["ab"]}',
        '{"merges": [[97]]}',
        '{"merges": [[97, 98, 99]]}',
        '{"merges": [[97.0, 98]]}',
        '{"merges": [[true, false]]}',
        '{"merges": [["97", "98"]]}',
        '{"merges": [[null, 98]]}',
        '{"merges": [[-1, 98]]}',
        '{"merges": [[97, 256]]}',
        '{"merges": [[97, 98], [97, 258]]}',
    ],
)
def test_a_broken_tokenizer_file_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a saved tokenizer"):
        BytePairTokenizer.load(path)


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a saved tokenizer"):
        BytePairTokenizer.load(path)
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        BytePairTokenizer.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "merges",
    [
        [Merge(97, 98, 257)],
        [Merge(97, 98, 256), Merge(97, 99, 256)],
        [Merge(97, 256, 256)],
        [Merge(-1, 97, 256)],
    ],
)
def test_merges_that_do_not_follow_one_another_are_refused(merges):
    with pytest.raises(ValueError, match=r"Merge\(.*expected new_id 25[67]"):
        BytePairTokenizer(merges)


def test_nothing_given_is_changed_and_nothing_kept_is_shared():
    merge = Merge(97, 98, 256)
    with pytest.raises(dataclasses.FrozenInstanceError):
        merge.left = 1
    merges, ids = [merge], [97, 98, 97]
    tokenizer = BytePairTokenizer(merges)
    merges.clear()
    assert tokenizer.merges == [merge]
    learn_merges(ids, 5)
    assert ids == [97, 98, 97]
    assert BytePairTokenizer().merges == []


def test_the_tokenizer_has_seen_the_held_out_text_and_it_shows():
    """Training on the first 85% alone learns other tokens and cuts the rest longer."""
    stream = alice_stream()
    n_train = int(0.85 * len(stream))
    train_text = alice_tokenizer().decode(stream[:n_train], errors="ignore")
    rest = alice()[len(train_text) :]
    strict = BytePairTokenizer.train(train_text, vocab_size=512)
    assert len(strict.encode(rest)) > len(alice_tokenizer().encode(rest))
    assert strict.decode(strict.encode(rest)) == rest
