"""The fast decoder: the same tokens, logits and cache as the plain loop; no new tensor.

And its page: what it must print, that its stored log is of this code, and that the
benchmark behind the log runs at a small size. Nothing here measures time.
"""

import hashlib
import importlib.util
import json
import math
import re

import pytest
import torch
from chapter2 import (
    SMALL,
    gpu,
    one_thread,  # noqa: F401
    quick,
    random_tokens,
    small_model,
)
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from stored_page import printed_by, proven_claims

from benchmarks import generation
from tinygpt.decoding import (
    Decoder,
    OperatorCount,
    attainable,
    bytes_read,
    floor_of,
    fold,
    generate_fast,
    unit_length,
    write,
)
from tinygpt.transformer import (
    GPTConfig,
    TinyGPT,
    flops_per_token,
    generate,
    kv_cache_bytes,
)
from tools.pages import ROOT

STEM = "fast-generation"
REFERENCE = ROOT / "data" / "reference"
LOG = "benchmarks_generation.json"


def trained_model() -> TinyGPT:
    """The model of Chapter 2 with the weights that are stored."""
    model = TinyGPT(GPTConfig(vocab_size=512))
    weights = load_file(REFERENCE / "ch02_model.safetensors")
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert missing == ["lm_head.weight"]  # tied
    return model


def cache_of(model: TinyGPT, tokens: torch.Tensor) -> torch.Tensor:
    """What the model itself caches, in the decoder's shape (L, 2, B, H, T, d_h)."""
    with torch.no_grad():
        _, _, cache = model(tokens)
    return torch.stack([torch.stack(pair) for pair in cache])


# The same as the plain loop


def test_the_trained_model_writes_the_same_text_behind_many_prompts():
    model = trained_model()
    alone, many = Decoder(model), Decoder(model, 24)
    prompts = random_tokens(24, 5, vocab_size=512)
    asked = generate(model, prompts, 123)  # to the end of the block
    assert torch.equal(generate_fast(many, prompts, 123), asked)
    for prompt, right in zip(prompts[:6], asked):
        assert torch.equal(generate_fast(alone, prompt, 123), right)


@quick
@given(seed=st.integers(0, 999), B=st.integers(1, 5), data=st.data())
def test_any_model_any_batch_any_length(seed, B, data):
    config = data.draw(
        st.sampled_from(
            [SMALL, GPTConfig(9, 6, 6, 3, 1), GPTConfig(30, 12, 8, 1, 3, mlp_ratio=1.5)]
        )
    )
    model = small_model(seed, config)
    T = data.draw(st.integers(1, config.block_size))
    n_new = data.draw(st.integers(0, config.block_size - T))
    prompt = random_tokens(B, T, seed=seed, vocab_size=config.vocab_size)
    written = generate_fast(Decoder(model, B), prompt, n_new)
    assert torch.equal(written, generate(model, prompt, n_new))


@pytest.mark.parametrize("temperature", [0.5, 1, 2.0])
def test_a_seed_draws_what_it_draws_in_the_plain_loop(temperature):
    model = small_model()
    prompt = random_tokens(3, 2)
    for seed in range(4):
        found = generate_fast(Decoder(model, 3), prompt, 6, temperature, seed)
        assert torch.equal(found, generate(model, prompt, 6, temperature, seed))


def test_an_exact_tie_goes_to_the_first_token_in_both_loops():
    model = small_model()
    with torch.no_grad():
        model.lm_head.weight.zero_()  # the embedding as well: every logit is 0
    expected = [5, *[0] * 7]
    assert generate(model, [5], 7).tolist() == expected
    assert generate_fast(Decoder(model), [5], 7).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("B", [1, 3])
