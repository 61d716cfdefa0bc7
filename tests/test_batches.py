"""Batches: windows of the stream, their shifted twins, and the chance behind them."""

import pytest
import torch
from chapter2 import (
    alice_stream,
    gpu,
    one_thread,  # noqa: F401
    quick,
)
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.transformer import next_token_batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_batch_of_seed_11_is_four_windows_and_their_shift():
    data = torch.tensor(alice_stream())
    inputs, targets = next_token_batch(data, 8, 4, generator(11))
    assert (inputs.shape, targets.shape) == ((4, 8), (4, 8))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


@quick
@given(
    block_size=st.integers(1, 12),
    spare=st.integers(2, 20),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_every_window_is_a_piece_of_the_stream(block_size, spare, batch_size, seed):
    data = torch.arange(block_size + spare)  # every token is its own position
    inputs, targets = next_token_batch(data, block_size, batch_size, generator(seed))
    assert inputs.shape == targets.shape == (batch_size, block_size)
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(block_size))
    assert inputs.min() >= 0
    assert targets.max() <= len(data) - 2


def test_every_start_is_drawn_but_that_of_the_last_window():
    data = torch.arange(14)
    inputs, targets = next_token_batch(data, 8, 500, generator())
    assert set(inputs[:, 0].tolist()) == set(range(14 - 8 - 1))
    assert 13 not in targets


def test_one_draw_of_the_generator_chooses_all_starts():
    data = torch.arange(100)
    mine, theirs = generator(3), generator(3)
    inputs, _ = next_token_batch(data, 8, 6, mine)
    assert torch.equal(inputs[:, 0], torch.randint(100 - 8 - 1, (6,), generator=theirs))
    assert torch.equal(mine.get_state(), theirs.get_state())


def test_the_global_chance_is_not_touched_and_not_used():
    data = torch.arange(100)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, _ = next_token_batch(data, 8, 6, generator(3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(next_token_batch(data, 8, 6, generator(3))[0], first)


def test_consecutive_batches_differ():
    data, chance = torch.arange(1000), generator(3)
    first = next_token_batch(data, 8, 6, chance)[0]
    assert not torch.equal(first, next_token_batch(data, 8, 6, chance)[0])


def test_training_windows_never_reach_into_the_held_out_part():
    data = torch.arange(100)
    _, targets = next_token_batch(data[:85], 8, 500, generator())
    assert targets.max() < 85
    inputs, _ = next_token_batch(data[85:], 8, 500, generator())
    assert inputs.min() >= 85


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_windows_have_the_type_of_the_stream_and_leave_it_alone(dtype):
    data = torch.arange(30).to(dtype)
    kept = data.clone()
    inputs, targets = next_token_batch(data, 8, 4, generator())
    assert inputs.dtype == targets.dtype == dtype
    inputs.zero_()
    assert torch.equal(data, kept)


@pytest.mark.parametrize("length", [0, 1, 3, 8, 9])
def test_a_stream_too_short_is_named_with_what_it_takes(length):
    message = f"block_size is 8 but the stream has {length} tokens; need at least 10"
    with pytest.raises(ValueError, match=message):
        next_token_batch(torch.arange(length), 8, 4, generator())


def test_the_shortest_stream_that_will_do_has_one_window():
    inputs, targets = next_token_batch(torch.arange(10), 8, 4, generator())
    assert torch.equal(inputs, torch.arange(8).expand(4, 8))
    assert torch.equal(targets, torch.arange(1, 9).expand(4, 8))


@pytest.mark.parametrize(
    ("block_size", "batch_size"), [(0, 4), (-1, 4), (8, 0), (8, -2)]
)
def test_a_batch_of_nothing_is_refused(block_size, batch_size):
    wrong = min(block_size, batch_size)
    with pytest.raises(ValueError, match=rf"size is {wrong}\b"):
        next_token_batch(torch.arange(50), block_size, batch_size, generator())


@gpu
def test_a_stream_on_the_gpu_gives_the_same_windows_there():
    data = torch.tensor(alice_stream())
    here = next_token_batch(data, 8, 4, generator(11))
    there = next_token_batch(data.cuda(), 8, 4, generator(11))
    for a, b in zip(here, there):
        assert b.is_cuda
        assert torch.equal(a, b.cpu())
