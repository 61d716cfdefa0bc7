"""Step 7, tokens: the page prints what it must, and its stored logs say what it reads.

That the outputs are still true is proven by running the notebook; here, that they are
there at all, that the logs belong to this code, and that the measure is the right one.
"""

import hashlib
import json
import math
import re

import pytest
import torch
from chapter2 import one_thread  # noqa: F401
from stored_page import printed_by

from benchmarks.tokenizer import against_library, digest
from tinygpt.bpe import FastBPE, bits_per_byte, train_fast
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tools.experiments import step7_exercises
from tools.experiments import step7_tokens as experiments
from tools.pages import ROOT

PAGE = ROOT / "chapters" / "step7-tokens.md"
REFERENCE = ROOT / "data" / "reference"

# What one cell prints.
PRINTED = {
    "runs": ["aaa [256, 97]", "aaaa [256, 256]", "aaaaa [256, 256, 97]"],
    "the classic example": [
        *("(97, 97) -> 256", "(97, 98) -> 257", "(256, 257) -> 258"),
        "encoded: [258, 100, 258, 97, 99]",
    ],
    "the index stays true": ["born: [(256, 97), (100, 256)", "counted afresh: True"],
    "after its birth a pair gets rarer": [
        *("unlike a fresh count: 0", "rose later: 0", "out of order: 0"),
    ],
    "the trainers agree": ["identical merges: True", "identical merges: 200 of 200"],
    "the encoders agree": ["1,115,394 bytes", "same ids: True"],
    "the stored log is of this code": ["same merges: True", "same ids: True"],
    "ties": ["merges that both learned: 768 of 768", "its merges say: True"],
    "special tokens": ["allowed: [97, 259, 98]", "the longest first: [257, 256]"],
    "the corpus": ["the corpus comes back: True"],
    "decode": ["together: 🙂 one by one: � � � �", "no single id fails"],
    "saving": ["same merges: True", "same special tokens: True", "merge 256 is"],
    "nested": ["as from the bytes: True"],
    "the log of the experiments is of this code": ["gaps < 1e-3: True"],
}


def printed() -> list[str]:
    return printed_by("step7-tokens")


