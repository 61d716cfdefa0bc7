"""Step 5: the assembled GPT, its four verifications, its generation, its refusals."""

import copy
import functools
import io
import math

import pytest
import torch
from chapter2 import gpu, one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT, MHA, MLP, Block, Head, component_counts
from tools.pages import ROOT

HALF = [torch.float16, torch.bfloat16]
ROW = torch.arange(12)[None] % 7  # (1, 12)


@functools.cache
def tokenizer() -> CharTokenizer:
    return CharTokenizer.from_text(load_corpus("tinyshakespeare", start=ROOT))


@functools.cache
def shakespeare() -> Tensor:
    return torch.tensor(tokenizer().encode(load_corpus("tinyshakespeare", start=ROOT)))


def first_window() -> tuple[Tensor, Tensor]:
    return shakespeare()[None, :64], shakespeare()[None, 1:65]


def step5_model(seed: int = 1337) -> GPT:
    torch.manual_seed(seed)
    return GPT(65, 64, 128, 4, 4)


def small_model(V: int = 7, T: int = 8, d: int = 16, H: int = 2, L: int = 2) -> GPT:
    """Small, and with weights that are large enough to have opinions."""
    torch.manual_seed(0)
    model = GPT(V, T, d, H, L)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * 0.5)
            else:
                parameter.uniform_(0.5, 1.5)
    return model


def validation_loss(model: GPT, n_windows: int) -> float:
    _, data = split_corpus(shakespeare())
    inputs = data[: n_windows * 64].view(n_windows, 64)
    targets = data[1 : n_windows * 64 + 1].view(n_windows, 64)
    total = 0.0
    with torch.no_grad():
        for rows, answers in zip(inputs.split(64), targets.split(64)):
            total += model(rows, answers)[1].item() * len(rows)
    return total / n_windows