def test_logits_and_cache_are_those_of_the_whole_forward_pass(dtype, B):
    model = small_model(4).to(dtype)
    tokens = random_tokens(B, 8)
    with torch.no_grad():
        full, _, cache = model(tokens)
    decoder = Decoder(model, B)
    steps = [decoder.prefill(tokens[:, :3]).clone()]
    steps += [decoder.decode(tokens[:, t]).clone() for t in range(3, 8)]
    close = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 1e-4}
    torch.testing.assert_close(torch.stack(steps, dim=1), full[:, 2:], **close)
    torch.testing.assert_close(decoder.cache, cache_of(model, tokens), **close)
    size = decoder.cache.numel() * decoder.cache.element_size()
    assert size == kv_cache_bytes(cache)  # as long as the block, which is full


def test_the_rounding_floor_of_each_norm_is_kept():
    """With tiny activations eps rules; without it the logits would be others."""
    model = small_model().double()
    with torch.no_grad():
        model.token_embedding.weight.mul_(1e-9)
        model.position_embedding.weight.mul_(1e-9)
        for block in model.blocks:
            block.attention.qkv.weight.mul_(1e-6)
    tokens = random_tokens(2, 5)
    with torch.no_grad():
        full, _, _ = model(tokens)
    decoder = Decoder(model, 2)
    decoder.prefill(tokens[:, :1])
    for t in range(1, 5):
        found = decoder.decode(tokens[:, t])
        torch.testing.assert_close(found, full[:, t], rtol=1e-9, atol=0)


@pytest.mark.parametrize("eps", [None, 0.0, 0.3])
def test_a_folded_gain_does_what_norm_and_layer_do(eps):
    torch.manual_seed(1)
    norm, linear = torch.nn.RMSNorm(6, eps=eps), torch.nn.Linear(6, 4, bias=False)
    torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    x = torch.randn(3, 6)
    out = torch.empty_like(x)
    unit_length(x, floor_of(norm), torch.empty(3, 1), out)
    with torch.no_grad():
        torch.testing.assert_close(out @ fold(norm, linear), linear(norm(x)))


# Buffers


@pytest.mark.parametrize("B", [1, 4])
def test_a_step_makes_no_tensor_and_fewer_than_half_the_calls(B):
    model = small_model()
    tokens, decoder = random_tokens(B, 4), Decoder(model, B)
    with torch.no_grad():
        _, _, past = model(tokens)
        with OperatorCount() as plain:
            model(tokens[:, :1], cache=past)
    decoder.prefill(tokens)
    with torch.inference_mode(), OperatorCount() as fast:
        ids = decoder.places[4].ids
        torch.argmax(decoder.logits, dim=-1, out=ids)
        decoder.decode(ids)
    assert fast.new_tensors == 0
    assert plain.new_tensors > 50
    assert 2 * fast.operators.total() < plain.operators.total()


def test_what_makes_a_tensor_is_told_from_what_does_not():
    x = torch.zeros(3)
    with OperatorCount() as count:
        y = x + 1  # made anew
        y.add_(x)
        torch.add(x, y, out=y)
        x.view(3, 1)
    assert count.new_tensors == 1
    assert count.operators.total() == 4


def test_a_second_prompt_knows_nothing_of_the_first():
    decoder = Decoder(small_model())
    first, second = [1, 2, 3], [30, 4]
    alone = generate_fast(decoder, first, 5)
    other = generate_fast(decoder, second, 6)
    assert torch.equal(generate_fast(decoder, first, 5), alone)
    assert torch.equal(other, generate(decoder.model, second, 6))


def test_what_is_returned_stays_and_may_be_trained_on():
    model = small_model()
    decoder = Decoder(model)
    text = generate_fast(decoder, [1, 2], 6)
    kept = text.clone()
    generate_fast(decoder, [7], 7)
    assert torch.equal(text, kept)
    _, loss, _ = model(text[None, :-1], text[None, 1:])
    loss.backward()
    assert model.lm_head.weight.grad.abs().sum() > 0


