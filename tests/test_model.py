"""The model: its parts, its parameters, its sums, its cache, and what it refuses."""

import copy
import dataclasses
import inspect
import io
import math

import pytest
import torch
from chapter2 import (
    SMALL,
    alice_stream,
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
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tinygpt import transformer
from tinygpt.transformer import (
    Block,
    GPTConfig,
    Merge,
    SwiGLU,
    TinyGPT,
    flops_per_token,
    future_change,
    generate,
    kv_cache_bytes,
    next_token_batch,
    param_breakdown,
    parameter_count,
    scaled_dot_product_attention,
)

HALF = [torch.float16, torch.bfloat16]
CHAPTER = GPTConfig(vocab_size=512)
SEVEN_B = GPTConfig(32_000, 2_048, 4_096, 32, 32, mlp_ratio=2.6875)

small_configs = st.builds(
    lambda heads, width, **sizes: GPTConfig(
        n_heads=heads, d_model=heads * width, **sizes
    ),
    heads=st.integers(1, 4),
    width=st.integers(1, 6),
    vocab_size=st.integers(2, 50),
    block_size=st.integers(2, 12),
    n_layers=st.integers(1, 3),
    mlp_ratio=st.sampled_from([0.1, 1.0, 8 / 3, 4.0]),
)


def seed_11_batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    return next_token_batch(torch.tensor(alice_stream()), 8, 4, generator)


def tied(model: TinyGPT) -> bool:
    head, table = model.lm_head.weight, model.token_embedding.weight
    return head is table and head.data_ptr() == table.data_ptr()


# The configuration


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(GPTConfig)])
@pytest.mark.parametrize("size", [0, -1, -64, math.nan])
def test_a_size_that_is_not_positive_is_named(name, size):
    with pytest.raises(ValueError, match=rf"{name} is {size}; expected a positive"):
        GPTConfig(**{"vocab_size": 512, name: size})


def test_an_infinite_mlp_is_named():
    with pytest.raises(ValueError, match="mlp_ratio is inf"):
        GPTConfig(vocab_size=512, mlp_ratio=math.inf)


@pytest.mark.parametrize(("d_model", "n_heads"), [(64, 3), (10, 4), (1, 2)])
def test_heads_that_do_not_divide_the_width_are_refused(d_model, n_heads):
    message = rf"d_model is {d_model} and n_heads is {n_heads}\b.*divide"
    with pytest.raises(ValueError, match=message):
        GPTConfig(vocab_size=512, d_model=d_model, n_heads=n_heads)


def test_the_configuration_cannot_change_under_a_model():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CHAPTER.d_model = 128


@pytest.mark.parametrize(
    ("d_model", "ratio", "hidden"),
    [(64, 8 / 3, 171), (4, 1.0, 8), (4096, 2.6875, 11_008), (64, 4, 256)],
)
def test_the_hidden_width_is_rounded_and_at_least_eight(d_model, ratio, hidden):
    config = GPTConfig(vocab_size=512, d_model=d_model, mlp_ratio=ratio)
    assert config.mlp_hidden == hidden


# The parts


def test_the_gated_mlp_keeps_the_budget_of_a_plain_one_up_to_rounding():
    mlp = SwiGLU(CHAPTER)
    count = sum(parameter.numel() for parameter in mlp.parameters())
    assert count == 3 * 64 * 171 == 32_832
    assert count - 8 * 64**2 == 64


def test_the_first_half_of_the_wide_layer_is_the_gate():
    torch.manual_seed(0)
    mlp = SwiGLU(SMALL)
    x = torch.randn(2, 3, 16)
    gate, up = mlp.up_gate.weight.split(SMALL.mlp_hidden)
    expected = (F.silu(x @ gate.T) * (x @ up.T)) @ mlp.down.weight.T
    torch.testing.assert_close(mlp(x), expected)
    with torch.no_grad():
        mlp.up_gate.weight[: SMALL.mlp_hidden] = 0.0
    assert torch.equal(mlp(x), torch.zeros_like(x))  # a shut gate lets nothing pass


