"""Step 4's module: the causal head, the bitwise test, the one-head model, its loop."""

import copy
import math

import pytest
import torch
from chapter2 import gpu, one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.attention import (
    CausalHead,
    OneHeadModel,
    assert_causal,
    draw_windows,
    find_leaks,
    fit_windows,
    moved_positions,
    windows_loss,
)
from tinygpt.gpt import GPT
from tinygpt.training import WindowMLP
from tinygpt.transformer import GPTConfig, TinyGPT

HALF = [torch.float16, torch.bfloat16]
IDS = torch.arange(12)[None] % 7  # (1, 12)


def small(V: int = 7, T: int = 12, d: int = 16, dh: int | None = 8) -> OneHeadModel:
    torch.manual_seed(0)
    return OneHeadModel(V, T, d, dh)


def small_gpt() -> GPT:
    torch.manual_seed(0)
    model = GPT(7, 12, 16, 2, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model


# The head


@pytest.mark.parametrize(("d", "dh"), [(64, 16), (16, 8), (6, 6), (5, 3), (4, 9)])
def test_a_head_equals_pytorchs_attention(d, dh):
    torch.manual_seed(0)
    head = CausalHead(d, dh, 12)
    x = 3 * torch.randn(2, 9, d)
    q, k, v = head.query(x), head.key(x), head.value(x)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(head(x), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("d", "H", "scale"), [(64, 4, 0.25), (16, 2, 0.35355)])
def test_the_scale_is_that_of_the_heads_width(d, H, scale):
    """Not that of the stream, nor of the number of heads: all three differ here."""
    torch.manual_seed(0)
    head = CausalHead(d, d // H, 5)
    x = 4 * torch.randn(1, 5, d)
    A = head.weights(x)
    for factor in (scale, d**-0.5, H**-0.5):
        scores = factor * head.query(x) @ head.key(x).mT
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
        expected = scores.masked_fill(hidden, -math.inf).softmax(-1)
        assert ((A - expected).abs().max() < 1e-4) == (factor == scale)


@quick
@given(st.integers(1, 8), st.integers(1, 3), st.integers(0, 5))
def test_weights_are_a_distribution_over_the_past_in_either_mode(n, B, seed):
    torch.manual_seed(seed)
    head = CausalHead(6, 4, 8)
    x = 5 * torch.randn(B, n, 6)
    for mode in (True, False):
        A = head.train(mode).weights(x)
        assert A.shape == (B, n, n)
        torch.testing.assert_close(A.sum(-1), torch.ones(B, n))
        assert (A.triu(1) == 0).all()
        assert A[:, 0].tolist() == [[1.0] + [0.0] * (n - 1)] * B
        assert (A >= 0).all()


def test_equal_scores_are_the_average_of_the_past():
    head = CausalHead(4, 4, 9)
    nn.init.zeros_(head.query.weight)
    nn.init.eye_(head.value.weight)
    x = torch.randn(2, 9, 4)
    mean = x.cumsum(1) / torch.arange(1, 10)[:, None]
    torch.testing.assert_close(head(x), mean)


@pytest.mark.parametrize("dtype", HALF)
def test_equal_scores_in_half_precision_average_without_nan(dtype):
    head = CausalHead(1, 1, 4).to(dtype)
    for layer, weight in ((head.query, 0), (head.key, 0), (head.value, 1)):
        nn.init.constant_(layer.weight, weight)
    out = head(torch.arange(4.0, dtype=dtype).view(1, 4, 1))
    assert out.flatten().tolist() == [0.0, 0.5, 1.0, 1.5]
    assert out.dtype == dtype


@pytest.mark.parametrize("dtype", HALF)
def test_scores_up_to_60000_in_half_precision_stay_causal(dtype):
    head = CausalHead(1, 1, 4).to(dtype)
    for layer in (head.query, head.key, head.value):
        nn.init.constant_(layer.weight, 1)
    x = torch.tensor([200.0, -200, 240, -240], dtype=dtype).view(1, 4, 1)
    A = head.weights(x)
    assert A.isfinite().all()
    assert (A.triu(1) == 0).all()


def test_the_query_is_divided_and_not_the_product():
    head = CausalHead(64, 64, 2).half()
    for layer in (head.query, head.key, head.value):
        nn.init.eye_(layer.weight)
    x = torch.full((1, 2, 64), 50.0).half()  # q.k is 160,000, too large for float16
    assert head(x).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_position_one_row_forward_and_backward(dtype):
    head = CausalHead(4, 3, 5).to(dtype)
    x = torch.randn(1, 1, 4, dtype=dtype, requires_grad=True)
    out = head(x)
    out.sum().backward()
    assert torch.equal(out, head.value(x))
    assert x.grad.isfinite().all()
    transposed = torch.randn(1, 4, 5, dtype=dtype).transpose(1, 2)  # not contiguous
    assert head(transposed).shape == (1, 5, 3)


def test_a_head_never_stretches_its_mask():
    for T in (1, 4):
        with pytest.raises(ValueError, match=rf"^5 positions; .* the {T} of this head"):
            CausalHead(8, 4, T)(torch.zeros(1, 5, 8))


def test_the_mask_is_no_parameter_and_is_not_stored():
    head = CausalHead(8, 4, 5)
    assert set(head.state_dict()) == {"query.weight", "key.weight", "value.weight"}


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "8"])
@pytest.mark.parametrize("name", ["d", "dh", "T"])
def test_a_size_that_makes_no_sense_is_named(name, size):
    sizes = {"d": 8, "dh": 4, "T": 5} | {name: size}
    with pytest.raises(ValueError, match=rf"^{name} is {size!r}; expected a positive"):
        CausalHead(**sizes)


