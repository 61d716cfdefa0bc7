"""Step 8: what is recorded adds up, what is replaced comes back, scores mean it."""

import math

import pytest
import torch
from chapter2 import one_thread, quick  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.gpt import GPT
from tinygpt.interpret import (
    Part,
    ablated,
    ablation_effects,
    all_parts,
    bootstrap_interval,
    evaluating,
    even_attention,
    half_bits,
    head_scores,
    induction_strings,
    key_patterns,
    logit_attribution,
    logit_lens,
    neuron_scores,
    part_changes,
    record,
    speaker_mask,
    spread_windows,
    target_bits,
)
from tinygpt.training import fuse

V, T, D, H, L = 11, 12, 16, 2, 3


def small(fused: bool = False, seed: int = 0) -> GPT:
    """A model in double precision whose parts all have something to say."""
    torch.manual_seed(seed)
    model = GPT(V, T, D, H, L).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln" in name:
                parameter.uniform_(0.5, 1.5)
            elif "attn.proj" in name or "mlp.down" in name:
                parameter.normal_()
    return fuse(model) if fused else model


def rows(n: int = 3, width: int = T, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (n, width), generator=generator)


def hooks(model: nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in model.modules()
    )


def close(a: Tensor, b: Tensor, within: float = 1e-12) -> bool:
    return (a - b).abs().max().item() < within


