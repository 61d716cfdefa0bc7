"""Step 7's samplers: what is kept, what is refused, in which order, and the writing."""

import inspect
import math

import pytest
import torch
from chapter2 import gpu, one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tinygpt import sampling
from tinygpt.gpt import GPT
from tinygpt.sampling import (
    PowerLaw,
    apply_temperature,
    check_logits,
    fit_power_law,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    sample,
    sampling_probabilities,
    write,
)

HALF = [torch.float16, torch.bfloat16]
TYPES = [*HALF, torch.float32, torch.float64]
INF = math.inf

# Logits with many ties and some dropped entries, never all of them.
scores = st.lists(
    st.one_of(st.integers(-4, 4).map(float), st.floats(-30, 30), st.just(-INF)),
    min_size=1,
    max_size=12,
).filter(lambda values: any(value > -INF for value in values))
shares = st.floats(0, 1)
counts = st.integers(1, 15)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ids_kept(logits: Tensor) -> set[int]:
    assert logits.dim() == 1
    return set((logits > -INF).nonzero().flatten().tolist())


def of(*probabilities: float) -> Tensor:
    return tensor(list(probabilities)).log()


def small_model(T: int = 8) -> GPT:
    torch.manual_seed(0)
    model = GPT(7, T, 16, 2, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    return model


# Every truncation


TRUNCATIONS = {
    "top-k": (keep_top_k, counts),
    "top-p": (keep_top_p, shares),
    "min-p": (keep_min_p, shares),
}


@pytest.mark.parametrize("name", TRUNCATIONS)
@quick
@given(values=scores, data=st.data())
def test_kept_logits_are_unchanged_and_one_likeliest_is_among_them(name, values, data):
    keep, settings = TRUNCATIONS[name]
    logits = tensor(values)
    before = logits.clone()
    out = keep(logits, data.draw(settings))
    assert torch.equal(logits, before)
    kept = ids_kept(out)
    assert kept
    assert kept <= ids_kept(logits)
    assert all(out[i] == logits[i] for i in kept)
    assert out.argmax() == logits.argmax()


@pytest.mark.parametrize("name", TRUNCATIONS)
@quick
@given(values=scores, data=st.data())
def test_nothing_kept_is_less_likely_than_something_dropped(name, values, data):
    keep, settings = TRUNCATIONS[name]
    logits = tensor(values)
    kept = ids_kept(keep(logits, data.draw(settings)))
    dropped = ids_kept(logits) - kept
    assert all(logits[i] >= logits[j] for i in kept for j in dropped)


@pytest.mark.parametrize("name", TRUNCATIONS)
@quick
@given(values=scores, data=st.data())
def test_kept_sets_are_nested(name, values, data):
    """More with a larger k or p, less with a larger min-p."""
    keep, settings = TRUNCATIONS[name]
    low, high = sorted((data.draw(settings), data.draw(settings)))
    few, many = (ids_kept(keep(tensor(values), x)) for x in (low, high))
    if name == "min-p":
        few, many = many, few
    assert few <= many


@pytest.mark.parametrize("name", TRUNCATIONS)
@quick
@given(values=scores, data=st.data())
def test_twice_is_once_or_less(name, values, data):
    """Top-k and min-p find nothing more to drop; top-p, renormalised, may."""
    keep, settings = TRUNCATIONS[name]
    setting = data.draw(settings)
    once = keep(tensor(values), setting)
    twice = keep(once, setting)
    if name == "top-p":
        assert ids_kept(twice) <= ids_kept(once)
    else:
        assert torch.equal(twice, once)


@pytest.mark.parametrize("name", TRUNCATIONS)
def test_rows_do_not_know_of_each_other(name):
    keep, _ = TRUNCATIONS[name]
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 9)
    setting = 4 if name == "top-k" else 0.3
    out = keep(logits, setting)
    assert out.shape == (2, 3, 9)
    for b in range(2):
        for t in range(3):
            assert torch.equal(out[b, t], keep(logits[b, t], setting))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", TRUNCATIONS)
def test_the_type_is_kept_and_the_result_is_new(name, dtype):
    keep, _ = TRUNCATIONS[name]
    logits = torch.tensor([3.0, 1.0, -2.0], dtype=dtype)
    for setting in (1, 3) if name == "top-k" else (0, 0.5, 1):
        out = keep(logits, setting)
        assert out.dtype == dtype
        assert out.data_ptr() != logits.data_ptr()


