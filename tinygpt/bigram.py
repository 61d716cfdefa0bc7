# Generated from chapters/step2-bigram.md by `make export`.
# Change the page, not this file.
"""Step 2: the bigram, counted and learned.

The saved code of https://example.org/tinygpt/chapters/step2-bigram.html
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "Bigram",
    "bigram_bits",
    "bigram_counts",
    "bigram_probabilities",
    "sample_bigram",
]


def _check_pairs(ids: Tensor, vocab_size: int) -> None:
    """Refuse ids in which there is no pair, or that are not from 0 to V - 1."""
    if ids.dim() != 1 or len(ids) < 2:
        raise ValueError(
            f"ids have shape {tuple(ids.shape)}; expected one row of at least 2, "
            "which is one pair"
        )
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"ids are of type {ids.dtype}; expected integers")
    unknown = (ids < 0) | (ids >= vocab_size)
    if unknown.any():
        first = ids[unknown][0].item()
        raise ValueError(f"id {first}; expected 0 to {vocab_size - 1}")


def bigram_counts(ids: Tensor, vocab_size: int) -> Tensor:
    """Count the pairs of neighbours in a text.

    Args:
        ids: the text (n,), integers from 0 to ``vocab_size - 1``, n at least 2.
        vocab_size: number V of symbols.

    Returns:
        Table (V, V), float64, on the device of ``ids``: entry (a, b) says how often b
        follows a. All entries together are n - 1.

    Raises:
        ValueError: fewer than two ids, ids that are no row of integers, an id out of
            range, or a vocabulary without symbols.

    Example: ``bigram_counts(torch.tensor([0, 1, 0, 1]), 2)`` is ``[[0, 2], [1, 0]]``.

    Built in Step 2: the bigram, counted and learned, section Counting pairs:
    https://example.org/tinygpt/chapters/step2-bigram.html#counting-pairs
    """
    if vocab_size < 1:
        raise ValueError(f"vocab_size is {vocab_size}; expected a positive number")
    _check_pairs(ids, vocab_size)
    ids = ids.long()
    cells = ids[:-1] * vocab_size + ids[1:]  # (n - 1,), each pair as one number
    counts = torch.bincount(cells, minlength=vocab_size**2)
    return counts.view(vocab_size, vocab_size).double()


def bigram_probabilities(counts: Tensor, add: float = 0.0) -> Tensor:
    """Turn a table of pair counts into probabilities of the next symbol.

    Each row is ``(n + add)`` divided by its sum. A row without any count is uniform,
    for ``add`` 0 as well: that is its limit when ``add`` tends to 0.

    Args:
        counts: table (V, V), entries 0 or more; row a holds what follows a.
        add: what each count is raised by; with 1 it is Laplace's rule.

    Returns:
        Table (V, V), float64, on the device of ``counts``, each row with sum 1.

    Raises:
        ValueError: a table that is not square, a count that is negative or not
            finite, or such an ``add``.

    Example: ``bigram_probabilities(torch.tensor([[3.0, 1.0], [0.0, 0.0]]))`` is
    ``[[0.75, 0.25], [0.5, 0.5]]``.

    Built in Step 2: the bigram, counted and learned, section From counts to
    probabilities:
    https://example.org/tinygpt/chapters/step2-bigram.html#from-counts-to-probabilities
    """
    _check_square(counts, "counts")
    if not 0 <= add < math.inf:
        raise ValueError(f"add is {add}; expected a finite number, 0 or more")
    raised = counts.double() + add  # (V, V)
    total = raised.sum(dim=1, keepdim=True)  # (V, 1)
    uniform = torch.full_like(raised, 1 / len(raised))
    return torch.where(total > 0, raised / total, uniform)


def _check_square(table: Tensor, name: str) -> None:
    """Refuse a table that is not (V, V), or has an entry below 0 or not finite."""
    if table.dim() != 2 or table.shape[0] != table.shape[1] or len(table) == 0:
        raise ValueError(f"{name} have shape {tuple(table.shape)}; expected (V, V)")
    wrong = ~(table.isfinite() & (table >= 0))
    if wrong.any():
        first = table[wrong][0].item()
        raise ValueError(f"{name} have an entry {first}; expected numbers from 0 up")


def bigram_bits(probabilities: Tensor, ids: Tensor) -> float:
    """Mean of -log2 p(next | this) over the pairs of a text: bits per character.

    Args:
        probabilities: table (V, V), each row with sum 1, row a for what follows a.
        ids: the text (n,), n at least 2. Its first symbol is given and costs nothing.

    Returns:
        Bits per predicted character; ``inf`` if a pair with probability 0 occurs.

    Raises:
        ValueError: a table that is not square or whose rows do not add up to 1 (counts
            instead of probabilities, for instance), fewer than two ids, or an id out
            of range.

    Example: a uniform table over 4 symbols costs ``2.0`` on every text.

    Built in Step 2: the bigram, counted and learned, section What it costs in bits:
    https://example.org/tinygpt/chapters/step2-bigram.html#what-it-costs-in-bits
    """
    _check_square(probabilities, "probabilities")
    p = probabilities.double()
    gap = (p.sum(dim=1) - 1).abs()  # (V,)
    if gap.max() > 1e-4:
        row = int(gap.argmax())
        raise ValueError(
            f"row {row} of the probabilities has sum {p[row].sum().item()}; expected 1"
        )
    _check_pairs(ids, len(p))
    ids = ids.to(p.device).long()
    return p[ids[:-1], ids[1:]].log2().mean().abs().item()


def sample_bigram(
    probabilities: Tensor,
    start: int,
    n_new: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Write a text: draw each symbol from the row of the one before it.

    Args:
        probabilities: table (V, V), each row with sum 1, row a for what follows a.
        start: the first symbol, which is given.
        n_new: how many symbols to draw.
        generator: on the CPU; ``None`` takes PyTorch's global one.

    Returns:
        ids (n_new + 1,) on the CPU, ``start`` and what was drawn.

    Raises:
        ValueError: a table that is not square or has a row without probability,
            ``start`` out of range, or a negative ``n_new``.

    Built in Step 2: the bigram, counted and learned, section What it writes:
    https://example.org/tinygpt/chapters/step2-bigram.html#what-it-writes
    """
    _check_square(probabilities, "probabilities")
    p = probabilities.detach().cpu()
    if not 0 <= start < len(p):
        raise ValueError(f"start is {start}; expected 0 to {len(p) - 1}")
    if n_new < 0:
        raise ValueError(f"n_new is {n_new}; expected 0 or more")
    if (p.sum(dim=1) == 0).any():
        row = int((p.sum(dim=1) == 0).nonzero()[0])
        raise ValueError(f"row {row} of the probabilities is 0; expected sum 1")
    ids = [start]
    for _ in range(n_new):
        drawn = torch.multinomial(p[ids[-1]], 1, generator=generator)
        ids.append(int(drawn))
    return torch.tensor(ids)


