"""Step 2: the saved bigram: counts, probabilities, bits, model, sampler, refusals."""

import math

import pytest
import torch
from chapter2 import gpu, one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.bigram import (
    Bigram,
    bigram_bits,
    bigram_counts,
    bigram_probabilities,
    sample_bigram,
)
from tinygpt.chars import split_corpus

texts = st.lists(st.integers(0, 4), min_size=2, max_size=60).map(torch.tensor)
tables = st.lists(
    st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=3, max_size=3
).map(lambda rows: torch.tensor(rows, dtype=torch.float64))
CYCLE = torch.tensor([0, 1, 2, 0, 1, 2, 0])

# Counts


@quick
@given(texts)
def test_counts_are_those_of_a_loop_over_the_text(ids):
    by_hand = torch.zeros(5, 5, dtype=torch.float64)
    for a, b in zip(ids.tolist(), ids.tolist()[1:]):
        by_hand[a, b] += 1
    counts = bigram_counts(ids, 5)
    assert torch.equal(counts, by_hand)
    assert counts.dtype == torch.float64
    assert counts.sum() == len(ids) - 1


@quick
@given(texts)
def test_rows_count_all_but_the_last_and_columns_all_but_the_first(ids):
    counts = bigram_counts(ids, 5)
    assert torch.equal(counts.sum(1), torch.bincount(ids[:-1], minlength=5).double())
    assert torch.equal(counts.sum(0), torch.bincount(ids[1:], minlength=5).double())


@quick
@given(texts)
def test_a_text_read_backwards_has_the_transposed_counts(ids):
    assert torch.equal(bigram_counts(ids.flip(0), 5), bigram_counts(ids, 5).T)


def test_the_example_of_the_docstring():
    assert bigram_counts(torch.tensor([0, 1, 0, 1]), 2).tolist() == [[0, 2], [1, 0]]


def test_no_pair_reaches_across_the_split():
    """Only 90 to 99 are in the held-out pairs, and the pair (89, 90) in neither."""
    train, held_out = split_corpus(torch.arange(100))
    one, two = bigram_counts(train, 100), bigram_counts(held_out, 100)
    assert one.sum() == 89
    assert two.sum() == 9
    assert two[:90].sum() == two[:, :90].sum() == 0
    assert one[90:].sum() == one[:, 90:].sum() == 0
    assert one[89, 90] == two[89, 90] == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_small_integer_types_do_not_overflow(dtype):
    ids = torch.tensor([99, 98, 99, 98])
    assert torch.equal(bigram_counts(ids.to(dtype), 100), bigram_counts(ids, 100))


def test_the_text_is_left_alone():
    ids = CYCLE.clone()
    bigram_counts(ids, 3)
    assert torch.equal(ids, CYCLE)


@pytest.mark.parametrize("ids", [[], [3], [[0, 1], [1, 0]]])
def test_a_text_without_a_pair_is_refused_with_its_shape(ids):
    ids = torch.tensor(ids, dtype=torch.long)
    expected = rf"shape \({', '.join(map(str, ids.shape))},?\); .* at least 2"
    with pytest.raises(ValueError, match=expected):
        bigram_counts(ids, 5)
    with pytest.raises(ValueError, match=expected):
        bigram_bits(torch.full((5, 5), 0.2), ids)