def stored(name):
    return json.loads((REFERENCE / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def corpus() -> str:
    return load_corpus("tinyshakespeare", start=ROOT)


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [text for text in printed() if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_a_unigram_over_bytes_pays_what_the_unigram_over_characters_does():
    """4.83 bits, the figure of the series: on this text a character is a byte."""
    (text,) = [t for t in printed() if "bits per byte" in t and "256 tokens:" in t]
    assert "256 tokens: 4.83 bits per byte" in text


def test_no_claim_of_the_page_is_false():
    assert not any(re.search(r": False\b", text) for text in printed())


def test_each_proposition_is_followed_by_a_proof():
    kinds = re.findall(r"^```\{prf:(\w+)\}", PAGE.read_text("utf-8"), re.MULTILINE)
    assert kinds == ["proposition", "proof", "proposition", "proof", "definition"]


# The stored logs


@pytest.mark.parametrize("name", ["step7_tokenizer.json", experiments.LOG])
def test_the_page_states_the_logs_that_are_there(name):
    content = (REFERENCE / name).read_bytes()
    page = PAGE.read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in page
    assert f"{len(content):_}" in page


def test_the_benchmark_met_its_targets_and_its_log_is_of_this_code(corpus):
    bench = stored("step7_tokenizer.json")
    merges = train_fast([corpus.encode()], 768)
    assert [tuple(pair) for pair in bench["straightforward_merges"]] == merges
    ids = FastBPE(merges).encode(corpus)
    assert digest(ids) == bench["straightforward_ids"]
    assert (bench["tokens"], bench["bytes"]) == (len(ids), 1_115_394)
    assert bench["same_merges"] is bench["same_ids"] is True
    taken = bench["seconds"]
    assert taken["train"]["straightforward"] > 15 * taken["train"]["incremental"]
    assert taken["encode"]["straightforward"] > 20 * taken["encode"]["incremental"]


def test_every_run_of_the_experiments_is_there_and_its_figures_agree():
    runs = stored(experiments.LOG)["runs"]
    assert list(runs) == list(experiments.runs(ROOT))
    for name, run in runs.items():
        config = experiments.LONGER if "longer" in name else experiments.BUDGET
        assert run["steps"] == len(run["train_loss"]) == config.steps, name
        V = run["sizes"]["V"]
        assert run["train_loss"][0] == pytest.approx(math.log(V), abs=0.3)
        assert run["ids_read"] == config.steps * 32 * run["sizes"]["T"]
        per_byte = run["ids_read"] / run["bytes_read"]  # of the training part
        rough = run["nats_per_id"] / math.log(2) * per_byte
        assert run["bits_disjoint"] == pytest.approx(rough, rel=0.02)


def test_the_merges_that_the_solutions_report_are_made_again(corpus):
    stored_runs = stored(step7_exercises.LOG)["runs"]
    inside = stored_runs["merges, inside words"]
    again = step7_exercises.words_run(ROOT)
    assert {**inside, "seconds": 0} == {
        "merges": [list(pair) for pair in again["merges"]],
        "chunks": again["chunks"],
        "seconds": 0,
    }
    largest = stored_runs["merges, the largest pair wins"]["merges"]
    again = step7_exercises.ties_run(ROOT)["merges"]
    assert largest == [list(pair) for pair in again]


def test_the_model_with_the_larger_tables_has_the_size_of_the_others():
    run = stored(step7_exercises.LOG)["runs"]["vocabulary of 2,048"]
    assert run["sizes"] == step7_exercises.TABLE
    model = GPT(**run["sizes"])
    assert run["parameters"] == sum(p.numel() for p in model.parameters())
    largest = stored(experiments.LOG)["runs"]["tokens, seed 1337"]["parameters"]
    assert run["parameters"] <= largest


def test_the_models_are_of_one_size_to_one_in_a_hundred():
    sizes = (experiments.CHARACTERS, experiments.TOKENS, experiments.SAME_TEXT)
    counts = [sum(p.numel() for p in GPT(**s).parameters()) for s in sizes]
    assert counts == [211_712, 213_808, 212_016]
    assert max(counts) < 1.01 * min(counts)


class Even(torch.nn.Module):
    """A model that gives every id the same probability."""

    def __init__(self, V: int, T: int) -> None:
        super().__init__()
        self.V, self.T = V, T

    def forward(self, idx):
        return torch.zeros(*idx.shape, self.V), None


@pytest.mark.parametrize("stride", [1, 3, 5, 8])
def test_the_measure_counts_the_bytes_of_the_targets_that_it_counts(stride):
    ids = torch.arange(50) % 4
    id_bytes = torch.tensor([1, 2, 3, 6])  # 12 bytes in four ids
    text = experiments.Text(ids, ids, id_bytes)
    nats, bits = text.measure(Even(4, 8), stride)
    assert nats == pytest.approx(math.log(4))
    n = 8 + (50 - 9) // stride * stride
    spelled = id_bytes[ids[1 : n + 1]].sum().item()
    assert bits == pytest.approx(bits_per_byte(math.log(4), n, spelled), rel=1e-5)


# The comparison with the library, without the library


def test_a_tie_decided_otherwise_is_told_from_a_wrong_choice():
    chunks = [b"abab", b"cdcd", b"e"]
    merges = train_fast(chunks, 2)
    swapped = [(b"c", b"d"), (b"a", b"b")]
    figures, spelled = against_library(chunks, merges, swapped)
    assert figures["in_both"] == figures["most_frequent_when_chosen"] == 2
    assert (figures["at_the_same_place"], figures["first_difference"]) == (0, 0)
    assert figures["tied_when_chosen"] == 1
    assert spelled == [b"ab", b"ab", b"cd", b"cd", b"e"]
    figures, _ = against_library(chunks, merges, [(b"b", b"a"), (b"c", b"d")])
    assert figures["most_frequent_when_chosen"] == 1