# The bitwise test


@pytest.mark.parametrize("build", [small, small_gpt])
def test_only_the_changed_position_and_what_follows_moves(build):
    model = build()
    for position in range(12):
        moved = moved_positions(model, IDS, position, 7)
        assert moved == list(range(position, 12))
    assert find_leaks(model, IDS, 7) == []
    assert_causal(model, IDS, 7)


def test_change_position_20_of_32_of_the_gpt():
    torch.manual_seed(1337)
    model = GPT(65, 64, 128, 4, 4)
    ids = torch.randint(65, (1, 32))
    assert moved_positions(model, ids, 20, 65) == list(range(20, 32))


def test_a_model_whose_answer_is_a_triple_can_be_asked():
    torch.manual_seed(0)
    model = TinyGPT(GPTConfig(vocab_size=7, block_size=12, d_model=16, n_heads=2))
    assert_causal(model, IDS, 7)


def test_functions_that_are_no_modules_and_outputs_without_an_axis_can_be_asked():
    ids = torch.tensor([[1, 0, 2, 1]])
    assert moved_positions(lambda i: i.cumsum(1), ids, 2, 3) == [2, 3]
    assert moved_positions(lambda i: i.flip(1), ids, 0, 3) == [3]
    assert find_leaks(lambda i: i.roll(-1, 1), ids, 3) == [(1, 0), (2, 1), (3, 2)]
    with pytest.raises(
        AssertionError, match=r"position 0 moved .* at position 3 was .*\(1 such"
    ):
        assert_causal(lambda i: i.flip(1), ids, 3, positions=[3])


@quick
@given(st.integers(2, 6), st.integers(1, 3), st.data())
def test_a_leak_of_any_reach_is_found_and_nothing_else(T, B, data):
    """The output at i reads i + reach: exactly those pairs leak."""
    reach = data.draw(st.integers(-T, T))

    def shifted(ids: Tensor) -> Tensor:
        places = torch.arange(T) + reach
        inside = (places >= 0) & (places < T)
        return torch.where(inside, ids[:, places.clamp(0, T - 1)], 0)

    ids = torch.randint(4, (B, T))
    pairs = [(late, late - reach) for late in range(1, T) if 0 <= late - reach < late]
    assert find_leaks(shifted, ids, 4) == pairs


