# Generated from chapters/step4-attention.md by `make export`.
# Change the page, not this file.
"""Step 4: one attention head.

The saved code of https://example.org/tinygpt/chapters/step4-attention.html
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "CausalHead",
    "OneHeadModel",
    "assert_causal",
    "draw_windows",
    "find_leaks",
    "fit_windows",
    "moved_positions",
    "windows_loss",
]


def _require_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} is {size!r}; expected a positive integer")


class CausalHead(nn.Module):
    """One attention head that reads itself and earlier positions, never later ones.

    Scaled dot-product attention (Vaswani et al., 2017) with a causal mask. The scores
    are divided by the square root of the head's width, not of the stream's.

    Args:
        d: width of the vectors that it reads.
        dh: width of its queries, keys and values.
        T: the longest sequence.

    Raises:
        ValueError: a size is not a positive integer.

    Built in Step 4: one attention head, section From averaging to choosing:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-head
    """

    def __init__(self, d: int, dh: int, T: int) -> None:
        super().__init__()
        _require_positive(d=d, dh=dh, T=T)
        self.query = nn.Linear(d, dh, bias=False)
        self.key = nn.Linear(d, dh, bias=False)
        self.value = nn.Linear(d, dh, bias=False)
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)  # (T, T), True hides
        self.register_buffer("mask", hidden, persistent=False)

    def weights(self, x: Tensor) -> Tensor:
        """How much each position of x (B, T, d) reads from each: (B, T, T).

        Rows add up to 1; above the diagonal stand exact zeros.
        """
        n = x.shape[-2]
        if n > len(self.mask):
            raise ValueError(
                f"{n} positions; expected at most the {len(self.mask)} of this head"
            )
        q, k = self.query(x), self.key(x)  # (B, T, dh) each
        scores = q / math.sqrt(k.shape[-1]) @ k.transpose(-2, -1)  # (B, T, T)
        return scores.masked_fill(self.mask[:n, :n], float("-inf")).softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (B, T, d) to mixtures of values (B, T, dh)."""
        return self.weights(x) @ self.value(x)


def _answer(model_fn: Callable[[Tensor], Any], ids: Tensor) -> Tensor:
    """Outputs (B, T, n) for the ids, in evaluation mode, which is undone."""
    modules = list(model_fn.modules()) if isinstance(model_fn, nn.Module) else []
    modes = [(module, module.training) for module in modules]
    for module in modules:
        module.training = False
    try:
        with torch.no_grad():
            result = model_fn(ids)
    finally:
        for module, was_training in modes:
            module.training = was_training
    output = result[0] if isinstance(result, tuple) else result
    if output.shape[:2] != ids.shape:
        raise ValueError(
            f"outputs have shape {tuple(output.shape)}; expected one for each of the "
            f"ids, {tuple(ids.shape)}"
        )
    return output.reshape(*ids.shape, -1).clone()


def _first_answer(
    model_fn: Callable[[Tensor], Any], ids: Tensor, vocab_size: int
) -> Tensor:
    """Outputs for the unchanged ids, after everything has been checked."""
    if ids.dim() != 2 or ids.shape[0] < 1 or ids.shape[1] < 2:
        raise ValueError(
            f"ids have shape {tuple(ids.shape)}; expected (B, T) with T from 2 up"
        )
    if vocab_size < 2:
        raise ValueError(f"vocab_size is {vocab_size}; expected at least 2 symbols")
    if ids.is_floating_point() or ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError(f"ids are no integers from 0 to {vocab_size - 1}")
    output = _answer(model_fn, ids)
    if output.isnan().any():
        raise ValueError("an output is NaN; expected numbers that can be compared")
    if not torch.equal(output, _answer(model_fn, ids)):
        raise ValueError(
            "the same ids gave two different outputs; expected a model without chance"
        )
    return output


def _moved(
    model_fn: Callable[[Tensor], Any],
    ids: Tensor,
    before: Tensor,
    position: int,
    vocab_size: int,
) -> list[int]:
    if not 0 <= position < ids.shape[1]:
        raise ValueError(f"position is {position}; expected 0 to {ids.shape[1] - 1}")
    changed = ids.clone()
    changed[:, position] = (changed[:, position] + 1) % vocab_size
    different = before != _answer(model_fn, changed)  # (B, T, n)
    return different.any(dim=-1).any(dim=0).nonzero().flatten().tolist()


