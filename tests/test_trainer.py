"""Step 6's code: batches, evaluation, the recipe, the fused heads, and the trainer."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tinygpt.gpt import GPT
from tinygpt.training import (
    FusedMHA,
    TrainConfig,
    Trainer,
    WindowMLP,
    estimate_loss,
    fuse,
    get_batch,
    learning_rate,
    load_reference,
    save_whole,
    whole_text_loss,
)
from tools.pages import ROOT

SMALL = {"V": 11, "T": 8, "d": 16, "H": 2, "L": 2}
SHORT = TrainConfig(
    steps=12, batch_size=4, warmup=3, eval_every=4, eval_batches=2, final_batches=3
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(11, (400,), generator=torch.Generator().manual_seed(5))
    return ids[:300], ids[300:]


def small(seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(**SMALL)


def trainer(data, checkpoint=None, config=SHORT, **options) -> Trainer:
    return Trainer(small(), *data, config, checkpoint, **options)


# Batches


def test_targets_are_the_inputs_shifted_by_one():
    inputs, targets = get_batch(torch.arange(50), 8, 100)
    assert torch.equal(targets, inputs + 1)
    assert inputs.min() >= 0
    assert targets.max() < 50


def test_starts_come_from_one_draw_of_the_global_generator():
    torch.manual_seed(3)
    inputs, _ = get_batch(torch.arange(50), 8, 6)
    torch.manual_seed(3)
    assert torch.equal(inputs[:, 0], torch.randint(50 - 8 - 1, (6,)))


@pytest.mark.parametrize("n", [0, 3, 9])
def test_too_little_text_names_both_lengths(n):
    with pytest.raises(ValueError, match=rf"T is 8 but .* {n} characters.* least 10"):
        get_batch(torch.arange(n), 8, 2)


@pytest.mark.parametrize(("T", "batch_size"), [(0, 2), (8, 0), (-1, 2)])
def test_a_batch_of_nothing_is_refused(T, batch_size):
    with pytest.raises(ValueError, match=f"T {T}, batch_size {batch_size}"):
        get_batch(torch.arange(50), T, batch_size)


# Evaluation


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_restores_the_mode_even_after_an_error(data, training):
    model = small().train(training)
    estimate_loss(model, data[1], 2, 4)
    whole_text_loss(model, data[1])
    assert model.training is training
    with pytest.raises(ValueError, match="11"):
        whole_text_loss(model, torch.full((40,), 11))
    with pytest.raises(ValueError, match="at least 10"):
        estimate_loss(model, data[1][:5], 2)
    assert model.training is training


def test_an_estimate_is_the_mean_over_its_batches(data):
    model = small()
    torch.manual_seed(2)
    estimate = estimate_loss(model, data[1], 3, 4)
    torch.manual_seed(2)
    with torch.no_grad():
        losses = [model(*get_batch(data[1], 8, 4))[1].item() for _ in range(3)]
    assert estimate == sum(losses) / 3
    with pytest.raises(ValueError, match="n_batches is 0"):
        estimate_loss(model, data[1], 0)


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_the_whole_text_counts_each_target_once(data, stride):
    model, text = small().double(), data[1]
    total, seen = 0.0, []
    for start in range(0, len(text) - 8, stride):
        window = text[start : start + 9][None]
        with torch.no_grad():
            p = model(window[:, :-1])[0].log_softmax(dim=-1)[0]
        for t in range(0 if start == 0 else 8 - stride, 8):
            seen.append(start + t + 1)
            total -= p[t, window[0, t + 1]].item()
    assert len(seen) == len(set(seen))
    loss = whole_text_loss(model, text, stride, batch_size=5)
    assert loss == pytest.approx(total / len(seen), abs=1e-10)


def test_the_whole_text_draws_nothing(data):
    model = small()
    before = torch.get_rng_state()
    whole_text_loss(model, data[1])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stride", [0, 9, -1])
def test_a_stride_outside_of_the_window_is_refused(data, stride):
    with pytest.raises(ValueError, match=rf"stride is {stride}; expected 1 to T, 8"):
        whole_text_loss(small(), data[1], stride)


# The rate


def test_the_rate_climbs_from_zero_and_ends_at_its_floor():
    config = TrainConfig()
    assert learning_rate(0, config) == 0.0
    assert learning_rate(50, config) == config.max_rate / 2
    assert learning_rate(100, config) == config.max_rate
    assert learning_rate(2_550, config) == pytest.approx(1.65e-3)
    assert learning_rate(5_000, config) == config.min_rate
    assert learning_rate(9_999, config) == config.min_rate
    rates = [learning_rate(step, config) for step in range(100, 5_001)]
    assert all(a >= b for a, b in zip(rates, rates[1:]))


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (5, 5), (5, 9), (5, 0)])
def test_no_recipe_divides_by_zero(steps, warmup):
    config = TrainConfig(steps=steps, warmup=warmup)
    rates = [learning_rate(step, config) for step in range(steps + 3)]
    assert all(math.isfinite(rate) for rate in rates)
    assert rates[0] == (0.0 if warmup else config.max_rate)
    assert rates[-1] == config.min_rate


# All heads at once


@pytest.mark.parametrize("T", [1, 5, 8])
def test_fused_heads_give_the_same_logits_and_gradients(T):
    model = small().double()
    ids = torch.randint(11, (3, T))
    logits, loss = model(ids, ids)
    loss.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    fused_logits, fused_loss = fuse(model)(ids, ids)
    fused_loss.backward()
    assert torch.allclose(logits, fused_logits, atol=1e-12)
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, grads[name], atol=1e-12), name


def test_fusing_keeps_parameters_names_and_the_future_hidden():
    model = small()
    before = {name: p.data_ptr() for name, p in model.named_parameters()}
    assert fuse(fuse(model)) is model
    assert all(isinstance(block.attn, FusedMHA) for block in model.blocks)
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == before
    GPT(**SMALL).load_state_dict(model.state_dict())
    ids = torch.randint(11, (2, 8))
    changed = ids.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    with torch.no_grad():
        a, b = model(ids)[0], model(changed)[0]
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.equal(a[:, 5:], b[:, 5:])


def test_under_autocast_the_written_out_attention_gives_nearly_the_same():
    model = fuse(small())
    ids = torch.randint(11, (2, 8))
    with torch.no_grad():
        exact, _ = model(ids)
        with torch.autocast("cpu", torch.bfloat16):
            rough, _ = model(ids)
    assert rough.dtype == torch.bfloat16
    assert torch.allclose(rough.float(), exact, atol=0.05)


# The trainer


def test_a_resumed_run_is_the_run_that_would_have_been(data, tmp_path):
    straight = trainer(data)
    straight.run()
    trainer(data, tmp_path / "run.pt").run(until=7)
    torch.manual_seed(99)
    resumed = trainer(data, tmp_path / "run.pt")
    assert resumed.step == 4
    assert resumed.run() == straight.log
    for a, b in zip(straight.model.parameters(), resumed.model.parameters()):
        assert torch.equal(a, b)
    assert resumed.best["step"] == straight.best["step"]


def test_a_killed_run_is_continued_identically(data, tmp_path):
    code = """