def test_a_fresh_block_nudges_the_stream():
    torch.manual_seed(2)
    block = Block(CHAPTER)
    x = torch.randn(1, 6, 64)
    with torch.no_grad():
        update = block(x)[0] - x
    assert f"{update.abs().mean():.4f}" == "0.1931"
    assert f"{x.abs().mean():.4f}" == "0.7968"


def test_a_block_whose_layers_return_nothing_leaves_the_stream_alone():
    block = Block(SMALL)
    with torch.no_grad():
        block.attention.output.weight.zero_()
        block.mlp.down.weight.zero_()
    x = torch.randn(2, 4, 16)
    assert torch.equal(block(x)[0], x)


def test_a_block_reads_through_its_norms_and_adds_twice():
    block = small_model().blocks[0]
    x = 50 * torch.randn(2, 4, 16)
    middle = x + block.attention(block.attention_norm(x))[0]
    expected = middle + block.mlp(block.mlp_norm(middle))
    torch.testing.assert_close(block(x)[0], expected)


def test_every_norm_is_an_rmsnorm_with_default_epsilon_and_gains_of_one():
    norms = [m for m in chapter_model().modules() if isinstance(m, nn.RMSNorm)]
    assert len(norms) == 2 * 4 + 1
    for norm in norms:
        assert norm.eps is None
        assert torch.equal(norm.weight, torch.ones_like(norm.weight))
    x = 5 * torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    epsilon = torch.finfo(x.dtype).eps
    by_hand = x / (x.pow(2).mean(dim=-1, keepdim=True) + epsilon).sqrt()
    torch.testing.assert_close(chapter_model().final_norm(x), by_hand)
    assert torch.equal(norms[0](torch.zeros(2, 64)), torch.zeros(2, 64))


# The whole model


def test_a_fresh_model_scores_near_the_logarithm_of_the_vocabulary():
    inputs, targets = seed_11_batch()
    model = chapter_model()
    with torch.no_grad():
        logits, _, _ = model(inputs[:1])
        _, loss, _ = model(inputs, targets)
    assert logits.shape == (1, 8, 512)
    assert f"{loss:.3f}" == "6.318"
    assert f"{math.log(512):.3f}" == "6.238"
    assert abs(loss - math.log(512)) < 0.1


@pytest.mark.parametrize("vocab_size", [65, 256])
def test_an_untrained_loss_on_random_ids_is_near_ln_v(vocab_size):
    torch.manual_seed(0)
    model = TinyGPT(GPTConfig(vocab_size=vocab_size))
    tokens = random_tokens(4, 129, vocab_size=vocab_size)
    with torch.no_grad():
        _, loss, _ = model(tokens[:, :-1], tokens[:, 1:])
    assert loss == pytest.approx(math.log(vocab_size), abs=0.1)


def test_the_parts_have_the_names_that_others_rely_on():
    names = [name for name, _ in chapter_model().named_parameters()]
    block = ["attention_norm.weight"]
    block += [f"attention.{part}.weight" for part in ("qkv", "q_norm", "k_norm")]
    block += ["attention.output.weight", "mlp_norm.weight"]
    block += ["mlp.up_gate.weight", "mlp.down.weight"]
    expected = ["token_embedding.weight", "position_embedding.weight"]
    expected += [f"blocks.{i}.{name}" for i in range(2) for name in block]
    assert names == [*expected, "final_norm.weight"]
    assert not any("bias" in key for key in chapter_model().state_dict())


def test_the_interface_is_the_documented_one():
    assert [f.name for f in dataclasses.fields(Merge)] == ["left", "right", "new_id"]
    forward = list(inspect.signature(TinyGPT.forward).parameters)
    assert forward == ["self", "tokens", "targets", "cache"]
    options = inspect.signature(generate).parameters
    assert {n: p.default for n, p in options.items() if p.default is not p.empty} == {
        "temperature": 0.0,
        "seed": 0,
        "use_cache": True,
    }
    assert TinyGPT.generate is generate
    assert TinyGPT.parameter_count is parameter_count
    assert list(inspect.signature(flops_per_token).parameters) == [
        "config",
        "context_len",
    ]
    for name in transformer.__all__:
        assert hasattr(transformer, name)


