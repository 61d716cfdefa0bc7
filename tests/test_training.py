"""Training: the schedule, the split, the loop, and what is measured around it."""

import math

import pytest
import torch
from chapter2 import (
    SMALL,
    alice_stream,
    alice_tokenizer,
    chapter_model,
    gpu,
    one_thread,  # noqa: F401
    quick,
    random_tokens,
    small_model,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tinygpt.transformer import (
    TinyGPT,
    attention_weights,
    heldout_loss,
    longest_copied_span,
    lr_schedule,
    next_token_batch,
    train_model,
)

PEAK = 3e-3


def split() -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.tensor(alice_stream())
    n_train = int(0.85 * len(data))
    return data[:n_train], data[n_train:]


def small_data() -> tuple[torch.Tensor, torch.Tensor]:
    data = random_tokens(120)
    return data[:90], data[90:]


def train(model: TinyGPT, **options):
    """A short run on a small stream."""
    return train_model(
        model, *small_data(), **({"steps": 6, "batch_size": 3} | options)
    )


def tensors(model: TinyGPT) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


# The schedule


def test_the_chapters_schedule_warms_up_20_steps_and_ends_at_a_tenth():
    rates = [lr_schedule(step, 400, PEAK) for step in range(400)]
    for step in range(20):
        assert rates[step] == pytest.approx(PEAK * (step + 1) / 20, rel=1e-12)
    assert rates[0] == pytest.approx(1.5e-4, rel=1e-12)
    assert rates[19] == rates[20] == max(rates) == PEAK
    for step in range(20, 400):
        cosine = (1 + math.cos(math.pi * (step - 20) / 379)) / 2
        assert rates[step] == pytest.approx(PEAK * (0.1 + 0.9 * cosine), rel=1e-12)
    assert f"{rates[209]:.2e}" == "1.66e-03"
    assert rates[399] == pytest.approx(PEAK / 10, rel=1e-12)


@quick
@given(total=st.integers(1, 300), peak=st.floats(1e-6, 10))
def test_every_schedule_moves_at_once_rises_to_its_peak_and_falls(total, peak):
    rates = [lr_schedule(step, total, peak) for step in range(total)]
    warmup = max(1, total // 20)
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    assert rates[warmup - 1] == pytest.approx(peak)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


@quick
@given(total=st.integers(1, 300), late=st.integers(0, 1000))
def test_every_schedule_has_a_tenth_of_the_peak_after_the_end(total, late):
    assert lr_schedule(total + late, total, PEAK) == pytest.approx(PEAK / 10)


@pytest.mark.parametrize("total", [2, 3, 4, 19, 20, 21, 39, 40, 41, 400])
def test_the_last_step_of_a_schedule_has_a_tenth_of_the_peak(total):
    assert lr_schedule(total - 1, total, PEAK) == pytest.approx(PEAK / 10)


def test_a_schedule_of_one_step_takes_it_at_the_peak():
    assert lr_schedule(0, 1, PEAK) == PEAK
    assert lr_schedule(1, 1, PEAK) == pytest.approx(PEAK / 10)


@pytest.mark.parametrize(("step", "total"), [(-1, 10), (0, 0), (0, -5), (-1, -1)])
def test_a_step_or_a_run_that_cannot_be_is_named(step, total):
    with pytest.raises(ValueError, match=rf"step {step} of {total}\b.*expected"):
        lr_schedule(step, total, PEAK)


# The held-out loss


def test_the_split_is_3325_training_tokens_and_587_held_out():
    train_data, heldout_data = split()
    assert (len(train_data), len(heldout_data)) == (3325, 587)
    assert round(139_776 / len(train_data)) == 42


def test_the_held_out_loss_is_the_mean_over_four_spread_windows():
    _, data = split()
    model = chapter_model()
    with torch.no_grad():
        losses = [
            model(data[None, s : s + 128], data[None, s + 1 : s + 129])[1].item()
            for s in (0, 152, 305, 458)  # linspace(0, 587 - 129, 4), cut to integers
        ]
    assert heldout_loss(model, data) == pytest.approx(sum(losses) / 4, abs=1e-5)
    assert f"{heldout_loss(model, data):.2f}" == "6.25"


class Window(nn.Module):
    """Stands where a model does and remembers which tokens it was shown."""

    def __init__(self, block_size: int) -> None:
        super().__init__()
        self.config = type("Config", (), {"block_size": block_size})
        self.token_embedding = nn.Embedding(1, 1)

    def forward(self, tokens, targets):
        self.tokens, self.targets = tokens, targets
        return None, torch.tensor(0.0), None


@quick
@given(
    block_size=st.integers(1, 12), spare=st.integers(1, 40), n_windows=st.integers(1, 6)
)
def test_held_out_windows_are_pieces_of_the_data_from_end_to_end(
    block_size, spare, n_windows
):
    data = torch.arange(1000, 1000 + block_size + spare)
    model = Window(block_size)
    heldout_loss(model, data, n_windows)
    assert model.tokens.shape == (n_windows, block_size)
    assert torch.equal(model.targets, model.tokens + 1)
    assert torch.equal(
        model.tokens - model.tokens[:, :1], model.tokens * 0 + torch.arange(block_size)
    )
    assert model.tokens[0, 0] == data[0]
    if n_windows > 1:
        assert model.targets[-1, -1] == data[-1]


def test_held_out_windows_stay_within_a_stream_of_many_millions():
    """Starts beyond 2**24 are no longer exact in single precision."""
    data = torch.zeros(1, dtype=torch.long).expand(2**24 + 12)
    model = Window(block_size=8)
    heldout_loss(model, data)
    assert model.targets.shape == (4, 8)


@pytest.mark.parametrize("length", [0, 1, 7, 8])
def test_held_out_data_too_short_is_named_with_what_it_takes(length):
    message = f"block_size is 8 .*held-out stream has {length} tokens.*at least 9"
    with pytest.raises(ValueError, match=message):
        heldout_loss(small_model(), random_tokens(length))


def test_the_shortest_held_out_data_gives_the_loss_of_its_one_window():
    model, data = small_model(), random_tokens(9)
    expected = model(data[None, :-1], data[None, 1:])[1].item()
    assert heldout_loss(model, data) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_measuring_restores_the_mode_and_touches_no_chance(training):
    model = small_model().train(training)
    state = torch.get_rng_state()
    heldout_loss(model, random_tokens(30))
    attention_weights(model, random_tokens(5))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training is training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "measure",
    [
        lambda model: heldout_loss(model, random_tokens(30)),
        lambda model: attention_weights(model, random_tokens(5), layer=1),
    ],
)
def test_the_mode_is_restored_when_measuring_fails(training, measure):
    def fail(*_):
        raise RuntimeError("out of memory")

    model = small_model().train(training)
    model.blocks[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure(model)
    with pytest.raises(ValueError, match="held-out"):
        heldout_loss(model, random_tokens(3))
    with pytest.raises(ValueError, match="layer"):
        attention_weights(model, [1], layer=5)
    assert all(module.training is training for module in model.modules())


# The loop


def test_the_first_loss_of_the_chapters_run():
    train_data, _ = split()
    batch = next_token_batch(train_data, 128, 16, torch.Generator().manual_seed(7))
    with torch.no_grad():
        loss = chapter_model()(*batch)[1].item()
    assert loss == pytest.approx(6.261, abs=1e-3)
    assert abs(loss - math.log(512)) < 0.1


def test_the_loop_is_the_plain_recipe_step_by_step():
    history = train(small_model())
    model, generator = small_model(), torch.Generator().manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.01)
    losses = []
    for step in range(6):
        optimizer.param_groups[0]["lr"] = lr_schedule(step, 6, 3e-3)
        batch = next_token_batch(small_data()[0], 8, 3, generator)
        loss = model(*batch)[1]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert history.train_loss == losses
    assert history.heldout_loss[-1] == heldout_loss(model, small_data()[1])


class Recorder(torch.optim.AdamW):
    """AdamW that keeps what it was given and what it sees at each step."""

    made: list["Recorder"]

    def __init__(self, parameters, **options):
        parameters = list(parameters)
        super().__init__(parameters, **options)
        self.given, self.options = parameters, options
        self.rates, self.norms = [], []
        Recorder.made.append(self)

    def step(self, closure=None):
        self.rates.append([group["lr"] for group in self.param_groups])
        grads = [parameter.grad.norm() for parameter in self.given]
        self.norms.append(torch.stack(grads).norm().item())
        return super().step(closure)


@pytest.fixture
def recorder(monkeypatch):
    Recorder.made = []
    monkeypatch.setattr(torch.optim, "AdamW", Recorder)
    return Recorder.made


def test_every_parameter_is_trained_once_and_decayed_alike(recorder):
    model = small_model()
    train(model, steps=40)
    (optimizer,) = recorder
    (group,) = optimizer.param_groups
    given = [id(parameter) for parameter in group["params"]]
    assert len(given) == len(set(given))  # the tied matrix once
    assert set(given) == {id(parameter) for parameter in model.parameters()}
    assert id(model.lm_head.weight) in given
    assert group["weight_decay"] == 0.01
    plain = torch.optim.Adam(model.parameters()).defaults
    assert (group["betas"], group["eps"]) == (plain["betas"], plain["eps"])
    assert optimizer.rates == [[lr_schedule(step, 40, 3e-3)] for step in range(40)]


def test_a_long_gradient_is_cut_to_one_and_a_short_one_left_alone(recorder):
    model = small_model()
    with torch.no_grad():
        model.token_embedding.weight.mul_(20)
    train(model)
    (optimizer,) = recorder
    assert optimizer.norms == pytest.approx([1.0] * 6, rel=1e-4)
    quiet = TinyGPT(SMALL)
    with torch.no_grad():
        for parameter in quiet.parameters():
            parameter.mul_(0.01)  # even guesses through shut gains: short gradients
    train(quiet)
    assert all(0 < norm < 0.99 for norm in recorder[1].norms)


def test_the_first_step_already_moves_every_parameter():
    model = small_model()
    before = tensors(model)
    train(model, steps=1)
    moved = [not torch.equal(a, b) for a, b in zip(before, tensors(model))]
    assert all(moved)


def test_training_twice_gives_the_same_run_to_the_last_bit():
    first, second = small_model(), small_model()
    assert train(first) == train(second)
    assert all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second)))