@pytest.mark.parametrize(("ids", "wrong"), [([0, 5], 5), ([-1, 0], -1)])
def test_an_id_out_of_range_is_named(ids, wrong):
    """A negative one would otherwise be counted in another cell."""
    with pytest.raises(ValueError, match=rf"^id {wrong}; expected 0 to 4$"):
        bigram_counts(torch.tensor(ids), 5)
    with pytest.raises(ValueError, match=rf"^id {wrong}; expected 0 to 4$"):
        bigram_bits(torch.full((5, 5), 0.2), torch.tensor(ids))
    with pytest.raises(ValueError, match=rf"^id {wrong}; expected 0 to 4$"):
        Bigram(5)(torch.tensor([ids]))
    with pytest.raises(ValueError, match=rf"^id {wrong}; expected 0 to 4$"):
        Bigram(5)(torch.tensor([[1, 1]]), torch.tensor([ids]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_ids_that_are_no_integers_are_refused(dtype):
    with pytest.raises(ValueError, match=f"{dtype}; expected integers"):
        bigram_counts(torch.ones(4, dtype=dtype), 2)


@pytest.mark.parametrize("V", [0, -2])
def test_a_vocabulary_without_symbols_is_refused(V):
    with pytest.raises(ValueError, match=f"vocab_size is {V}"):
        bigram_counts(CYCLE, V)


# Probabilities


@quick
@given(tables, st.sampled_from([0.0, 1e-3, 0.5, 1.0, 100.0]))
def test_each_row_is_a_distribution(counts, add):
    p = bigram_probabilities(counts, add)
    assert p.dtype == torch.float64
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(1), torch.ones(3, dtype=torch.float64))


@quick
@given(tables)
def test_without_smoothing_they_are_relative_frequencies(counts):
    p = bigram_probabilities(counts)
    total = counts.sum(1, keepdim=True)
    seen = total[:, 0] > 0
    torch.testing.assert_close(p[seen], (counts / total)[seen])
    assert torch.equal(p[seen] == 0, counts[seen] == 0)


@quick
@given(tables)
def test_no_smoothing_is_the_limit_of_less_and_less(counts):
    """Also for a row without any count, which is why it is uniform."""
    limit = bigram_probabilities(counts, 1e-12)
    torch.testing.assert_close(bigram_probabilities(counts), limit, rtol=0, atol=1e-9)


def test_a_row_without_a_count_is_uniform_with_and_without_smoothing():
    counts = torch.tensor([[3.0, 1.0], [0.0, 0.0]])
    assert bigram_probabilities(counts).tolist() == [[0.75, 0.25], [0.5, 0.5]]
    assert bigram_probabilities(counts, 1)[1].tolist() == [0.5, 0.5]


@quick
@given(tables, st.floats(0.01, 50))
def test_smoothing_is_a_mixture_with_the_uniform_row(counts, add):
    total = counts.sum(1, keepdim=True)
    weight = total / (total + 3 * add)
    mixture = weight * bigram_probabilities(counts) + (1 - weight) / 3
    torch.testing.assert_close(bigram_probabilities(counts, add), mixture)


def test_counts_of_integers_are_not_divided_as_integers():
    p = bigram_probabilities(torch.tensor([[1, 2], [3, 4]]))
    torch.testing.assert_close(p[0, 0].item(), 1 / 3)


@pytest.mark.parametrize("add", [-0.5, math.inf, math.nan])
def test_an_impossible_smoothing_is_named(add):
    with pytest.raises(ValueError, match=f"add is {add}"):
        bigram_probabilities(torch.ones(2, 2), add)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 0), (1, 2, 2)])
def test_a_table_that_is_not_square_is_refused(shape):
    for call in (
        lambda table: bigram_probabilities(table),
        lambda table: bigram_bits(table, CYCLE),
        lambda table: sample_bigram(table, 0, 1),
    ):
        with pytest.raises(ValueError, match=r"expected \(V, V\)"):
            call(torch.ones(shape))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_an_entry_that_is_no_count_is_named(wrong):
    counts = torch.ones(2, 2)
    counts[1, 0] = wrong
    with pytest.raises(ValueError, match=f"an entry {wrong}"):
        bigram_probabilities(counts)


# Bits


@quick
@given(texts)
def test_bits_are_the_mean_of_the_surprises(ids):
    p = bigram_probabilities(bigram_counts(ids, 5), 0.5)
    pairs = list(zip(ids.tolist(), ids.tolist()[1:]))
    by_hand = -sum(math.log2(p[a, b]) for a, b in pairs) / len(pairs)
    assert bigram_bits(p, ids) == pytest.approx(by_hand, abs=1e-12)


@quick
@given(texts, tables)
def test_no_table_beats_the_counted_one_on_its_own_text(ids, other):
    ids = ids % 3
    counted = bigram_bits(bigram_probabilities(bigram_counts(ids, 3)), ids)
    assert counted <= bigram_bits(bigram_probabilities(other), ids) + 1e-12


@pytest.mark.parametrize("V", [2, 4, 65])
def test_a_uniform_table_costs_log_v_on_every_text(V):
    ids = torch.arange(3 * V) ** 2 % V
    assert bigram_bits(torch.full((V, V), 1 / V), ids) == pytest.approx(math.log2(V))


def test_a_certain_text_costs_nothing_and_not_minus_nothing():
    bits = bigram_bits(bigram_probabilities(bigram_counts(CYCLE, 3)), CYCLE)
    assert str(bits) == "0.0"


def test_a_pair_that_was_held_for_impossible_costs_infinitely_much():
    p = bigram_probabilities(bigram_counts(CYCLE, 3))
    assert bigram_bits(p, torch.tensor([0, 1, 1])) == math.inf
    smooth = bigram_probabilities(bigram_counts(CYCLE, 3), 1)
    assert bigram_bits(smooth, torch.tensor([0, 1, 1])) < math.inf


def test_a_table_of_ones_in_one_row_is_not_a_table_of_probabilities():
    p = torch.tensor([[0.5, 0.5], [1.0, 1.0]])
    with pytest.raises(ValueError, match=r"row 1 .* sum 2.0; expected 1"):
        bigram_bits(p, torch.tensor([0, 1]))


def test_rows_in_single_precision_add_up_well_enough():
    p = torch.randn(65, 65, generator=torch.Generator().manual_seed(0)).softmax(1)
    assert 0 < bigram_bits(p, torch.arange(65)) < math.inf


# The model