def test_every_matrix_starts_with_deviation_002_and_none_is_smaller():
    model = chapter_model()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
            assert parameter.mean().item() == pytest.approx(0.0, abs=0.001), name


def test_building_a_model_draws_in_the_documented_order():
    """Redraw every matrix in the order of the modules; the head's draw is discarded."""
    model = chapter_model()
    torch.manual_seed(20)
    nn.Embedding(512, 64)
    nn.Embedding(128, 64)
    for _ in range(2):
        Block(CHAPTER)
    nn.Linear(64, 512, bias=False)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            assert torch.equal(parameter, torch.empty_like(parameter).normal_(std=0.02))
            assert name != "lm_head.weight"


def rebuilt_logits(model: TinyGPT, tokens: torch.Tensor) -> torch.Tensor:
    """The whole model once more, from its tensors and PyTorch's own functions."""
    weights, config = model.state_dict(), model.config
    B, T = tokens.shape

    def norm(x, name):
        gain = weights[f"{name}.weight"]
        return F.rms_norm(x, (len(gain),), gain)

    x = weights["token_embedding.weight"][tokens]
    x = x + weights["position_embedding.weight"][:T]
    for i in range(config.n_layers):
        part = f"blocks.{i}"
        qkv = (
            norm(x, f"{part}.attention_norm")
            @ weights[f"{part}.attention.qkv.weight"].T
        )
        q, k, v = (
            chunk.reshape(B, T, config.n_heads, config.head_dim).transpose(1, 2)
            for chunk in qkv.split(config.d_model, dim=-1)
        )
        q, k = norm(q, f"{part}.attention.q_norm"), norm(k, f"{part}.attention.k_norm")
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(B, T, config.d_model)
        x = x + mixed @ weights[f"{part}.attention.output.weight"].T
        wide = norm(x, f"{part}.mlp_norm") @ weights[f"{part}.mlp.up_gate.weight"].T
        gate, up = wide.split(config.mlp_hidden, dim=-1)
        x = x + (F.silu(gate) * up) @ weights[f"{part}.mlp.down.weight"].T
    return norm(x, "final_norm") @ weights["token_embedding.weight"].T


@quick
@given(config=small_configs, seed=st.integers(0, 1000))
def test_an_independent_rebuild_gives_the_same_logits(config, seed):
    model = small_model(seed, config).double()
    tokens = random_tokens(
        2, config.block_size, seed=seed, vocab_size=config.vocab_size
    )
    logits, loss, cache = model(tokens)
    assert loss is None
    assert len(cache) == config.n_layers
    torch.testing.assert_close(logits, rebuilt_logits(model, tokens))


def test_the_loss_is_the_mean_surprise_over_all_positions():
    model = small_model()
    tokens = random_tokens(3, 8)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    logits, loss, _ = model(inputs, targets)
    surprise = [
        -logits[b, t].log_softmax(-1)[targets[b, t]] for b in range(3) for t in range(7)
    ]
    torch.testing.assert_close(loss, torch.stack(surprise).mean())
    halves = [model(inputs[i : i + 1], targets[i : i + 1])[1] for i in range(3)]
    torch.testing.assert_close(loss, torch.stack(halves).mean())


def test_gradients_of_micro_batches_average_to_those_of_the_batch():
    model = small_model()
    tokens = random_tokens(8, 8)
    model(tokens[:, :-1], tokens[:, 1:])[1].backward()
    whole = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for part in tokens.split(4):
        (model(part[:, :-1], part[:, 1:])[1] / 2).backward()
    for parameter, expected in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected, atol=1e-6, rtol=1e-4)


def test_positions_matter_and_are_counted_from_the_start():
    model = small_model()
    same = model(torch.full((1, 8), 3))[0][0]
    assert not torch.allclose(same[0], same[-1])
    with torch.no_grad():
        model.position_embedding.weight.zero_()
    same = model(torch.full((1, 8), 3))[0][0]
    torch.testing.assert_close(same[0], same[-1])


