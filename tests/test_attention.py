"""Attention: the formula, the scale, the mask, and the layer made of them."""

import math

import pytest
import torch
from chapter2 import (
    gpu,
    one_thread,  # noqa: F401
    quick,
)
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from tinygpt.transformer import (
    CausalSelfAttention,
    GPTConfig,
    causal_mask,
    scaled_dot_product_attention,
)

HALF = [torch.float16, torch.bfloat16]

# "The rabbit was late": what each token asks, and what each advertises.
QUERY = torch.tensor([[0, 0, 0, 0], [0, 0, 2, 0], [3, 0, 0, 0], [2, 0, 0, 2]]).float()
KEY = torch.tensor([[0, 0, 2, 0], [3, 0, 0, 0], [0, 0, 0, 2], [0, 2, 0, 0]]).float()


def layer(d_model=64, n_heads=4, seed=1, dtype=torch.float32) -> CausalSelfAttention:
    torch.manual_seed(seed)
    config = GPTConfig(vocab_size=512, d_model=d_model, n_heads=n_heads)
    return CausalSelfAttention(config).to(dtype)


def rounded(weights: torch.Tensor) -> list[str]:
    return [" ".join(f"{w:.2f}" for w in row) for row in weights.tolist()]


# The formula


def test_the_spread_of_a_dot_product_grows_as_the_root_of_the_width():
    torch.manual_seed(0)
    printed = []
    for d in (4, 64, 256):
        q, k = torch.randn(10_000, d), torch.randn(10_000, d)
        products = (q * k).sum(dim=-1)
        scaled = products.std() / math.sqrt(d)
        assert scaled == pytest.approx(1.0, abs=0.02)
        printed.append(f"{products.std():.2f} {math.sqrt(d):.2f} {scaled:.2f}")
    assert printed == ["1.99 2.00 1.00", "8.01 8.00 1.00", "16.13 16.00 1.01"]


def test_larger_scores_saturate_the_softmax_and_starve_its_gradient():
    scores = torch.randn(6, generator=torch.Generator().manual_seed(1))
    soft, hard = (scores * 2).softmax(-1), (scores * 16).softmax(-1)
    assert rounded(soft[None]) == ["0.34 0.15 0.10 0.31 0.04 0.06"]
    assert rounded(hard[None]) == ["0.65 0.00 0.00 0.34 0.00 0.00"]
    assert ((soft * (1 - soft)) > 0.02).all()
    assert ((hard * (1 - hard)) < 0.005).sum() == 4


def test_the_four_token_example_reads_as_the_page_says():
    value = torch.eye(4)
    output, weights = scaled_dot_product_attention(QUERY, KEY, value)
    assert torch.equal(output, weights)  # the values are unit vectors
    assert rounded(weights) == [
        "0.25 0.25 0.25 0.25",
        "0.71 0.10 0.10 0.10",
        "0.01 0.97 0.01 0.01",
        "0.03 0.68 0.25 0.03",
    ]


def test_the_masked_four_token_example_sees_no_future():
    value = torch.eye(4)
    _, weights = scaled_dot_product_attention(QUERY, KEY, value, causal_mask(4, 4))
    assert rounded(weights) == [
        "1.00 0.00 0.00 0.00",
        "0.88 0.12 0.00 0.00",
        "0.01 0.98 0.01 0.00",
        "0.03 0.68 0.25 0.03",
    ]
    assert (weights.triu(diagonal=1) == 0).all()
    assert weights[0, 0] == 1.0


@quick
@given(
    lead=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(*[st.integers(1, 6)] * 4),
    seed=st.integers(0, 1000),
    masked=st.booleans(),
)
def test_output_equals_that_of_pytorch(lead, sizes, seed, masked):
    T, S, d_k, d_v = sizes
    chance = torch.Generator().manual_seed(seed)
    query = torch.randn(*lead, T, d_k, generator=chance, dtype=torch.float64)
    key = torch.randn(*lead, S, d_k, generator=chance, dtype=torch.float64)
    value = torch.randn(*lead, S, d_v, generator=chance, dtype=torch.float64)
    mask = torch.rand(T, S, generator=chance) < 0.5 if masked else None
    if masked:
        mask[:, 0] = False  # every row may look somewhere
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    shown = None if mask is None else ~mask
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=shown)
    torch.testing.assert_close(output, expected)
    assert weights.shape == (*lead, T, S)
    torch.testing.assert_close(
        weights.sum(dim=-1), torch.ones(*lead, T, dtype=torch.float64)
    )
    if masked:
        assert (weights[..., mask] == 0).all()


