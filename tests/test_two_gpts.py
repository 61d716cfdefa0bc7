"""Two GPTs: the class with switches is both models, and the experiment is what it says.

With every switch off it is Step 5's GPT bit for bit, with every switch on it is the
TinyGPT of the chapter on the Transformer; every variant between them is causal, has the
number of parameters that the formula predicts, and writes the same with its cache.
"""

import copy
import dataclasses
import json
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_page import printed_by, proven_claims
from torch.nn import functional as F

from tinygpt.gpt import GPT, component_counts
from tinygpt.transformer import GPTConfig, TinyGPT, flops_per_token, param_breakdown
from tinygpt.two_gpts import (
    HYBRID_PARTS,
    HybridConfig,
    HybridGPT,
    hybrid_counts,
    hybrid_flops,
    match_parameters,
    short_run,
    variant_config,
)
from tools.experiments import two_gpts as experiments
from tools.pages import ROOT

quick = settings(max_examples=25, deadline=None)
SMALL = {"V": 7, "T": 8, "d": 16, "H": 2, "L": 2}
SWITCHES = HYBRID_PARTS["all"]
ALL_ON = dict.fromkeys(SWITCHES, True)
IDS = torch.arange(24).view(3, 8) * 5 % 7
every_variant = pytest.mark.parametrize("name", HYBRID_PARTS)


def small(name="baseline", **changes):
    torch.manual_seed(4)
    switches = dict.fromkeys(HYBRID_PARTS[name], True)
    return HybridGPT(HybridConfig(**SMALL | switches | changes))


def n_parameters(model):
    return sum(p.numel() for p in model.parameters())


# The one end: Step 5's GPT


@pytest.mark.parametrize(
    "sizes", [SMALL, {"V": 65, "T": 64, "d": 128, "H": 4, "L": 4}, SMALL | {"H": 1}]
)
@pytest.mark.parametrize("seed", [0, 1337])
def test_with_every_switch_off_it_is_the_gpt_of_step_5_in_every_bit(sizes, seed):
    torch.manual_seed(seed)
    step5 = GPT(**sizes)
    torch.manual_seed(seed)
    hybrid = HybridGPT(HybridConfig(**sizes))
    theirs, ours = step5.state_dict(), hybrid.state_dict()
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    losses = []
    for model in (step5, hybrid):
        _logits, loss = model(IDS[:, :7], IDS[:, 1:])
        loss.backward()
        losses.append(loss)
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(step5(IDS)[0], hybrid(IDS)[0])
    for a, b in zip(step5.parameters(), hybrid.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_the_default_is_the_reference_model_in_parameters_too():
    hybrid = HybridGPT(HybridConfig())
    assert n_parameters(hybrid) == 816_640
    counts = hybrid_counts(HybridConfig())
    theirs = component_counts(GPT(65, 64, 128, 4, 4))
    assert counts["embeddings"] == theirs["embeddings"] == 16_512
    assert counts["attention"] == theirs["attention"] == 262_656
    assert counts["MLPs"] == theirs["MLPs"] == 526_848
    assert counts["norms"] == theirs["block norms"] + 2 * 128


# The other end: TinyGPT


@pytest.mark.parametrize(
    ("sizes", "mlp_ratio"), [((7, 8, 16, 2, 2), 8 / 3), ((65, 64, 128, 4, 4), 8 / 3)]
)
def test_with_every_switch_on_it_is_the_tinygpt_of_the_next_chapter(sizes, mlp_ratio):
    torch.manual_seed(9)
    tiny = TinyGPT(GPTConfig(*sizes, mlp_ratio=mlp_ratio))
    V, T, d, H, L = sizes
    torch.manual_seed(9)
    hybrid = HybridGPT(HybridConfig(V, T, d, H, L, **ALL_ON))
    pairs = list(zip(hybrid.parameters(), tiny.parameters(), strict=True))
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    with torch.no_grad():
        for ours, theirs in pairs:  # not the weights of a start alone
            theirs += torch.randn_like(theirs)
            ours.copy_(theirs)
    logits, loss = hybrid(IDS, IDS)
    expected, expected_loss, _ = tiny(IDS, IDS)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(loss, expected_loss)


@pytest.mark.parametrize("mlp_ratio", [8 / 3, 1.0, 5.3])
def test_counts_and_flops_of_the_other_end_are_those_of_the_next_chapter(mlp_ratio):
    tiny = GPTConfig(512, 128, 64, 4, 2, mlp_ratio=mlp_ratio)
    config = HybridConfig(512, 128, 64, 4, 2, hidden=tiny.mlp_hidden, **ALL_ON)
    assert hybrid_counts(config)["total"] == param_breakdown(tiny)["total"]
    for context in (1, 128):
        total = flops_per_token(tiny, context)["total"]
        assert hybrid_flops(config, context) == total
    if mlp_ratio == 8 / 3:
        assert hybrid_counts(config)["total"] == 139_776
        assert hybrid_flops(config, 1) == 262_912


# What each switch does


@quick
@given(
    st.fixed_dictionaries({name: st.booleans() for name in SWITCHES}),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 30),
)
def test_the_formula_counts_every_combination_of_switches(switches, H, L, hidden):
    config = HybridConfig(9, 5, 4 * H, H, L, hidden, **switches)
    assert hybrid_counts(config)["total"] == n_parameters(HybridGPT(config))