def redraw(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


# One head


@pytest.mark.parametrize(("d", "H"), [(64, 4), (16, 2), (6, 1), (128, 4)])
def test_a_head_equals_pytorchs_attention(d, H):
    torch.manual_seed(0)
    head = Head(d, d // H, 12)
    x = torch.randn(2, 9, d)
    q, k, v = head.query(x), head.key(x), head.value(x)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(head(x), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("d", "H", "scale"), [(64, 4, 0.25), (16, 2, 8**-0.5)])
def test_scores_are_scaled_by_the_width_of_the_head(d, H, scale):
    """Not by that of the model, nor by the number of heads: all three differ here."""
    torch.manual_seed(0)
    head = MHA(d, H, 5).heads[0]
    x = 5 * torch.randn(1, 5, d)
    head(x)
    scores = head.query(x) @ head.key(x).mT * scale
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(hidden, -math.inf).softmax(-1)
    torch.testing.assert_close(head.A, expected, rtol=0, atol=1e-5)


def test_kept_weights_are_a_distribution_over_the_past_and_hold_no_graph():
    torch.manual_seed(0)
    head = Head(16, 8, 10)
    assert head.A is None
    for mode in (True, False):
        head.train(mode)(torch.randn(3, 6, 16))
        assert head.A.shape == (3, 6, 6)
        assert not head.A.requires_grad
        assert head.A.grad_fn is None
        torch.testing.assert_close(head.A.sum(-1), torch.ones(3, 6))
        assert (head.A.triu(1) == 0).all()
        assert head.A[:, 0].tolist() == [[1.0] + [0.0] * 5] * 3


@pytest.mark.parametrize("dtype", HALF)
def test_equal_scores_in_half_precision_average_the_past(dtype):
    head = Head(1, 1, 4).to(dtype)
    with torch.no_grad():
        head.query.weight.zero_()
        head.key.weight.zero_()
        head.value.weight.fill_(1)
    out = head(torch.arange(4.0, dtype=dtype).view(1, 4, 1))
    assert out.flatten().tolist() == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("dtype", HALF)
def test_large_scores_in_half_precision_are_no_nan_and_stay_causal(dtype):
    head = Head(1, 1, 4).to(dtype)
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(head, name).weight.fill_(1)
    x = torch.tensor([200.0, -200, 240, -240], dtype=dtype).view(1, 4, 1)  # to 6e4
    out = head(x)
    assert out.isfinite().all()
    assert (head.A.triu(1) == 0).all()


def test_division_comes_before_the_product():
    """So that the product of large queries and keys stays in the range of float16."""
    head = Head(64, 64, 2).half()
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(head, name).weight.copy_(torch.eye(64))
    x = torch.full((1, 2, 64), 50.0).half()  # q.k is 160,000, too large for float16
    assert head(x).isfinite().all()


@pytest.mark.parametrize("length", [5, 9])
def test_a_head_never_stretches_its_mask(length):
    """A mask of one by one would broadcast, and hide nothing."""
    for T in (1, 4):
        with pytest.raises(
            ValueError, match=rf"{length} positions; .* the {T} of this"
        ):
            Head(8, 4, T)(torch.zeros(1, length, 8))


# Multi-head attention, MLP, block


def test_heads_stand_side_by_side_before_the_projection():
    torch.manual_seed(0)
    attention = MHA(16, 4, 6)
    x = torch.randn(2, 6, 16)
    joined = torch.cat([head(x) for head in attention.heads], -1)
    assert joined.shape == (2, 6, 16)
    assert torch.equal(attention(x), attention.proj(joined))


def test_the_mlp_is_the_exact_gelu_between_two_layers():
    torch.manual_seed(0)
    mlp = MLP(8)
    x = torch.randn(2, 3, 8)
    a = mlp.up(x)
    gelu = a * 0.5 * (1 + torch.erf(a / math.sqrt(2)))
    torch.testing.assert_close(mlp(x), mlp.down(gelu), rtol=0, atol=1e-6)
    assert mlp.up.weight.shape == (32, 8)


def test_the_block_norms_what_a_branch_reads_and_not_the_stream():
    torch.manual_seed(0)
    block = Block(16, 2, 6)
    x = torch.randn(2, 6, 16)
    middle = x + block.attn(block.ln1(x))
    assert torch.equal(block(x), middle + block.mlp(block.ln2(middle)))


def test_a_block_whose_branches_write_nothing_passes_the_stream_unchanged():
    block = Block(16, 2, 6)
    with torch.no_grad():
        for layer in (block.attn.proj, block.mlp.down):
            layer.weight.zero_()
            layer.bias.zero_()
    x = torch.randn(2, 6, 16)
    assert torch.equal(block(x), x)


# How the weights begin


def test_what_writes_to_the_stream_starts_small_and_the_rest_as_pytorch_makes_it():
    model = step5_model()
    for block in model.blocks:
        for written in (block.attn.proj.weight, block.mlp.down.weight):
            assert written.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
        for head in block.attn.heads:
            assert head.key.weight.abs().max() <= 1 / math.sqrt(128)
            assert head.key.weight.std().item() == pytest.approx(0.051, rel=0.03)
        assert block.mlp.up.weight.std().item() == pytest.approx(0.051, rel=0.03)
    assert model.head.weight.std().item() == pytest.approx(384**-0.5, rel=0.03)
    assert model.tok.weight.std().item() == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("L", [1, 2, 9])
def test_the_small_start_follows_the_depth(L):
    torch.manual_seed(0)
    for block in GPT(5, 4, 64, 2, L).blocks:
        std = block.mlp.down.weight.std().item()
        assert std == pytest.approx(0.02 / math.sqrt(2 * L), rel=0.05)


def test_modules_draw_in_the_order_in_which_they_are_named():
    """The order fixes the random stream, and with it every number of the course."""
    model = step5_model()
    torch.manual_seed(1337)
    assert torch.equal(nn.Embedding(65, 128).weight, model.tok.weight)
    assert torch.equal(nn.Embedding(64, 128).weight, model.pos.weight)
    head = model.blocks[0].attn.heads[0]
    for layer in (head.key, head.query, head.value):
        assert torch.equal(nn.Linear(128, 32, bias=False).weight, layer.weight)
    names = [name for name, _ in model.named_children()]
    assert names == ["tok", "pos", "blocks", "lnf", "head"]
    names = [name for name, _ in model.blocks[0].named_children()]
    assert names == ["ln1", "attn", "ln2", "mlp"]


# Verification 1: parameters


def test_816_640_parameters_by_component():
    counts = component_counts(step5_model())
    assert counts == {
        "embeddings": 16_512,
        "attention": 262_656,
        "MLPs": 526_848,
        "block norms": 2_048,
        "final norm + head": 8_576,
        "total": 816_640,
    }
    shares = [f"{100 * n / counts['total']:.1f}" for n in counts.values()]
    assert shares == ["2.0", "32.2", "64.5", "0.3", "1.1", "100.0"]


def test_the_rule_of_thumb_misses_offsets_and_norms():
    counts = component_counts(step5_model())
    rule = 12 * 4 * 128**2
    blocks = counts["attention"] + counts["MLPs"] + counts["block norms"]
    assert (rule, blocks, blocks - rule) == (786_432, 791_552, 5_120)
    assert blocks - rule == 10 * 4 * 128


@quick
@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 4),
    st.data(),
)
def test_the_count_is_the_formula_for_all_sizes(V, T, H, dh, data):
    L, d = data.draw(st.integers(1, 3)), H * dh
    counts = component_counts(GPT(V, T, d, H, L))
    total = counts.pop("total")
    assert total == sum(counts.values())
    assert total == 2 * V * d + T * d + L * (12 * d**2 + 10 * d) + 2 * d


