# Generated from chapters/benchmarks.md by `make export`.
# Change the page, not this file.
"""Benchmarks.

The saved code of https://example.org/tinygpt/chapters/benchmarks.html
"""

import weakref
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

__all__ = [
    "LiveBytes",
    "forward_bytes",
    "gpt_kept_bytes",
    "kept_for_backward",
    "ratios_by_round",
    "spread",
    "step_bytes",
    "storage_bytes",
    "tinygpt_kept_bytes",
]


def ratios_by_round(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return how many times less ours took than theirs, round by round.

    Above 1 ours is ahead, below 1 theirs.

    Args:
        ours, theirs: seconds or bytes, one positive figure a round.

    Raises:
        ValueError: no rounds, unequally many, or a figure that is not positive.

    Example: ``ratios_by_round([1.0, 2.0], [3.0, 4.0])`` is ``[3.0, 2.0]``.

    Built in Benchmarks, section Why ratios, and why rounds:
    https://example.org/tinygpt/chapters/benchmarks.html#why-ratios-and-why-rounds
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(
            f"{len(ours)} rounds against {len(theirs)}; expected equally many, and "
            "at least one"
        )
    if min(*ours, *theirs) <= 0:
        raise ValueError(f"a round took {min(*ours, *theirs)}; expected more than 0")
    return [b / a for a, b in zip(ours, theirs, strict=True)]


def spread(rounds: Sequence[float]) -> tuple[float, float, float]:
    """Return the least, the median and the largest of some rounds.

    Raises:
        ValueError: there are no rounds.

    Example: ``spread([3.0, 1.0, 2.0])`` is ``(1.0, 2.0, 3.0)``.

    Built in Benchmarks, section Why ratios, and why rounds:
    https://example.org/tinygpt/chapters/benchmarks.html#why-ratios-and-why-rounds
    """
    if not rounds:
        raise ValueError("no rounds; expected at least one")
    return min(rounds), median(rounds), max(rounds)


def kept_for_backward(model: nn.Module, idx: Tensor, targets: Tensor) -> int:
    """Count the bytes that one forward pass keeps for its backward pass.

    Storages are counted, each once and whole; parameters and buffers are not.

    Args:
        model: ``model(idx, targets)`` returns the loss as its second value.
        idx, targets: ids (B, T) each.

    Built in Benchmarks, section Counting what is kept:
    https://example.org/tinygpt/chapters/benchmarks.html#counting-what-is-kept
    """
    own = {t.untyped_storage().data_ptr() for t in model.parameters()}
    own |= {t.untyped_storage().data_ptr() for t in model.buffers()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(idx, targets)[1]
    total = sum(kept.values())
    del loss  # until here the graph lives, so that no address is used twice
    return total


def gpt_kept_bytes(
    B: int, T: int, V: int, d: int, H: int, L: int, fused: bool = False
) -> dict[str, int]:
    """Predict what the GPT of Step 5 keeps for its backward pass, in float32.

    Args:
        B, T: sequences of a batch, and positions of each.
        V, d, H, L: vocabulary, width, heads and blocks of the model.
        fused: are the heads computed at once, as in Step 6?

    Returns:
        bytes of the attention matrices, of the rest of the blocks, of what stands
        behind the blocks, and of the ids; and their total.

    Built in Benchmarks, section Predicting it:
    https://example.org/tinygpt/chapters/benchmarks.html#predicting-it
    """
    N = B * T
    rest = N * (16 * d + 4) + (N * H + 3 * d * d if fused else 0)
    parts = {
        "attention matrices": 0 if fused else 4 * L * B * H * T * T,
        "rest of the blocks": 4 * L * rest,
        "last norm and loss": 4 * (N * (2 * d + 2 + V) + 1),
        "ids": 8 * (2 * N + T),
    }
    return parts | {"total": sum(parts.values())}


def tinygpt_kept_bytes(config: Any, B: int, T: int) -> dict[str, int]:
    """Predict what the TinyGPT of Chapter 2 keeps for its backward pass, in float32.

    Args:
        config: its sizes, a ``GPTConfig``.
        B, T: sequences of a batch, and positions of each.

    Returns:
        the same parts as ``gpt_kept_bytes``.

    Built in Benchmarks, section Predicting it:
    https://example.org/tinygpt/chapters/benchmarks.html#predicting-it
    """
    N, d, H, h = B * T, config.d_model, config.n_heads, config.mlp_hidden
    L = config.n_layers
    copied = N * d if B > 1 and H > 1 else 0  # the values, for the product
    rest = N * (14 * d + 2 + 2 * H + 4 * h) + copied
    parts = {
        "attention matrices": 4 * L * B * H * T * T,
        "rest of the blocks": L * (4 * rest + T * T),
        "last norm and loss": 4 * (N * (3 * d + 1 + config.vocab_size) + 1),
        "ids": 8 * (2 * N + T),
    }
    return parts | {"total": sum(parts.values())}


class LiveBytes(TorchDispatchMode):
    """Count the bytes of all tensors that are alive, and the most there ever were.

    What an operation uses inside of itself and gives back is not seen.

    Args:
        tensors: what is there already.

    Attributes:
        now: bytes alive; ``peak``: the most so far, which may be set back to ``now``.

    Built in Benchmarks, section Everything that is alive:
    https://example.org/tinygpt/chapters/benchmarks.html#everything-that-is-alive
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0
        for tensor in tensors:
            self.see(tensor)

    def see(self, tensor: Tensor) -> Tensor:
        """Count a tensor's storage unless it has been counted; return the tensor."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # the same for every tensor that shares the storage
        if key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.forget, key)
        return tensor

    def forget(self, key: int) -> None:
        """A storage is gone."""
        self.now -= self.sizes.pop(key)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operation, and look at what it returns."""
        return tree_map_only(Tensor, self.see, func(*args, **(kwargs or {})))


def step_bytes(model: nn.Module, idx: Tensor, targets: Tensor) -> dict[str, int]:
    """Count the bytes alive in one training step with AdamW, with its moments made.

    The rate is zero, so the weights stay as they are; gradients are cleared.

    Args:
        model: ``model(idx, targets)`` returns the loss as its second value.
        idx, targets: ids (B, T) each.

    Returns:
        bytes alive after the forward pass, and the most in the whole step.

    Built in Benchmarks, section Everything that is alive:
    https://example.org/tinygpt/chapters/benchmarks.html#everything-that-is-alive
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, foreach=False)
    live = LiveBytes([*model.parameters(), *model.buffers(), idx, targets])
    with live:
        for _ in range(2):
            optimizer.zero_grad()
            live.peak = live.now
            loss = model(idx, targets)[1]
            forward = live.now
            loss.backward()
            optimizer.step()
            peak = live.peak
    optimizer.zero_grad()
    return {"after the forward pass": forward, "peak": peak}


def forward_bytes(model: nn.Module, kept: int) -> int:
    """Predict the bytes alive after the forward pass of a step with AdamW.

    Args:
        model: in float32; a tied matrix counts once.
        kept: bytes kept for the backward pass.

    Built in Benchmarks, section Everything that is alive:
    https://example.org/tinygpt/chapters/benchmarks.html#everything-that-is-alive
    """
    parameters = list(model.parameters())
    numbers = sum(p.numel() for p in parameters)
    buffers = sum(b.numel() * b.element_size() for b in model.buffers())
    return 12 * numbers + 4 * len(parameters) + buffers + kept + 4


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Count the bytes of the storages behind some tensors, each once and whole.

    Built in Benchmarks, section The cache:
    https://example.org/tinygpt/chapters/benchmarks.html#the-cache
    """
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