def test_attention_changes_none_of_its_arguments():
    arguments = QUERY.clone(), KEY.clone(), torch.eye(4), causal_mask(4, 4)
    scaled_dot_product_attention(*arguments)
    for after, before in zip(
        arguments, (QUERY, KEY, torch.eye(4), causal_mask(4, 4)), strict=True
    ):
        assert torch.equal(after, before)


def test_a_row_that_hides_everything_has_no_answer():
    hidden = torch.ones(1, 4, dtype=torch.bool)
    output, _ = scaled_dot_product_attention(QUERY[:1], KEY, torch.eye(4), hidden)
    assert output.isnan().all()


# The mask


@quick
@given(n_queries=st.integers(1, 9), n_past=st.integers(0, 9))
def test_the_mask_hides_exactly_the_keys_that_come_later(n_queries, n_past):
    n_keys = n_past + n_queries
    mask = causal_mask(n_queries, n_keys)
    assert mask.dtype == torch.bool
    expected = [[k > n_past + q for k in range(n_keys)] for q in range(n_queries)]
    assert mask.tolist() == expected
    assert not mask[-1].any()  # the last query sees everything


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_averages_equal_scores_without_nan(dtype):
    zeros = torch.zeros(4, 2, dtype=dtype)
    value = torch.arange(4, dtype=dtype)[:, None]
    output, weights = scaled_dot_product_attention(
        zeros, zeros, value, causal_mask(4, 4)
    )
    assert output.dtype == weights.dtype == dtype
    assert output[:, 0].tolist() == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_huge_scores_do_not_outshout_the_mask(dtype, sign):
    """Scores near the largest half-precision number leave the future at exactly 0."""
    query = torch.full((4, 4), 245.0, dtype=dtype)
    key = sign * torch.full((4, 4), 122.0, dtype=dtype)  # |q.k| / 2 is about 6e4
    value = torch.eye(4, dtype=dtype)
    output, weights = scaled_dot_product_attention(query, key, value, causal_mask(4, 4))
    assert not output.isnan().any()
    assert (weights.triu(diagonal=1) == 0).all()
    torch.testing.assert_close(
        weights.float().sum(-1), torch.ones(4), atol=0.01, rtol=0
    )


def test_a_product_beyond_half_precision_is_scaled_before_it_overflows():
    query = torch.full((1, 4), 250.0, dtype=torch.float16)
    key = torch.tensor([[125.0] * 4, [120.0] * 4], dtype=torch.float16)
    assert (query @ key.T).isinf().any()
    _, weights = scaled_dot_product_attention(query, key, torch.eye(2).half())
    assert weights.tolist() == [[1.0, 0.0]]


# The layer


def test_the_layer_keeps_the_shape_and_returns_keys_by_head():
    attention = layer()
    x = torch.randn(2, 6, 64)
    update, (keys, values) = attention(x)
    assert update.shape == x.shape == (2, 6, 64)
    assert keys.shape == values.shape == (2, 4, 6, 16)


def test_changing_the_last_position_changes_nothing_before_it():
    attention = layer()
    x = torch.randn(2, 6, 64)
    changed = x.clone()
    changed[:, -1] += 1.0
    moved = (attention(x)[0] - attention(changed)[0]).abs()
    assert moved[:, :-1].max().item() == 0.0
    assert moved[:, -1].max() > 0


@pytest.mark.parametrize("position", range(6))
def test_changing_any_position_changes_nothing_before_it_and_all_from_it(position):
    attention = layer()
    x = torch.randn(2, 6, 64)
    changed = x.clone()
    changed[:, position] += 1.0
    moved = (attention(x)[0] - attention(changed)[0]).abs().amax(dim=(0, 2))
    assert (moved[:position] == 0).all()
    assert (moved[position:] > 0).all()


