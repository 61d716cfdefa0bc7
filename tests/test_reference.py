"""The stored reference run of Step 6 fits the page, its parts, and its bands."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from tinygpt.chars import CharTokenizer
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.mlp import SWEEP_LOG
from tinygpt.training import REFERENCE, TrainConfig, learning_rate, load_reference
from tools import reference
from tools.data import read_manifest
from tools.experiments import step6
from tools.pages import ROOT

FOLDER = ROOT / "data" / "reference"


@pytest.fixture(scope="module")
def log() -> dict:
    return json.loads(load_reference("step6_log.json", ROOT))


@pytest.fixture(scope="module")
def runs() -> dict:
    return json.loads(load_reference("step6_experiments.json", ROOT))["runs"]


def test_page_manifest_and_files_state_the_same():
    stated = {e["name"]: e for e in read_manifest() if "characters" not in e}
    assert {path.name for path in FOLDER.iterdir()} == stated.keys()
    stated_by_pages = {name: facts for name, *facts in (SWEEP_LOG,)} | REFERENCE
    for name, (size, sha256) in stated_by_pages.items():
        assert (stated[name]["bytes"], stated[name]["sha256"]) == (size, sha256)


def test_the_run_is_the_recipe_of_the_page(log):
    config = TrainConfig()
    assert TrainConfig(**log["config"] | {"betas": tuple(log["config"]["betas"])}) == (
        config
    )
    assert (log["seed"], log["sizes"]) == (reference.SEED, reference.SIZES)
    assert log["machine"]["threads"] == reference.THREADS == 2
    steps = range(config.steps)
    assert log["rate"] == [learning_rate(step, config) for step in steps]
    assert len(log["train_loss"]) == len(log["grad_norm"]) == config.steps


def test_the_run_starts_with_the_figures_of_its_random_stream(log):
    first = log["evaluations"][0]
    assert (round(first["train"], 3), round(first["validation"], 3)) == (4.308, 4.304)
    losses = [round(log["train_loss"][step], 4) for step in (0, 99, 299)]
    assert losses == [4.3025, 2.3681, 1.8522]


def test_the_run_lies_within_its_bands(log):
    validation = {e["step"]: e["validation"] for e in log["evaluations"]}
    gap = {e["step"]: e["validation"] - e["train"] for e in log["evaluations"]}
    assert list(validation) == list(range(0, 5_001, 500))
    assert validation[500] < 1.90
    assert validation[1_500] < 1.66
    assert 1.49 < validation[5_000] < 1.55
    assert 0.10 < gap[500] < 0.20
    assert 0.33 < gap[5_000] < 0.40
    at_evaluations = [log["grad_norm"][step] for step in range(500, 5_000, 500)]
    assert max(at_evaluations) < 0.5
    assert 2.14 < log["validation_whole"] / math.log(2) < 2.23


def test_weights_fit_the_model_and_both_files_hold_the_same():
    weights = torch.load(FOLDER / "step6_model.pt", weights_only=True)
    GPT(**reference.SIZES).load_state_dict(weights)
    again = load_file(FOLDER / "step6_model.safetensors")
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert not any("mask" in name for name in weights)
    assert 3.2e6 < (FOLDER / "step6_model.pt").stat().st_size < 3.5e6


def test_samples_and_attention_are_there_for_every_evaluation(log):
    steps = [e["step"] for e in log["evaluations"]]
    assert [int(step) for step in log["samples"]] == steps
    assert all(len(sample) == 301 for sample in log["samples"].values())
    assert log["samples"]["0"].startswith("\nt3yrjmhVkdkhRxLsT?teWRdHEG")
    attention = load_file(FOLDER / "step6_attention.safetensors")
    assert sorted(attention) == sorted(f"step_{step}" for step in steps)
    for maps in attention.values():
        assert (maps.dtype, maps.shape) == (torch.float16, (4, 4, 64, 64))
        assert torch.allclose(maps.float().sum(dim=-1), torch.ones(4, 4, 64), atol=0.02)
        assert (maps.triu(diagonal=1) == 0).all()


def test_the_last_maps_are_those_of_the_stored_weights(log):
    model = GPT(**reference.SIZES)
    model.load_state_dict(torch.load(FOLDER / "step6_model.pt", weights_only=True))
    tokenizer = CharTokenizer.from_text(load_corpus("tinyshakespeare", ROOT))
    with torch.no_grad():
        model(torch.tensor([tokenizer.encode(log["passage"])]))
    maps = torch.stack(
        [torch.cat([head.A for head in block.attn.heads]) for block in model.blocks]
    )
    stored = load_file(FOLDER / "step6_attention.safetensors")["step_5000"]
    assert torch.allclose(maps, stored.float(), atol=2e-3)


def test_every_experiment_is_there_and_ran_its_budget(runs):
    for seed in step6.SEEDS:
        run = runs[f"seed {seed}"]
        assert run["steps"] == len(run["train_loss"]) == step6.SEED_STEPS
        assert [e["step"] for e in run["evaluations"]] == [0, 500, 1_000, 1_500]
    for depth in step6.DEPTHS:
        run = runs[f"depth {depth}"]
        sizes = {**reference.SIZES, "L": depth}
        count = sum(p.numel() for p in GPT(**sizes).parameters())
        assert (run["parameters"], run["steps"]) == (count, step6.BUDGET.steps)
    for rate in step6.MLP_RATES:
        run = runs[f"mlp at {rate}"]
        assert abs(run["parameters"] - 816_640) < 1_000
        assert run["steps"] == step6.BUDGET.steps
    batch = step6.BUDGET.batch_size * reference.SIZES["T"]
    assert batch == step6.MLP_BATCH


def test_recording_leaves_the_global_generator_as_it_was():
    tokenizer = CharTokenizer.from_text(load_corpus("tinyshakespeare", ROOT))
    recorder = reference.Recorder(tokenizer, torch.zeros(64, dtype=torch.long))
    model = GPT(**reference.SIZES)
    torch.manual_seed(4)
    before = torch.get_rng_state()
    recorder(0, model)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(recorder.samples[0]) == 301