def test_rows_of_a_batch_do_not_see_each_other():
    model = small_model().double()
    tokens = random_tokens(3, 8)
    together = model(tokens)[0]
    alone = torch.cat([model(row[None])[0] for row in tokens])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("training", [True, False])
def test_two_passes_are_identical_in_either_mode(training):
    """No dropout anywhere: training and evaluation compute the same numbers."""
    model = small_model().train(training)
    tokens = random_tokens(2, 8)
    first = model(tokens)[0]
    assert torch.equal(model(tokens)[0], first)
    assert torch.equal(model.train(not training)(tokens)[0], first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 1), (2, 8)])
def test_any_precision_and_the_smallest_shapes_train(dtype, shape):
    model = TinyGPT(SMALL).to(dtype)
    tokens = random_tokens(*shape)
    logits, loss, cache = model(tokens, tokens)
    assert logits.dtype == loss.dtype == dtype
    assert all(tensor.dtype == dtype for pair in cache for tensor in pair)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.dtype == dtype, name
        assert parameter.grad.isfinite().all(), name


# The future


def test_no_logit_depends_on_a_later_token():
    model = small_model()
    tokens = random_tokens(2, 8)
    before = model(tokens)[0]
    for position in range(8):
        changed = tokens.clone()
        changed[:, position] = (changed[:, position] + 1) % 40
        after = model(changed)[0]
        assert torch.equal(after[:, :position], before[:, :position])
        assert not torch.equal(after[:, position:], before[:, position:])


def test_no_gradient_flows_from_a_logit_to_a_later_position():
    model = small_model()
    streams = []
    model.token_embedding.register_forward_hook(
        lambda module, inputs, output: streams.append(output.requires_grad_())
    )
    logits = model(random_tokens(1, 8))[0]
    (gradient,) = torch.autograd.grad(logits[0, 3].sum(), streams[0])
    reach = gradient[0].abs().amax(dim=-1)
    assert (reach[4:] == 0).all()
    assert (reach[:4] > 0).all()


@quick
@given(config=small_configs, seed=st.integers(0, 1000), data=st.data())
def test_the_future_change_probe_is_exactly_zero_for_any_shape(config, seed, data):
    T = data.draw(st.integers(2, config.block_size))
    model = small_model(seed, config)
    tokens = random_tokens(2, T, seed=seed, vocab_size=config.vocab_size)
    kept = tokens.clone()
    assert future_change(model, tokens) == 0.0
    assert torch.equal(tokens, kept)


def test_the_future_change_probe_finds_a_missing_mask():
    model = small_model()
    for block in model.blocks:
        block.attention.attend = scaled_dot_product_attention
    assert future_change(model, random_tokens(2, 8)) > 1e-3


@pytest.mark.parametrize("shape", [(8,), (1, 1), (2, 0), (1, 2, 3)])
def test_the_future_change_probe_needs_a_future(shape):
    with pytest.raises(ValueError, match=r"shape \(.*expected \(B, T\)"):
        future_change(small_model(), torch.zeros(shape, dtype=torch.long))


# Tying


def test_the_head_is_the_embedding_and_stays_so():
    model = chapter_model()
    assert tied(model)
    assert tied(model.to(torch.float64))
    assert tied(model.to(torch.bfloat16).float())
    assert tied(copy.deepcopy(model))
    other = TinyGPT(CHAPTER)
    other.load_state_dict(model.state_dict())
    assert tied(other)
    assert torch.equal(other.lm_head.weight, model.token_embedding.weight)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    third = TinyGPT(CHAPTER)
    third.load_state_dict(torch.load(buffer, weights_only=True))
    assert tied(third)


def test_a_step_moves_head_and_embedding_together():
    model = small_model()
    tokens = random_tokens(2, 8)
    before = model.token_embedding.weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(tokens[:, :-1], tokens[:, 1:])[1].backward()
    optimizer.step()
    assert tied(model)
    assert not torch.equal(model.token_embedding.weight, before)
    with torch.no_grad():
        model.lm_head.weight[0] = 7.0
    assert (model.token_embedding.weight[0] == 7.0).all()


def test_a_deep_copy_shares_nothing_with_its_model():
    model = small_model()
    twin = copy.deepcopy(model)
    ours = {parameter.data_ptr() for parameter in model.parameters()}
    assert not ours & {parameter.data_ptr() for parameter in twin.parameters()}


