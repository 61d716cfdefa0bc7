"""Step 8: what the page says of the trained model and of three more seeds holds."""

import functools
import hashlib
import io
import json
import math
import re

import pytest
import torch
from stored_page import printed_by
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.interpret import (
    Part,
    ablation_effects,
    half_bits,
    head_scores,
    induction_strings,
    key_patterns,
    record,
    spread_windows,
    target_bits,
)
from tinygpt.training import fuse, load_reference
from tools.data import read_manifest
from tools.experiments import step8
from tools.pages import ROOT, read_page
from tools.reference import SIZES

PAGE = ROOT / "chapters" / "step8-interpretability.md"
FILE = ROOT / "data" / "reference" / step8.LOG


@functools.cache
def runs() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))["runs"]


@functools.cache
def trained() -> GPT:
    model = GPT(**SIZES)
    content = io.BytesIO(load_reference("step6_model.pt", ROOT))
    model.load_state_dict(torch.load(content, weights_only=True))
    return model


@functools.cache
def held_out() -> tuple[Tensor, int]:
    """A few of the page's windows, and the id of the newline."""
    text = load_corpus("tinyshakespeare", start=ROOT)
    tokenizer = CharTokenizer.from_text(text)
    data = torch.tensor(tokenizer.encode(split_corpus(text)[1]))
    windows = spread_windows(data, SIZES["T"], step8.WINDOWS)
    return windows[::8], tokenizer.encode("\n")[0]


def score(model: GPT, name: str) -> Tensor:
    windows, newline = held_out()
    ids = windows[:, :-1]
    means, asked = head_scores(
        record(model, ids).attention, key_patterns(ids, newline)[name]
    )
    return (means @ asked.float()) / asked.sum()


def printed() -> str:
    return " ".join(" ".join(printed_by("step8-interpretability")).split())


def best(table: list[list[float]]) -> float:
    return max(max(row) for row in table)


# The trained model, live


def test_the_heads_with_a_plain_job_are_there_and_no_other_comes_near():
    for name, holder, least, rest in (
        ("previous", (0, 3), 0.95, 0.4),
        ("two back", (0, 1), 0.9, 0.4),
        ("line start", (2, 0), 0.45, 0.15),
    ):
        scores = score(trained(), name)
        assert scores[holder] > least, name
        scores[holder] = 0
        assert scores.max() < rest, name


def test_an_untrained_model_has_no_such_head():
    torch.manual_seed(0)
    fresh = GPT(**SIZES)
    assert score(fresh, "previous").max() < 0.15
    assert score(fresh, "line start").max() < 0.1


def test_the_previous_token_head_is_missed_most_and_the_mean_is_harsh_for_mlp_3():
    windows, _ = held_out()
    seen = record(trained(), windows[:, :-1])
    parts = [Part("head", 0, 3), Part("head", 2, 0), Part("MLP", 3)]
    means = {part: part.output(seen).mean(dim=(0, 1)) for part in parts}
    mean = ablation_effects(trained(), windows, means)
    zero = ablation_effects(trained(), windows, dict.fromkeys(parts, 0.0))
    head, line, mlp = parts
    assert mean[head].mean() > 2 > 0.2 > mean[line].mean()
    assert mean[mlp].mean() > zero[mlp].mean() + 0.3


def test_a_second_copy_is_no_cheaper_than_the_first():
    strings = induction_strings(16, 32, SIZES["V"], torch.Generator().manual_seed(3))
    first, second = half_bits(trained(), strings)
    assert abs(first.mean() - second.mean()) < 0.5
    assert min(first.mean(), second.mean()) > math.log2(SIZES["V"])


def test_looking_leaves_the_trained_model_as_it_was():
    windows, _ = held_out()
    before = target_bits(trained(), windows)
    record(trained(), windows[:, :-1])
    ablation_effects(trained(), windows[:1], {Part("MLP", 0): 0.0})
    assert torch.equal(target_bits(trained(), windows), before)


# The stored measurements


def test_the_page_the_manifest_and_the_file_state_the_same():
    content = FILE.read_bytes()
    size, sha256 = len(content), hashlib.sha256(content).hexdigest()
    (stated,) = [e for e in read_manifest() if e["name"] == step8.LOG]
    assert (stated["bytes"], stated["sha256"]) == (size, sha256)
    code = "\n".join(cell.source for cell in read_page(PAGE).code_cells)
    assert sha256 in code
    assert f"{size:_}" in code or str(size) in code


def test_every_run_is_there_and_measured_everything():
    assert list(runs()) == ["reference", *(f"seed {seed}" for seed in step8.SEEDS)]
    for name, run in runs().items():
        assert set(run["effects"]["mean"]) == {
            *(f"head {i}.{j}" for i in range(4) for j in range(4)),
            *(f"MLP {i}" for i in range(4)),
        }
        assert set(run["scores"]) == set(key_patterns(torch.zeros(1, 2), 0))
        assert len(run["lens"]) == 2 * SIZES["L"] + 1
        assert run["bits"][0] == pytest.approx(run["lens"][-1], abs=1e-4)
        if name != "reference":
            assert run["steps"] == step8.SHORT.steps
            assert 1.6 < run["validation_whole"] < 1.95


def test_the_log_was_made_by_the_packages_own_functions():
    model = fuse(GPT(**SIZES))
    model.load_state_dict(trained().state_dict())
    windows, _ = held_out()
    bits = target_bits(model, windows).mean()
    low, high = runs()["reference"]["bits"][1:]
    assert low - 0.2 < bits < high + 0.2


def test_the_lens_falls_with_every_write_in_every_model():
    for run in runs().values():
        assert run["lens"][-1] == min(run["lens"])


# The page


def test_the_page_prints_what_it_claims():
    text = printed()
    for claim in (
        "the sum gives the logits, gap < 1e-4: True",
        "the fused model gives the same record, gap < 1e-4: True",
        "shares add up to the logit at every position, gap < 1e-4: True",
        "the log's reference, gap < 1e-4: True",
        "chance, ln V in bits 6.02",
    ):
        assert claim in text
    assert "False" not in text


def test_the_lens_of_the_page_is_the_logs():
    rows = re.findall(
        r"(?:embedding|attention \d|MLP \d) ([\d.]+) [\d.]+ to", printed()
    )
    assert [float(row) for row in rows] == [
        pytest.approx(value, abs=0.006) for value in runs()["reference"]["lens"]
    ]


def test_every_figure_says_what_is_seen():
    cells = [c for c in read_page(PAGE).code_cells if "mystnb" in c.options]
    assert len(cells) >= 3
    for cell in cells:
        options = cell.options["mystnb"]
        assert options["figure"]["name"].startswith("fig-s8-")
        assert len(options["image"]["alt"]) > 80