def moved_positions(
    model_fn: Callable[[Tensor], Any], ids: Tensor, position: int, vocab_size: int
) -> list[int]:
    """Positions whose output moves, by one bit or more, when one symbol is changed.

    The symbol at ``position`` becomes the next one of the vocabulary, in every row. Of
    a causal model nothing before ``position`` moves; what follows may.

    Args:
        model_fn: maps ids (B, T) to outputs (B, T, ...), or to a tuple that begins with
            them. The mode of a module is restored; gradients are not kept.
        ids: (B, T) with T at least 2.
        position: from 0 to T - 1.
        vocab_size: number of symbols, at least 2.

    Returns:
        the positions that moved in any row, ascending.

    Raises:
        ValueError: ids, position or vocabulary that make no sense; outputs of another
            shape, with NaN, or that differ from one run to the next.

    Example: of ``lambda ids: ids.cumsum(dim=1)``, which sums what came so far,
    positions 2 and 3 of four move when position 2 is changed.

    Built in Step 4: one attention head, section The bitwise test:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-causality
    """
    before = _first_answer(model_fn, ids, vocab_size)
    return _moved(model_fn, ids, before, position, vocab_size)


def find_leaks(
    model_fn: Callable[[Tensor], Any],
    ids: Tensor,
    vocab_size: int,
    positions: Iterable[int] | None = None,
) -> list[tuple[int, int]]:
    """Pairs (changed, moved) in which an output moved before the symbol that changed.

    Changes each of ``positions`` in turn, all but the first by default, and runs the
    model once for each. An empty list says that these ids showed no leak; it is no
    proof, and a leak that is lost in rounding does not show. See ``moved_positions``
    for the arguments and for what is refused.

    Raises:
        ValueError: also when there is no position to change.

    Built in Step 4: one attention head, section The bitwise test:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-causality
    """
    before = _first_answer(model_fn, ids, vocab_size)
    chosen = range(1, ids.shape[1]) if positions is None else list(positions)
    if not chosen:
        raise ValueError("no positions to change; expected at least one")
    return [
        (late, early)
        for late in chosen
        for early in _moved(model_fn, ids, before, late, vocab_size)
        if early < late
    ]


def assert_causal(
    model_fn: Callable[[Tensor], Any],
    ids: Tensor,
    vocab_size: int,
    positions: Iterable[int] | None = None,
) -> None:
    """Raise unless every output stays equal, in every bit, when a later symbol changes.

    Raises:
        AssertionError: names the first pair of positions; see ``find_leaks``.
        ValueError: the question makes no sense; see ``moved_positions``.

    Built in Step 4: one attention head, section The bitwise test:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-causality
    """
    leaks = find_leaks(model_fn, ids, vocab_size, positions)
    if leaks:
        late, early = leaks[0]
        raise AssertionError(
            f"the output at position {early} moved when the symbol at position {late} "
            f"was changed; expected it to stay equal in every bit ({len(leaks)} such "
            "pairs in all)"
        )