def hand_set(n: int) -> GPT:
    """The two-block induction algorithm of Lecture 8; the last id is the start sign."""
    W, places = n + 1, 2 * n + 1
    model = GPT(W, places, 3 * W + places, 1, 2).double()
    token, before, answer = (slice(i * W, (i + 1) * W) for i in range(3))
    place = slice(3 * W, None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
        for block in model.blocks:
            block.attn.proj.weight.copy_(torch.eye(3 * W + places))
        first, second = (block.attn.heads[0] for block in model.blocks)
        model.tok.weight[:, token] = torch.eye(W)
        model.pos.weight[:, place] = torch.eye(places)
        first.query.weight[place, place] = 40 * torch.eye(places).roll(1, dims=1)
        first.key.weight[place, place] = torch.eye(places)
        first.value.weight[before, token] = torch.eye(W)
        second.query.weight[before, token] = 40 * torch.eye(W)
        second.key.weight[before, before] = torch.eye(W)
        second.value.weight[answer, token] = torch.eye(W)
        model.head.weight[:, answer] = 10 * torch.eye(W)
    return model


# The record


@pytest.mark.parametrize("fused", [False, True])
def test_the_recorded_writes_sum_to_the_stream_and_to_the_logits(fused):
    model, ids = small(fused), rows()
    seen = record(model, ids)
    streams = []
    handle = model.lnf.register_forward_pre_hook(
        lambda _, args: streams.append(args[0])
    )
    logits = model(ids)[0]
    handle.remove()
    assert torch.equal(seen.logits, logits)
    assert seen.stream().shape == (2 * L + 1, 3, T, D)
    assert close(seen.stream()[-1], streams[0])
    assert close(model.head(model.lnf(seen.stream()[-1])), logits)


def test_every_stage_of_the_stream_is_what_the_blocks_hand_on():
    model, ids = small(), rows()
    stream = record(model, ids).stream()
    x = model.tok(ids) + model.pos.weight[:T]
    assert close(stream[0], x)
    for i, block in enumerate(model.blocks):
        x = block(x)
        assert close(stream[2 * i + 2], x)


def test_fused_and_plain_models_give_the_same_record():
    plain, fused = record(small(), rows()), record(small(fused=True), rows())
    for name, value in vars(plain).items():
        assert close(value, getattr(fused, name)), name


def test_recorded_shapes_are_those_that_are_stated():
    seen = record(small(), rows(n=5, width=7))
    assert seen.head_outputs.shape == (L, H, 5, 7, D // H)
    assert seen.head_writes.shape == (L, H, 5, 7, D)
    assert seen.attention_biases.shape == (L, D)
    assert seen.neurons.shape == (L, 5, 7, 4 * D)
    assert seen.attention.shape == (L, H, 5, 7, 7)
    assert seen.token.shape == seen.position.shape == (5, 7, D)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_attention_is_one_softmax_and_nothing_else_in_either_mode(fused, training):
    model = small(fused).train(training)
    attention = record(model, rows()).attention
    for A in (attention, attention.mean(dim=1)):  # a mean of heads needs no new softmax
        assert close(A.sum(dim=-1), torch.ones(()))
        assert A.triu(1).abs().max() == 0
        assert (A[..., 0, 0] == 1).all()
    assert not close(attention[:, 0], attention[:, 1], 1e-3)


def test_recording_leaves_no_hook_no_mode_no_graph_and_no_weight_changed():
    model = small()
    model.train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = record(model, rows())
    assert hooks(model) == 0
    assert [module.training for module in model.modules()] == modes
    assert not any(value.requires_grad for value in vars(seen).values())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_recording_cleans_up_when_the_pass_fails():
    model = small().train()
    with pytest.raises(ValueError, match="id 11; expected 0 to 10"):
        record(model, torch.full((1, 4), V))
    assert hooks(model) == 0
    assert all(module.training for module in model.modules())


def test_a_record_within_an_ablation_shows_the_ablated_model():
    model = small()
    with ablated(model, Part("head", 1, 1)):
        seen = record(model, rows())
        assert torch.equal(seen.logits, model(rows())[0])
    assert seen.head_writes[1, 1].abs().max() == 0
    assert close(model.head(model.lnf(seen.stream()[-1])), seen.logits)


# Lens and attribution


def test_the_lens_ends_in_the_prediction_and_begins_at_the_embedding():
    model, ids = small(), rows()
    seen = record(model, ids)
    lens = logit_lens(model, seen)
    assert lens.shape == (2 * L + 1, 3, T, V)
    assert close(lens[-1], seen.logits)
    start = model.tok(ids) + model.pos.weight[:T]
    assert close(lens[0], model.head(model.lnf(start)))
    assert not lens.requires_grad


@quick
@given(seed=st.integers(0, 10_000), fused=st.booleans())
def test_shares_add_up_to_the_logit_less_the_mean_and_to_differences(seed, fused):
    model, ids = small(fused, seed), rows(2, seed=seed)
    target, other = rows(2, seed=seed + 1), rows(2, seed=seed + 2)
    seen = record(model, ids)
    logit = seen.logits.gather(-1, target[..., None])[..., 0]
    shares = logit_attribution(model, seen, target)
    assert len(shares) == 2 + L * (H + 2) + 1
    assert close(sum(shares.values()), logit - seen.logits.mean(dim=-1), 1e-10)
    difference = logit - seen.logits.gather(-1, other[..., None])[..., 0]
    shares = logit_attribution(model, seen, target, other)
    assert close(sum(shares.values()), difference, 1e-10)


def test_a_share_ignores_what_the_norm_ignores():
    """A constant in a write changes no logit, so it may change no share."""
    model, ids = small(), rows()
    seen = record(model, ids)
    before = logit_attribution(model, seen, rows(seed=2))
    seen.token.add_(100.0)
    after = logit_attribution(model, seen, rows(seed=2))
    assert all(close(before[name], after[name], 1e-9) for name in before)


def test_attribution_refuses_targets_that_do_not_fit():
    model = small()
    seen = record(model, rows())
    with pytest.raises(
        ValueError, match=r"target has shape \(3, 5\); expected \(3, 12"
    ):
        logit_attribution(model, seen, rows(width=5))
    with pytest.raises(ValueError, match="against holds an id outside of 0 to 10"):
        logit_attribution(model, seen, rows(), rows() + V)


# Parts and ablations


def test_parts_are_named_and_all_there():
    names = [str(part) for part in all_parts(small())]
    assert names[:4] == ["head 0.0", "head 0.1", "MLP 0", "head 1.0"]
    assert len(names) == L * (H + 1)
    assert str(Part("neuron", 2, 40)) == "neuron 2.40"


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", ["head", "MLP", "neuron"])
def test_a_part_replaced_by_its_own_output_changes_nothing(fused, kind):
    model, ids = small(fused), rows()
    part = Part(kind, 1, 0 if kind == "MLP" else 1)
    seen = record(model, ids)
    with ablated(model, part, part.output(seen)):
        assert torch.equal(model(ids)[0], seen.logits)
    with ablated(model, part, part.output(seen).roll(1, dims=0)):
        assert not close(model(ids)[0], seen.logits, 1e-3)


def test_an_ablated_part_writes_the_value_and_no_other_part_of_its_block_changes():
    model, ids = small(), rows()
    seen = record(model, ids)
    with ablated(model, Part("head", 1, 0), 2.5):
        changed = record(model, ids)
    assert (changed.head_outputs[1, 0] == 2.5).all()
    assert torch.equal(changed.head_outputs[1, 1], seen.head_outputs[1, 1])
    with ablated(model, Part("MLP", 1), seen.mlp_writes[1].mean(dim=(0, 1))):
        changed = record(model, ids)
    assert changed.mlp_writes[1].std(dim=1).max() < 1e-12
    with ablated(model, Part("neuron", 1, 5), -1.0):
        changed = record(model, ids)
    assert (changed.neurons[1, ..., 5] == -1).all()
    assert torch.equal(changed.neurons[1, ..., 6:], seen.neurons[1, ..., 6:])


def test_a_head_that_is_silent_equals_a_band_of_zeros_in_the_projection():
    model, ids = small(), rows()
    with ablated(model, Part("head", 2, 1)):
        silent = model(ids)[0]
    with torch.no_grad():
        model.blocks[2].attn.proj.weight[:, D // H :] = 0
    assert close(model(ids)[0], silent)


@pytest.mark.parametrize("fused", [False, True])
def test_after_an_ablation_the_model_is_bitwise_what_it_was(fused):
    model, ids = small(fused), rows()
    before = model(ids)[0]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    for part in (*all_parts(model), Part("neuron", 0, 3)):
        with ablated(model, part):
            assert not torch.equal(model(ids)[0], before), part
        assert torch.equal(model(ids)[0], before)
    assert hooks(model) == 0
    assert all(torch.equal(weights[k], v) for k, v in model.state_dict().items())


def test_an_ablation_ends_after_an_error_too_and_nests():
    model, ids = small(), rows()
    before = model(ids)[0]

    def fail_inside():
        with ablated(model, Part("MLP", 0)), ablated(model, Part("head", 1, 0)):
            assert hooks(model) == 2
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail_inside()
    assert hooks(model) == 0
    assert torch.equal(model(ids)[0], before)


def test_the_value_that_is_put_in_is_not_changed():
    model, ids = small(), rows()
    value = record(model, ids).mlp_writes[0]
    kept = value.clone()
    with ablated(model, Part("MLP", 0), value):
        model(ids)
    assert torch.equal(value, kept)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Part("head", 3, 0), "head 3.0: the model has blocks 0 to 2"),
        (Part("head", 0, 2), "head 0.2: expected an index from 0 to 1"),
        (Part("MLP", -1), "MLP -1: the model has blocks 0 to 2"),
        (Part("MLP", 0, 1), "MLP 0: expected an index from 0 to 0"),
        (Part("neuron", 0, 64), "neuron 0.64: expected an index from 0 to 63"),
    ],
)
def test_a_part_that_the_model_lacks_is_named(part, message):
    model = small()
    with pytest.raises(ValueError, match=message), ablated(model, part):
        pass
    assert hooks(model) == 0