def test_a_tied_head_counts_once():
    model = step5_model()
    model.head.weight = model.tok.weight
    counts = component_counts(model)
    assert counts["total"] == 808_320
    assert counts["embeddings"] == 16_512
    assert counts["final norm + head"] == 256
    assert sum(counts.values()) == 2 * 808_320


# Verification 2: causality


def test_a_changed_position_moves_itself_and_what_follows_and_nothing_before():
    model = step5_model()
    ids = shakespeare()[None, :32]
    other = ids.clone()
    other[0, 20] = (other[0, 20] + 1) % 65
    with torch.no_grad():
        before, after = model(ids)[0][0], model(other)[0][0]
    assert torch.equal(before[:20], after[:20])
    assert (before[20:] != after[20:]).any(-1).all()


@quick
@given(st.integers(0, 7), st.integers(1, 6))
def test_no_change_travels_backwards(position, shift):
    model = small_model()
    ids = ROW[:, :8].clone()
    other = ids.clone()
    other[0, position] = (other[0, position] + shift) % 7
    with torch.no_grad():
        before, after = model(ids)[0][0], model(other)[0][0]
    assert torch.equal(before[:position], after[:position])
    assert (before[position:] != after[position:]).any(-1).all()


def test_no_gradient_reaches_a_later_position():
    model = small_model()
    stream = model.tok(ROW[:, :8]).detach().requires_grad_()
    x = stream
    for block in model.blocks:
        x = block(x)
    model.head(model.lnf(x))[0, 3].square().sum().backward()
    touched = stream.grad[0].abs().sum(-1) > 0
    assert touched.tolist() == [True] * 4 + [False] * 4


def test_one_leaking_head_is_caught():
    model = step5_model()
    model.blocks[-1].attn.heads[-1].mask.zero_()
    ids = shakespeare()[None, :32]
    other = ids.clone()
    other[0, 20] = (other[0, 20] + 1) % 65
    with torch.no_grad():
        assert (model(ids)[0] != model(other)[0]).any(-1).all()