@every_variant
def test_every_variant_is_causal_in_every_bit(name):
    model = small(name)
    changed = IDS.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 7
    before, after = model(IDS)[0], model(changed)[0]
    assert torch.equal(before[:, :5], after[:, :5])
    assert (before != after)[:, 5:].any(-1).all()


@every_variant
def test_gradients_reach_every_parameter(name):
    model = small(name)
    model(IDS, IDS.roll(-1, 1))[1].backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@quick
@given(st.integers(0, 99), st.floats(-3, 3))
def test_layernorm_is_rmsnorm_behind_a_centring(seed, shift):
    u = torch.randn(16, generator=torch.Generator().manual_seed(seed)).double() + shift
    mu, square = u.mean(), u.pow(2).mean()
    ln = F.layer_norm(u, (16,), eps=0.0)
    centred = u - mu
    torch.testing.assert_close(ln, centred / centred.pow(2).mean().sqrt())
    expected = (1 - mu**2 / square).sqrt() * ln + mu / square.sqrt()
    torch.testing.assert_close(u / square.sqrt(), expected)


@quick
@given(st.integers(0, 99), st.floats(1e-3, 1e3), st.floats(0.1, 4))
def test_qk_norm_bounds_every_score_whatever_the_matrices(seed, factor, gain):
    """And without the norm the same matrices leave the bound far behind."""
    torch.manual_seed(seed)
    model = small("QK-norm", fused=seed % 2 == 0)
    attention = model.blocks[0].attn
    with torch.no_grad():
        for name, p in attention.named_parameters():
            p.mul_(gain if "norm" in name else factor)
        triples = attention.project(torch.randn(2, 8, 16))
    largest = max((q @ k.mT).abs().max() / math.sqrt(8) for q, k, _ in triples)
    assert largest <= math.sqrt(8) * gain**2 * (1 + 1e-5)


def test_without_qk_norm_scores_follow_the_matrices():
    attention = small().double().blocks[0].attn
    x = torch.randn(2, 8, 16).double()
    with torch.no_grad():
        before = [q @ k.mT for q, k, _ in attention.project(x)]
        for head in attention.heads:
            head.query.weight.mul_(100)
        after = [q @ k.mT for q, k, _ in attention.project(x)]
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(100 * a, b)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_fused_heads_are_the_separate_ones_on_the_same_weights(qk_norm):
    separate, fused = small(qk_norm=qk_norm), small(fused=True, qk_norm=qk_norm)
    weights = separate.state_dict()
    for i, block in enumerate(separate.blocks):
        weights[f"blocks.{i}.attn.qkv.weight"] = torch.cat(
            [
                getattr(head, part).weight
                for part in ("query", "key", "value")
                for head in block.attn.heads
            ]
        )
    fused.load_state_dict({k: v for k, v in weights.items() if ".heads." not in k})
    assert n_parameters(fused) == n_parameters(separate)
    torch.testing.assert_close(fused(IDS)[0], separate(IDS)[0], rtol=0, atol=1e-6)


