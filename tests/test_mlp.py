"""Step 3: windows, the network and its gradient, its training, sampling, refusals."""

import functools
import math

import pytest
import torch
from chapter2 import gpu, one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.mlp import (
    CharMLP,
    context_windows,
    falling_rates,
    mlp_loss,
    sample_mlp,
    train_mlp,
)
from tools.pages import ROOT


@functools.cache
def corpus() -> tuple[Tensor, Tensor]:
    text = load_corpus("tinyshakespeare", start=ROOT)
    return split_corpus(torch.tensor(CharTokenizer.from_text(text).encode(text)))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_model(V: int = 7, k: int = 3, e: int = 4, hidden: int = 8) -> CharMLP:
    """With a head that is large enough to have opinions."""
    torch.manual_seed(0)
    model = CharMLP(V, k, e, hidden)
    torch.nn.init.normal_(model.head.weight)
    return model


# Windows


@quick
@given(st.integers(1, 6), st.lists(st.integers(0, 9), min_size=7, max_size=30))
def test_each_id_but_the_first_k_is_the_target_of_the_k_before_it(k, ids):
    contexts, targets = context_windows(torch.tensor(ids), k)
    assert targets.tolist() == ids[k:]
    assert contexts.tolist() == [ids[i : i + k] for i in range(len(ids) - k)]


def test_windows_copy_nothing():
    ids = torch.arange(100)
    contexts, targets = context_windows(ids, 12)
    assert contexts.data_ptr() == ids.data_ptr()
    assert targets.untyped_storage().data_ptr() == ids.untyped_storage().data_ptr()


def test_no_held_out_window_reaches_into_the_training_text():
    train, held_out = split_corpus(torch.arange(100))
    for part, ids in ((train, range(90)), (held_out, range(90, 100))):
        contexts, targets = context_windows(part, 3)
        assert set(contexts.flatten().tolist()) | set(targets.tolist()) == set(ids)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_text_without_a_target_is_refused_with_both_lengths(n):
    with pytest.raises(
        ValueError, match=rf"k is 3 but the text has {n} .*; need at least 4"
    ):
        context_windows(torch.arange(n), 3)


def test_the_shortest_text_has_one_problem():
    contexts, targets = context_windows(torch.arange(4), 3)
    assert (contexts.tolist(), targets.tolist()) == ([[0, 1, 2]], [3])


@pytest.mark.parametrize("k", [0, -1])
def test_a_context_of_nothing_is_refused(k):
    with pytest.raises(ValueError, match=f"k is {k}; expected a positive number"):
        context_windows(torch.arange(9), k)


def test_a_batch_is_no_text():
    with pytest.raises(ValueError, match=r"shape \(2, 9\); expected \(n,\)"):
        context_windows(torch.zeros(2, 9, dtype=torch.long), 3)


# The network


@quick
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9), st.integers(1, 30))
def test_the_count_is_the_formula_for_all_sizes(V, k, e, h):
    count = sum(p.numel() for p in CharMLP(V, k, e, h).parameters())
    assert count == V * e + (k * e + 1) * h + (h + 1) * V


def test_the_model_of_the_page_has_10_315_parameters():
    assert sum(p.numel() for p in CharMLP(65, 3, 10, 100).parameters()) == 10_315


def test_the_forward_pass_is_the_formula():
    model = small_model()
    idx = torch.tensor([[0, 1, 2], [6, 6, 0]])
    logits, loss = model(idx)
    assert loss is None
    for row, ids in zip(logits, idx, strict=True):
        u = torch.cat([model.embed.weight[i] for i in ids])  # in the order of the text
        a = torch.tanh(model.hidden.weight @ u + model.hidden.bias)
        expected = model.head.weight @ a + model.head.bias
        torch.testing.assert_close(row, expected)


def test_the_order_of_the_context_matters():
    model = small_model()
    there, back = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]])
    assert not torch.allclose(model(there)[0], model(back)[0])


def test_the_gradient_by_hand_is_autograds():
    model = small_model(V=9).double()
    idx = torch.tensor([[0, 1, 1], [4, 4, 4], [1, 0, 3]])
    targets = torch.tensor([1, 0, 8])
    model(idx, targets)[1].backward()
    with torch.no_grad():
        u = model.embed.weight[idx].flatten(1)
        a = torch.tanh(model.hidden(u))
        d_z = (model.head(a).softmax(-1) - F.one_hot(targets, 9)) / 3
        d_pre = (d_z @ model.head.weight) * (1 - a * a)
        d_u = (d_pre @ model.hidden.weight).view(-1, 4)
        d_E = torch.zeros_like(model.embed.weight).index_add(0, idx.flatten(), d_u)
    torch.testing.assert_close(d_z.T @ a, model.head.weight.grad)
    torch.testing.assert_close(d_pre.T @ u, model.hidden.weight.grad)
    torch.testing.assert_close(d_pre.sum(0), model.hidden.bias.grad)
    torch.testing.assert_close(d_E, model.embed.weight.grad)
    touched = (model.embed.weight.grad != 0).any(-1).nonzero().flatten().tolist()
    assert touched == [0, 1, 3, 4]