def test_a_prefill_takes_over_weights_that_were_trained_since():
    model = small_model(1)
    decoder = Decoder(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    written = generate_fast(decoder, [3, 1], 6)
    assert torch.equal(written, generate(model, [3, 1], 6))


def test_the_position_can_be_set_back():
    decoder = Decoder(small_model())
    kept = decoder.prefill([3, 1, 4]).clone()
    once = write(decoder, 5)
    assert decoder.position == 7  # the last token is written and not read
    decoder.position = 3
    decoder.logits.copy_(kept)
    assert torch.equal(write(decoder, 5), once)


def test_the_model_keeps_its_mode_and_its_gradients():
    model = small_model().train()
    generate_fast(Decoder(model), [1], 4)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


# What is refused


@pytest.mark.parametrize(
    ("prompt", "n_new", "told"),
    [
        ([], 1, "the prompt is empty"),
        ([1, 40], 1, "token id 40; expected 0 to 39"),
        ([1.5], 1, "expected integer ids"),
        ([1, 2, 3], 6, "make 9 tokens"),
        ([1], -1, "max_new_tokens -1"),
        ([[1, 2], [3, 4]], 1, "the prompt has 2 sequences; expected 1"),
    ],
)
def test_a_bad_prompt_is_refused_with_its_value(prompt, n_new, told):
    with pytest.raises(ValueError, match=told):
        generate_fast(Decoder(small_model()), prompt, n_new)


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf, "1"])
def test_a_bad_temperature_is_refused(temperature):
    with pytest.raises(ValueError, match="expected a number from 0 up"):
        generate_fast(Decoder(small_model()), [1], 1, temperature)


@pytest.mark.parametrize("batch_size", [0, -2, 1.0, True, "3"])
def test_a_bad_batch_size_is_refused(batch_size):
    with pytest.raises(ValueError, match=re.escape(f"batch_size is {batch_size!r}")):
        Decoder(small_model(), batch_size)


def test_a_full_cache_is_refused():
    decoder = Decoder(small_model())
    decoder.prefill([1] * 8)
    with pytest.raises(ValueError, match="the cache holds 8 tokens"):
        decoder.decode(torch.tensor([1]))
    with pytest.raises(ValueError, match="n_new is 1 behind 8 tokens"):
        write(decoder, 1)
    with pytest.raises(ValueError, match="n_new is -1"):
        write(decoder, -1)


@gpu
def test_on_a_gpu_as_on_the_cpu():
    model = small_model()
    asked = generate(model, [[3, 1], [2, 2]], 6)
    decoder = Decoder(model.cuda(), 2)
    written = generate_fast(decoder, [[3, 1], [2, 2]], 6)
    assert written.device.type == "cuda"
    assert torch.equal(written.cpu(), asked)


# The roofline


@pytest.mark.parametrize("B", [1, 5])
def test_the_bytes_of_a_step_are_weights_and_cache(B):
    model = small_model()
    decoder, config = Decoder(model, B), model.config
    weights = flops_per_token(config, 0)["weights"] // 2
    for n in (0, 1, 8):
        cached = 2 * B * config.n_layers * n * config.d_model
        assert bytes_read(decoder, n) == 4 * (weights + cached)


def test_below_the_balance_point_memory_rules_above_it_the_peak():
    assert attainable(2.0, peak=100.0, bandwidth=10.0) == 20.0
    assert attainable(10.0, 100.0, 10.0) == attainable(50.0, 100.0, 10.0) == 100.0


# The benchmark


def test_the_benchmark_runs_at_a_small_size(tmp_path, capsys):
    assert generation.main(["--small", "--root", str(tmp_path)]) == 0
    log = json.loads((tmp_path / "_build/bench/generation.json").read_text("utf-8"))
    assert log["small"] is True
    assert all(log["checks"].values())
    assert log["skeleton"]["operators"] == generation.operators(generation.new_model())
    assert [entry["batch"] for entry in log["batches"]] == [1, 2]
    assert (tmp_path / "_build/bench/generation.svg").exists()
    with pytest.raises(ValueError, match="small run"):
        generation.finish(log, tmp_path, store=True)
    if importlib.util.find_spec("transformers") is None:
        assert "transformers is not installed" in capsys.readouterr().out