def test_swiglu_costs_what_the_plain_mlp_costs_up_to_the_rounding():
    for d in range(8, 300, 4):
        plain = HybridConfig(d=d, H=4, bias_free=True)
        gated = dataclasses.replace(plain, gated=True)
        gap = hybrid_counts(gated)["MLPs"] - hybrid_counts(plain)["MLPs"]
        assert abs(gap) <= 4 * 3 * d * 0.5  # half a hidden unit in each block
    assert HybridConfig(gated=True).mlp_hidden == 341
    assert 3 * 128 * 341 == 130_944


def test_swiglu_is_quadratic_where_gelu_is_linear():
    x = 1e-3 * torch.randn(1, 8, 16)
    for name, growth in (("no offsets", 2.0), ("all", 4.0)):
        mlp = small(name).blocks[0].mlp
        ratio = mlp(2 * x).norm() / mlp(x).norm()
        assert ratio.item() == pytest.approx(growth, rel=0.02)


def test_the_normal_start_draws_every_matrix_alike_and_zeroes_offsets():
    torch.manual_seed(0)
    model = HybridGPT(HybridConfig(normal_init=True))
    for name, p in model.named_parameters():
        if p.dim() == 2:
            assert p.std().item() == pytest.approx(0.02, rel=0.05), name
        elif "ln" not in name:
            assert p.abs().sum() == 0, name


def test_the_other_start_is_pytorchs_with_small_writes():
    torch.manual_seed(0)
    model = HybridGPT(HybridConfig())
    assert model.tok.weight.std().item() == pytest.approx(1, rel=0.05)
    assert model.head.weight.std().item() == pytest.approx((3 * 128) ** -0.5, rel=0.05)
    small_std = 0.02 / math.sqrt(8)
    for block in model.blocks:
        for layer in (block.attn.proj, block.mlp.down):
            assert layer.weight.std().item() == pytest.approx(small_std, rel=0.05)


def test_a_tied_head_stays_tied_through_copy_load_and_step():
    other = copy.deepcopy(small("tied head"))
    other.load_state_dict(small("tied head").state_dict())
    optimizer = torch.optim.AdamW(other.parameters())
    other(IDS, IDS)[1].backward()
    optimizer.step()
    assert other.head.weight.data_ptr() == other.tok.weight.data_ptr()
    assert n_parameters(small("tied head")) == n_parameters(small()) - 7 * 16


def test_a_tied_head_needs_the_small_start():
    torch.manual_seed(1337)
    large = HybridGPT(HybridConfig(tied=True))
    torch.manual_seed(1337)
    modest = HybridGPT(HybridConfig(tied=True, normal_init=True))
    rows = torch.randint(65, (4, 64), generator=torch.Generator().manual_seed(0))
    x, y = rows[:, :-1], rows[:, 1:]
    with torch.no_grad():
        assert large(x, y)[1] > 50
        assert large(x, x)[1] < 0.1
        assert abs(modest(x, y)[1] - math.log(65)) < 0.2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["baseline", "all"])
def test_the_dtype_of_the_model_is_that_of_the_logits(name, dtype):
    model = small(name).to(dtype)
    logits, _ = model(IDS)
    assert logits.dtype == dtype
    assert logits.isfinite().all()


# Cache and window