@pytest.mark.parametrize("bad", [[0.0, math.nan], [0.0, INF], [-INF, -INF], []])
def test_unusable_logits_are_refused_by_everybody(bad):
    logits = torch.tensor(bad)
    calls = [
        lambda: check_logits(logits),
        lambda: apply_temperature(logits, 0),
        lambda: apply_temperature(logits, 1),
        lambda: keep_top_k(logits, 1),
        lambda: keep_top_p(logits, 1),
        lambda: keep_min_p(logits, 0),
        lambda: penalise_repetition(logits, torch.tensor([0]), 1.1),
        lambda: sampling_probabilities(logits),
        lambda: sample(logits),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="logits"):
            call()


def test_one_bad_row_is_enough():
    rows = torch.tensor([[0.0, 1.0], [-INF, -INF]])
    with pytest.raises(ValueError, match="all -inf"):
        sample(rows)


@pytest.mark.parametrize("bad", [torch.tensor([1, 2]), torch.tensor(1.0)])
def test_integers_and_single_numbers_are_no_logits(bad):
    with pytest.raises(ValueError, match="expected floating-point"):
        check_logits(bad)


# Temperature


@quick
@given(scores, st.floats(0.05, 20))
def test_temperature_raises_ratios_to_one_over_t(values, T):
    logits = tensor(values)
    p = logits.softmax(-1)
    expected = p ** (1 / T) / (p ** (1 / T)).sum()
    actual = apply_temperature(logits, T).softmax(-1)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)


@quick
@given(scores, st.floats(0.05, 5), st.floats(0.05, 5))
def test_entropy_never_falls_with_temperature(values, one, two):
    low, high = sorted((one, two))
    cold, hot = (
        torch.special.entr(apply_temperature(tensor(values), T).softmax(-1)).sum()
        for T in (low, high)
    )
    assert cold <= hot + 1e-9


def test_temperature_zero_is_argmax_and_takes_the_first_of_equals():
    assert apply_temperature(tensor([1, 3, 3]), 0).tolist() == [-INF, 0, -INF]
    p = sampling_probabilities(torch.randn(5, 9), temperature=0)
    assert p.sum(-1).tolist() == [1.0] * 5
    assert p.max(-1).values.tolist() == [1.0] * 5


def test_the_limit_of_small_temperatures_shares_among_equals():
    p = apply_temperature(tensor([1, 3, 3]), 1e-9).softmax(-1)
    assert p.tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("T", [1e-320, 1e-40, 1e-3, 1e30])
def test_extreme_temperatures_give_no_nan(dtype, T):
    logits = torch.tensor([-3e4, 3e4, 6e4, -INF], dtype=dtype)
    p = sampling_probabilities(logits, temperature=T)
    assert p.isfinite().all()
    assert p.argmax() == (2 if T < 1e20 else 0)  # very hot: all alike
    assert p[3] == 0


@pytest.mark.parametrize("T", [-1, -1e-9, INF, math.nan])
def test_bad_temperatures_are_refused(T):
    with pytest.raises(ValueError, match=f"temperature is {T}"):
        apply_temperature(torch.zeros(3), T)


def test_the_example_of_the_docstring():
    assert apply_temperature(torch.tensor([0.0, 2.0]), 0.5).tolist() == [-4, 0]


# Top-k


@quick
@given(scores, counts)
def test_exactly_k_are_kept_or_all_there_are(values, k):
    logits = tensor(values)
    assert len(ids_kept(keep_top_k(logits, k))) == min(k, len(ids_kept(logits)))


def test_ties_go_to_the_lower_ids():
    logits = torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0])
    assert ids_kept(keep_top_k(logits, 3)) == {1, 2, 4}
    assert ids_kept(keep_top_k(logits, 4)) == {1, 2, 3, 4}
    assert ids_kept(keep_top_k(torch.zeros(500), 3)) == {0, 1, 2}


@quick
@given(scores)
def test_k_of_one_is_greedy_even_with_two_maxima(values):
    logits = tensor(values)
    assert ids_kept(keep_top_k(logits, 1)) == {int(logits.argmax())}


@pytest.mark.parametrize("k", [5, 6, 50])
def test_a_k_of_v_or_more_is_no_filter(k):
    logits = torch.randn(5)
    assert torch.equal(keep_top_k(logits, k), logits)


@pytest.mark.parametrize("k", [0, -1, 2.0, None])
def test_bad_k_is_refused(k):
    with pytest.raises(ValueError, match=r"k is .* expected a positive integer"):
        keep_top_k(torch.zeros(5), k)


# Top-p