def test_another_seed_draws_other_batches():
    runs = [train(small_model(), seed=seed).train_loss for seed in (7, 8)]
    assert runs[0] != runs[1]


def test_measuring_more_often_changes_nothing_that_is_learned():
    runs = [train(small_model(), eval_every=every) for every in (1, 2, 100)]
    assert runs[0].train_loss == runs[1].train_loss == runs[2].train_loss
    assert runs[0].heldout_loss[-1] == runs[2].heldout_loss[-1]
    assert [run.heldout_steps for run in runs] == [
        [0, 1, 2, 3, 4, 5, 6],
        [0, 2, 4, 6],
        [0, 6],
    ]


def test_training_neither_uses_nor_touches_the_global_chance():
    model, other = small_model(), small_model()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = train(model)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert train(other) == first


@pytest.mark.parametrize("training", [True, False])
def test_training_keeps_mode_tie_and_data(training):
    model = small_model().train(training)
    train_data, heldout_data = small_data()
    train_model(model, train_data, heldout_data, steps=3, batch_size=2)
    assert model.training is training
    assert model.lm_head.weight is model.token_embedding.weight
    assert torch.equal(train_data, small_data()[0])
    assert torch.equal(heldout_data, small_data()[1])


def test_a_sample_can_be_taken_after_each_step_without_a_trace():
    model, done = small_model(), []

    def sample(step: int) -> None:
        done.append((step, model.generate([1], 5, temperature=1.0).tolist()))

    history = train(model, after_step=sample)
    assert [step for step, _ in done] == [1, 2, 3, 4, 5, 6]
    assert history == train(small_model())