@pytest.mark.parametrize("V", [65, 256])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_fresh_model_is_ignorant(V, seed):
    torch.manual_seed(seed)
    model = CharMLP(V, 3, 10, 100)
    idx, targets = torch.randint(V, (2_000, 3)), torch.randint(V, (2_000,))
    with torch.no_grad():
        assert abs(model(idx, targets)[1].item() - math.log(V)) < 0.05


def test_with_zeros_for_the_earliest_character_a_longer_context_is_the_shorter_one():
    short = small_model(k=2)
    long = CharMLP(7, 3, 4, 8)
    long.embed, long.head = short.embed, short.head
    with torch.no_grad():
        long.hidden.bias.copy_(short.hidden.bias)
        long.hidden.weight.zero_()
        long.hidden.weight[:, 4:] = short.hidden.weight
    idx = torch.randint(7, (50, 3), generator=seeded())
    torch.testing.assert_close(long(idx)[0], short(idx[:, 1:])[0])


@pytest.mark.parametrize("name", ["V", "k", "e", "hidden"])
def test_a_size_of_zero_is_named(name):
    sizes = {"V": 5, "k": 2, "e": 3, "hidden": 4, name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0; expected a positive number"):
        CharMLP(**sizes)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 4), (0, 3), (1, 2, 3)])
def test_contexts_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"contexts have shape .*; expected \(B, 3\)"):
        small_model()(torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("wrong", [-1, 7])
def test_an_id_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"{wrong}.*expected 0 to 6"):
        small_model()(torch.tensor([[0, wrong, 1]]))


def test_targets_of_a_wrong_shape_are_refused():
    idx = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match=r"targets have shape \(2, 3\); expected \(2"):
        small_model()(idx, idx)


# Measuring


@pytest.mark.parametrize("batch_size", [1, 5, 8_192])
def test_the_loss_over_a_text_counts_each_target_once(batch_size):
    model = small_model()
    ids = torch.randint(7, (24,), generator=seeded())
    contexts, targets = context_windows(ids, 3)
    with torch.no_grad():
        expected = model(contexts, targets)[1].item()
    assert mlp_loss(model, ids, batch_size) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_restored_also_after_an_error(training):
    model = small_model().train(training)
    ids = torch.arange(20) % 7
    mlp_loss(model, ids)
    train_mlp(model, ids, [1e-3], seeded())
    sample_mlp(model, ids[None], 2, seeded())
    for call in (
        lambda: mlp_loss(model, ids + 5),
        lambda: train_mlp(model, ids + 5, [1e-3], seeded(), 64),
        lambda: sample_mlp(model, ids[None] + 5, 1, seeded()),
    ):
        with pytest.raises(ValueError, match="expected 0 to 6"):
            call()
    assert all(module.training == training for module in model.modules())


def test_a_held_out_text_without_a_target_is_refused_and_not_divided_by():
    with pytest.raises(ValueError, match="the text has 3 characters; need at least 4"):
        mlp_loss(small_model(), torch.arange(3))
    with pytest.raises(ValueError, match="batch_size is 0"):
        mlp_loss(small_model(), torch.arange(6), batch_size=0)


# Training


def test_rates_fall_along_a_line_and_none_is_wasted():
    rates = falling_rates(0.4, 4)
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1])
    with pytest.raises(ValueError, match="steps is 0"):
        falling_rates(0.4, 0)


@pytest.fixture(scope="module")
def two_runs() -> list[tuple[dict, dict]]:
    results = []
    for noise in (1, 2):
        torch.manual_seed(0)
        model = CharMLP(65, 3, 10, 100)
        torch.manual_seed(noise)  # whatever happens in between
        log = train_mlp(model, corpus()[0], falling_rates(1e-2, 200), seeded(0))
        results.append((log, model.state_dict()))
    return results


def test_the_generator_alone_decides_a_run(two_runs):
    (first, weights), (second, again) = two_runs
    assert first == second
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_training_learns_and_logs_every_step(two_runs):
    log, weights = two_runs[0]
    assert len(log["loss"]) == len(log["rate"]) == 200
    assert log["rate"][0] == 1e-2
    assert log["loss"][0] == pytest.approx(4.172, abs=1e-3)
    model = CharMLP(65, 3, 10, 100)
    model.load_state_dict(weights)
    assert mlp_loss(model, corpus()[1]) < 2.6