def test_one_row_gives_the_losses_of_all_its_beginnings():
    """A window is T problems: position t predicts from the ids up to t alone."""
    model = small_model()
    ids, targets = ROW[:, :8], ROW[:, 1:9]
    with torch.no_grad():
        _, loss = model(ids, targets)
        last = [model(ids[:, : t + 1])[0][:, -1] for t in range(8)]
    one_by_one = F.cross_entropy(torch.cat(last), targets[0])
    assert loss.item() == pytest.approx(one_by_one.item(), abs=1e-5)


# Verification 3: the initial loss


def test_initial_loss_on_the_first_window():
    x, y = first_window()
    with torch.no_grad():
        loss = step5_model()(x, y)[1].item()
    assert f"{loss:.4f} {math.log(65):.4f}" == "4.1880 4.1744"


def test_the_first_window_is_a_lucky_one():
    assert f"{validation_loss(step5_model(), 1_742):.2f}" == "4.30"


def test_drawn_again_with_the_gpt_recipe_the_loss_is_nearer_to_ln_v():
    model = step5_model().apply(redraw)
    x, y = first_window()
    with torch.no_grad():
        assert f"{model(x, y)[1].item():.2f}" == "4.18"
    assert f"{validation_loss(model, 1_742):.2f}" == "4.19"


@pytest.mark.parametrize("V", [65, 256])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_untrained_model_is_ignorant_about_random_ids(V, seed):
    torch.manual_seed(seed)
    model = GPT(V, 64, 128, 4, 2)
    ids = torch.randint(V, (16, 65))
    for bound in (0.25, 0.1):
        with torch.no_grad():
            loss = model(ids[:, :-1], ids[:, 1:])[1].item()
        assert abs(loss - math.log(V)) < bound
        model.apply(redraw)


def test_an_ignorant_opinion_costs_half_its_variance():
    model = step5_model()
    rows = shakespeare()[: 64 * 64].view(64, 64)
    with torch.no_grad():
        logits = model(rows)[0]
    even = -logits.log_softmax(-1).mean().item()
    variance = logits.var(-1).mean().item()
    assert variance == pytest.approx(1 / 3, rel=0.1)
    assert even == pytest.approx(math.log(65) + variance / 2, abs=0.01)


# The smoke test


def test_one_window_is_learned_by_heart():
    x, y = first_window()
    model = step5_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(51):
        loss = model(x, y)[1]
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    printed = [f"{losses[step]:.4f}" for step in (0, 25, 50)]
    assert printed == ["4.1880", "0.0491", "0.0134"]


def test_every_parameter_gets_a_gradient_and_unseen_rows_none():
    x, y = first_window()
    model = step5_model()
    model(x, y)[1].backward()
    for name, parameter in model.named_parameters():
        if name != "tok.weight":
            assert (parameter.grad != 0).all(), name
    touched = (model.tok.weight.grad != 0).any(-1).nonzero().flatten()
    assert touched.tolist() == x.unique().tolist()
    assert len(touched) == 29


# Verification 4: shapes