def test_a_point_adds_up_the_contexts_of_all_steps(monkeypatch):
    monkeypatch.setattr(
        generation, "in_turn", lambda actions, *_: ({"steps": [2.0, 1.0, 4.0]}, {})
    )
    decoder = Decoder(generation.new_model(), 3)
    found = generation.point(decoder, 5, 3, 0.0)  # 4 steps, at contexts 5 to 8
    config = decoder.model.config
    flops = 3 * sum(flops_per_token(config, n)["total"] for n in (5, 6, 7, 8))
    read = sum(bytes_read(decoder, n) for n in (5, 6, 7, 8))
    assert found == {
        "batch": 3,
        "context": 6,
        "intensity": flops / read,
        "flops_per_second": flops / 2.0,
    }


def test_the_decoding_that_is_timed_writes_the_same_text_each_time():
    model = generation.new_model()
    act = generation.decoding(Decoder(model, 2), 6)
    asked = generate(model, generation.new_prompt(2), 6)[:, generation.PROMPT :]
    assert torch.equal(act(), asked)
    assert torch.equal(act(), asked)


def test_the_skeleton_has_the_operators_of_the_model():
    bare = generation.new_model(vocab_size=8, d_model=8, mlp_ratio=1)
    assert generation.operators(bare) == generation.operators(generation.new_model())


# The page and its log


@pytest.fixture(scope="module")
def log() -> dict:
    return json.loads((REFERENCE / LOG).read_text(encoding="utf-8"))


def test_the_page_states_the_log_that_is_there():
    content = (REFERENCE / LOG).read_bytes()
    page = (ROOT / "chapters" / f"{STEM}.md").read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in page
    assert f"{len(content):_}" in page


def test_the_log_is_of_this_code_and_met_its_targets(log):
    assert not log["small"]
    assert all(log["checks"].values())
    assert log["machine"]["threads"] == 1
    assert log["skeleton"]["operators"] == generation.operators(generation.new_model())
    assert tuple(entry["batch"] for entry in log["batches"]) == generation.BATCHES
    for at in log["points"]:
        decoder = Decoder(generation.new_model(), at["batch"])
        contexts = range(5, generation.PROMPT + log["new_tokens"])
        one = sum(flops_per_token(decoder.model.config, n)["total"] for n in contexts)
        read = sum(bytes_read(decoder, n) for n in contexts)
        assert at["intensity"] == pytest.approx(at["batch"] * one / read)
    median = {
        entry["reference"]: sorted(entry["rounds"])[len(entry["rounds"]) // 2]
        for entry in log["ratios"]
        if entry["task"] == "batch 1"
    }
    assert median["plain loop, cache"] >= 3
    library = [m for name, m in median.items() if name.startswith("transformers")]
    assert min(library) >= 8


PRINTED = {
    "the gains fold": ["size 1.0: gap < 1e-5: True", "size 0.0001: gap < 1e-5: True"],
    "the same tokens": [
        *("a batch: True", "one by one: True"),
        *("temperature 0.7: True", "temperature 1.0: True"),
    ],
    "the same logits": ["logits < 1e-4: True", "keys and values < 1e-4: True"],
    "no choice is that close": ["farther apart than the gap: True"],
    "no tensor is made": ["decoder", " 0 new tensors"],
    "the log": ["what had to be equal was equal: True"],
    "bytes": ["each cached position of a sequence: 1,024 bytes", "a weight: True"],
}


@pytest.mark.parametrize("claim", PRINTED)
def test_one_cell_prints_the_figures_of_each_claim(claim):
    found = [t for t in printed_by(STEM) if all(v in t for v in PRINTED[claim])]
    assert found, f"no cell prints {PRINTED[claim]}"


def test_no_claim_of_the_page_is_false():
    assert not any(re.search(r": False\b", text) for text in printed_by(STEM))


def test_each_claim_of_the_page_is_proven():
    assert proven_claims(STEM) == 1