def test_weights_of_a_compiled_model_load_into_a_plain_one():
    """Compiling wraps the model: its own weights keep their names, the wrapper adds."""
    model = small_model()
    compiled = torch.compile(model)
    plain = TinyGPT(SMALL)
    plain.load_state_dict(model.state_dict(), strict=True)
    state = compiled.state_dict()
    assert all(key.startswith("_orig_mod.") for key in state)
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "_orig_mod.")
    fresh = TinyGPT(SMALL)
    fresh.load_state_dict(state, strict=True)
    tokens = random_tokens(2, 8)
    assert torch.equal(plain(tokens)[0], model(tokens)[0])
    assert torch.equal(fresh(tokens)[0], model(tokens)[0])
    assert tied(fresh)
    assert compiled.parameter_count() == model.parameter_count()


# Counting


def test_the_chapters_model_has_139776_parameters_and_172544_untied():
    model = chapter_model()
    assert model.parameter_count() == parameter_count(model) == 139_776
    model.lm_head.weight = nn.Parameter(model.token_embedding.weight.detach().clone())
    assert model.parameter_count() == 172_544 == 139_776 + 512 * 64
    assert f"{172_544 / 139_776 - 1:.0%}" == "23%"


def test_the_breakdown_of_the_chapters_model():
    assert param_breakdown(CHAPTER) == {
        "embedding (tied with LM head)": 32_768,
        "position table": 8_192,
        "attention projections": 32_768,
        "feed-forward (SwiGLU)": 65_664,
        "norm scales": 384,
        "total": 139_776,
    }


@quick
@given(config=small_configs)
def test_the_breakdown_is_that_of_the_built_model_part_by_part(config):
    model, parts = TinyGPT(config), param_breakdown(config)
    counted = dict.fromkeys(parts, 0)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            part = "norm scales"
        elif "attention" in name:
            part = "attention projections"
        elif "mlp" in name:
            part = "feed-forward (SwiGLU)"
        elif "position" in name:
            part = "position table"
        else:
            part = "embedding (tied with LM head)"
        counted[part] += parameter.numel()
        counted["total"] += parameter.numel()
    assert counted == parts
    assert model.parameter_count() == parts["total"]


def test_eight_heads_move_only_the_norm_scales():
    four, eight = (
        param_breakdown(CHAPTER),
        param_breakdown(GPTConfig(vocab_size=512, n_heads=8)),
    )
    moved = {part for part in four if four[part] != eight[part]}
    assert moved == {"norm scales", "total"}
    assert (four["norm scales"], eight["norm scales"]) == (384, 352)
    assert eight["total"] == 139_744 == four["total"] - 32


def test_the_account_of_a_seven_billion_configuration():
    parts = param_breakdown(SEVEN_B)
    assert SEVEN_B.mlp_hidden == 11_008
    assert parts["norm scales"] == 274_432
    assert parts["position table"] == SEVEN_B.block_size * 4_096
    matrices = parts["total"] - parts["norm scales"] - parts["position table"]
    assert matrices == 6_607_077_376


def test_flops_of_the_chapters_model():
    one, full = flops_per_token(CHAPTER, 1), flops_per_token(CHAPTER, 128)
    assert one == {"weights": 262_400, "attention": 512, "total": 262_912}
    assert full["total"] == 327_936
    assert full["weights"] == one["weights"]
    shares = [f"{cost['attention'] / cost['total']:.1%}" for cost in (one, full)]
    assert shares == ["0.2%", "20.0%"]


@quick
@given(config=small_configs, data=st.data())
def test_predicted_flops_are_those_that_pytorch_counts(config, data):
    """A whole pass: each of T tokens meets T keys. A cached step: one token meets n."""
    T = data.draw(st.integers(2, config.block_size))
    model = TinyGPT(config)
    tokens = random_tokens(1, T, vocab_size=config.vocab_size)
    predicted = flops_per_token(config, T)["total"]
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            model(tokens)
        assert counter.get_total_flops() == T * predicted
        cache = model(tokens[:, :-1])[2]
        with FlopCounterMode(display=False) as counter:
            model(tokens[:, -1:], cache=cache)
        assert counter.get_total_flops() == predicted