def test_the_shape_of_every_stage():
    model, shapes = step5_model(), {}

    def keep(name):
        def hook(module, inputs, out):
            shapes[name] = tuple(getattr(out, "shape", ()))

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    logits, loss = model(first_window()[0])
    assert loss is None
    assert tuple(logits.shape) == shapes["head"] == (1, 64, 65)
    for name in ("tok", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "lnf"):
        assert shapes[name] == (1, 64, 128)
    assert shapes["pos"] == (64, 128)
    assert shapes["blocks.0.attn.heads.0"] == (1, 64, 32)
    assert shapes["blocks.0.mlp.up"] == (1, 64, 512)
    assert model.blocks[0].attn.heads[0].A.shape == (1, 64, 64)


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("T", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shortest_and_longest_sequences_go_forward_and_backward(B, T, dtype):
    model = small_model().to(dtype)
    logits, loss = model(torch.zeros(B, T, dtype=torch.long), torch.ones(B, T).long())
    assert logits.shape == (B, T, 7)
    assert logits.dtype == dtype
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_float16_goes_forward_and_backward():
    model = small_model().half()
    logits, _ = model(ROW[:, :8])
    logits.sum().backward()
    assert logits.isfinite().all()


def test_a_single_position_works_in_a_model_that_has_only_one():
    model = small_model(T=1)
    assert model(torch.tensor([[3]]))[0].shape == (1, 1, 7)
    assert model.generate(torch.tensor([[3]]), 4).shape == (1, 5)


# LayerNorm


def test_layernorm_sends_rows_to_a_sphere_until_epsilon_counts():
    torch.manual_seed(42)
    u = torch.randn(1_000, 128) * torch.empty(1_000, 1).uniform_(2.5, 7.5)
    norm = nn.LayerNorm(128, elementwise_affine=False)

    def radius_gap(rows):
        return (norm(rows).norm(dim=-1) - math.sqrt(128)).abs().max().item()

    def scale_gap(rows):
        return (norm(3.7 * rows) - norm(rows)).abs().max().item()

    assert f"{math.sqrt(128):.4f}" == "11.3137"
    assert norm(u).mean(-1).abs().max() < 1e-6
    assert radius_gap(u) < 1e-3
    assert scale_gap(u) < 1e-4

    tiny = 1e-3 * u
    assert radius_gap(tiny) > 0.5
    assert scale_gap(tiny) > 0.5
    lengths = norm(tiny).norm(dim=-1)
    assert f"{lengths.min():.1f} {lengths.max():.1f}" == "6.4 10.6"
    variance = tiny.var(-1, unbiased=False)
    predicted = (128 * variance / (variance + 1e-5)).sqrt()
    torch.testing.assert_close(lengths, predicted, rtol=0, atol=1e-3)
    assert norm(tiny).mean(-1).abs().max() < 1e-6


# Generation


def test_the_sample_before_training_begins_as_in_the_book():
    model = step5_model()
    torch.manual_seed(0)
    ids = model.generate(torch.zeros(1, 1, dtype=torch.long), 300)
    assert ids.shape == (1, 301)
    text = tokenizer().decode(ids[0])
    assert text.startswith("\nt3yrjmhVkdkhRxLsT?teWRdHEG")


@pytest.mark.parametrize("length", [1, 7, 8, 9, 12])
def test_only_the_last_T_ids_of_a_prompt_count(length):
    model = small_model()
    prompt = ROW[:, :length]
    for temperature in (0.0, 1.0):
        torch.manual_seed(3)
        whole = model.generate(prompt, 5, temperature)
        torch.manual_seed(3)
        cropped = model.generate(prompt[:, -8:], 5, temperature)
        assert torch.equal(whole[:, length:], cropped[:, -5:])
        assert torch.equal(whole[:, :length], prompt)


def test_temperature_zero_is_the_likeliest_id_and_draws_nothing():
    model = small_model()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = (model.generate(ROW[:, :3], 6, temperature=0) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, second)
    ids = ROW[:, :3]
    for _ in range(6):
        with torch.no_grad():
            likeliest = model(ids[:, -8:])[0][:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, likeliest], 1)
    assert torch.equal(first, ids)


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
def test_a_vanishing_temperature_is_greedy_and_not_nan(temperature):
    model = small_model()
    cold = model.generate(ROW[:, :3], 6, temperature)
    assert torch.equal(cold, model.generate(ROW[:, :3], 6, temperature=0))


def test_draws_come_from_the_global_generator():
    model = small_model()
    torch.manual_seed(1)
    first = model.generate(ROW[:, :2], 20)
    second = model.generate(ROW[:, :2], 20)
    torch.manual_seed(1)
    again = model.generate(ROW[:, :2], 20)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@quick