def test_a_leak_in_the_last_bit_is_a_leak():
    def whisper(ids):
        return 1 + ids[:, -1:].double() * 2.0**-52 + torch.zeros(ids.shape)

    assert find_leaks(whisper, IDS, 7, positions=[11]) == [(11, i) for i in range(11)]


def test_one_row_of_a_batch_is_enough():
    def second_row(ids):
        out = ids.cumsum(1)
        out[1, 0] += ids[1, 3]
        return out

    ids = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 2]])
    assert find_leaks(second_row, ids, 3) == [(3, 0)]


def test_a_model_that_fills_one_buffer_again_is_not_compared_with_itself():
    buffer = torch.zeros(1, 4)

    def reuse(ids):
        return buffer.copy_(ids.flip(1))

    assert find_leaks(reuse, torch.tensor([[0, 1, 2, 0]]), 3) == [(2, 1), (3, 0)]


@pytest.mark.parametrize(
    ("fault", "n_leaks"), [("none", 0), ("no mask", 66), ("one too late", 11)]
)
def test_masks_that_hide_too_little_are_caught(fault, n_leaks):
    model = small()
    mask = model.attention.mask
    if fault == "no mask":
        mask.zero_()
    if fault == "one too late":
        mask.copy_(torch.ones(12, 12, dtype=torch.bool).triu(2))
    leaks = find_leaks(model, IDS, 7)
    assert len(leaks) == n_leaks
    if fault == "one too late":
        assert leaks == [(late, late - 1) for late in range(1, 12)]


def test_a_zero_after_the_softmax_is_caught_and_minus_1e9_is_not():
    model = small()
    head = model.attention

    def scores(x):
        return head.query(x) / math.sqrt(8) @ head.key(x).mT

    head.weights = lambda x: scores(x).softmax(-1).tril()
    assert len(find_leaks(model, IDS, 7)) == 66
    head.weights = lambda x: scores(x).masked_fill(head.mask, -1e9).softmax(-1)
    assert_causal(model, IDS, 7)
    head.weights = lambda x: scores(x).masked_fill(head.mask, -10).softmax(-1)
    with pytest.raises(AssertionError, match=r"position 0 moved .* position 1 was"):
        assert_causal(model, IDS, 7)


def test_a_leak_without_gradient_is_found():
    def rounded(ids):
        return ids.float().cumsum(1) + ids[:, -1:].float().round()

    x = IDS.float().requires_grad_()
    (x.cumsum(1) + x[:, -1:].round())[0, 3].backward()
    assert (x.grad[0, 4:] == 0).all()
    assert (11, 3) in find_leaks(rounded, IDS, 7)


def test_modes_are_restored_after_success_and_after_failure():
    model = nn.Sequential(nn.Embedding(7, 4), nn.Dropout(0.5), nn.Linear(4, 7))
    model[2].eval()
    modes = [module.training for module in model.modules()]
    assert_causal(model, IDS, 7)
    assert [module.training for module in model.modules()] == modes

    class Broken(nn.Module):
        def forward(self, ids):
            raise RuntimeError("no")

    broken = nn.Sequential(Broken())
    with pytest.raises(RuntimeError, match="no"):
        assert_causal(broken, IDS, 7)
    assert all(module.training for module in broken.modules())


def test_no_gradient_is_kept_and_the_ids_are_left_alone():
    model = small()
    ids = IDS.clone()
    assert_causal(model, ids, 7)
    assert torch.equal(ids, IDS)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_chance_and_nan_are_refused():
    table = nn.Embedding(7, 64)
    with pytest.raises(ValueError, match="two different outputs"):
        assert_causal(lambda i: F.dropout(table(i)), IDS, 7)
    with pytest.raises(ValueError, match="is NaN"):
        assert_causal(lambda i: i / 0.0 * 0.0, IDS, 7)
    with pytest.raises(ValueError, match=r"shape \(1, 7\); .* \(1, 12\)"):
        assert_causal(WindowMLP(7, 12, 4, 8), IDS, 7)