@quick
@given(scores, shares)
def test_the_mass_is_reached_and_not_without_the_last(values, p):
    logits = tensor(values)
    kept = sorted(ids_kept(keep_top_p(logits, p)), key=lambda i: (-logits[i], i))
    probabilities = logits.softmax(-1)
    if p < 1:
        assert probabilities[kept].sum() >= p - 1e-9
        assert len(kept) == 1 or probabilities[kept[:-1]].sum() < p + 1e-9


def test_the_nucleus_by_hand():
    logits = of(0.2, 0.5, 0.3)
    for p, kept in ((0, {1}), (0.4, {1}), (0.6, {1, 2}), (0.79, {1, 2})):
        assert ids_kept(keep_top_p(logits, p)) == kept
    assert ids_kept(keep_top_p(logits, 0.9)) == ids_kept(keep_top_p(logits, 1))


def test_equals_are_taken_from_the_lower_id_on():
    assert ids_kept(keep_top_p(torch.zeros(8), 0.5)) == {0, 1, 2, 3}
    assert ids_kept(keep_top_p(torch.zeros(8), 0.51)) == {0, 1, 2, 3, 4}


def test_p_of_one_keeps_even_what_rounding_hides():
    logits = torch.tensor([0.0, -40.0, -90.0])  # float32 sums reach 1 at the first
    assert torch.equal(keep_top_p(logits, 1), logits)
    assert ids_kept(keep_top_p(logits, 0.999)) == {0}


@pytest.mark.parametrize("dtype", HALF)
def test_the_nucleus_of_a_long_flat_row_in_half_precision(dtype):
    """Two thousand masses of 1/2048 added in half precision would stop growing."""
    kept = keep_top_p(torch.zeros(2048, dtype=dtype), 0.75)
    assert (kept == 0).sum() == 1536


# Min-p


def test_min_p_by_hand():
    logits = of(0.5, 0.3, 0.2)
    for p, kept in ((0, {0, 1, 2}), (0.3, {0, 1, 2}), (0.5, {0, 1}), (0.7, {0})):
        assert ids_kept(keep_min_p(logits, p)) == kept


@quick
@given(scores, st.floats(0.01, 1))
def test_equals_share_their_fate(values, p):
    logits = tensor(values)
    kept = ids_kept(keep_min_p(logits, p))
    for i in kept:
        assert {j for j in range(len(values)) if logits[j] == logits[i]} <= kept


def test_p_of_one_keeps_all_maxima():
    assert ids_kept(keep_min_p(tensor([3, 1, 3]), 1)) == {0, 2}


@pytest.mark.parametrize("keep", [keep_top_p, keep_min_p])
@pytest.mark.parametrize("p", [-0.1, 1.1, 50, math.nan])
def test_shares_outside_zero_to_one_are_refused(keep, p):
    with pytest.raises(ValueError, match=f"p is {p}; expected a number from 0 to 1"):
        keep(torch.zeros(3), p)


# All of it at once


@quick
@given(scores, st.floats(0, 3), counts, shares, shares)
def test_probabilities_are_probabilities(values, T, k, p, m):
    p = sampling_probabilities(tensor(values), T, k, p, m)
    assert (p >= 0).all()
    assert p.sum().item() == pytest.approx(1)
    assert p.count_nonzero() <= k


@quick
@given(scores, counts, shares, shares)
def test_the_ratios_of_what_is_kept_are_the_models(values, k, p, m):
    """Renormalising is the projection: nothing but a common factor changes."""
    model = tensor(values).softmax(-1)
    drawn = sampling_probabilities(tensor(values), 1.0, k, p, m)
    kept = drawn > 0
    factor = 1 / model[kept].sum()
    torch.testing.assert_close(drawn[kept], model[kept] * factor)


@quick
@given(scores, st.floats(0.1, 3), st.floats(0.05, 0.95))
def test_the_order_is_temperature_then_truncation(values, T, p):
    logits = tensor(values)
    expected = keep_top_p(apply_temperature(logits, T), p).softmax(-1)
    assert torch.equal(sampling_probabilities(logits, T, top_p=p), expected)


def test_the_order_matters_for_top_p():
    logits = of(0.5, 0.25, 0.15, 0.1)
    after = sampling_probabilities(logits, 2.0, top_p=0.7)
    before = apply_temperature(keep_top_p(logits, 0.7), 2.0).softmax(-1)
    assert (after.count_nonzero(), before.count_nonzero()) == (3, 2)


