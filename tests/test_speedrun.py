"""Step 9's code: Muon, rotation, the fast model, the schedule, the run."""

import copy
import json
import math
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tinygpt import speedrun
from tinygpt.gpt import GPT
from tinygpt.speedrun import (
    INGREDIENTS,
    FastGPT,
    Muon,
    SpeedConfig,
    newton_schulz,
    optimizers,
    rate_factor,
    rotary_table,
    rotate,
    shift_mix,
    speed_run,
)
from tinygpt.training import TrainConfig, learning_rate
from tools.experiments import step9, step9_times
from tools.pages import ROOT

SIZES = {"V": 11, "T": 8, "d": 16, "H": 2, "L": 2, "hidden": 48}
SMALL = SpeedConfig(bfloat16=False, steps=12, batch_size=4, warmup=2, **SIZES)
quick = settings(max_examples=40, deadline=None)
each_row = pytest.mark.parametrize(
    "switches", step9.recipes().values(), ids=step9.recipes()
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """A text that can be learned: a cycle of ids with some noise in it."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.arange(600) % 7
    noisy = torch.rand(600, generator=generator) < 0.1
    ids[noisy] = torch.randint(11, (int(noisy.sum()),), generator=generator)
    return ids[:500], ids[500:]


def stirred(config: SpeedConfig = SMALL, seed: int = 0) -> FastGPT:
    """A model none of whose parameters is zero, so that every path is open."""
    torch.manual_seed(seed)
    model = FastGPT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


# Newton and Schulz


@quick
@given(
    rows=st.integers(1, 24),
    columns=st.integers(1, 24),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 10_000),
)
def test_singular_values_come_near_one_at_every_shape_and_scale(
    rows, columns, scale, seed
):
    generator = torch.Generator().manual_seed(seed)
    tall, wide = max(rows, columns), min(rows, columns)
    left, _ = torch.linalg.qr(torch.randn(tall, wide, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(wide, wide, generator=generator))
    sizes = torch.rand(wide, generator=generator) * 0.9 + 0.1
    G = scale * left * sizes @ right.mT
    G = G if rows >= columns else G.mT
    values = torch.linalg.svdvals(newton_schulz(G))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_the_directions_stay():
    torch.manual_seed(1)
    left, _ = torch.linalg.qr(torch.randn(6, 6))
    right, _ = torch.linalg.qr(torch.randn(9, 6))
    sizes = torch.tensor([1.0, 0.8, 0.5, 0.3, 0.2, 0.1])
    inside = left.mT @ newton_schulz(left * sizes @ right.mT) @ right
    away = inside - inside.diagonal().diag()
    assert away.abs().max() < 1e-4
    assert (inside.diagonal() > 0.6).all()


def test_a_stack_is_treated_matrix_by_matrix_and_a_transpose_is_transposed():
    torch.manual_seed(2)
    stack = torch.randn(3, 5, 8) * torch.tensor([1e-4, 1.0, 1e4])[:, None, None]
    together = newton_schulz(stack)
    for matrix, result in zip(stack, together, strict=True):
        torch.testing.assert_close(newton_schulz(matrix), result, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(newton_schulz(matrix.mT), newton_schulz(matrix).mT)


def test_zeros_stay_zeros_and_the_format_is_kept():
    assert newton_schulz(torch.zeros(4, 6)).equal(torch.zeros(4, 6))
    torch.manual_seed(3)
    half = newton_schulz(torch.randn(16, 16).bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.linalg.matrix_norm(half.float(), 2) < 1.4


def test_what_is_no_matrix_is_refused_by_its_shape():
    with pytest.raises(ValueError, match=r"shape \(5,\); expected \(\.\.\., rows"):
        newton_schulz(torch.ones(5))
    with pytest.raises(ValueError, match="turns is -1; expected 0"):
        newton_schulz(torch.ones(2, 2), -1)


# Muon


def test_muon_solves_a_badly_scaled_problem_that_plain_descent_does_not():
    torch.manual_seed(4)
    wanted = torch.randn(8, 8)
    stretch = torch.logspace(0, -2, 8)  # of the inputs

    def distance(make, steps=150) -> float:
        weight = nn.Parameter(torch.zeros(8, 8))
        optimizer = make([weight])
        for step in range(steps):
            optimizer.param_groups[0]["lr"] *= (steps - step) / (steps - step + 1)
            loss = (((weight - wanted) * stretch) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return (weight - wanted).norm().item() / wanted.norm().item()

    assert distance(lambda p: Muon(p, lr=0.2)) < 0.15
    assert distance(lambda p: torch.optim.SGD(p, lr=0.5)) > 0.5


def test_one_step_of_muon_has_one_length_whatever_the_gradients():
    for scale in (1e-3, 1e3):
        torch.manual_seed(5)
        square = nn.Parameter(torch.zeros(6, 6))
        tall = nn.Parameter(torch.zeros(54, 6))
        stack = nn.Parameter(torch.zeros(3, 6, 6))
        for p in (square, tall, stack):
            p.grad = torch.randn_like(p) * scale
        Muon([square, tall, stack], lr=0.1).step()
        for matrix in (square, *stack):
            assert 0.05 < torch.linalg.matrix_norm(matrix.detach(), 2) < 0.13
        assert 0.2 < torch.linalg.matrix_norm(tall.detach(), 2) < 0.39  # 3 times as far


def test_muon_looks_one_step_ahead_along_the_running_mean():
    torch.manual_seed(13)
    weight, mean = nn.Parameter(torch.zeros(4, 4)), torch.zeros(4, 4)
    optimizer = Muon([weight], lr=0.1, momentum=0.8)
    for grad in torch.randn(3, 4, 4):
        before = weight.detach().clone()
        weight.grad = grad.clone()
        optimizer.step()
        mean = 0.8 * mean + 0.2 * grad
        wanted = newton_schulz(0.8 * mean + 0.2 * grad)
        torch.testing.assert_close(
            before - weight.detach(), 0.1 * wanted, rtol=1e-3, atol=1e-5
        )
    assert weight.grad.equal(grad)


def test_muon_treats_shapes_together_as_it_treats_each_alone():
    torch.manual_seed(6)
    shapes = [(4, 4), (3, 4, 4), (8, 4), (4, 4)]
    grads = [torch.randn(shape) for shape in shapes]

    def moved(groups) -> list[torch.Tensor]:
        weights = [nn.Parameter(torch.ones(shape)) for shape in shapes]
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad.clone()
        for group in groups:
            optimizer = Muon([weights[i] for i in group], lr=0.1, weight_decay=0.5)
            optimizer.step()
        return [weight.detach() for weight in weights]

    for one, other in zip(
        moved([(0, 1, 2, 3)]), moved([(0,), (1,), (2,), (3,)]), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_muon_leaves_alone_what_has_no_gradient_and_decays_what_has():
    idle, used = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    used.grad = torch.zeros(2, 2)
    Muon([idle, used], lr=0.1, weight_decay=0.5).step()
    assert idle.equal(torch.ones(2, 2))
    torch.testing.assert_close(used.detach(), torch.full((2, 2), 0.95))


def test_muon_goes_on_identically_from_its_state():
    def steps(optimizer, weight, grads) -> None:
        for grad in grads:
            weight.grad = grad.clone()
            optimizer.step()

    torch.manual_seed(7)
    grads = list(torch.randn(6, 4, 4))
    straight = nn.Parameter(torch.zeros(4, 4))
    steps(Muon([straight]), straight, grads)
    first = nn.Parameter(torch.zeros(4, 4))
    before = Muon([first])
    steps(before, first, grads[:3])
    second = nn.Parameter(first.detach().clone())
    after = Muon([second])
    after.load_state_dict(before.state_dict())
    steps(after, second, grads[3:])
    assert second.equal(straight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr -1.0"),
        ({"lr": math.nan}, "lr nan"),
        ({"momentum": 1.0}, "momentum is 1.0; expected 0 to below 1"),
        ({"weight_decay": -0.1}, "weight_decay -0.1"),
        ({"turns": -1}, "turns is -1; expected 0 or more"),
    ],
)
def test_muon_refuses_numbers_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        Muon([nn.Parameter(torch.ones(2, 2))], **options)


def test_muon_refuses_a_vector():
    with pytest.raises(ValueError, match=r"shape \(3,\); Muon expects matrices"):
        Muon([nn.Parameter(torch.ones(3))])


def test_muon_refuses_a_vector_that_comes_later():
    optimizer = speedrun.Muon([nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda old: pickle.loads(pickle.dumps(old))]
)
def test_a_copy_of_muon_steps_as_the_original_does(copied):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 6))
    weight.grad = torch.randn(4, 6)
    optimizer = speedrun.Muon([weight], turns=3, dtype=torch.bfloat16)
    optimizer.step()
    other = copied(optimizer)
    [twin] = other.param_groups[0]["params"]
    twin.grad = weight.grad.clone()
    optimizer.step()
    other.step()
    assert twin is not weight
    assert torch.equal(twin, weight)
    assert other.param_groups[0]["turns"] == 3


# Positions by rotation


@quick
@given(
    s=st.integers(0, 40),
    t=st.integers(0, 40),
    moved=st.integers(0, 23),
    seed=st.integers(0, 10_000),
)
def test_a_score_depends_on_the_distance_only(s, t, moved, seed):
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(seed)).double()
    table = rotary_table(64, 16).double()

    def score(at, other) -> float:
        turned = rotate(torch.stack([q, k]).unsqueeze(1).expand(2, 64, 16), table)
        return (turned[0, at] @ turned[1, other]).item()

    assert score(s, t) == pytest.approx(score(s + moved, t + moved), abs=1e-4)


def test_a_rotation_keeps_lengths_and_leaves_the_first_position_as_it_is():
    torch.manual_seed(8)
    x = torch.randn(2, 3, 20, 8)
    turned = rotate(x, rotary_table(20, 8))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[..., 0, :], x[..., 0, :])
    assert not torch.allclose(turned[..., 1, :], x[..., 1, :])


def test_every_distance_of_the_window_gives_another_score():
    ones = torch.ones(64, 32)
    turned = rotate(ones, rotary_table(64, 32))
    scores = turned @ turned[0]
    gaps = (scores[:, None] - scores).abs() + torch.eye(64) * 9
    assert gaps.min() > 1e-3


def test_an_odd_width_has_no_pairs():
    with pytest.raises(ValueError, match="dh is 7; expected an even number"):
        rotary_table(4, 7)
    with pytest.raises(ValueError, match="d is 12 and H is 4"):
        SpeedConfig(d=12, H=4)


# The letters just before


def test_the_mix_is_the_sum_of_the_positions_before():
    torch.manual_seed(9)
    e, scales = torch.randn(2, 6, 5), torch.randn(4, 5)
    mixed = shift_mix(e, scales)
    for t in range(6):
        wanted = sum(scales[j] * e[:, t - j] for j in range(min(3, t) + 1))
        torch.testing.assert_close(mixed[:, t], wanted)
    torch.testing.assert_close(shift_mix(e[:, :1], scales), e[:, :1] * scales[0])


# The model


@each_row
def test_changing_the_future_changes_nothing_before_it(switches):
    model = stirred(replace(SMALL, **switches))
    torch.manual_seed(10)
    ids = torch.randint(11, (2, 8))
    before = model(ids)[0]
    for t in range(1, 8):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % 11
        after = model(changed)[0]
        assert after[:, :t].equal(before[:, :t])
        assert not torch.allclose(after[:, t], before[:, t])


def test_order_matters_beyond_the_shift_through_rotation_alone():
    rows = torch.tensor([[1, 2, 3, 3, 3, 3, 3, 3], [2, 1, 3, 3, 3, 3, 3, 3]])

    def seen(config: SpeedConfig) -> bool:
        last = stirred(config)(rows)[0][:, -1]
        return not torch.allclose(last[0], last[1], atol=1e-5)

    bare = replace(SMALL, token_shift=False, L=1)
    assert seen(bare)
    model = stirred(replace(bare, rotary=False))
    with torch.no_grad():
        model.pos.weight.zero_()
        last = model(rows)[0][:, -1]
    torch.testing.assert_close(last[0], last[1])


# The windows


def test_a_pass_deals_every_window_once_and_the_next_cuts_elsewhere():
    text = torch.arange(1_000)
    torch.manual_seed(3)
    dealt = speedrun.deal_windows(text, 10, 7)
    starts = [set(), set()]
    for deck in starts:
        for _ in range(99 // 7 if deck is starts[0] else 10):
            inputs, targets = next(dealt)
            assert inputs.shape == targets.shape == (7, 10)
            assert torch.equal(inputs + 1, targets)
            assert torch.equal(inputs, inputs[:, :1] + torch.arange(10))
            new = set(inputs[:, 0].tolist())
            assert len(new) == 7
            assert not new & deck
            deck |= new
    firsts = [{start % 10 for start in deck} for deck in starts]
    assert [len(first) for first in firsts] == [1, 1]
    assert firsts[0] != firsts[1]


def test_the_windows_are_repeated_by_the_seed():
    decks = []
    for _ in range(2):
        torch.manual_seed(8)
        dealt = speedrun.deal_windows(torch.arange(300), 8, 4)
        decks.append(torch.stack([next(dealt)[0] for _ in range(12)]))
    assert torch.equal(*decks)


@pytest.mark.parametrize(
    ("n", "T", "B", "message"),
    [(39, 8, 4, "39 characters"), (100, 0, 4, "T is 0"), (100, 8, -1, "is -1")],
)
def test_windows_that_cannot_be_dealt_are_named(n, T, B, message):
    with pytest.raises(ValueError, match=message):
        next(speedrun.deal_windows(torch.arange(n), T, B))


def test_the_shortest_text_gives_a_batch_wherever_it_is_cut():
    for seed in range(30):
        torch.manual_seed(seed)
        inputs, _ = next(speedrun.deal_windows(torch.arange(40), 8, 4))
        assert inputs.shape == (4, 8)


# The steps to the target


def test_the_steps_to_the_target_lie_between_the_two_runs():
    assert speedrun.steps_to(1.5, [100, 200], [1.4, 1.3]) == 100
    assert speedrun.steps_to(1.5, [100, 200], [1.6, 1.5]) == pytest.approx(200)
    assert speedrun.steps_to(1.5, [100, 400], [1.6, 1.4]) == pytest.approx(200)
    assert speedrun.steps_to(1.5, [100, 200], [1.7, 1.6]) == math.inf


@pytest.mark.parametrize(
    ("lengths", "losses"), [([200, 100], [1, 1]), ([100], [1.0]), ([0, 5], [1, 1])]
)
def test_lengths_that_do_not_rise_are_refused(lengths, losses):
    with pytest.raises(ValueError, match="expected two, not falling"):
        speedrun.steps_to(1.5, lengths, losses)


@each_row
def test_no_recipe_has_more_parameters_than_the_gpt_of_step_5(switches):
    most = sum(p.numel() for p in GPT(65, 64, 128, 4, 4).parameters())
    model = FastGPT(SpeedConfig(**switches))
    assert sum(p.numel() for p in model.parameters()) <= most == 816_640


def test_the_first_guess_is_the_even_one():
    torch.manual_seed(11)
    ids = torch.randint(11, (2, 8))
    _, loss = FastGPT(SMALL)(ids, ids)
    assert loss.item() == pytest.approx(math.log(11))


def test_a_block_begins_as_the_identity_only_with_its_switch():
    x = torch.randn(2, 8, 16)
    assert speedrun.FastBlock(SMALL)(x).equal(x)
    assert not speedrun.FastBlock(replace(SMALL, zero_start=False))(x).equal(x)


def test_the_length_of_a_query_changes_nothing_with_its_switch():
    x = torch.randn(2, 8, 16)
    for normed in (True, False):
        model = stirred(replace(SMALL, qk_norm=normed))
        block = model.blocks[0]
        with torch.no_grad():
            before = block(x)
            block.qkv[:2].mul_(100)  # queries and keys; the epsilon of the norm fades
            after = block(x)
        assert torch.allclose(before, after, atol=1e-2) == normed


def test_ids_that_do_not_fit_are_named():
    model = FastGPT(SMALL)
    with pytest.raises(ValueError, match="9 positions; expected at most T, 8"):
        model(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(ValueError, match="id 11; expected 0 to 10"):
        model(torch.tensor([[11]]))
    with pytest.raises(ValueError, match=r"targets have shape \(1, 2\)"):
        model(torch.tensor([[1]]), torch.tensor([[1, 2]]))


def test_the_model_writes_and_a_prompt_decides_what_comes():
    model = stirred()
    ids = model.generate(torch.tensor([[1, 2, 3]]), 20, temperature=0)
    assert ids.shape == (1, 23)
    again = model.generate(torch.tensor([[1, 2, 3]]), 20, temperature=0)
    assert again.equal(ids)


# The optimisers and the schedule


@pytest.mark.parametrize("muon", [True, False])
def test_every_parameter_has_one_optimiser(muon):
    model = FastGPT(replace(SMALL, muon=muon, rotary=False))
    working = optimizers(model)
    held = [p for o in working for group in o.param_groups for p in group["params"]]
    assert len(held) == len(set(map(id, held)))
    assert {id(p) for p in held} == {id(p) for p in model.parameters()}
    assert isinstance(working[0], Muon) == muon
    matrices = sum(p.numel() for p in working[0].param_groups[0]["params"])
    d, hidden = SMALL.d, SMALL.hidden
    assert matrices == SMALL.L * (4 * d**2 + 2 * d * hidden)


def test_the_rate_rises_at_once_and_falls_in_a_line_to_nearly_zero():
    config = SpeedConfig(steps=200, warmup=20)
    factors = [rate_factor(step, config) for step in range(200)]
    assert 0 < factors[0] < factors[5] < factors[15]
    assert max(factors) <= 1
    falls = [a - b for a, b in zip(factors[30:], factors[31:], strict=False)]
    assert falls == pytest.approx([1 / 200] * len(falls))
    assert factors[-1] == pytest.approx(1 / 200)


def test_without_the_line_the_rate_is_that_of_step_6():
    config = SpeedConfig(steps=200, linear_decay=False)
    plain = TrainConfig(steps=200, warmup=config.warmup)
    for step in (0, 10, 20, 100, 199):
        wanted = learning_rate(step, plain) / plain.max_rate
        assert rate_factor(step, config) == pytest.approx(wanted)


@pytest.mark.parametrize("step", [-1, 200])
def test_a_step_outside_the_run_is_named(step):
    with pytest.raises(ValueError, match=f"step is {step}; expected 0 to 199"):
        rate_factor(step, SpeedConfig(steps=200))


@pytest.mark.parametrize("sizes", [{"steps": 0}, {"batch_size": 0}, {"V": 0}])
def test_a_recipe_that_cannot_be_is_refused(sizes):
    name = next(iter(sizes))
    with pytest.raises(ValueError, match=f"{name} is 0; expected a positive integer"):
        SpeedConfig(**sizes)
    with pytest.raises(ValueError, match="warmup is -1"):
        SpeedConfig(warmup=-1)


# The run


@each_row
def test_every_recipe_learns_a_cycle(switches, data):
    config = replace(SMALL, steps=60, T=8, adam_rate=0.02, **switches)
    _, log = speed_run(config, *data, every=60)
    assert log["examinations"][-1]["validation"] < 0.75 * math.log(11)


def test_a_run_is_repeated_by_its_seed_and_leaves_chance_as_it_was(data):
    torch.manual_seed(12)
    before = torch.get_rng_state()
    model, log = speed_run(SMALL, *data)
    assert torch.get_rng_state().equal(before)
    assert not model.training
    assert speed_run(SMALL, *data)[1]["train_loss"] == log["train_loss"]
    other = speed_run(replace(SMALL, seed=1), *data)[1]
    assert other["train_loss"] != log["train_loss"]


def test_examinations_change_nothing_and_come_when_due(data):
    often, seldom = (speed_run(SMALL, *data, every=n)[1] for n in (5, 99))
    assert often["train_loss"] == seldom["train_loss"]
    assert [e["step"] for e in often["examinations"]] == [5, 10, 12]
    assert [e["step"] for e in seldom["examinations"]] == [12]
    seconds = [e["seconds"] for e in often["examinations"]]
    assert seconds == sorted(seconds)
    with pytest.raises(ValueError, match="every is 0"):
        speed_run(SMALL, *data, every=0)


def test_a_run_that_stops_early_is_the_beginning_of_the_whole(data):
    whole = speed_run(SMALL, *data)[1]
    early = speed_run(SMALL, *data, until=7)[1]
    assert early["train_loss"] == whole["train_loss"][:7]
    assert [e["step"] for e in early["examinations"]] == [7]
    with pytest.raises(ValueError, match="until is 13; expected at most 12"):
        speed_run(SMALL, *data, until=13)


def test_a_loss_that_is_no_number_stops_the_run(data, monkeypatch):
    forward = FastGPT.forward

    def broken(self, idx, targets=None):
        logits, loss = forward(self, idx, targets)
        return logits, None if loss is None else loss * math.nan

    monkeypatch.setattr(FastGPT, "forward", broken)
    with pytest.raises(FloatingPointError, match="the loss of step 0 is nan"):
        speed_run(SMALL, *data)


def test_without_bfloat16_in_the_processor_the_run_is_the_float32_run(
    data, monkeypatch
):
    plain = speed_run(SMALL, *data)[1]
    asked = replace(SMALL, bfloat16=True)
    monkeypatch.setattr(speedrun, "computes_bfloat16", lambda device: False)
    fallen = speed_run(asked, *data)[1]
    assert fallen["train_loss"] == plain["train_loss"]
    assert fallen["bfloat16"] is plain["bfloat16"] is False
    monkeypatch.setattr(speedrun, "computes_bfloat16", lambda device: True)
    half = speed_run(asked, *data)[1]
    assert half["bfloat16"] is True
    assert half["train_loss"] != plain["train_loss"]
    assert half["train_loss"] == pytest.approx(plain["train_loss"], abs=0.1)


def test_a_processor_that_says_nothing_of_itself_gets_float32(monkeypatch):
    processor = torch.device("cpu")
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert speedrun.computes_bfloat16(processor) is False
    said = {"avx2": True, "avx512_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: said, raising=False)
    assert speedrun.computes_bfloat16(processor) is True
    said["avx512_bf16"] = False
    assert speedrun.computes_bfloat16(processor) is False


# The experiments


def test_the_rows_of_the_experiments_take_away_one_ingredient_each():
    rows = step9.recipes()
    assert rows[step9.RECORD] == {}
    assert rows[step9.NOTHING] == dict.fromkeys(INGREDIENTS, False)
    assert [rows[f"without {name}"] for name in INGREDIENTS] == [
        {name: False} for name in INGREDIENTS
    ]
    assert rows[step9.ADDED] == {"qk_norm": True}
    switches = {k: v for k, v in vars(SpeedConfig()).items() if isinstance(v, bool)}
    assert switches == dict.fromkeys(INGREDIENTS, True) | {"qk_norm": False}


def test_the_rows_that_miss_the_target_were_run_for_longer():
    path = ROOT / "data" / "reference" / step9.LOG
    runs = json.loads(path.read_text("utf-8"))["runs"]
    missed = set()
    for row in step9.recipes():
        ends = [runs[f"{row}, seed {s}"]["validation_whole"] for s in step9.SEEDS]
        if sum(ends) > speedrun.TARGET * len(ends):
            missed.add(row)
    assert missed - {step9.NOTHING} == set(step9.MISSED)
    assert runs.keys() == step9.runs(ROOT).keys()
    for name, run in runs.items():
        assert run["validation_whole"] == run["examinations"][-1]["validation"]
        assert len(run["train_loss"]) == run["steps"]
        assert f"seed {run['seed']}" in name


def test_a_run_of_the_experiments_says_what_came_of_it(data):
    result = step9.one_run(data, {"muon": False}, 3, steps=4, batch_size=4, **SIZES)
    assert (result["seed"], result["steps"]) == (3, 4)
    assert result["switches"] == {"muon": False}
    assert result["validation_whole"] == result["examinations"][-1]["validation"]
    assert len(result["train_loss"]) == 4


def test_the_times_have_every_row_and_the_reference(data, monkeypatch):
    rounds = iter((3.0, 2.0, 4.0))
    monkeypatch.setattr(
        step9_times, "reference_seconds", lambda data, steps: next(rounds)
    )
    monkeypatch.setattr(
        step9_times, "speed_seconds", lambda data, switches, steps: float(len(switches))
    )
    times = step9_times.step_times(data, rounds=3)["step_seconds"]
    assert set(times) == {step9_times.REFERENCE, *step9.recipes()}
    assert times[step9_times.REFERENCE] == 2  # the fastest round
    assert times[step9.RECORD] == 0
    assert times[step9.NOTHING] == len(INGREDIENTS)


def test_the_times_are_taken_under_the_threads_of_the_reference_run():
    seen = []
    result = step9_times.with_threads(
        lambda: seen.append(torch.get_num_threads()) or {"x": 1}
    )
    assert seen == [step9_times.THREADS]
    assert result == {"x": 1, "threads": step9_times.THREADS}
    assert torch.get_num_threads() == 1