class Bigram(nn.Module):
    """A bigram model as a table of logits: row a holds the scores of what follows a.

    It begins with zeros, so that every next symbol is equally likely.

    Args:
        V: number of symbols.

    Raises:
        ValueError: V is not a positive integer.

    Built in Step 2: the bigram, counted and learned, section The same table, learned:
    https://example.org/tinygpt/chapters/step2-bigram.html#the-same-table-learned
    """

    def __init__(self, V: int) -> None:
        super().__init__()
        if not isinstance(V, int) or V < 1:
            raise ValueError(f"V is {V!r}; expected a positive integer")
        self.table = nn.Parameter(torch.zeros(V, V))

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Predict the next id from each id.

        Args:
            idx: ids, (B, T); any other shape does as well.
            targets: the ids that follow, in the same shape.

        Returns:
            logits (B, T, V), and the mean cross-entropy in nats or ``None``.

        Raises:
            ValueError: no ids, an id out of range, or targets of another shape.
        """
        V = len(self.table)
        for ids in (idx,) if targets is None else (idx, targets):
            if ids.shape != idx.shape or ids.numel() == 0:
                raise ValueError(
                    f"ids have shape {tuple(idx.shape)}, targets {tuple(ids.shape)}; "
                    "expected the same shape, and at least one id"
                )
            unknown = (ids < 0) | (ids >= V)
            if unknown.any():
                first = ids[unknown][0].item()
                raise ValueError(f"id {first}; expected 0 to {V - 1}")
        logits = self.table[idx]  # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))