def test_top_p_reads_the_mass_that_top_k_left():
    logits = of(0.4, 0.3, 0.2, 0.1)
    p = sampling_probabilities(logits, top_k=2, top_p=0.55)
    assert p.count_nonzero() == 1  # 0.4 of 0.7 is more than 0.55


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_sums_to_one_and_keeps_its_type(dtype):
    torch.manual_seed(0)
    p = sampling_probabilities(torch.randn(4, 65).to(dtype), 0.7, 20, 0.9, 0.01)
    assert p.dtype == dtype
    torch.testing.assert_close(p.float().sum(-1), torch.ones(4), rtol=0, atol=0.01)


@pytest.mark.parametrize("V", [1, 9])
def test_a_single_finite_logit_is_certain(V):
    logits = torch.full((V,), -INF)
    logits[-1] = -7
    for options in ({}, {"temperature": 0}, {"top_k": 3, "top_p": 0.5, "min_p": 1}):
        assert sampling_probabilities(logits, **options)[-1] == 1
        assert sample(logits, **options) == V - 1


# Drawing


def test_draws_follow_the_probabilities_and_hit_nothing_dropped():
    logits = of(0.4, 0.3, 0.2, 0.1).float()
    generator = torch.Generator().manual_seed(0)
    ids = sample(logits.expand(20_000, 4), generator, top_k=3)
    assert ids.shape == (20_000,)
    frequencies = torch.bincount(ids, minlength=4) / 20_000
    expected = torch.tensor([4, 3, 2, 0]) / 9
    torch.testing.assert_close(frequencies, expected, rtol=0, atol=0.015)
    assert frequencies[3] == 0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_one_id_for_each_row(shape):
    ids = sample(torch.randn(*shape, 5))
    assert ids.shape == shape
    assert ids.dtype == torch.int64


def test_a_generator_leaves_the_global_one_alone_and_repeats_itself():
    state = torch.get_rng_state()
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    draws = [sample(logits, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*draws)
    assert torch.equal(torch.get_rng_state(), state)


# Repetition


def test_the_penalty_by_hand_counts_a_symbol_once():
    logits = torch.tensor([2.0, -1.0, 0.0, 3.0])
    out = penalise_repetition(logits, torch.tensor([0, 0, 1, 2]), 2.0)
    assert out.tolist() == [1.0, -2.0, 0.0, 3.0]
    assert logits.tolist() == [2.0, -1.0, 0.0, 3.0]


@quick
@given(scores, st.floats(1, 5), st.data())
def test_a_penalty_above_one_never_raises_a_seen_symbol(values, penalty, data):
    logits = tensor(values)
    seen = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=5))
    ids = torch.tensor(seen, dtype=torch.int64)
    out = penalise_repetition(logits, ids, penalty)
    for i in range(len(values)):
        assert out[i] <= logits[i] if i in seen else out[i] == logits[i]


def test_penalty_of_one_and_empty_text_change_nothing():
    logits = torch.randn(2, 5)
    ids = torch.tensor([[0, 1], [2, 3]])
    assert torch.equal(penalise_repetition(logits, ids, 1), logits)
    assert torch.equal(penalise_repetition(logits, ids[:, :0], 3), logits)


def test_each_row_has_its_own_past():
    out = penalise_repetition(torch.ones(2, 3), torch.tensor([[0], [2]]), 2)
    assert out.tolist() == [[0.5, 1, 1], [1, 1, 0.5]]


@pytest.mark.parametrize("penalty", [0, -1, INF, math.nan])
def test_bad_penalties_are_refused(penalty):
    with pytest.raises(ValueError, match=f"penalty is {penalty}"):
        penalise_repetition(torch.zeros(3), torch.tensor([0]), penalty)


@pytest.mark.parametrize(
    "ids", [torch.tensor([3]), torch.tensor([-1]), torch.tensor([[0]]), torch.tensor(0)]
)
def test_ids_that_do_not_fit_are_refused(ids):
    with pytest.raises(ValueError, match="id"):
        penalise_repetition(torch.zeros(3), ids, 1.1)


# Writing


@pytest.mark.parametrize("temperature", [0, 0.7, 1.0])
def test_without_truncation_it_writes_what_generate_writes(temperature):
    model = small_model()
    prompt = torch.tensor([[1, 2, 3], [4, 5, 6]])
    torch.manual_seed(1)
    theirs = model.generate(prompt, 20, temperature)
    torch.manual_seed(1)
    assert torch.equal(write(model, prompt, 20, temperature), theirs)


def test_a_long_prompt_is_seen_as_its_last_t_ids():
    model = small_model(T=8)
    prompt = torch.arange(12)[None] % 7
    draw = [
        write(model, p, 1, generator=torch.Generator().manual_seed(0))
        for p in (prompt, prompt[:, -8:])
    ]
    assert draw[0][0, -1] == draw[1][0, -1]
    assert draw[0].shape == (1, 13)