def test_a_small_model_learns_a_text_that_repeats():
    data = torch.arange(4).repeat(30)
    history = train_model(
        small_model(), data, data[:40], steps=60, batch_size=8, eval_every=20
    )
    assert history.train_loss[0] > 1.0
    assert history.final_train_loss() < math.log(4) / 2  # it knows the order
    assert history.heldout_loss[-1] < history.heldout_loss[0]


def test_the_history_tells_the_best_step_and_the_mean_of_the_last_ten():
    history = train(small_model(), steps=12, eval_every=3)
    step, loss = history.best()
    assert loss == min(history.heldout_loss)
    assert history.heldout_loss[history.heldout_steps.index(step)] == loss
    assert history.final_train_loss() == pytest.approx(sum(history.train_loss[2:]) / 10)


@pytest.mark.parametrize(("n_train", "n_heldout"), [(9, 30), (30, 8), (0, 30)])
def test_a_stream_too_short_to_train_or_measure_is_named(n_train, n_heldout):
    model = small_model()
    before = tensors(model)
    wrong = n_train if n_train < 10 else n_heldout
    with pytest.raises(ValueError, match=rf"block_size is 8 .* {wrong} tokens"):
        train_model(model, random_tokens(n_train), random_tokens(n_heldout), steps=2)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors(model)))