@given(st.floats(0, 10), st.integers(0, 12), st.integers(1, 3))
def test_every_id_written_is_in_the_vocabulary_and_the_prompt_is_kept(
    temperature, n_new, B
):
    prompt = ROW[:, :4].repeat(B, 1)
    kept = prompt.clone()
    ids = small_model().generate(prompt, n_new, temperature)
    assert ids.shape == (B, 4 + n_new)
    assert torch.equal(ids[:, :4], kept)
    assert torch.equal(prompt, kept)
    assert ((ids >= 0) & (ids < 7)).all()


@pytest.mark.parametrize("temperature", [-0.1, math.nan, math.inf, -math.inf])
def test_a_temperature_that_is_none_is_named(temperature):
    with pytest.raises(ValueError, match=f"temperature is {temperature}; expected"):
        small_model().generate(ROW[:, :2], 3, temperature)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.long), r"shape \(1, 0\); expected \(B, T\)"),
        (torch.zeros(3, dtype=torch.long), r"shape \(3,\); expected \(B, T\)"),
        (torch.tensor([[0, 7]]), "id 7; expected 0 to 6"),
        (torch.tensor([[-1, 0]]), "id -1; expected 0 to 6"),
        (torch.tensor([[7] + [0] * 11]), "id 7; expected 0 to 6"),  # would be cropped
    ],
)
def test_a_bad_prompt_is_refused(prompt, message):
    with pytest.raises(ValueError, match=message):
        small_model().generate(prompt, 3)


def test_a_negative_number_of_new_ids_is_named():
    with pytest.raises(ValueError, match="n_new is -1"):
        small_model().generate(ROW[:, :2], -1)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_each_module_is_put_back(training):
    model = small_model().train(training)
    model.blocks[0].mlp.train(not training)
    before = modes(model)
    seen = []
    model.blocks[1].register_forward_hook(lambda *_: seen.append(modes(model)))
    model.generate(ROW[:, :2], 2)
    assert modes(model) == before
    assert not any(seen[0])


def test_the_mode_is_put_back_when_something_goes_wrong():
    model = small_model()

    def fail(*_):
        raise RuntimeError("midway")

    model.lnf.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="midway"):
        model.generate(ROW[:, :2], 3)
    assert all(modes(model))
    with pytest.raises(ValueError, match="temperature"):
        model.generate(ROW[:, :2], 3, -1)
    assert all(modes(model))


def test_generation_keeps_no_graph():
    ids = small_model().generate(ROW[:, :2], 3)
    assert not ids.requires_grad


def test_a_corpus_without_a_newline_generates_too():
    """The newline that the book begins with is no part of the model."""
    letters = CharTokenizer.from_text("abcabc")
    model = small_model(V=letters.vocab_size)
    ids = model.generate(torch.tensor([letters.encode("ab")]), 10)
    assert set(letters.decode(ids[0])) <= set("abc")
    with pytest.raises(ValueError, match=r"'\\n'"):
        letters.encode("\n")


# What is refused


@pytest.mark.parametrize("name", ["V", "T", "d", "H", "L"])
@pytest.mark.parametrize("size", [0, -3, 2.0, None])
def test_a_size_that_makes_no_sense_is_named(name, size):
    sizes = {"V": 7, "T": 8, "d": 16, "H": 2, "L": 2, name: size}
    with pytest.raises(ValueError, match=f"{name} is {size}; expected a positive"):
        GPT(**sizes)


@pytest.mark.parametrize(("build", "name"), [(Head, "dh"), (MHA, "H"), (MLP, "d")])
def test_parts_refuse_bad_sizes_themselves(build, name):
    arguments = {Head: (16, 0, 8), MHA: (16, 0, 8), MLP: (0,)}[build]
    with pytest.raises(ValueError, match=f"{name} is 0; expected a positive integer"):
        build(*arguments)


def test_heads_must_divide_the_width():
    for build in (lambda: MHA(16, 3, 8), lambda: GPT(7, 8, 16, 3, 2)):
        with pytest.raises(ValueError, match=r"d is 16 and H is 3"):
            build()