class OneHeadModel(nn.Module):
    """A language model with one causal head: embed, attend, read out.

    Args:
        V: number of symbols.
        T: the longest sequence.
        d: width of the embeddings.
        dh: width of the head; ``d`` by default.

    Raises:
        ValueError: a size is not a positive integer.

    Built in Step 4: one attention head, section A language model with one head:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-model
    """

    def __init__(self, V: int, T: int, d: int, dh: int | None = None) -> None:
        super().__init__()
        dh = d if dh is None else dh
        _require_positive(V=V, T=T, d=d, dh=dh)
        self.T = T
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Embedding(T, d)
        self.attention = CausalHead(d, dh, T)
        self.readout = nn.Linear(dh, V)

    def embed(self, idx: Tensor) -> Tensor:
        """The vectors that the head reads, (B, T, d): token plus position.

        Raises:
            ValueError: ids that are not (B, T), none at all, too many, or out of range.
        """
        if idx.dim() != 2 or idx.numel() == 0:
            raise ValueError(
                f"ids have shape {tuple(idx.shape)}; expected (B, T), both at least 1"
            )
        n, V = idx.shape[1], self.tok.num_embeddings
        if n > self.T:
            raise ValueError(f"{n} positions; expected at most T, {self.T}")
        low, high = idx.min().item(), idx.max().item()
        if low < 0 or high >= V:
            wrong = low if low < 0 else high
            raise ValueError(f"id {wrong}; expected 0 to {V - 1}")
        return self.tok(idx) + self.pos(torch.arange(n, device=idx.device))

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Predict the next symbol at every position.

        Args:
            idx: ids (B, T).
            targets: the ids that follow, (B, T); without them there is no loss.

        Returns:
            logits (B, T, V), and the mean cross-entropy in nats or ``None``.

        Raises:
            ValueError: see ``embed``; or targets of another shape.
        """
        logits = self.readout(self.attention(self.embed(idx)))  # (B, T, V)
        if targets is None:
            return logits, None
        if targets.shape != idx.shape:
            raise ValueError(
                f"targets have shape {tuple(targets.shape)}; expected that of the ids, "
                f"{tuple(idx.shape)}"
            )
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def draw_windows(
    data: Tensor, T: int, batch_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw windows of a text at random places, and the same windows shifted by one.

    Args:
        data: ids (n,) with n at least T + 1.
        T: length of a window.
        batch_size: number B of windows.
        generator: where chance comes from, on the CPU.

    Returns:
        inputs and targets, both (B, T), on the device of ``data``.

    Raises:
        ValueError: the text is too short, or a size is not a positive integer.

    Built in Step 4: one attention head, section A language model with one head:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-model
    """
    _require_positive(T=T, batch_size=batch_size)
    if len(data) < T + 1:
        raise ValueError(
            f"T is {T} but the text has {len(data)} ids; need at least {T + 1}"
        )
    starts = torch.randint(len(data) - T, (batch_size, 1), generator=generator)
    windows = data[(starts + torch.arange(T + 1)).to(data.device)]  # (B, T + 1)
    return windows[:, :-1], windows[:, 1:]


def fit_windows(
    model: nn.Module,
    data: Tensor,
    steps: int,
    batch_size: int = 32,
    rate: float = 1e-2,
    seed: int = 0,
) -> list[float]:
    """Train on random windows with AdamW; the rate falls in a straight line to 0.

    Args:
        model: has the attribute T; ``model(inputs, targets)`` returns logits and loss.
        data: ids (n,).
        seed: of the windows; the model's own start is not touched.

    Returns:
        the loss of each step's batch, in nats.

    Raises:
        ValueError: see ``draw_windows``; or ``steps`` is not a positive integer.

    Built in Step 4: one attention head, section A language model with one head:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-model
    """
    _require_positive(steps=steps)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        _, loss = model(*draw_windows(data, model.T, batch_size, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def windows_loss(model: nn.Module, data: Tensor, batch_size: int = 256) -> float:
    """Mean loss in nats over a whole text, cut into windows that do not overlap.

    A rest that is shorter than a window is left out. Evaluation mode, which is undone.

    Args:
        model: has the attribute T; ``model(inputs)`` returns logits and no loss.
        data: ids (n,) with n at least T + 1.

    Raises:
        ValueError: the text is shorter than one window and its last target.

    Built in Step 4: one attention head, section A language model with one head:
    https://example.org/tinygpt/chapters/step4-attention.html#sec-step4-model
    """
    T = model.T
    n = (len(data) - 1) // T
    if n < 1:
        raise ValueError(f"the text has {len(data)} ids; need at least {T + 1}")
    inputs, targets = data[: n * T].view(n, T), data[1 : n * T + 1].view(n, T)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total = 0.0
    try:
        for rows, answers in zip(inputs.split(batch_size), targets.split(batch_size)):
            logits = model(rows)[0].flatten(0, 1)  # (B T, V)
            total += F.cross_entropy(logits, answers.flatten(), reduction="sum").item()
    finally:
        for module, was_training in modes:
            module.training = was_training
    return total / (n * T)
