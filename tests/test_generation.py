"""Writing: greedy and drawn, with and without cache, and every prompt it refuses."""

import math

import pytest
import torch
from chapter2 import (
    SMALL,
    alice_tokenizer,
    chapter_model,
    gpu,
    one_thread,  # noqa: F401
    quick,
    random_tokens,
    small_model,
)
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.transformer import TinyGPT, as_prompt, choose, generate


@pytest.fixture
def model() -> TinyGPT:
    return small_model()


def greedy_by_hand(model: TinyGPT, prompt: list[int], n: int) -> list[int]:
    ids = list(prompt)
    for _ in range(n):
        ids.append(model(torch.tensor([ids]))[0][0, -1].argmax().item())
    return ids


def drawn_by_hand(
    model: TinyGPT, prompt: list[int], n: int, temperature: float, seed: int
) -> list[int]:
    ids, generator = list(prompt), torch.Generator().manual_seed(seed)
    for _ in range(n):
        p = (model(torch.tensor([ids]))[0][0, -1] / temperature).softmax(dim=-1)
        ids.append(torch.multinomial(p, 1, generator=generator).item())
    return ids


# What is written


@pytest.mark.parametrize("use_cache", [True, False])
def test_temperature_zero_takes_the_likeliest_token_each_time(model, use_cache):
    expected = greedy_by_hand(model, [3, 1, 4], 5)
    for seed in (0, 1):
        written = generate(model, [3, 1, 4], 5, seed=seed, use_cache=use_cache)
        assert written.tolist() == expected
    assert model.generate([3, 1, 4], 5, temperature=0).tolist() == expected


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1, 3.0])
def test_drawing_uses_one_generator_seeded_once(model, use_cache, temperature):
    expected = drawn_by_hand(model, [3, 1, 4], 5, temperature, seed=9)
    options = {"temperature": temperature, "seed": 9, "use_cache": use_cache}
    assert generate(model, [3, 1, 4], 5, **options).tolist() == expected
    assert generate(model, [3, 1, 4], 5, **options).tolist() == expected


def test_another_seed_draws_another_text(model):
    texts = {
        tuple(generate(model, [3], 7, temperature=2.0, seed=seed).tolist())
        for seed in range(5)
    }
    assert len(texts) > 1


def test_drawn_tokens_follow_the_models_distribution():
    logits = torch.tensor([[2.0, 1.0, 0.0, -3.0]])
    for temperature in (0.5, 1.0, 2.0):
        generator = torch.Generator().manual_seed(0)
        drawn = choose(logits.expand(20_000, 4), temperature, generator)
        share = torch.bincount(drawn.flatten(), minlength=4) / 20_000
        expected = (logits[0] / temperature).softmax(-1)
        torch.testing.assert_close(share, expected, atol=0.015, rtol=0)


@pytest.mark.parametrize(
    "temperature", [1e-6, 1e-30, 1e-38, 1e-40, 1e-45, 1e-60, 5e-324]
)
def test_the_smallest_temperatures_write_what_greedy_writes(model, temperature):
    expected = greedy_by_hand(model, [3, 1, 4], 5)
    written = generate(model, [3, 1, 4], 5, temperature=temperature)
    assert written.tolist() == expected


@pytest.mark.parametrize("temperature", [1e30, 1e38, 1e300, 1.7e308])
def test_the_largest_temperatures_draw_evenly(model, temperature):
    flat = [
        torch.multinomial(torch.full((40,), 1 / 40), 1, generator=generator).item()
        for generator in [torch.Generator().manual_seed(4)]
        for _ in range(5)
    ]
    written = generate(model, [3], 5, temperature=temperature, seed=4)
    assert written[1:].tolist() == flat


def test_the_untrained_chapter_model_writes_byte_soup():
    tokenizer = alice_tokenizer()
    prompt = tokenizer.encode("Alice ")
    ids = chapter_model().generate(prompt, 40, temperature=1.0, seed=1)
    text = tokenizer.decode(ids.tolist(), errors="replace")
    assert text.startswith("Alice  thisear")
    assert "\ufffd" in text
    assert len(ids) == len(prompt) + 40


