"""Step 3's page prints its figures, and the log of its experiments fits the page."""

import json
import math
import re

import nbformat
import pytest
import torch
from chapter2 import one_thread  # noqa: F401

from tinygpt.chars import CharTokenizer, bits_per_character, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.mlp import CharMLP, falling_rates, train_mlp
from tools.data import read_manifest
from tools.experiments import step3
from tools.pages import ROOT

PAGE = ROOT / "chapters" / "step3-mlp.md"
NOTEBOOK = ROOT / "notebooks" / "step3-mlp.ipynb"
SERIES = ("same width", "same size", "half the rate", "longer")

# What one cell prints; the figures that hold on every machine.
PRINTED = {
    "the split": ["65 characters; 1,003,854 to train on, 111,540 held out"],
    "the contexts": ["1,380", "11,228", "133,293", "559,503", "895,535", "49.7%"],
    "the problems": ["1,003,851 problems", "'Fir' then 's'"],
    "a text without a problem": ["k is 3 but the text has 3 characters; need at"],
    "the parameters": ["10,315, by the formula 10,315", "hidden.weight 3,000"],
    "the gradient": [f"{name} gap < 1e-6: True" for name in ("embed.weight",)],
    "absent rows": ["20 characters do not occur", "their rows: 0.0"],
    "the first loss": ["ln V = 4.1744", "12.517 before", "4.194", "4.188"],
    "saturation": ["72.3%", "5.8%", "0.0%"],
    "the slopes": ["loss -1.0, gradient -1.0"],
    "the first losses": ["4.172, 4.052, 3.990"],
    "the log": ["87 runs in the log; 100 losses compared", "within 1e-3: True"],
    "the series": [
        *("uniform 6.022", "unigram, training 4.77", "unigram, held out 4.83"),
        *("bigram, training 3.54", "bigram, held out, add-one 3.58"),
        "MLP, k = 3, held out 2.86",
    ],
}


@pytest.fixture(scope="module")
def runs() -> dict:
    path = ROOT / "data" / "reference" / step3.LOG
    return json.loads(path.read_text("utf-8"))["runs"]


def bits(runs, series: str, k: int, part: str = "held_out") -> list[float]:
    found = [runs[f"{series}, k {k}, seed {seed}"][part] for seed in step3.SEEDS]
    return [bits_per_character(loss) for loss in found]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = ["".join(out.get("text", "") for out in cell.outputs) for cell in cells]
    texts = [" ".join(text.split()) for text in texts]
    found = [text for text in texts if all(v in text for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_all_five_gradients_by_hand_agree():
    text = NOTEBOOK.read_text("utf-8")
    assert re.findall(r"(\w+\.\w+) +gap < 1e-6: (\w+)", text) == [
        (name, "True") for name, _ in CharMLP(2, 1, 1, 1).named_parameters()
    ]


def test_page_and_manifest_state_the_same_log():
    (stated,) = [e for e in read_manifest() if e["name"] == step3.LOG]
    source = PAGE.read_text("utf-8")
    assert stated["sha256"] in source
    assert f"{stated['bytes']:_}" in source


def test_every_run_is_there_with_its_own_settings(runs):
    assert runs.keys() == step3.runs(ROOT).keys()
    for name, run in runs.items():
        long = name.startswith("longer")
        assert run["steps"] == step3.STEPS * (step3.LONGER if long else 1)
        assert len(run["first_losses"]) == step3.KEPT
        model = CharMLP(step3.V, run["k"], step3.E, run["hidden"])
        assert run["parameters"] == sum(p.numel() for p in model.parameters())
        assert run["parameters"] == step3.parameters(run["k"], run["hidden"])
        slow = long or name.startswith("half the rate")
        if not name.startswith("rate"):
            assert run["rate"] == step3.RATE / (2 if slow else 1)


def test_models_of_the_same_size_differ_by_less_than_one_percent(runs):
    for k in step3.CONTEXTS:
        size = runs[f"same size, k {k}, seed 0"]["parameters"]
        assert size == pytest.approx(10_315, rel=0.01)


@pytest.mark.parametrize("name", ["same width, k 3, seed 0", "same size, k 8, seed 2"])
def test_the_log_is_what_the_code_does(runs, name):
    run = runs[name]
    text = load_corpus("tinyshakespeare", ROOT)
    ids = CharTokenizer.from_text(text).encode(text)
    torch.manual_seed(run["seed"])
    model = CharMLP(step3.V, run["k"], step3.E, run["hidden"])
    rates = falling_rates(run["rate"], run["steps"])[: step3.KEPT]
    generator = torch.Generator().manual_seed(run["seed"])
    train, _ = split_corpus(torch.tensor(ids))
    log = train_mlp(model, train, rates, generator, step3.BATCH)
    assert log["loss"] == pytest.approx(run["first_losses"], abs=1e-3)


def test_three_characters_cost_about_2_86_bits(runs):
    found = bits(runs, "same width", 3)
    assert all(2.75 < value < 2.95 for value in found)
    assert mean(found) == pytest.approx(2.86, abs=0.015)


def test_no_model_beats_what_lies_below_it_or_loses_to_the_bigram(runs):
    """One character at its best is the bigram: 3.58 bits held out, 3.54 in training."""
    for series in SERIES:
        assert 3.54 < mean(bits(runs, series, 1, "train")) < 3.60
        assert mean(bits(runs, series, 2)) < mean(bits(runs, series, 1)) - 0.4
    for run in runs.values():
        assert run["train"] < run["held_out"] < math.log(65)


def test_at_a_fixed_width_the_loss_is_not_monotone_in_the_context(runs):
    for part in ("train", "held_out"):
        table = {k: bits(runs, "same width", k, part) for k in step3.CONTEXTS}
        assert max(table[5]) < min(table[3])
        assert max(table[5]) < min(table[12])
        assert min(table, key=lambda k: mean(table[k])) == 5


def test_the_training_loss_rises_although_the_longer_model_contains_the_shorter(runs):
    """So the rise is one of the search and not of the best model."""
    assert min(bits(runs, "same width", 12, "train")) > max(
        bits(runs, "same width", 5, "train")
    )


def test_with_four_times_the_steps_the_price_of_a_long_context_falls(runs):
    def price(series: str) -> float:
        return mean(bits(runs, series, 12)) - mean(bits(runs, series, 5))

    assert 0 < price("longer") < price("same width") < price("same size")


def test_half_the_rate_does_not_help_the_long_context_but_harms_the_short_one(runs):
    change = {
        k: mean(bits(runs, "half the rate", k)) - mean(bits(runs, "same width", k))
        for k in (5, 12)
    }
    assert change[5] > 0.02
    assert abs(change[12]) < 0.02


def test_more_steps_help_a_longer_context_more(runs):
    gains = [
        mean(bits(runs, "half the rate", k, "train"))
        - mean(bits(runs, "longer", k, "train"))
        for k in step3.CONTEXTS
    ]
    assert gains == sorted(gains)


def test_the_rate_of_the_page_is_the_best_of_the_five(runs):
    def of(rate: float) -> float:
        names = [f"rate {rate}, seed {seed}" for seed in step3.SEEDS]
        return mean([runs[name]["held_out"] for name in names])

    assert min(step3.RATES, key=of) == step3.RATE