def test_an_untied_head_costs_parameters_and_no_operation():
    model = TinyGPT(SMALL)
    model.lm_head.weight = nn.Parameter(model.token_embedding.weight.detach().clone())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(random_tokens(1, 8))
    assert counter.get_total_flops() == 8 * flops_per_token(SMALL, 8)["total"]


def test_twice_the_parameters_is_six_percent_too_much_for_a_known_reason():
    N, exact = 139_776, flops_per_token(CHAPTER, 1)
    assert 2 * N == 279_552
    assert f"{2 * N / exact['total'] - 1:.1%}" == "6.3%"
    parts = param_breakdown(CHAPTER)
    idle = parts["position table"] + parts["norm scales"]  # in no matrix product
    assert 2 * (N - idle) == exact["weights"]


def test_the_roofline_bends_at_fifty_and_decoding_reaches_two_percent():
    peak, bandwidth, bytes_per_weight = 100e12, 2e12, 2
    assert peak / bandwidth == 50
    reached = [
        min(peak, bandwidth * 2 * tokens / bytes_per_weight) / peak
        for tokens in (1, 512)
    ]
    assert reached == [0.02, 1.0]


# The cache


@quick
@given(config=small_configs, seed=st.integers(0, 1000), data=st.data())
def test_a_text_in_any_pieces_gives_the_logits_of_the_whole(config, seed, data):
    """Prefill in one piece or several, step by step or both: the same in float64."""
    T = config.block_size
    cuts = data.draw(st.sets(st.integers(1, T - 1)))
    model = small_model(seed, config).double()
    tokens = random_tokens(2, T, seed=seed, vocab_size=config.vocab_size)
    cache, pieces = None, []
    with torch.no_grad():
        full, _, whole = model(tokens)
        for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), T]):
            logits, _, cache = model(tokens[:, start:stop], cache=cache)
            pieces.append(logits)
            for keys, values in cache:
                shape = (2, config.n_heads, stop, config.head_dim)
                assert keys.shape == values.shape == shape
    assert (full - torch.cat(pieces, dim=1)).abs().max() < 1e-10
    for ours, theirs in zip(cache, whole, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert (a - b).abs().max() < 1e-10


def test_cached_logits_of_the_chapters_model_stay_within_1e_5():
    model, tokens = chapter_model(), torch.tensor(alice_stream()[:128])[None]
    cache, steps = None, []
    with torch.no_grad():
        full = model(tokens)[0]
        for token in tokens.split(1, dim=1):
            logits, _, cache = model(token, cache=cache)
            steps.append(logits)
    assert (full - torch.cat(steps, dim=1)).abs().max() < 1e-5
    assert torch.equal(full.argmax(-1), torch.cat(steps, dim=1).argmax(-1))


def test_a_cache_gives_a_loss_like_the_whole():
    model, tokens = small_model().double(), random_tokens(1, 8)
    _, _, cache = model(tokens[:, :4])
    _, loss, _ = model(tokens[:, 4:7], tokens[:, 5:], cache)
    logits = model(tokens[:, :7])[0]
    expected = F.cross_entropy(logits[0, 4:], tokens[0, 5:])
    torch.testing.assert_close(loss, expected)


def test_a_cache_can_be_gone_on_from_twice():
    model, tokens = small_model(), random_tokens(1, 8)
    with torch.no_grad():
        _, _, cache = model(tokens[:, :5])
        kept = [[tensor.clone() for tensor in pair] for pair in cache]
        first = model(tokens[:, 5:], cache=cache)[0]
        model(tokens[:, :1], cache=cache)
        assert torch.equal(model(tokens[:, 5:], cache=cache)[0], first)
    for pair, kept_pair in zip(cache, kept, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(pair, kept_pair))


@quick
@given(
    config=small_configs,
    B=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float64, *HALF]),
)
def test_cache_bytes_are_two_b_l_t_d_s(config, B, dtype):
    model, T = TinyGPT(config).to(dtype), config.block_size
    cache = None
    for position in range(T):
        token = torch.zeros(B, 1, dtype=torch.long)
        cache = model(token, cache=cache)[2]
        s = torch.finfo(dtype).bits // 8
        predicted = 2 * B * config.n_layers * (position + 1) * config.d_model * s
        assert kv_cache_bytes(cache) == predicted


