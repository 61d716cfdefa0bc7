"""Step 7, second page: the stored runs are the recipe's, and say what the page says."""

import hashlib
import io
import json
import re

import pytest
import torch
from chapter2 import one_thread  # noqa: F401
from stored_page import printed_by
from torch.nn import functional as F

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus, load_stored
from tinygpt.gpt import GPT
from tinygpt.sampling import (
    STEP7_LOG,
    fit_power_law,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    write,
)
from tinygpt.training import Trainer, fuse, load_reference
from tools.data import read_manifest
from tools.experiments import step7, step7_exercises
from tools.pages import ROOT, read_page

PAGE = ROOT / "chapters" / "step7-sampling.md"


@pytest.fixture(scope="module")
def runs() -> dict:
    return json.loads(load_stored(*STEP7_LOG, ROOT))["runs"]


@pytest.fixture(scope="module")
def exercise_runs() -> dict:
    path = ROOT / "data" / "reference" / step7_exercises.LOG
    return json.loads(path.read_text("utf-8"))["runs"]


@pytest.fixture(scope="module")
def tokenizer() -> CharTokenizer:
    return CharTokenizer.from_text(load_corpus("tinyshakespeare", ROOT))


@pytest.fixture(scope="module")
def data(tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    text = load_corpus("tinyshakespeare", ROOT)
    return split_corpus(torch.tensor(tokenizer.encode(text)))


@pytest.fixture(scope="module")
def trained() -> GPT:
    model = GPT(65, 64, 128, 4, 4)
    stored = io.BytesIO(load_reference("step6_model.pt", ROOT))
    model.load_state_dict(torch.load(stored, weights_only=True))
    return fuse(model).eval()


@pytest.fixture(scope="module")
def held_out(trained, data) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and targets of a fifth of the held-out text."""
    windows = data[1].unfold(0, 65, 64)[::5]
    with torch.no_grad():
        logits = torch.cat([trained(w[:, :-1])[0] for w in windows.split(64)])
    return logits.flatten(0, 1), windows[:, 1:].flatten()


def printed() -> str:
    return " ".join(" ".join(printed_by("step7-sampling")).split())


def scaling(runs: dict) -> list[dict]:
    return [run for name, run in runs.items() if not name.startswith("texts")]


# The log


def test_page_and_manifest_state_the_same_file():
    stated = {e["name"]: e for e in read_manifest() if "characters" not in e}
    name, size, sha256 = STEP7_LOG
    assert name == step7.LOG
    assert (stated[name]["bytes"], stated[name]["sha256"]) == (size, sha256)


def test_page_and_manifest_state_the_log_of_the_exercises():
    content = (ROOT / "data/reference" / step7_exercises.LOG).read_bytes()
    stated = {e["name"]: e for e in read_manifest() if "characters" not in e}
    sha256 = hashlib.sha256(content).hexdigest()
    entry = stated[step7_exercises.LOG]
    assert (entry["bytes"], entry["sha256"]) == (len(content), sha256)
    for stem in ("step7-sampling", "step7-tokens"):
        page = (ROOT / "chapters" / f"{stem}.md").read_text("utf-8")
        assert sha256 in page
        assert f"{len(content):_}" in page


def test_the_runs_of_the_exercises_are_those_of_the_tool(exercise_runs):
    assert list(exercise_runs) == list(step7_exercises.runs(ROOT))
    for seed in step7_exercises.SIZE_SEEDS:
        run = exercise_runs[f"d80, 400 steps, seed {seed}"]
        assert (run["d"], run["H"], run["L"]) == step7_exercises.SIZE
        model = GPT(65, 64, run["d"], run["H"], run["L"])
        total = sum(p.numel() for p in model.parameters())
        assert run["without_tables"] == total - (65 + 64) * run["d"]
    for name, run in exercise_runs.items():
        if name.startswith("texts"):
            assert {len(text) for text in run["texts"]} == {step7.WRITTEN}
            assert len(run["texts"]) == step7.ROWS
        if name.startswith("circle"):
            length = step7_exercises.PROMPT + step7_exercises.CIRCLE
            assert [len(text) for text in run["texts"]] == [length] * 3


def test_a_run_of_the_exercises_is_the_pages_where_both_made_it(runs, exercise_runs):
    both = exercise_runs["texts, T 1.0, top-k 10, seed 0"]["texts"]
    assert both == runs["texts, top-k 10"]["texts"]


def test_every_run_of_the_tool_is_in_the_log_and_no_other(runs):
    assert runs.keys() == step7.runs(ROOT).keys()


def test_each_run_has_the_sizes_and_the_budget_that_its_name_says(runs):
    for name, run in runs.items():
        if name.startswith("texts"):
            continue
        size, steps = re.match(r"(d\d+), (\d+) steps", name).groups()
        assert (run["d"], run["H"], run["L"]) == step7.SIZES[size]
        assert run["steps"] == int(steps)
        assert run["characters"] == int(steps) * 32 * 64
        model = GPT(65, 64, run["d"], run["H"], run["L"])
        total = sum(p.numel() for p in model.parameters())
        assert run["parameters"] == total
        assert run["without_tables"] == total - (65 + 64) * run["d"]


def test_sizes_run_from_thousands_to_a_million_and_seeds_repeat(runs):
    at_budget = [r for r in scaling(runs) if r["steps"] == step7.STEPS]
    sizes = {r["without_tables"] for r in at_budget}
    assert len(sizes) == 8
    assert min(sizes) < 5_000
    assert max(sizes) > 1_000_000
    for d in (16, 32, 48, 64):
        assert {r["seed"] for r in at_budget if r["d"] == d} == {1, 2, 3}


def test_a_budget_has_a_schedule_of_its_own():
    for steps in (100, 400, 1_600):
        config = step7.recipe(48, steps)
        assert (config.steps, config.warmup) == (steps, steps // 10)


def test_the_rate_of_the_rule(runs):
    for name, run in runs.items():
        if not name.startswith("texts"):
            factor = float((re.search(r"times (.*)", name) or [0, "1"])[1])
            assert run["rate"] == pytest.approx(factor / run["d"])


def test_the_recipe_of_the_page_is_that_of_the_tool():
    source = next(
        cell.source
        for cell in read_page(PAGE).code_cells
        if cell.source.startswith("def recipe")
    )
    names: dict = {"TrainConfig": type(step7.recipe(16, 100))}
    exec(source, names)
    for d, steps in ((16, 400), (48, 1_600), (144, 100)):
        assert names["recipe"](d, steps) == step7.recipe(d, steps)


def test_the_beginning_of_a_run_is_made_again(runs, data):
    torch.manual_seed(2)
    model = fuse(GPT(65, 64, *step7.SIZES["d16"]))
    log = Trainer(model, *data, step7.recipe(16, 400)).run(until=15)
    stored = runs["d16, 400 steps, seed 2"]["first_losses"][:15]
    assert log["train_loss"] == pytest.approx(stored, abs=1e-3)


def test_the_loss_falls_with_size_and_with_text(runs):
    once = [runs[f"{size}, 400 steps, seed 1"] for size in step7.SIZES]
    losses = [run["validation_whole"] for run in once]
    assert losses == sorted(losses, reverse=True)
    budgets = (100, 200, 400, 800, 1_600)
    longer = [runs[f"d48, {n} steps, seed 1"]["validation_whole"] for n in budgets]
    assert longer == sorted(longer, reverse=True)


def test_the_fit_passes_through_the_runs(runs):
    points = [
        (r["without_tables"], r["validation_whole"])
        for name, r in runs.items()
        if "400 steps, seed" in name
    ]
    law = fit_power_law(*zip(*points))
    assert law.exponent > 0
    assert all(abs(law.at(size) - loss) < 0.05 for size, loss in points)


def test_the_small_sizes_predict_the_large_ones_within_the_seeds_spread(runs):
    points = [
        (r["without_tables"], r["validation_whole"])
        for name, r in runs.items()
        if "400 steps, seed" in name
    ]
    law = fit_power_law(*zip(*(point for point in points if point[0] < 200_000)))
    large = [point for point in points if point[0] > 200_000]
    assert len(large) == 3
    assert all(abs(law.at(size) - loss) < 0.033 for size, loss in large)
    assert law.floor == 0  # no floor is in sight, as the page says


# The stored texts


def test_texts_have_their_length_and_no_two_settings_agree(runs):
    texts = {n: r["texts"] for n, r in runs.items() if n.startswith("texts")}
    assert len(texts) == len(step7.SETTINGS) == 12
    for rows in texts.values():
        assert [len(row) for row in rows] == [200] * 24
    assert len({tuple(rows) for rows in texts.values()}) == 12


def test_the_stored_texts_are_what_the_weights_write(runs, trained, tokenizer):
    prompt = torch.tensor([tokenizer.encode("\n")] * 24)
    for name in ("T 0.5", "T 1.5, min-p 0.1"):
        options = runs[f"texts, {name}"]["settings"]
        assert options == step7.SETTINGS[name]
        generator = torch.Generator().manual_seed(0)
        ids = write(trained, prompt, 8, **options, generator=generator)
        rows = [tokenizer.decode(row[1:].tolist()) for row in ids]
        stored = [row[:8] for row in runs[f"texts, {name}"]["texts"]]
        assert sum(a == b for a, b in zip(rows, stored)) >= 22


def test_heat_costs_words_and_cold_costs_variety(runs):
    vocabulary = set(
        re.findall(r"[a-z']+", load_corpus("tinyshakespeare", ROOT).lower())
    )
    shares, distinct = [], []
    for T in (0.3, 0.7, 1.0, 1.5):
        text = [t.lower() for t in runs[f"texts, T {T}"]["texts"]]
        words = [re.findall(r"[a-z']+", row)[:-1] for row in text]
        flat = [word for row in words for word in row]
        pairs = [pair for row in words for pair in zip(row, row[1:])]
        shares.append(sum(word in vocabulary for word in flat) / len(flat))
        distinct.append(len(set(pairs)) / len(pairs))
    assert shares == sorted(shares, reverse=True)
    assert distinct == sorted(distinct)


# On real text


def test_every_truncation_forbids_a_part_of_the_text(held_out):
    logits, came = held_out
    kept = [keep_top_k(logits, 10), keep_top_p(logits, 0.9), keep_min_p(logits, 0.1)]
    hits = [k.isfinite().gather(1, came[:, None]).double().mean().item() for k in kept]
    assert hits == pytest.approx([0.93, 0.89, 0.87], abs=0.02)
    mass = [(logits.softmax(-1) * k.isfinite()).sum(-1).mean().item() for k in kept]
    assert all(m > h for m, h in zip(mass, hits))  # the model is too sure of itself


def test_the_best_temperature_is_above_one_and_there_entropy_is_loss(held_out):
    logits, came = held_out
    grid = torch.linspace(1, 1.6, 61).tolist()
    losses = [F.cross_entropy(logits / T, came).item() for T in grid]
    best = grid[losses.index(min(losses))]
    assert 1.15 < best < 1.4
    expects = torch.special.entr((logits / best).softmax(-1)).sum(-1).mean().item()
    assert expects == pytest.approx(min(losses), abs=0.02)
    assert losses[0] - min(losses) > 0.02


def test_greedy_text_returns_to_a_window_and_then_repeats(trained, data):
    prompt = data[1][20_000:20_032][None]
    ids = write(trained, prompt, 640, temperature=0)[0].tolist()
    ends: dict[tuple, int] = {}
    for end in range(64, len(ids) + 1):
        window = tuple(ids[end - 64 : end])
        if window in ends:
            break
        ends[window] = end
    else:
        pytest.fail("no window came back")
    period = end - ends[window]
    again = ids[ends[window] :]
    assert all(again[i] == again[i + period] for i in range(len(again) - period))


# What the page prints


@pytest.mark.parametrize(
    "figure",
    [
        "111,488 characters, loss 1.525 nats, 2.20 bits",
        "k = 3 keeps ids [1, 2, 4]",
        "as the method of Step 5: True",
        "k = 1 is greedy: True",
        "60 live losses are the log's within 1e-3: True",
        "at least 22 of 24 beginnings are the stored ones: True",
        "all three run in circles, in one loop or two",
    ],
)
def test_the_page_prints(figure):
    assert figure in printed()