def test_targets_that_are_not_shifted_give_themselves_away_before_training():
    """The tied head recognises each token's own embedding: far below ln V at once."""
    data = torch.tensor(alice_stream())
    generator = torch.Generator().manual_seed(11)
    inputs, targets = next_token_batch(data, 8, 4, generator)
    model = chapter_model()
    with torch.no_grad():
        sound, leaked = model(inputs, targets)[1], model(inputs, inputs)[1]
    assert abs(sound - math.log(512)) < 0.1
    assert leaked < math.log(512) - 0.5


# Looking at attention


def test_the_pattern_of_the_chapters_passage():
    passage = alice_tokenizer().encode("The rabbit-hole went straight on like a tunnel")
    weights = attention_weights(chapter_model(), passage)
    assert weights.shape == (4, 19, 19)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, 19))
    assert (weights.triu(diagonal=1) == 0).all()
    assert (weights.tril(diagonal=-1).amax(dim=-1)[0, 1:] < 0.5).all()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_weights_shown_are_those_that_the_model_uses(training, layer):
    model = small_model().train(training)
    attention = model.blocks[layer].attention
    used, attend = [], attention.attend

    def watched(*arguments):
        output, weights = attend(*arguments)
        used.append(weights)
        return output, weights

    attention.attend = watched
    tokens = random_tokens(1, 8)
    model(tokens)
    shown = attention_weights(model, tokens[0], layer)
    assert torch.equal(shown, used[0][0])
    assert shown.shape == (2, 8, 8)
    torch.testing.assert_close(shown.sum(dim=-1), torch.ones(2, 8))
    assert (shown.triu(diagonal=1) == 0).all()
    assert (shown[:, 0, 0] == 1.0).all()
    assert not shown.requires_grad


@pytest.mark.parametrize("layer", [-1, 2, 99])
def test_a_layer_that_the_model_lacks_is_named(layer):
    with pytest.raises(ValueError, match=rf"layer is {layer}; expected 0 to 1"):
        attention_weights(small_model(), [1, 2], layer)


@pytest.mark.parametrize("token", [-1, 40])
def test_a_token_that_the_model_lacks_is_named(token):
    with pytest.raises(ValueError, match=rf"token id {token}\b.*0 to 39"):
        attention_weights(small_model(), [1, token])


@pytest.mark.parametrize("tokens", [[], [[1, 2], [3]], [1.5], [1] * 9, "Alice", 5])
def test_a_sequence_that_cannot_be_shown_is_refused(tokens):
    with pytest.raises(ValueError, match=r"prompt|tokens"):
        attention_weights(small_model(), tokens)


def test_a_batch_is_refused_and_not_cut_to_its_first_row():
    with pytest.raises(ValueError, match=r"shape|batch|one sequence"):
        attention_weights(small_model(), random_tokens(2, 4))


# What was copied


@quick
@given(text=st.text("ab ", max_size=12), corpus=st.text("ab ", max_size=30))
def test_the_longest_copied_span_is_the_longest_there_is(text, corpus):
    spans = [text[i:j] for i in range(len(text)) for j in range(i, len(text) + 1)]
    span = longest_copied_span(text, corpus)
    assert span in text
    assert span in corpus
    assert len(span) == max((len(s) for s in spans if s in corpus), default=0)


# Devices


@gpu
def test_measures_on_the_gpu_take_data_from_the_cpu():
    model = small_model()
    data, tokens = random_tokens(60), random_tokens(6)
    loss, weights = heldout_loss(model, data), attention_weights(model, tokens, 1)
    model.cuda()
    assert heldout_loss(model, data) == pytest.approx(loss, abs=1e-4)
    assert heldout_loss(model, data.cuda()) == pytest.approx(loss, abs=1e-4)
    there = attention_weights(model, tokens, 1)
    assert there.device.type == "cpu"
    torch.testing.assert_close(there, weights, atol=1e-4, rtol=1e-4)


@gpu
def test_a_model_trains_on_the_gpu():
    train_data, heldout_data = (part.cuda() for part in small_data())
    model = small_model().cuda()
    history = train_model(model, train_data, heldout_data, steps=5, batch_size=3)
    assert history.train_loss[0] == pytest.approx(
        train(small_model()).train_loss[0], abs=1e-3
    )