def test_a_sequence_that_is_too_long_is_named_with_both_lengths():
    with pytest.raises(ValueError, match=r"9 positions; expected at most T, 8"):
        small_model()(ROW[:, :9])


@pytest.mark.parametrize("wrong", [-1, 7, 1_000])
def test_an_id_outside_of_the_vocabulary_is_named(wrong):
    with pytest.raises(ValueError, match=f"id {wrong}; expected 0 to 6"):
        small_model()(torch.tensor([[0, wrong, 1]]))


def test_targets_of_another_shape_are_refused_even_if_the_count_is_right():
    with pytest.raises(ValueError, match=r"targets have shape \(4, 2\).*\(2, 4\)"):
        small_model()(ROW[:, :8].view(2, 4), ROW[:, :8].view(4, 2))


# Saving, copying, compiling, devices


def test_the_mask_is_not_saved():
    names = small_model().state_dict()
    assert not [name for name in names if "mask" in name or name.endswith(".A")]
    assert len(names) == len(list(small_model().parameters()))


def test_saved_weights_load_strictly_and_give_the_same_logits():
    model, file = small_model(), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)
    other = GPT(7, 8, 16, 2, 2)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(model(ROW[:, :8])[0], other(ROW[:, :8])[0])


def test_weights_load_into_a_model_with_another_context():
    """Only the position table knows the length, since the mask is not saved."""
    state = small_model(T=8).state_dict()
    shorter = small_model(T=5)
    shorter.load_state_dict({**state, "pos.weight": state["pos.weight"][:5]})
    expected = small_model(T=8)(ROW[:, :5])[0]
    torch.testing.assert_close(shorter(ROW[:, :5])[0], expected, rtol=0, atol=1e-6)


def test_a_copy_is_equal_and_independent():
    model = small_model()
    model(ROW[:, :8])  # A now holds weights, which must not hinder the copy
    other = copy.deepcopy(model)
    assert torch.equal(model(ROW[:, :8])[0], other(ROW[:, :8])[0])
    with torch.no_grad():
        other.tok.weight.zero_()
    assert model.tok.weight.abs().sum() > 0


def test_a_tied_head_stays_tied_through_copy_load_and_step():
    model = small_model()
    model.head.weight = model.tok.weight
    other = copy.deepcopy(model)
    other.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(other.parameters())
    other(ROW[:, :8], ROW[:, 1:9])[1].backward()
    optimizer.step()
    assert other.head.weight.data_ptr() == other.tok.weight.data_ptr()
    assert not torch.equal(other.tok.weight, model.tok.weight)


def test_building_and_importing_leave_the_default_dtype_and_threads_alone():
    before = (torch.get_num_threads(), torch.get_default_dtype())
    small_model()(ROW[:, :8])
    assert (torch.get_num_threads(), torch.get_default_dtype()) == before


def test_bfloat16_autocast_gives_nearly_the_same_loss():
    model = step5_model()
    x, y = first_window()
    with torch.no_grad():
        exact = model(x, y)[1].item()
        with torch.autocast("cpu", torch.bfloat16):
            rough = model(x, y)[1].item()
    assert rough == pytest.approx(exact, abs=0.02)


@gpu
def test_a_gpu_gives_the_same_and_takes_prompts_from_anywhere():
    model = small_model()
    expected = model(ROW[:, :8])[0]
    torch.manual_seed(0)
    written = model.generate(ROW[:, :8], 10)
    moved = copy.deepcopy(model).cuda()
    actual = moved(ROW[:, :8].cuda())[0]
    assert actual.is_cuda
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=1e-3)
    for prompt in (ROW[:, :8], ROW[:, :8].cuda()):
        torch.manual_seed(0)
        ids = moved.generate(prompt, 10)
        assert ids.is_cuda
        assert torch.equal(ids.cpu(), written)