@quick
@given(
    prompt=st.lists(st.integers(0, 39), min_size=1, max_size=8),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_the_prompt_is_kept_and_every_new_id_is_in_the_vocabulary(
    prompt, temperature, seed, data
):
    n = data.draw(st.integers(0, 8 - len(prompt)))
    written = generate(small_model(), prompt, n, temperature=temperature, seed=seed)
    assert written.dtype == torch.int64
    assert written.shape == (len(prompt) + n,)
    assert written[: len(prompt)].tolist() == prompt
    assert written.min() >= 0
    assert written.max() < 40


# The cache


@quick
@given(seed=st.integers(0, 1000), length=st.integers(1, 8))
def test_cached_and_uncached_texts_and_logits_agree_up_to_the_block(seed, length):
    """In float64, greedily, at every step: the same ids, logits within 1e-10."""
    model = small_model(seed).double()
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    texts = {}
    for use_cache, logits in seen.items():
        hook = model.register_forward_hook(
            lambda module, inputs, output, logits=logits: logits.append(
                output[0][:, -1]
            )
        )
        prompt = random_tokens(length, seed=seed)
        texts[use_cache] = generate(model, prompt, 8 - length, use_cache=use_cache)
        hook.remove()
    assert torch.equal(texts[True], texts[False])
    assert len(seen[True]) == len(seen[False]) == 8 - length
    for cached, full in zip(seen[True], seen[False]):
        assert (cached - full).abs().max() < 1e-10


def test_the_chapters_model_writes_the_same_40_tokens_either_way():
    model, prompt = chapter_model(), alice_tokenizer().encode("Alice ")
    for options in ({}, {"temperature": 1.0, "seed": 1}):
        cached = model.generate(prompt, 40, **options)
        assert torch.equal(
            cached, model.generate(prompt, 40, use_cache=False, **options)
        )


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_cache_is_fed_one_token_and_never_outgrows_the_block(model, use_cache):
    fed, cached = [], []

    def watch(module, arguments, options, output):
        fed.append(arguments[0].shape[1])
        cached.append(output[2][0][0].shape[-2])

    model.register_forward_hook(watch, with_kwargs=True)
    generate(model, [1, 2, 3, 4, 5], 3, use_cache=use_cache)
    assert fed == ([5, 1, 1] if use_cache else [5, 6, 7])
    assert cached == [5, 6, 7]
    assert max(cached) <= SMALL.block_size


def test_nothing_is_left_over_from_one_call_to_the_next(model):
    first = generate(model, [1, 2, 3], 4)
    generate(model, [7, 8], 5)
    generate(model, [[1, 2], [3, 4]], 3)
    assert torch.equal(generate(model, [1, 2, 3], 4), first)


# Shapes and kinds of prompts


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_batch_writes_what_its_rows_write_alone(rows, use_cache):
    model = small_model().double()
    prompts = random_tokens(rows, 3)
    written = generate(model, prompts, 5, use_cache=use_cache)
    assert written.shape == (rows, 8)
    for row, prompt in zip(written, prompts):
        assert torch.equal(row, generate(model, prompt, 5, use_cache=use_cache))


@pytest.mark.parametrize(
    "prompt",
    [
        [5, 6],
        (5, 6),
        range(5, 7),
        [torch.tensor(5), torch.tensor(6)],
        torch.tensor([5, 6]),
        torch.tensor([5, 6], dtype=torch.int32),
        torch.tensor([5, 6], dtype=torch.uint8),
    ],
)
def test_a_prompt_may_be_any_sequence_of_whole_numbers(model, prompt):
    assert torch.equal(generate(model, prompt, 3), generate(model, [5, 6], 3))


def test_the_prompt_is_not_changed(model):
    prompt = torch.tensor([[5, 6]])
    assert torch.equal(generate(model, prompt, 0), prompt)
    generate(model, prompt, 3).zero_()
    assert prompt.tolist() == [[5, 6]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_model_of_any_precision_writes(model, dtype):
    model.to(dtype)
    for options in ({}, {"temperature": 1.0}):
        cached = generate(model, [1, 2], 5, **options)
        assert cached.shape == (7,)
        assert cached.max() < 40


# What is left as it was


def test_the_global_chance_is_neither_used_nor_touched(model):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = generate(model, [1, 2], 5, temperature=1.0, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(generate(model, [1, 2], 5, temperature=1.0, seed=3), first)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("use_cache", [True, False])
def test_the_mode_is_restored_and_writing_happens_in_evaluation(
    model, training, use_cache
):
    modes = []
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    model.train(training)
    generate(model, [1, 2], 3, use_cache=use_cache)
    assert modes == [False] * 3
    assert all(module.training is training for module in model.modules())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_restored_when_writing_fails(model, training):
    def fail(*_):
        raise RuntimeError("out of memory")

    model.train(training)
    model.blocks[1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        generate(model, [1, 2], 3)
    for options in ({"temperature": -1.0}, {"max_new_tokens": 99}):
        with pytest.raises(ValueError, match=r"-1\.0|99"):
            generate(model, [1, 2], **({"max_new_tokens": 3} | options))
    assert all(module.training is training for module in model.modules())


def test_writing_leaves_no_gradients_and_needs_none(model):
    written = generate(model, [1, 2], 3)
    assert not written.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


# What is refused


@pytest.mark.parametrize(
    "temperature",
    [-1.0, -1e-9, -1, math.nan, math.inf, -math.inf, "1", "", None, [1.0], 1j],
)
def test_a_temperature_that_is_no_number_from_zero_up_is_named(model, temperature):
    with pytest.raises(ValueError, match=r"temperature is .*expected") as caught:
        generate(model, [1, 2], 3, temperature=temperature)
    assert repr(temperature) in str(caught.value)


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        (),
        "",
        [[]],
        [[], []],
        torch.zeros(0, dtype=torch.long),
        torch.zeros(1, 0, dtype=torch.long),
        torch.zeros(0, 3, dtype=torch.long),
    ],
)
def test_an_empty_prompt_is_refused(model, prompt):
    with pytest.raises(ValueError, match="prompt"):
        generate(model, prompt, 3)


@pytest.mark.parametrize("prompt", [[[1, 2], [3]], [[1], [2, 3, 4]], [[1, 2], 3]])
def test_a_ragged_prompt_is_refused_and_not_padded(model, prompt):
    with pytest.raises(ValueError, match="prompt is no rectangular list"):
        generate(model, prompt, 3)


@pytest.mark.parametrize(
    "prompt",
    [
        "Alice",
        b"Alice",
        [1.0, 2.0],
        [1, 2.5],
        [math.nan],
        torch.tensor([1.0]),
        torch.tensor([1.0], dtype=torch.bfloat16),
        [True, False],
        torch.tensor([True]),
        torch.tensor([1j]),
        [None],
        None,
        {1: 2},
        object(),
    ],
)
def test_a_prompt_that_holds_no_whole_numbers_is_refused(model, prompt):
    with pytest.raises(ValueError, match="prompt"):
        generate(model, prompt, 3)


@pytest.mark.parametrize(
    "prompt", [5, torch.tensor(5), torch.zeros(1, 1, 3, dtype=torch.long)]
)
def test_a_prompt_of_another_shape_is_refused_and_not_reshaped(model, prompt):
    with pytest.raises(ValueError, match="prompt"):
        generate(model, prompt, 3)


@pytest.mark.parametrize("token", [-1, 40, 255, 2**40])
def test_a_prompt_id_outside_of_the_vocabulary_is_named(model, token):
    for prompt in ([token], [1, token], [[1, 2], [token, 3]]):
        with pytest.raises(ValueError, match=rf"token id {token}\b.*0 to 39"):
            generate(model, prompt, 3)


def test_a_prompt_id_too_large_for_any_tensor_is_refused(model):
    with pytest.raises(ValueError, match="prompt"):
        generate(model, [1, 2**70], 3)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("length", "new"), [(5, 4), (8, 1), (1, 8), (5, 20), (1, 99)])
def test_a_text_that_would_not_fit_is_refused_before_any_work(
    model, length, new, use_cache
):
    model.register_forward_hook(lambda *_: pytest.fail("the model was run"))
    with pytest.raises(ValueError, match=rf"{length}\b.*{length + new}\b.*8"):
        generate(model, [1] * length, new, use_cache=use_cache)


def test_a_prompt_longer_than_the_block_is_refused_with_both_lengths(model):
    for new in (0, 1):
        with pytest.raises(ValueError, match=r"12\b.*8"):
            generate(model, [1] * 12, new)


@pytest.mark.parametrize("length", range(1, 9))
def test_a_text_that_just_fits_is_written(model, length):
    assert len(generate(model, [1] * length, 8 - length)) == 8


@pytest.mark.parametrize("new", [-1, -100])
def test_a_negative_number_of_new_tokens_is_named(model, new):
    with pytest.raises(ValueError, match=rf"max_new_tokens {new}\b.*0 or more"):
        generate(model, [1, 2], new)


# Devices


def test_a_prompt_follows_the_model(model):
    weight = model.token_embedding.weight
    assert as_prompt(model, [1, 2], 1).device == weight.device
    assert as_prompt(model, [1, 2], 1).tolist() == [[1, 2]]


@gpu
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_model_on_the_gpu_continues_a_prompt_from_the_cpu(temperature, use_cache):
    model = small_model().double()
    options = {"temperature": temperature, "seed": 3, "use_cache": use_cache}
    here = generate(model, [1, 2], 5, **options)
    model.cuda()
    for prompt in ([1, 2], torch.tensor([1, 2]), torch.tensor([1, 2]).cuda()):
        there = generate(model, prompt, 5, **options)
        assert there.is_cuda
        assert torch.equal(there.cpu(), here)


@gpu
def test_a_model_on_the_cpu_takes_a_prompt_from_the_gpu():
    model = small_model()
    written = generate(model, torch.tensor([1, 2]).cuda(), 5)
    assert torch.equal(written, generate(model, [1, 2], 5))