def test_a_kind_or_a_value_that_makes_no_sense_is_named():
    with pytest.raises(
        ValueError, match="kind is 'norm'; expected head, MLP or neuron"
    ):
        Part("norm", 0)
    model = small()
    with (
        pytest.raises(
            ValueError, match=r"value has shape \(5,\).*\(3, 12, 8\).*head 0.1"
        ),
        ablated(model, Part("head", 0, 1), torch.zeros(5)),
    ):
        model(rows())
    assert hooks(model) == 0


def test_effects_are_the_losses_with_and_without():
    model, windows = small(), rows(4, T + 1)
    effect = ablation_effects(model, windows, {Part("MLP", 2): 0.0})
    (cost,) = effect.values()
    before = model(windows[:, :-1], windows[:, 1:])[1]
    with ablated(model, Part("MLP", 2)):
        after = model(windows[:, :-1], windows[:, 1:])[1]
    assert cost.shape == (4,)
    assert cost.mean().item() == pytest.approx((after - before).item() / math.log(2))


def test_silencing_the_last_mlp_gives_the_lens_before_it():
    model, ids = small(), rows()
    lens = logit_lens(model, record(model, ids))
    with ablated(model, Part("MLP", L - 1)):
        assert close(model(ids)[0], lens[-2])


def test_changes_are_zero_for_a_part_replaced_by_itself_and_refuse_a_bad_mask():
    model, windows = small(), rows(4, T + 1)
    part, some = Part("neuron", 1, 7), torch.arange(V) < 3
    own = part.output(record(model, windows[:, :-1]))
    for change in part_changes(model, windows, part, own, some):
        assert change.shape == (4, T)
        assert change.abs().max() == 0
    more, _ = part_changes(model, windows, part, 50.0, some)
    less, _ = part_changes(model, windows, part, 50.0, ~some)
    assert close(more, -less)
    assert more.abs().max() > 1e-3
    with pytest.raises(ValueError, match=r"torch.int64 \(11,\); expected torch.bool"):
        part_changes(model, windows, part, 0.0, torch.arange(V))