@pytest.mark.parametrize("V", [2, 65, 256])
def test_an_untrained_model_is_exactly_ignorant(V):
    ids = torch.randint(V, (4, 9), generator=torch.Generator().manual_seed(0))
    logits, loss = Bigram(V)(ids[:, :-1], ids[:, 1:])
    assert logits.shape == (4, 8, V)
    assert loss.item() == pytest.approx(math.log(V), abs=1e-5)
    assert Bigram(V)(ids)[1] is None


@quick
@given(texts)
def test_the_gradient_is_share_times_predicted_minus_observed(ids):
    model = Bigram(5).double()
    torch.manual_seed(len(ids))
    with torch.no_grad():
        model.table.copy_(torch.randn(5, 5))
    model(ids[None, :-1], ids[None, 1:])[1].backward()
    counts = bigram_counts(ids, 5)
    q = model.table.detach().softmax(1)
    expected = (counts.sum(1, keepdim=True) * q - counts) / counts.sum()
    torch.testing.assert_close(model.table.grad, expected, rtol=0, atol=1e-12)


def test_the_loss_of_logarithms_is_the_counted_loss():
    ids = torch.randint(5, (200,), generator=torch.Generator().manual_seed(1))
    p = bigram_probabilities(bigram_counts(ids, 5), 1)
    model = Bigram(5).double()
    with torch.no_grad():
        model.table.copy_(p.log())
    loss = model(ids[:-1], ids[1:])[1].item()
    assert loss / math.log(2) == pytest.approx(bigram_bits(p, ids), abs=1e-12)


def test_a_prediction_depends_on_one_character_alone():
    torch.manual_seed(0)
    model = Bigram(7)
    with torch.no_grad():
        model.table.copy_(torch.randn(7, 7))
    ids = torch.tensor([[1, 2, 3, 4], [5, 2, 6, 4]])
    logits = model(ids)[0]
    assert torch.equal(logits[0, [1, 3]], logits[1, [1, 3]])
    assert not torch.equal(logits[0, 0], logits[1, 0])


def test_single_ids_and_both_modes_and_half_precision_work():
    for dtype in (torch.float32, torch.bfloat16):
        model = Bigram(3).to(dtype)
        for mode in (True, False):
            logits, loss = model.train(mode)(torch.tensor([[2]]), torch.tensor([[1]]))
            assert logits.shape == (1, 1, 3)
            assert logits.dtype == dtype
            assert loss.isfinite()
            assert model.training == mode


def test_targets_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 3\), targets \(1, 2\)"):
        Bigram(5)(torch.zeros(1, 3).long(), torch.zeros(1, 2).long())
    with pytest.raises(ValueError, match="at least one id"):
        Bigram(5)(torch.zeros(1, 0).long())


@pytest.mark.parametrize("V", [0, -1, 2.5])
def test_a_size_that_makes_no_sense_is_named(V):
    with pytest.raises(ValueError, match=f"V is {V}"):
        Bigram(V)


@gpu
def test_everything_follows_the_device():
    ids = CYCLE.cuda()
    counts = bigram_counts(ids, 3)
    assert counts.is_cuda
    p = bigram_probabilities(counts)
    assert p.is_cuda
    assert bigram_bits(p, CYCLE) == bigram_bits(p.cpu(), ids) == 0
    assert Bigram(3).cuda()(ids[None])[0].is_cuda
    assert sample_bigram(p, 0, 6).tolist() == CYCLE.tolist()


# The sampler


def test_a_table_without_choice_is_followed():
    p = bigram_probabilities(bigram_counts(CYCLE, 3))
    assert sample_bigram(p, 0, 6).tolist() == CYCLE.tolist()
    assert sample_bigram(p, 2, 0).tolist() == [2]


def test_a_seed_decides_the_text_and_the_global_state_is_left_alone():
    p = torch.full((5, 5), 0.2)
    state = torch.get_rng_state()
    one, two, three = (
        sample_bigram(p, 0, 50, torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_a_long_sample_has_the_frequencies_of_the_table():
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    ids = sample_bigram(p, 0, 6_000, generator)
    again = bigram_probabilities(bigram_counts(ids, 3))
    torch.testing.assert_close(again, p.double(), rtol=0, atol=0.03)
    assert torch.equal(again == 0, p == 0)


def test_a_learned_table_can_be_sampled():
    model = Bigram(4)
    assert len(sample_bigram(model.table.softmax(1), 0, 5)) == 6


@pytest.mark.parametrize(
    ("start", "n_new", "message"),
    [(3, 1, "start is 3; expected 0 to 2"), (-1, 1, "start is -1"), (0, -1, "n_new")],
)
def test_a_sample_that_cannot_be_is_refused(start, n_new, message):
    with pytest.raises(ValueError, match=message):
        sample_bigram(torch.full((3, 3), 1 / 3), start, n_new)


def test_a_row_without_probability_is_named():
    with pytest.raises(ValueError, match="row 1 of the probabilities is 0"):
        sample_bigram(torch.tensor([[0.5, 0.5], [0.0, 0.0]]), 0, 3)