def test_settings_reach_the_draw():
    model = small_model()
    prompt = torch.tensor([[0]])
    greedy = write(model, prompt, 12, temperature=0)
    for options in ({"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}):
        assert torch.equal(write(model, prompt, 12, **options), greedy)
    away = write(model, prompt, 12, temperature=0, penalty=50.0)
    assert not torch.equal(away, greedy)


@pytest.mark.parametrize("training", [True, False])
def test_each_modules_mode_is_restored_even_after_an_error(training):
    model = small_model().train(training)
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    write(model, torch.tensor([[0]]), 2)
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ValueError, match="k is 0"):
        write(model, torch.tensor([[0]]), 2, top_k=0)
    assert [module.training for module in model.modules()] == before


def test_the_model_is_asked_in_evaluation_mode_and_without_gradient():
    class Probe(nn.Module):
        T = 4

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(5))
            self.widths: list[int] = []

        def forward(self, idx: Tensor) -> tuple[Tensor, None]:
            assert not self.training
            assert not torch.is_grad_enabled()
            self.widths.append(idx.shape[1])
            return self.weight.expand(*idx.shape, 5), None

    probe = Probe()
    assert write(probe, torch.tensor([[0, 1]]), 5).shape == (1, 7)
    assert probe.widths == [2, 3, 4, 4, 4]


@pytest.mark.parametrize("shape", [(1, 0), (0, 1), (3,)])
def test_an_empty_or_flat_prompt_is_refused(shape):
    with pytest.raises(ValueError, match=r"the prompt has shape .* expected \(B, n\)"):
        write(small_model(), torch.zeros(shape, dtype=torch.int64), 1)


def test_writing_nothing_and_a_negative_count():
    prompt = torch.tensor([[0, 1]])
    assert torch.equal(write(small_model(), prompt, 0), prompt)
    with pytest.raises(ValueError, match="n_new is -1"):
        write(small_model(), prompt, -1)


@gpu
def test_a_gpu_draws_the_same():
    logits = torch.randn(40, 65, generator=torch.Generator().manual_seed(0))
    options = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01}
    here = sample(logits, torch.Generator().manual_seed(1), **options)
    there = sample(logits.cuda(), torch.Generator().manual_seed(1), **options)
    assert there.is_cuda
    assert (there.cpu() == here).float().mean() > 0.95


# The fit


@quick
@given(st.floats(0, 3), st.floats(0.5, 30), st.floats(0.1, 1))
def test_a_law_without_noise_is_found_again(floor, factor, exponent):
    law = PowerLaw(floor, factor, exponent)
    x = [4e3, 2e4, 1e5, 3e5, 1e6]
    found = fit_power_law(x, [law.at(size) for size in x])
    for size in x:
        assert found.at(size) == pytest.approx(law.at(size), abs=1e-3 * factor)
    assert found.exponent == pytest.approx(exponent, rel=0.05)


def test_the_units_of_x_do_not_matter():
    loss = [2.6, 2.3, 2.1, 2.0, 1.95]
    x = [4e3, 2e4, 1e5, 3e5, 1e6]
    one, other = fit_power_law(x, loss), fit_power_law([v / 1e3 for v in x], loss)
    assert one.exponent == other.exponent
    assert one.floor == pytest.approx(other.floor)
    assert one.at(5e6) == pytest.approx(other.at(5e3))


def test_the_floor_is_never_negative():
    x = [1e3, 1e4, 1e5, 1e6]
    assert fit_power_law(x, [4.0, 3.0, 2.0, 1.0]).floor == 0


@pytest.mark.parametrize(
    ("x", "loss"),
    [
        ([1, 2], [1, 1]),
        ([1, 2, 2], [1, 1, 1]),
        ([0, 1, 2], [3, 2, 1]),
        ([1, 2, 3], [1]),
    ],
)
def test_too_little_for_a_fit_is_refused(x, loss):
    with pytest.raises(ValueError, match="sizes"):
        fit_power_law(x, loss)


# The module


def test_every_public_function_says_what_it_does_and_what_it_refuses():
    for name in sampling.__all__:
        value = getattr(sampling, name)
        if inspect.isfunction(value):
            assert value.__doc__, name
            hints = inspect.signature(value)
            assert hints.return_annotation is not inspect.Parameter.empty, name
            assert all(p.annotation is not p.empty for p in hints.parameters.values())