import os, sys, torch
sys.path[:0] = [{root!r}, {tests!r}]
from test_trainer import SHORT, small
from tinygpt.training import Trainer
torch.set_num_threads(1)
ids = torch.randint(11, (400,), generator=torch.Generator().manual_seed(5))
run = Trainer(small(), ids[:300], ids[300:], SHORT, {path!r})
one_step = run._one_step
def killed(step):
    if step == 10:
        os._exit(9)
    one_step(step)
run._one_step = killed
run.run()
"""
    path = str(tmp_path / "run.pt")
    code = code.format(root=str(ROOT), tests=str(ROOT / "tests"), path=path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    straight = trainer(data)
    straight.run()
    resumed = trainer(data, path)
    assert resumed.step == 8
    assert resumed.run() == straight.log


def test_a_checkpoint_holds_plain_data_and_names_its_recipe(data, tmp_path):
    path = tmp_path / "run.pt"
    trainer(data, path).run(until=4)
    state = torch.load(path, weights_only=True)
    assert json.loads(json.dumps(state["log"])) == state["log"]
    other = replace(SHORT, max_rate=1e-3)
    with pytest.raises(ValueError, match="belongs to another recipe"):
        trainer(data, path, other)


def test_an_interrupted_write_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    save_whole({"a": 1}, path)

    def fails(value, target):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="disk full"):
        save_whole({"a": 2}, path)
    assert torch.load(path, weights_only=True) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_the_first_step_moves_nothing_and_the_second_does(data):
    run = trainer(data)
    start = [p.clone() for p in run.model.parameters()]
    run.run(until=1)
    assert all(torch.equal(a, b) for a, b in zip(start, run.model.parameters()))
    run.run(until=2)
    assert not all(torch.equal(a, b) for a, b in zip(start, run.model.parameters()))


def test_the_logged_norm_is_the_one_before_clipping(data):
    run = trainer(data, config=replace(SHORT, clip=1e-3))
    log = run.run()
    assert min(log["grad_norm"]) > 1e-3
    total = math.sqrt(sum(p.grad.square().sum().item() for p in run.model.parameters()))
    assert total == pytest.approx(1e-3, rel=1e-3)


def test_every_parameter_is_in_the_one_group_once(data):
    run = trainer(data)
    (group,) = run.optimizer.param_groups
    assert {id(p) for p in group["params"]} == {id(p) for p in run.model.parameters()}
    assert len(group["params"]) == len({id(p) for p in group["params"]})
    run.run(until=6)
    assert group["lr"] == learning_rate(5, SHORT)


def test_evaluations_come_when_they_are_due_and_the_best_is_kept(data):
    run = trainer(data)
    log = run.run()
    assert [e["step"] for e in log["evaluations"]] == [0, 4, 8, 12]
    best = min(log["evaluations"], key=lambda e: e["validation"])
    assert run.best["step"] == best["step"]
    model = small()
    model.load_state_dict(run.best["model"])
    assert len(log["train_loss"]) == len(log["grad_norm"]) == len(log["rate"]) == 12


def test_the_final_evaluation_of_a_run_that_is_done_is_not_made_twice(data, tmp_path):
    first = trainer(data, tmp_path / "run.pt").run()
    assert trainer(data, tmp_path / "run.pt").run() == first


@pytest.mark.parametrize("until", [3, 13])
def test_a_goal_behind_or_beyond_the_run_is_refused(data, until):
    run = trainer(data)
    run.run(until=4)
    with pytest.raises(ValueError, match=f"until is {until}; expected 4 to 12"):
        run.run(until=until)


def test_a_loss_that_is_not_finite_stops_the_run_with_its_step(data, tmp_path):
    run = trainer(data, tmp_path / "run.pt")
    run.run(until=5)
    with torch.no_grad():
        run.model.head.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match=r"step 5 is nan .*run\.pt"):
        run.run()


def test_two_runs_of_one_seed_are_the_same_and_a_callback_changes_nothing(data):
    steps = []
    with_callback = trainer(data, on_evaluation=lambda step, model: steps.append(step))
    assert with_callback.run() == trainer(data).run()
    assert steps == [0, 4, 8, 12]


def test_a_run_under_bfloat16_stays_near_the_exact_one(data):
    exact, rough = trainer(data).run(), trainer(data, bfloat16=True).run()
    assert rough["train_loss"] != exact["train_loss"]
    assert rough["train_loss"] == pytest.approx(exact["train_loss"], abs=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_on_the_gpu_draws_the_same_batches(data):
    here = trainer(data).run(until=3)
    model = small().cuda()
    there = Trainer(model, data[0].cuda(), data[1].cuda(), SHORT).run(until=3)
    assert there["train_loss"] == pytest.approx(here["train_loss"], abs=1e-4)


# The MLP of the control


def test_the_control_has_the_parameters_of_the_gpt_and_no_attention():
    torch.manual_seed(0)
    mlp = WindowMLP(65, 64, e=16, hidden=748)
    count = sum(p.numel() for p in mlp.parameters())
    gpt = sum(p.numel() for p in GPT(65, 64, 128, 4, 4).parameters())
    assert (count, gpt) == (816_425, 816_640)
    ids = torch.randint(65, (3, 64))
    logits, loss = mlp(ids, ids)
    assert logits.shape == (3, 65)
    expected = -logits.log_softmax(dim=-1)[range(3), ids[:, -1]].mean()
    assert torch.isclose(loss, expected)


# The stored files


def test_an_unknown_reference_file_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown file 'x"):
        load_reference("x.pt")


def test_a_wrong_reference_file_is_refused(tmp_path):
    place = tmp_path / "data" / "reference" / "step6_model.pt"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(ValueError, match="starts like an HTML page"):
        load_reference("step6_model.pt", tmp_path)