@pytest.mark.parametrize(
    ("ids", "V", "message"),
    [
        (IDS[0], 7, r"shape \(12,\)"),
        (IDS[:, :1], 7, r"shape \(1, 1\); expected \(B, T\) with T from 2 up"),
        (IDS[:0], 7, r"shape \(0, 12\)"),
        (IDS, 6, "no integers from 0 to 5"),
        (IDS - 1, 7, "no integers from 0 to 6"),
        (IDS.float(), 7, "no integers"),
        (IDS * 0, 1, "vocab_size is 1"),
    ],
)
def test_questions_that_make_no_sense_are_refused(ids, V, message):
    for ask in (
        lambda: assert_causal(lambda i: i, ids, V),
        lambda: moved_positions(lambda i: i, ids, 0, V),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


@pytest.mark.parametrize("position", [-1, 12])
def test_a_position_outside_is_refused(position):
    with pytest.raises(ValueError, match=rf"position is {position}; expected 0 to 11"):
        moved_positions(small(), IDS, position, 7)


def test_a_test_that_changes_nothing_is_refused():
    with pytest.raises(ValueError, match="no positions to change"):
        assert_causal(small(), IDS, 7, positions=[])


# The model


def test_no_gradient_reaches_a_later_embedding():
    model = small()
    x = model.embed(IDS[:, :8]).detach().requires_grad_()
    model.readout(model.attention(x))[0, 3].square().sum().backward()
    assert (x.grad[0] != 0).any(-1).tolist() == [True] * 4 + [False] * 4


def test_changing_token_5_of_8_leaves_the_first_five_logits_bitwise_equal():
    model = small()
    other = IDS[:, :8].clone()
    other[0, 5] = (other[0, 5] + 3) % 7
    a, b = model(IDS[:, :8])[0], model(other)[0]
    assert torch.equal(a[:, :5], b[:, :5])
    assert (a[:, 5:] != b[:, 5:]).any(-1).all()


def test_shapes_loss_and_count():
    torch.manual_seed(0)
    model = OneHeadModel(65, 32, 64)
    assert sum(p.numel() for p in model.parameters()) == 22_721
    assert model.T == 32
    ids = torch.randint(65, (3, 33))
    logits, loss = model(ids[:, :-1], ids[:, 1:])
    assert logits.shape == (3, 32, 65)
    expected = F.cross_entropy(logits.reshape(-1, 65), ids[:, 1:].reshape(-1))
    assert torch.equal(loss, expected)
    assert model(ids[:, :5])[1] is None
    assert OneHeadModel(5, 4, 8, 3).readout.weight.shape == (5, 3)


@pytest.mark.parametrize("V", [65, 256])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_untrained_model_is_ignorant(V, seed):
    torch.manual_seed(seed)
    ids = torch.randint(V, (16, 33))
    with torch.no_grad():
        loss = OneHeadModel(V, 32, 64)(ids[:, :-1], ids[:, 1:])[1].item()
    assert abs(loss - math.log(V)) < 0.25


def test_without_positions_the_earlier_tokens_are_a_bag():
    model = small().double()
    order = torch.cat([torch.randperm(11), torch.tensor([11])])
    with torch.no_grad():
        a, b = model(IDS)[0][:, -1], model(IDS[:, order])[0][:, -1]
        assert (a - b).abs().max() > 1e-3
        model.pos.weight.zero_()
        a, b = model(IDS)[0][:, -1], model(IDS[:, order])[0][:, -1]
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (IDS[0], r"shape \(12,\)"),
        (IDS[:, :0], r"shape \(1, 0\); expected \(B, T\), both at least 1"),
        (torch.zeros(1, 13, dtype=torch.long), "13 positions; expected at most T, 12"),
        (torch.tensor([[7]]), "id 7; expected 0 to 6"),
        (torch.tensor([[-1]]), "id -1; expected 0 to 6"),
    ],
)
def test_ids_that_the_model_cannot_read_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        small()(ids)