@pytest.mark.parametrize(
    ("d_model", "n_heads", "factor"),
    [(64, 4, 1 / 4), (16, 2, 0.35355), (16, 8, 0.7071)],
)
def test_scores_are_scaled_by_the_width_of_one_head(d_model, n_heads, factor):
    """Read the factor off the weights: their log ratio is the scaled dot product."""
    d_h = d_model // n_heads
    query, value = torch.ones(1, n_heads, 2, d_h), torch.zeros(1, n_heads, 2, d_h)
    key = torch.zeros(1, n_heads, 2, d_h)
    key[..., 1, 0] = 1.0  # the second key meets the query with a dot product of 1
    _, weights = layer(d_model, n_heads).attend(query, key, value)
    ratio = (weights[..., 1, 1] / weights[..., 1, 0]).log()
    torch.testing.assert_close(
        ratio, torch.full((1, n_heads), factor), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(("d_model", "n_heads"), [(64, 4), (16, 2), (24, 3), (8, 8)])
@pytest.mark.parametrize("T", [1, 5])
def test_the_layer_equals_one_written_with_pytorchs_attention(d_model, n_heads, T):
    attention = layer(d_model, n_heads)
    with torch.no_grad():
        attention.q_norm.weight.uniform_(0.5, 1.5)
        attention.k_norm.weight.uniform_(0.5, 1.5)
    x = torch.randn(3, T, d_model)
    d_h = d_model // n_heads
    weight_q, weight_k, weight_v = attention.qkv.weight.split(d_model)  # q, then k, v
    heads = []
    for h in range(n_heads):
        rows = slice(h * d_h, (h + 1) * d_h)
        q = F.rms_norm(x @ weight_q[rows].T, (d_h,), attention.q_norm.weight)
        k = F.rms_norm(x @ weight_k[rows].T, (d_h,), attention.k_norm.weight)
        v = x @ weight_v[rows].T
        heads.append(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    expected = torch.cat(heads, dim=-1) @ attention.output.weight.T
    torch.testing.assert_close(attention(x)[0], expected, atol=1e-5, rtol=1e-5)


def test_queries_and_keys_have_size_one_whatever_comes_in():
    attention = layer()
    query, key, value = attention.project(1000 * torch.randn(2, 6, 64))
    for normed in (query, key):
        torch.testing.assert_close(
            normed.pow(2).mean(dim=-1), torch.ones(2, 4, 6), atol=1e-4, rtol=0
        )
    assert value.abs().max() > 10  # values are not normalised
    scores = query @ key.transpose(-2, -1) / math.sqrt(16)
    assert scores.abs().max() <= math.sqrt(16) + 1e-4


@pytest.mark.parametrize("pieces", [[6], [1] * 6, [2, 3, 1], [5, 1]])
def test_a_text_in_pieces_gives_what_it_gives_whole(pieces):
    attention = layer(dtype=torch.float64)
    x = torch.randn(2, 6, 64, dtype=torch.float64)
    whole, (keys, values) = attention(x)
    past, updates = None, []
    for piece in x.split(pieces, dim=1):
        update, past = attention(piece, past)
        updates.append(update)
    torch.testing.assert_close(torch.cat(updates, dim=1), whole, atol=1e-12, rtol=0)
    torch.testing.assert_close(past[0], keys, atol=1e-12, rtol=0)
    torch.testing.assert_close(past[1], values, atol=1e-12, rtol=0)


def test_a_past_is_not_changed_by_going_on_from_it():
    attention = layer()
    x = torch.randn(1, 4, 64)
    _, past = attention(x)
    kept = [tensor.clone() for tensor in past]
    first, _ = attention(x[:, :1], past)
    again, _ = attention(x[:, :1], past)
    assert torch.equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(past, kept))


def test_without_positions_the_order_of_earlier_tokens_is_invisible():
    attention = layer()
    x = torch.randn(1, 6, 64)
    last = attention(x)[0][:, -1]
    shuffled = attention(x[:, [2, 0, 4, 1, 3, 5]])[0][:, -1]
    torch.testing.assert_close(shuffled, last, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
@pytest.mark.parametrize("shape", [(1, 1, 64), (1, 5, 64), (3, 1, 64)])
def test_any_precision_and_the_smallest_shapes_go_forward_and_backward(dtype, shape):
    attention = layer(dtype=dtype)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    update, (keys, values) = attention(x)
    assert update.dtype == keys.dtype == values.dtype == dtype
    update.float().pow(2).sum().backward()
    assert x.grad.isfinite().all()
    assert attention.qkv.weight.grad.isfinite().all()


def test_a_transposed_input_is_as_good_as_a_plain_one():
    attention = layer()
    x = torch.randn(6, 2, 64).transpose(0, 1)  # (B, T, d), not contiguous
    torch.testing.assert_close(attention(x)[0], attention(x.contiguous())[0])


@gpu
def test_the_layer_makes_its_mask_where_its_input_is():
    attention = layer().cuda()
    update, (keys, _) = attention(torch.randn(2, 6, 64, device="cuda"))
    assert update.is_cuda
    assert keys.is_cuda
