"""Beyond one machine: several processes give the losses of one, and can be killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from chapter2 import one_thread  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_page import printed_by
from torch import distributed as dist

from benchmarks import distributed as benchmark
from tinygpt import distributed
from tinygpt.corpus import load_corpus
from tinygpt.distributed import (
    Cluster,
    DistributedTrainer,
    Parallel,
    compute_seconds,
    process_group,
    read_place,
    ring_bytes,
    share,
    talk_seconds,
)
from tinygpt.gpt import GPT
from tinygpt.training import TrainConfig, Trainer, estimate_loss, get_batch
from tools.pages import ROOT

PAGE = ROOT / "chapters" / "beyond-one-machine.md"
STEPS = 200
SIZES = {"T": 16, "d": 32, "H": 2, "L": 2}
# Sixteen rows are no multiple of three, so three ranks have unequal shares.
ARGUMENTS = ["--steps", str(STEPS), "--batch-size", "16", "--eval-every", "50"]
ARGUMENTS += ["--eval-batches", "2", "--sizes", *map(str, SIZES.values()), "--cpu"]


class Runs(SimpleNamespace):
    """What the processes left behind; a failing test need not write it all out."""

    def __repr__(self) -> str:
        return f"runs in {self.folder}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """One process; two; one then two, of which one is killed; then one, and three."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "text.txt"
    text.write_text(load_corpus("alice", ROOT), "utf-8")
    arguments = [*ARGUMENTS, "--text", str(text)]

    def alone(name: str, *more: str) -> dict[str, Any]:
        record = folder / f"{name}.json"
        distributed.main([*arguments, "--record", str(record), *more])
        return json.loads(record.read_text("utf-8"))

    def kept(name: str) -> list[str]:
        return ["--checkpoint", str(folder / name)]

    threads = torch.get_num_threads()
    one = alone("one", *kept("one.pt"))
    two, printed = benchmark.train(ROOT, 2, 1, *arguments, *kept("two.pt"))
    # The checkpoint of a single process that was interrupted at step 60 ...
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            alone("early", *kept("shared.pt"), "--kill", "0", "60")
    early = torch.load(folder / "shared.pt", weights_only=True)
    # ... is taken over by two, of which one is killed.
    killed = subprocess.run(
        benchmark.command(
            2, *arguments, *kept("shared.pt"), "--kill", "1", str(STEPS // 2 + 20)
        ),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    left = torch.load(folder / "shared.pt", weights_only=True)
    (folder / "three.pt").write_bytes((folder / "shared.pt").read_bytes())
    files = sorted(path.name for path in folder.iterdir())
    rest_one = alone("rest", *kept("shared.pt"))
    rest_three, _ = benchmark.train(ROOT, 3, 1, *arguments, *kept("three.pt"))
    torch.set_num_threads(threads)
    return Runs(
        folder=folder,
        files=files,
        one=one,
        two=two,
        printed=printed,
        early=early,
        killed=killed,
        left=left,
        rest_one=rest_one,
        rest_three=rest_three,
    )


@pytest.fixture
def group() -> Iterator[None]:
    with process_group():
        yield


def furthest(a: dict[str, Any], b: dict[str, Any], name: str = "train_loss") -> float:
    assert len(a[name]) == len(b[name])
    return max(abs(x - y) for x, y in zip(a[name], b[name]))


# Several processes


def test_two_processes_give_the_losses_of_one_for_200_steps(runs):
    assert (runs.one["world"], runs.two["world"]) == (1, 2)
    assert len(runs.one["train_loss"]) == STEPS
    assert furthest(runs.one, runs.two) < 1e-5
    assert runs.one["train_loss"][-1] < runs.one["train_loss"][0] - 1
    assert runs.one["rate"] == runs.two["rate"]
    assert furthest(runs.one, runs.two, "grad_norm") < 1e-4


def test_they_evaluate_alike_and_one_of_them_prints(runs):
    for mine, theirs in zip(runs.one["evaluations"], runs.two["evaluations"]):
        assert mine == pytest.approx(theirs, abs=1e-5)
    assert runs.printed.count("the last loss is") == 1


def test_their_checkpoint_is_that_of_one_process_without_a_prefix(runs):
    one, two = (
        torch.load(runs.folder / name, weights_only=True)
        for name in ("one.pt", "two.pt")
    )
    assert list(one["model"]) == list(two["model"])
    for name, weight in one["model"].items():
        torch.testing.assert_close(weight, two["model"][name], atol=1e-4, rtol=0)
    assert torch.equal(one["generator"], two["generator"])
    GPT(two["model"]["tok.weight"].shape[0], **SIZES).load_state_dict(two["model"])


def test_a_run_of_one_process_goes_on_in_two(runs):
    assert len(runs.early["log"]["train_loss"]) == 50
    losses = {"train_loss": runs.left["log"]["train_loss"]}
    assert len(losses["train_loss"]) == 100
    assert furthest({"train_loss": runs.one["train_loss"][:100]}, losses) < 1e-5


def test_a_killed_rank_ends_the_job_with_a_clear_message(runs):
    assert runs.killed.returncode not in (0, None)
    (line,) = [row for row in runs.killed.stdout.splitlines() if "broke off" in row]
    assert line.startswith("rank 0 of 2: the job broke off at step 120; the same")
    assert "goes on from step 100" in line
    assert str(runs.folder / "shared.pt") in line
    cause = runs.killed.stderr.split("Root Cause")[-1]
    assert "rank      : 1 (local_rank: 1)" in cause
    assert "exitcode  : -9" in cause
    assert not [name for name in runs.files if name.endswith(".part")]


@pytest.mark.parametrize(("name", "world"), [("rest_one", 1), ("rest_three", 3)])
def test_a_run_of_two_goes_on_in_another_number(runs, name, world):
    rest = getattr(runs, name)
    assert (rest["begin"], rest["world"]) == (100, world)
    assert furthest(runs.one, rest) < 1e-5


# The parts


@given(rows=st.integers(1, 200), world=st.integers(1, 20))
@settings(deadline=None, database=None, derandomize=True)
def test_the_shares_are_the_batch_and_even(rows, world):
    if rows < world:
        with pytest.raises(ValueError, match=f"{rows} rows for {world} ranks"):
            share(rows, 0, world)
        return
    shares = [share(rows, rank, world) for rank in range(world)]
    assert [i for s in shares for i in range(rows)[s]] == list(range(rows))
    sizes = [s.stop - s.start for s in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_is_none_is_refused(rank):
    with pytest.raises(ValueError, match=f"rank is {rank}; expected 0 to 1"):
        share(8, rank, 2)


def test_the_place_is_read_from_what_torchrun_sets():
    place = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}
    assert read_place(place) == (9, 16, 1)
    assert read_place({}) == (0, 1, 0)


@pytest.mark.parametrize(
    "place",
    [
        {"RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "two", "LOCAL_RANK": "0"},
        {"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "0", "LOCAL_RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        {"RANK": "-1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
    ],
)
def test_a_place_that_cannot_be_is_refused(place):
    with pytest.raises(ValueError, match="expected"):
        read_place(place)


def test_without_a_group_there_is_no_parallel_model():
    with pytest.raises(RuntimeError, match=r"expected one from process_group\(\)"):
        Parallel(GPT(5, **SIZES))


def test_a_group_of_one_changes_nothing(group):
    torch.manual_seed(3)
    data = torch.randint(11, (400,))
    model = GPT(11, **SIZES)
    idx, targets = get_batch(data, 16, 6)
    parallel = Parallel(model)
    logits, loss = parallel(idx, targets)
    right_logits, right = model(idx, targets)
    assert torch.equal(logits, right_logits)
    assert loss.item() == pytest.approx(right.item(), abs=1e-6)
    loss.backward()
    gradient = [p.grad.clone() for p in model.parameters()]
    for found, expected in zip(
        gradient, torch.autograd.grad(right, list(model.parameters()))
    ):
        torch.testing.assert_close(found, expected)
    assert parallel(idx)[1] is None
    assert list(parallel.state_dict()) == list(model.state_dict())
    torch.manual_seed(5)
    mine = estimate_loss(parallel, data, 2, 6)
    torch.manual_seed(5)
    assert mine == pytest.approx(estimate_loss(model, data, 2, 6), abs=1e-6)


def test_a_group_of_one_is_left_again():
    with process_group() as (rank, world, device):
        assert (rank, world, device.type) == (0, 1, device.type)
    assert not dist.is_initialized()


def test_its_checkpoint_is_one_of_the_plain_trainer(group, tmp_path):
    data = torch.arange(300) % 7
    config = TrainConfig(steps=4, batch_size=4, warmup=1, eval_every=2, eval_batches=1)
    path = tmp_path / "run.pt"
    torch.manual_seed(0)
    trainer = DistributedTrainer(GPT(7, **SIZES), data, data, config, path)
    trainer.run(2)
    kept = trainer.model.state_dict()["head.weight"].clone()
    trainer.run(3)
    torch.manual_seed(9)
    plain = Trainer(GPT(7, **SIZES), data, data, config, path)
    assert plain.step == 2
    assert torch.equal(plain.model.head.weight, kept)


@pytest.mark.parametrize("differs", range(6), ids=lambda at: f"number {at}")
def test_ranks_that_begin_differently_are_refused(group, monkeypatch, differs):
    """By step, by length and sums of the data, by recipe, by weights."""

    def another_rank(found: list[torch.Tensor], mine: torch.Tensor) -> None:
        assert len(mine) == 6
        found[0].copy_(mine)
        found[1].copy_(mine)
        found[1][differs] += 40

    monkeypatch.setattr(dist, "all_gather", another_rank)
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 2)
    data = torch.arange(300) % 7
    config = TrainConfig(steps=4, batch_size=4)
    step = 40 if differs == 0 else 0
    with pytest.raises(ValueError, match=f"rank 1 begins at step {step} "):
        DistributedTrainer(GPT(7, **SIZES), data, data, config)


def test_fewer_rows_than_ranks_are_refused(group, monkeypatch):
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 2)
    data = torch.arange(300) % 7
    config = TrainConfig(steps=4, batch_size=1)
    with pytest.raises(ValueError, match="1 rows for 2 ranks"):
        DistributedTrainer(GPT(7, **SIZES), data, data, config)


def test_what_a_rank_begins_with_tells_recipes_and_weights_apart(group, monkeypatch):
    said = []

    def listen(found: list[torch.Tensor], mine: torch.Tensor) -> None:
        said.append(tuple(mine.tolist()))
        found[0].copy_(mine)

    monkeypatch.setattr(dist, "all_gather", listen)
    data = torch.arange(300) % 7
    for seed, rate in ((0, 1e-3), (0, 1e-3), (1, 1e-3), (0, 1e-2)):
        torch.manual_seed(seed)
        config = TrainConfig(steps=4, batch_size=4, max_rate=rate)
        DistributedTrainer(GPT(7, **SIZES), data, data, config)
    assert said[0] == said[1]
    assert len(set(said)) == 3


def test_other_errors_are_no_lost_rank():
    assert not distributed.lost_a_rank(RuntimeError("shapes do not fit"))
    assert distributed.lost_a_rank(RuntimeError("gloo: Connection closed by peer"))


# On paper


def test_a_ring_sends_less_than_twice_its_bytes():
    assert ring_bytes(1, 100) == 0
    assert ring_bytes(2, 100) == 100
    assert ring_bytes(1_024, 100) == pytest.approx(2 * 100 * 1_023 / 1_024)
    with pytest.raises(ValueError, match="n 0, size 4"):
        ring_bytes(0, 4)


def test_the_times_are_those_worked_out_by_hand():
    cluster = Cluster(peak=1e12, used=0.5, inside=1e9, outside=1e8, delay=1e-3)
    assert compute_seconds(10**6, 1_000, cluster) == pytest.approx(6e9 / 5e11)
    inside = 2 * 7 / 8 * 4e6 / 1e9 + 14e-3
    assert talk_seconds(8, 10**6, cluster) == pytest.approx(inside)
    outside = 2 * 8 / 9 * 4e6 / 1e8 + 16e-3
    assert talk_seconds(9, 10**6, cluster) == pytest.approx(outside)


# The benchmark and the page


def test_the_benchmark_measures_and_compares(tmp_path, monkeypatch):
    def train(root: Path, processes: int, threads: int, *arguments: str) -> tuple:
        per_step = 0.1 / processes / threads
        return {"seconds_per_step": per_step, "train_loss": [2.0, 1.0]}, "printed"

    monkeypatch.setattr(benchmark, "train", train)
    assert benchmark.main(["--small", "--root", str(tmp_path)]) == 0
    log = json.loads((tmp_path / "_build/bench/distributed.json").read_bytes())
    assert [entry["rounds"] for entry in log["ratios"]] == [[2.0], [2.0]]
    assert log["largest_gap"] == 0
    assert all(log["checks"].values())


def test_a_failed_job_is_told_with_what_it_said(monkeypatch):
    failing = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    monkeypatch.setattr(benchmark, "command", lambda *_: failing)
    with pytest.raises(RuntimeError, match="no such thing"):
        benchmark.train(ROOT, 2, 1)


def test_the_log_is_of_whole_runs_with_the_losses_of_one_process():
    content = (ROOT / "data/reference/benchmarks_distributed.json").read_bytes()
    stored = json.loads(content)
    assert all(stored["checks"].values())
    assert not stored["small"]


def test_no_claim_of_the_page_is_false():
    printed = printed_by("beyond-one-machine")
    assert sum("same losses to 1e-5: True" in text for text in printed) == 3
    assert any(
        "weighted False: off by less than 1e-5 of it: False" in t for t in printed
    )
    falses = [t for t in printed if ": False" in t and "weighted" not in t]
    assert not falses


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--steps", "0"], "expected 1 or more"), (["--record", "no/r.json"], "no such")],
)
def test_what_cannot_end_well_is_refused_before_it_begins(words, complaint, capsys):
    with pytest.raises(SystemExit):
        distributed.main(words)
    assert complaint in capsys.readouterr().err