def test_targets_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"targets have shape \(1, 11\)"):
        small()(IDS, IDS[:, 1:])


# Windows and training


def test_windows_are_pieces_of_the_text_and_targets_their_successors():
    data = torch.arange(100, 140)
    generator = torch.Generator().manual_seed(0)
    x, y = draw_windows(data, 5, 400, generator)
    assert x.shape == y.shape == (400, 5)
    assert torch.equal(y, x + 1)
    assert set(x[:, 0].tolist()) == set(range(100, 135))  # every start, the last too
    again = draw_windows(data, 5, 400, torch.Generator().manual_seed(0))
    assert torch.equal(again[0], x)


def test_the_shortest_text_has_one_window_and_a_shorter_one_is_refused():
    generator = torch.Generator().manual_seed(0)
    x, _ = draw_windows(torch.arange(6), 5, 2, generator)
    assert x.tolist() == [[0, 1, 2, 3, 4]] * 2
    with pytest.raises(ValueError, match=r"T is 5 but the text has 5 ids; need .* 6"):
        draw_windows(torch.arange(5), 5, 2, generator)
    with pytest.raises(ValueError, match="batch_size is 0"):
        draw_windows(torch.arange(9), 5, 0, generator)


def test_drawing_and_training_leave_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    model = small()
    torch.manual_seed(3)
    fit_windows(model, IDS[0].repeat(4), 2)
    assert torch.equal(torch.rand(1), expected)


def test_training_learns_what_one_head_can_know_and_repeats_itself():
    data = torch.arange(7).repeat(40)  # the next symbol follows from this one
    losses = [fit_windows(small(), data, 150, batch_size=8) for _ in range(2)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 150
    assert losses[0][-1] < 0.2 < 1.5 < losses[0][0]
    assert fit_windows(small(), data, 3, seed=1) != losses[0][:3]


def test_the_rate_falls_in_a_straight_line_to_zero(monkeypatch):
    rates = []
    step = torch.optim.AdamW.step

    def spy(self, *args, **kwargs):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    fit_windows(small(), IDS[0].repeat(4), 4, rate=0.08)
    assert rates == pytest.approx([0.08, 0.06, 0.04, 0.02])
    with pytest.raises(ValueError, match="steps is 0"):
        fit_windows(small(), IDS[0], 0)


@quick
@given(st.integers(13, 60), st.integers(1, 5))
def test_the_loss_of_a_text_counts_each_target_of_whole_windows_once(n, batch_size):
    model = small()
    data = torch.arange(n) * 3 % 7
    count = (n - 1) // 12
    with torch.no_grad():
        rows = [
            model(
                data[None, i * 12 : i * 12 + 12], data[None, i * 12 + 1 : i * 12 + 13]
            )
            for i in range(count)
        ]
    expected = sum(loss.item() for _, loss in rows) / count
    assert windows_loss(model, data, batch_size) == pytest.approx(expected, abs=1e-5)


def test_the_loss_of_a_text_restores_the_mode_and_needs_a_window():
    model = small()
    model.attention.eval()
    modes = [module.training for module in model.modules()]
    windows_loss(model, IDS[0].repeat(3))
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match="the text has 12 ids; need at least 13"):
        windows_loss(model, IDS[0])


@gpu
def test_on_another_device_everything_stays_there():
    model = small()
    moved = copy.deepcopy(model).cuda()
    ids = IDS.cuda()
    torch.testing.assert_close(moved(ids)[0].cpu(), model(IDS)[0], rtol=0, atol=1e-3)
    assert_causal(moved, ids, 7)
    x, _ = draw_windows(ids[0], 5, 3, torch.Generator().manual_seed(0))
    assert x.is_cuda
    assert len(fit_windows(moved, ids[0].repeat(4), 2)) == 2