# Windows, bits, modes, intervals


def test_windows_lie_evenly_from_the_first_character_to_the_last():
    windows = spread_windows(torch.arange(100), 9, 10)
    assert windows.shape == (10, 10)
    assert torch.equal(windows[:, 0], torch.arange(10) * 10)
    assert torch.equal(windows - windows[:, :1], torch.arange(10).expand(10, 10))
    assert spread_windows(torch.arange(10), 9, 1).tolist() == [list(range(10))]
    assert spread_windows(torch.arange(11), 9, 4)[-1, -1] == 10
    with pytest.raises(ValueError, match="the text has 9 ids; need at least 10"):
        spread_windows(torch.arange(9), 9, 1)
    with pytest.raises(ValueError, match="T is 0, n is 3"):
        spread_windows(torch.arange(9), 0, 3)


def test_bits_are_the_models_loss_in_bits_and_the_mode_is_restored():
    model, windows = small().train(), rows(3, T + 1)
    bits = target_bits(model, windows)
    loss = model(windows[:, :-1], windows[:, 1:])[1]
    assert bits.shape == (3, T)
    assert bits.mean().item() == pytest.approx(loss.item() / math.log(2))
    assert model.training
    assert not bits.requires_grad


def test_every_modules_mode_comes_back_after_an_error():
    model = small().train()
    model.blocks[0].mlp.eval()
    modes = [module.training for module in model.modules()]

    def fail_inside():
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail_inside()
    assert [module.training for module in model.modules()] == modes


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(400, 40, generator=generator)
    mean, low, high = bootstrap_interval(values)
    assert torch.allclose(mean, values.mean(dim=1))
    covered = ((low < 0) & (high > 0)).float().mean().item()
    assert 0.90 < covered < 0.98
    again = bootstrap_interval(values)
    assert torch.equal(low, again[1])