def test_the_chapters_cache_takes_1024_bytes_a_token():
    with torch.no_grad():
        _, _, cache = chapter_model()(torch.tensor([alice_stream()[:40]]))
    assert kv_cache_bytes(cache) == 40 * 1_024
    assert kv_cache_bytes([]) == 0


@pytest.mark.parametrize(
    ("n_heads", "dtype", "s"), [(4, torch.float32, 4), (8, *HALF[:1], 2)]
)
def test_cache_bytes_do_not_depend_on_the_number_of_heads(n_heads, dtype, s):
    model = TinyGPT(GPTConfig(vocab_size=512, n_heads=n_heads)).to(dtype)
    cache = model(torch.zeros(1, 3, dtype=torch.long))[2]
    assert kv_cache_bytes(cache) == 3 * 2 * 2 * 64 * s


def test_a_seven_billion_models_cache_takes_half_a_megabyte_a_token():
    """The same layout, measured on a cache of the right shape: two bytes a number."""
    one = torch.empty(1, 32, 1, SEVEN_B.head_dim, dtype=torch.float16)
    assert kv_cache_bytes([(one, one)] * SEVEN_B.n_layers) == 524_288


# What is refused


@pytest.mark.parametrize("token", [-1, 40, 41, 2**40])
@pytest.mark.parametrize("place", [(0, 0), (1, 3)])
def test_an_id_outside_of_the_vocabulary_is_named(token, place):
    tokens = random_tokens(2, 4)
    tokens[place] = token
    with pytest.raises(ValueError, match=rf"token id {token}\b.*0 to 39"):
        small_model()(tokens)


@pytest.mark.parametrize("token", [-1, -100, 40])
def test_a_target_outside_of_the_vocabulary_is_named(token):
    """Also -100, which cross-entropy would silently leave out of the mean."""
    targets = random_tokens(2, 4)
    targets[1, 2] = token
    with pytest.raises(ValueError, match=rf"{token}\b.*0 to 39"):
        small_model()(random_tokens(2, 4), targets)


@pytest.mark.parametrize(("cached", "new"), [(0, 9), (1, 8), (8, 1), (4, 5), (0, 20)])
def test_a_sequence_beyond_the_block_is_refused_with_both_lengths(cached, new):
    model = small_model()
    cache = model(random_tokens(1, cached))[2] if cached else None
    message = rf"{cached} cached and {new} new tokens make {cached + new}\b.*8"
    with pytest.raises(ValueError, match=message):
        model(random_tokens(1, new), cache=cache)


@pytest.mark.parametrize(("cached", "new"), [(0, 8), (1, 7), (7, 1)])
def test_a_sequence_that_just_fills_the_block_is_taken(cached, new):
    model = small_model()
    cache = model(random_tokens(1, cached))[2] if cached else None
    assert model(random_tokens(1, new), cache=cache)[0].shape == (1, new, 40)


@pytest.mark.parametrize("shape", [(4,), (0, 4), (1, 0), (1, 2, 3), ()])
def test_tokens_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape \(.*expected \(B, T\)"):
        small_model()(torch.zeros(shape, dtype=torch.long))


@gpu
def test_a_model_on_the_gpu_agrees_with_the_one_on_the_cpu():
    model, tokens = small_model(), random_tokens(2, 8)
    here, loss, _ = model(tokens, tokens)
    model.cuda()
    assert tied(model)
    there, loss_there, cache = model(tokens.cuda(), tokens.cuda())
    assert there.is_cuda
    assert all(tensor.is_cuda for pair in cache for tensor in pair)
    torch.testing.assert_close(there.cpu(), here, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss_there.cpu(), loss, atol=1e-4, rtol=1e-4)
    assert future_change(model, tokens.cuda()) == 0.0