@every_variant
@pytest.mark.parametrize("first", [1, 5, 7])
def test_a_cache_changes_nothing_while_the_window_lasts(name, first):
    model = small(name).double()
    with torch.no_grad():
        full, _ = model.run(IDS)
        logits, cache = model.run(IDS[:, :first])
        steps = [logits]
        for t in range(first, 8):
            logits, cache = model.run(IDS[:, t : t + 1], cache)
            steps.append(logits)
        torch.testing.assert_close(torch.cat(steps, 1), full, rtol=0, atol=1e-10)
        _, cache = model.run(IDS[:, :3])
        chunk, _ = model.run(IDS[:, 3:], cache)
        torch.testing.assert_close(chunk, full[:, 3:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["baseline", "all"])
def test_a_full_cache_is_refused_with_both_lengths(name):
    model = small(name)
    _, cache = model.run(IDS)
    with pytest.raises(ValueError, match=r"8 cached and 1 new positions.*T, 8"):
        model.run(IDS[:, :1], cache)
    with pytest.raises(ValueError, match=r"0 cached and 9 new positions.*T, 8"):
        model(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize("name", ["baseline", "all"])
def test_a_cache_that_drops_its_first_entry_is_another_function(name):
    model = small(name)
    if name == "all":
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(20 if p.dim() == 2 else 1)
    _, cache = model.run(IDS)
    shorter = [[(k[..., 1:, :], v[..., 1:, :]) for k, v in pairs] for pairs in cache]
    new = IDS[:, :1]
    kept = model.run(new, shorter)[0][:, -1]
    again = model.run(torch.cat([IDS, new], 1)[:, 1:])[0][:, -1]
    assert (kept - again).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["baseline", "all"])
def test_it_writes_as_step_5_writes_and_puts_the_mode_back(name):
    model = small(name)
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    ids = model.generate(IDS[:, :3], 12, 0)
    assert modes == [module.training for module in model.modules()]
    expected = IDS[:, :3]
    for _ in range(12):
        with torch.no_grad():
            new = model(expected[:, -8:])[0][:, -1:].argmax(-1)
        expected = torch.cat([expected, new], 1)
    assert torch.equal(ids, expected)


# Equal parameters


@every_variant
def test_every_variant_is_matched_as_closely_as_a_hidden_unit_allows(name):
    config = variant_config(name)
    totals = [
        abs(hybrid_counts(dataclasses.replace(config, hidden=h))["total"] - 816_640)
        for h in range(config.mlp_hidden - 1, config.mlp_hidden + 2)
    ]
    assert totals[1] == min(totals)
    assert totals[1] < 0.001 * 816_640
    switched = {s for s in SWITCHES if getattr(config, s)}
    assert switched == set(HYBRID_PARTS[name])


def test_each_switch_is_changed_alone_once_and_all_together_once():
    alone = [switches for switches in HYBRID_PARTS.values() if len(switches) == 1]
    assert sorted(alone) == sorted((switch,) for switch in SWITCHES)
    fields = {
        f.name for f in dataclasses.fields(HybridConfig) if f.type in (bool, "bool")
    }
    assert fields == set(SWITCHES) == set(HYBRID_PARTS["all"])


# What is refused


@pytest.mark.parametrize("name", ["V", "T", "d", "H", "L", "hidden"])
@pytest.mark.parametrize("size", [0, -3, 2.0])
def test_a_size_that_makes_no_sense_is_named(name, size):
    with pytest.raises(ValueError, match=f"{name} is {size}; expected a positive"):
        HybridConfig(**SMALL | {name: size})


def test_other_bad_input_is_named():
    with pytest.raises(ValueError, match="d is 16 and H is 3"):
        HybridConfig(**SMALL | {"H": 3})
    with pytest.raises(ValueError, match="no variant 'RoPE'; the names are"):
        variant_config("RoPE")
    with pytest.raises(ValueError, match=r"total is 10; expected at least"):
        match_parameters(HybridConfig(**SMALL), 10)
    with pytest.raises(ValueError, match="id 7; expected 0 to 6"):
        small()(torch.tensor([[0, 7]]))
    with pytest.raises(ValueError, match=r"targets have shape \(8, 3\)"):
        small()(IDS, IDS.T)
    with pytest.raises(dataclasses.FrozenInstanceError):
        HybridConfig().tied = True


# The experiment


def inputs_of(name, seed, data):
    """The batches of the first two steps of a short run, evaluation included."""
    seen = []
    trainer = short_run(name, seed, data, data)
    trainer.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    trainer.run(until=2)
    return torch.stack(seen), trainer


def test_every_variant_of_a_seed_learns_from_the_same_batches():
    data = torch.randint(65, (5_000,), generator=torch.Generator().manual_seed(0))
    (one, first), (two, second) = (
        inputs_of(name, 1, data) for name in ("baseline", "all")
    )
    other, _ = inputs_of("baseline", 2, data)
    assert one.shape == (4, 16, 64)  # two evaluations, two steps
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert first.config == second.config
    assert first.config.steps == 300


@pytest.fixture(scope="module")
def log():
    path = ROOT / "data" / "reference" / experiments.LOG
    return json.loads(path.read_text("utf-8"))["runs"]


def test_the_log_holds_every_variant_with_every_seed_and_nothing_else(log):
    names = {f"{v}, seed {s}" for v in HYBRID_PARTS for s in experiments.SEEDS}
    assert set(log) == names
    for name, run in log.items():
        config = variant_config(name.rpartition(", seed ")[0])
        assert run["hidden"] == config.mlp_hidden
        assert run["parameters"] == hybrid_counts(config)["total"]
        assert run["steps"] == len(run["train_loss"]) == 300
        assert 1.0 < run["held_out"] < 4.0


def test_the_log_says_what_the_page_reads_out_of_it(log):
    """A start costs a tenth of a nat with every seed; all else is near the placebo."""

    def held_out(name):
        return [log[f"{name}, seed {seed}"]["held_out"] for seed in experiments.SEEDS]

    means = {}
    for name, switches in HYBRID_PARTS.items():
        pairs = zip(held_out(name), held_out("baseline"), strict=True)
        differences = [ours - theirs for ours, theirs in pairs]
        means[name] = sum(differences) / 3
        if {"normal_init", "tied"} & set(switches):
            assert min(differences) > 0.1, name
        else:
            assert abs(means[name]) < 0.02, name
    assert max(means, key=means.get) == "tied head"
    assert means["all but the start"] == min(means.values())
    assert f"{means['fused heads']:.3f} {means['all']:.3f}" == "-0.008 0.156"


def test_qk_norm_alone_begins_with_the_weights_of_the_baseline():
    def matrices(name):
        torch.manual_seed(5)
        model = HybridGPT(variant_config(name))
        return [p for p in model.parameters() if p.dim() == 2]

    base = matrices("baseline")
    same = []
    for name in HYBRID_PARTS:
        ours = matrices(name)
        if len(ours) == len(base) and all(map(torch.equal, ours, base)):
            same.append(name)
    assert same == ["baseline", "QK-norm"]


# What the page says


def printed() -> str:
    return " ".join(" ".join(printed_by("two-gpts")).split())


@pytest.mark.parametrize(
    "line",
    [
        "same names: True same weights: True same logits: True",
        "803,840 parameters in both: True same logits to 1e-6: True",
        "same as recomputed: True same as Step 5's: True",
        "64 cached and 1 new positions; expected at most T, 64",
        "parameters as planned: True",
    ],
)
def test_the_page_prints_its_proofs(line):
    assert line in printed()


def test_no_comparison_on_the_page_fails():
    verdicts = re.findall(r"(?:1e-\d+|True|planned|Step 5's): (True|False)", printed())
    assert len(verdicts) >= 8
    assert "False" not in verdicts


def test_each_proposition_has_a_proof_and_a_cell_in_its_section():
    assert proven_claims("two-gpts") == 2