def test_weighted_windows_pool_and_empty_ones_do_not_count():
    values, counts = torch.tensor([1.0, 0.0, 4.0]), torch.tensor([2, 0, 1])
    mean, low, high = bootstrap_interval(values, counts)
    assert mean.item() == 2.0
    assert 1.0 <= low.item() <= 2.0 <= high.item() <= 4.0
    for counts in (torch.zeros(3), torch.ones(2), torch.tensor([1, -1, 1])):
        with pytest.raises(ValueError, match="3 windows with weights"):
            bootstrap_interval(values, counts)
    with pytest.raises(ValueError, match="1 windows"):
        bootstrap_interval(torch.ones(1))


# Patterns and scores


@quick
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_patterns_are_what_their_definitions_say(text):
    patterns = key_patterns(torch.tensor([text]), newline=0)
    for t in range(len(text)):
        last = max((s for s in range(t) if text[s] == 0), default=None)
        expected = {
            "previous": {t - 1} & set(range(t)),
            "two back": {t - 2} & set(range(t)),
            "line start": set() if last is None else {last},
            "same": {s for s in range(t) if text[s] == text[t]},
            "after same": {s for s in range(1, t) if text[s - 1] == text[t]},
        }
        for name, keys in expected.items():
            found = set(patterns[name][0, t].nonzero().flatten().tolist())
            assert found == keys, (name, t)


@pytest.mark.parametrize("name", ["previous", "two back", "line start", "same"])
def test_a_head_that_does_just_that_scores_one(name):
    ids = rows(6)
    pattern = key_patterns(ids, newline=0)[name]
    weights = torch.where(pattern.any(-1, keepdim=True), pattern, torch.eye(T)).float()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    mean, _, _ = bootstrap_interval(*head_scores(weights, pattern))
    assert mean.item() == pytest.approx(1.0)


def test_even_attention_scores_the_share_of_keys():
    ids = torch.zeros(2, 4, dtype=torch.long)  # all the same character
    means, asked = head_scores(even_attention(2, 4), key_patterns(ids, 9)["same"])
    assert asked.tolist() == [3, 3]
    assert means[0].item() == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)
    assert torch.allclose(even_attention(1, 5).sum(dim=-1), torch.ones(5))


def test_a_window_without_the_pattern_counts_nothing():
    ids = torch.tensor([[1, 2, 3, 4], [1, 1, 1, 1]])
    means, asked = head_scores(even_attention(2, 4), key_patterns(ids, 0)["same"])
    assert (means[0].item(), asked.tolist()) == (0.0, [0, 3])
    with pytest.raises(ValueError, match=r"weights have shape \(2, 4, 4\)"):
        head_scores(even_attention(2, 4), torch.ones(2, 3, 3, dtype=torch.bool))


def test_induction_by_hand_set_weights_scores_one_and_needs_both_heads():
    n = 9
    model = hand_set(n)
    strings = induction_strings(20, n, n, torch.Generator().manual_seed(0))
    ids = torch.cat([torch.full((20, 1), n), strings], dim=1)
    seen = record(model, ids)
    patterns = key_patterns(ids, newline=-1)
    for block, name in ((0, "previous"), (1, "after same")):
        score, asked = head_scores(seen.attention[block, 0], patterns[name])
        assert asked.min() >= n
        assert close(score, torch.ones(()), 1e-9)
    loss = target_bits(model, ids)
    assert loss[:, n + 1 :].max() < 1e-3
    assert loss[:, :n].mean() > 3
    for part in (Part("head", 0, 0), Part("head", 1, 0)):
        with ablated(model, part):
            assert target_bits(model, ids)[:, n + 1 :].mean() > 3