def test_training_leaves_the_global_generator_and_the_text_alone():
    ids = corpus()[0][:1_000].clone()
    before, state = ids.clone(), torch.get_rng_state()
    model = small_model(V=65)
    torch.set_rng_state(state)
    train_mlp(model, ids, [1e-3] * 3, seeded())
    sample_mlp(model, ids[None, :3], 3, seeded())
    assert torch.equal(ids, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_measurement_in_between_changes_no_loss():
    losses = []
    for measured in (False, True):
        torch.manual_seed(0)
        model, generator, log = CharMLP(65, 3, 10, 20), seeded(), []
        for _ in range(3):
            if measured:
                mlp_loss(model, corpus()[1][:500])
            log += train_mlp(model, corpus()[0], [1e-3], generator)["loss"]
        losses.append(log)
    assert losses[0] == losses[1]


def test_a_rare_row_does_not_move_in_a_step_without_it():
    model = small_model()
    before = model.embed.weight.detach().clone()
    train_mlp(model, torch.tensor([0, 1, 2] * 9), [1e-2], seeded())
    moved = (model.embed.weight != before).any(-1)
    assert moved.tolist() == [True] * 3 + [False] * 4


def test_a_run_that_breaks_says_where():
    model = small_model()
    with torch.no_grad():
        model.head.weight.fill_(math.inf)
    with pytest.raises(
        FloatingPointError, match=r"step 0 is (nan|inf) at rate 1.00e-0"
    ):
        train_mlp(model, torch.arange(20) % 7, [1e-2], seeded())


def test_a_short_text_and_an_empty_batch_are_refused():
    with pytest.raises(ValueError, match="the text has 2 characters; need at least 4"):
        train_mlp(small_model(), torch.arange(2), [1e-3], seeded())
    with pytest.raises(ValueError, match="batch_size is 0"):
        train_mlp(small_model(), torch.arange(6), [1e-3], seeded(), batch_size=0)


# Writing


def test_at_temperature_zero_each_id_is_the_likeliest_after_the_last_three():
    model = small_model()
    idx = torch.tensor([[0, 1, 2, 3, 4], [6, 5, 4, 3, 2]])
    ids = sample_mlp(model, idx, 6, seeded(), temperature=0)
    assert torch.equal(ids[:, :5], idx)
    for n in range(5, 11):
        likeliest = model(ids[:, n - 3 : n])[0].argmax(dim=-1)
        assert torch.equal(ids[:, n], likeliest)


def test_what_lies_further_back_than_k_changes_nothing():
    model = small_model()
    one, other = torch.tensor([[0, 0, 1, 2, 3]]), torch.tensor([[5, 6, 1, 2, 3]])
    a, b = (sample_mlp(model, idx, 20, seeded(3)) for idx in (one, other))
    assert torch.equal(a[:, 5:], b[:, 5:])
    assert a.min() >= 0
    assert a.max() < 7


def test_samples_follow_the_probabilities():
    model = small_model()
    idx = torch.tensor([[1, 2, 3]]).repeat(20_000, 1)
    drawn = sample_mlp(model, idx, 1, seeded())[:, -1]
    share = torch.bincount(drawn, minlength=7) / 20_000
    p = model(idx[:1])[0].softmax(dim=-1)[0]
    assert (share - p).abs().max() < 0.015


def test_nothing_new_returns_the_beginning():
    idx = torch.tensor([[0, 1, 2]])
    assert torch.equal(sample_mlp(small_model(), idx, 0, seeded()), idx)


@pytest.mark.parametrize("shape", [(1, 2), (1, 0), (3,), (0, 3)])
def test_a_beginning_shorter_than_k_is_refused(shape):
    with pytest.raises(ValueError, match=r"expected \(B, n\) with n at least k, 3"):
        sample_mlp(small_model(), torch.zeros(shape, dtype=torch.long), 1, seeded())


@pytest.mark.parametrize(("n_new", "temperature"), [(-1, 1.0), (1, -0.5)])
def test_negative_numbers_are_refused(n_new, temperature):
    idx = torch.tensor([[0, 1, 2]])
    with pytest.raises(ValueError, match="expected neither below zero"):
        sample_mlp(small_model(), idx, n_new, seeded(), temperature)


@gpu
def test_everything_follows_the_model_to_another_device():
    model = small_model().cuda()
    ids = (torch.arange(40) % 7).cuda()
    train_mlp(model, ids, [1e-3] * 2, seeded())
    assert mlp_loss(model, ids) > 0
    assert sample_mlp(model, ids[None, :3], 2, seeded()).device.type == "cuda"