@quick
@given(st.integers(2, V), st.integers(1, 5), st.integers(0, 99))
def test_induction_strings_repeat_and_do_not_repeat_themselves(length, n, seed):
    generator = torch.Generator().manual_seed(seed)
    strings = induction_strings(n, length, V, generator)
    assert strings.shape == (n, 2 * length)
    assert torch.equal(strings[:, :length], strings[:, length:])
    assert all(len(row.unique()) == length for row in strings)
    assert 0 <= strings.min() <= strings.max() < V


def test_strings_that_cannot_be_are_refused():
    for n, length in ((0, 3), (2, 1), (2, V + 1)):
        with pytest.raises(ValueError, match=f"n is {n}, length is {length}"):
            induction_strings(n, length, V)


def test_halves_leave_out_what_nothing_announces():
    model, ids = small(), rows(3, 10)
    first, second = half_bits(model, ids)
    loss = F.cross_entropy(model(ids[:, :-1])[0].mT, ids[:, 1:], reduction="none")
    assert close(first, loss[:, :4].mean(dim=1) / math.log(2))
    assert close(second, loss[:, 5:].mean(dim=1) / math.log(2))
    for width in (3, 2, 7):
        with pytest.raises(ValueError, match=f"rows of {width} ids"):
            half_bits(model, rows(3, width))


# Neurons


def test_a_speakers_name_is_a_line_with_a_colon_behind_an_empty_line():
    text = "KING:\nHear this:\nno name:\n\nFirst Lord:\nAy.\n\nnot one\n\nNobody:"
    marked = "".join(c if m else "." for c, m in zip(text, speaker_mask(text)))
    assert marked.replace(".", "") == "KING:First Lord:"
    assert speaker_mask("").shape == (0,)


def test_a_neuron_that_is_the_label_scores_one_and_its_opposite_minus_one():
    generator = torch.Generator().manual_seed(0)
    label = torch.rand(3, 8, generator=generator) < 0.3
    noise = torch.randn(3, 8, generator=generator)
    neurons = torch.stack(
        [3.0 * label + 1, 1 - label.float(), noise, torch.full((3, 8), 0.7)], dim=-1
    )[None]
    scores = neuron_scores(neurons, label)[0]
    assert scores[0].item() == pytest.approx(1.0)
    assert scores[1].item() == pytest.approx(-1.0)
    expected = torch.corrcoef(torch.stack([noise.flatten(), label.flatten().float()]))
    assert scores[2].item() == pytest.approx(expected[0, 1].item(), abs=1e-5)
    assert scores[3].item() == pytest.approx(0.0, abs=1e-5)


def test_labels_that_say_nothing_or_do_not_fit_are_refused():
    neurons = torch.randn(1, 3, 8, 2)
    with pytest.raises(ValueError, match="the label is False everywhere"):
        neuron_scores(neurons, torch.zeros(3, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"the label \(8, 3\)"):
        neuron_scores(neurons, torch.ones(8, 3, dtype=torch.bool))


def test_what_is_measured_keeps_the_dtype_and_leaves_the_generator_alone():
    state = torch.get_rng_state()
    model, windows = small().float(), rows(3, T + 1)
    seen = record(model, windows[:, :-1])
    mean, low, high = bootstrap_interval(
        *head_scores(seen.attention, key_patterns(windows[:, :-1], 0)["previous"])
    )
    assert {seen.attention.dtype, mean.dtype, low.dtype, high.dtype} == {torch.float32}
    torch.manual_seed(0)
    small()
    torch.set_rng_state(state)
    bootstrap_interval(torch.ones(4))
    induction_strings(2, 3, V, torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_flow_through_an_ablated_model():
    model, windows = small(), rows(3, T + 1)
    for part in (Part("head", 1, 0), Part("MLP", 1), Part("neuron", 1, 4)):
        model.zero_grad()
        with ablated(model, part):
            model(windows[:, :-1], windows[:, 1:])[1].backward()
        assert model.tok.weight.grad.abs().sum() > 0
        silent = model.blocks[1].mlp.up.weight.grad
        if part.kind == "MLP":
            assert silent is None or silent.abs().max() == 0
