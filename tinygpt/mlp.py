# Generated from chapters/step3-mlp.md by `make export`.
# Change the page, not this file.
"""Step 3: a network over the last few characters.

The saved code of https://example.org/tinygpt/chapters/step3-mlp.html
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "SWEEP_LOG",
    "CharMLP",
    "context_windows",
    "falling_rates",
    "mlp_loss",
    "sample_mlp",
    "train_mlp",
]


def context_windows(ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Every run of ``k`` ids, and the id that follows it.

    The first ``k`` ids have no full context before them, so they are no targets. Both
    results are views: nothing is copied, whatever ``k`` is.

    Args:
        ids: a text as ids, (n,).
        k: how many ids a context has.

    Returns:
        contexts (n - k, k), and targets (n - k,): row i holds ``ids[i : i + k]``, and
        its target is ``ids[i + k]``.

    Raises:
        ValueError: ``k`` is not positive, ``ids`` is no row, or it has no target.

    Example: ids 5, 6, 7, 8 with ``k=2`` give the contexts 5, 6 and 6, 7 with the
    targets 7 and 8.

    Built in Step 3: a network over the last few characters, section Windows:
    https://example.org/tinygpt/chapters/step3-mlp.html#windows
    """
    if k < 1:
        raise ValueError(f"k is {k}; expected a positive number")
    if ids.dim() != 1:
        raise ValueError(f"ids have shape {tuple(ids.shape)}; expected (n,)")
    if len(ids) < k + 1:
        raise ValueError(
            f"k is {k} but the text has {len(ids)} characters; need at least {k + 1}"
        )
    windows = ids.unfold(0, k + 1, 1)  # (n - k, k + 1)
    return windows[:, :k], windows[:, k]


class CharMLP(nn.Module):
    """Predict the next character from the k before it: the model of Bengio et al.

    Each character becomes a vector of ``e`` numbers, the k vectors are laid side by
    side, one hidden layer bends them, and one more matrix gives the logits. The last
    layer starts small, so that a fresh model gives all characters nearly the same
    probability.

    Args:
        V: size of the vocabulary.
        k: characters in a context.
        e: numbers for each character.
        hidden: units of the hidden layer.

    Raises:
        ValueError: a size is not positive.

    Built in Step 3: a network over the last few characters, section The model:
    https://example.org/tinygpt/chapters/step3-mlp.html#the-model
    """

    def __init__(self, V: int, k: int, e: int, hidden: int) -> None:
        super().__init__()
        for name, size in {"V": V, "k": k, "e": e, "hidden": hidden}.items():
            if size < 1:
                raise ValueError(f"{name} is {size}; expected a positive number")
        self.k = k
        self.embed = nn.Embedding(V, e)
        self.hidden = nn.Linear(k * e, hidden)
        self.head = nn.Linear(hidden, V)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Predict what follows each context.

        Args:
            idx: contexts, (B, k).
            targets: the ids that follow, (B,); without them there is no loss.

        Returns:
            logits (B, V), and the mean cross-entropy in nats or ``None``.

        Raises:
            ValueError: a shape is wrong, or an id is out of range.
        """
        if idx.dim() != 2 or idx.shape[1] != self.k or len(idx) == 0:
            raise ValueError(
                f"contexts have shape {tuple(idx.shape)}; expected (B, {self.k})"
            )
        V = self.embed.num_embeddings
        low, high = idx.min().item(), idx.max().item()
        if low < 0 or high >= V:
            raise ValueError(f"ids from {low} to {high}; expected 0 to {V - 1}")
        x = self.embed(idx).flatten(start_dim=1)  # (B, k e)
        h = torch.tanh(self.hidden(x))  # (B, hidden)
        logits = self.head(h)  # (B, V)
        if targets is None:
            return logits, None
        if targets.shape != idx.shape[:1]:
            raise ValueError(
                f"targets have shape {tuple(targets.shape)}; expected ({len(idx)},)"
            )
        return logits, F.cross_entropy(logits, targets)


@torch.no_grad()
def mlp_loss(model: CharMLP, ids: Tensor, batch_size: int = 8_192) -> float:
    """Mean loss in nats over a whole text, each target counted once, nothing drawn.

    Args:
        model: in evaluation mode meanwhile; its mode is restored.
        ids: the text, (n,), on the model's device. The first k have no full context
            and are not predicted.
        batch_size: contexts that go through the model at once.

    Raises:
        ValueError: the text has no target, or ``batch_size`` is not positive.

    Built in Step 3: a network over the last few characters, section The first loss:
    https://example.org/tinygpt/chapters/step3-mlp.html#the-first-loss
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected a positive number")
    contexts, targets = context_windows(ids, model.k)
    was_training = model.training
    model.eval()
    try:
        total = 0.0
        for rows, answers in zip(contexts.split(batch_size), targets.split(batch_size)):
            total += model(rows, answers)[1].item() * len(rows)
    finally:
        model.train(was_training)
    return total / len(targets)


def falling_rates(peak: float, steps: int) -> list[float]:
    """One learning rate for each step: from ``peak`` straight down, towards zero.

    The first is ``peak``, the last ``peak / steps``, so that no step is wasted.

    Raises:
        ValueError: ``steps`` is not positive.

    Built in Step 3: a network over the last few characters, section The first loss:
    https://example.org/tinygpt/chapters/step3-mlp.html#the-first-loss
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; expected a positive number")
    return [peak * (1 - step / steps) for step in range(steps)]


def train_mlp(
    model: CharMLP,
    ids: Tensor,
    rates: Sequence[float],
    generator: torch.Generator,
    batch_size: int = 64,
) -> dict[str, list[float]]:
    """Train on random contexts with Adam, one step for each learning rate.

    Args:
        model: trained in place.
        ids: the training text, (n,), on the model's device.
        rates: the learning rate of every step; their number is that of the steps.
        generator: on the CPU; all contexts are drawn from it, with replacement.
        batch_size: contexts in a batch.

    Returns:
        a log: ``loss`` (nats, on the batch, before the step) and ``rate`` of each step.

    Raises:
        ValueError: the text has no target, or ``batch_size`` is not positive.
        FloatingPointError: the loss of a step is not finite.

    Built in Step 3: a network over the last few characters, section The first loss:
    https://example.org/tinygpt/chapters/step3-mlp.html#the-first-loss
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected a positive number")
    contexts, targets = context_windows(ids, model.k)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    log: dict[str, list[float]] = {"loss": [], "rate": []}
    was_training = model.training
    model.train()
    try:
        for step, rate in enumerate(rates):
            for group in optimizer.param_groups:
                group["lr"] = rate
            rows = torch.randint(len(targets), (batch_size,), generator=generator)
            rows = rows.to(ids.device)
            _, loss = model(contexts[rows], targets[rows])
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"the loss of step {step} is {loss.item()} at rate {rate:.2e}"
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log["loss"].append(loss.item())
            log["rate"].append(rate)
    finally:
        model.train(was_training)
    return log


SWEEP_LOG = (
    "step3_experiments.json",
    96_747,
    "d02ff7c0af45e4461ad0cd1e52eab5ddf8376f5a415779de4a91342ef4e68ef6",
)


@torch.no_grad()
def sample_mlp(
    model: CharMLP,
    idx: Tensor,
    n_new: int,
    generator: torch.Generator,
    temperature: float = 1.0,
) -> Tensor:
    """Continue each row of ids, one id at a time, from the last k each time.

    Args:
        model: in evaluation mode meanwhile; its mode is restored.
        idx: beginnings, (B, n) with n at least k.
        n_new: how many ids to append.
        generator: on the CPU; all ids are drawn from it.
        temperature: divides the logits; 0 takes the likeliest id, always.

    Returns:
        ids (B, n + n_new).

    Raises:
        ValueError: the beginnings are shorter than k, or a number is negative.

    Built in Step 3: a network over the last few characters, section What it writes:
    https://example.org/tinygpt/chapters/step3-mlp.html#what-it-writes
    """
    if idx.dim() != 2 or len(idx) == 0 or idx.shape[1] < model.k:
        raise ValueError(
            f"beginnings have shape {tuple(idx.shape)}; expected (B, n) with n at "
            f"least k, {model.k}"
        )
    if n_new < 0 or temperature < 0:
        raise ValueError(
            f"n_new {n_new}, temperature {temperature}; expected neither below zero"
        )
    was_training = model.training
    model.eval()
    try:
        for _ in range(n_new):
            logits, _ = model(idx[:, -model.k :])  # (B, V)
            if temperature == 0:
                new = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
            else:
                p = (logits / temperature).softmax(dim=-1).cpu()  # (B, V)
                new = torch.multinomial(p, 1, generator=generator)  # (B, 1)
            idx = torch.cat([idx, new.to(idx.device)], dim=1)
    finally:
        model.train(was_training)
    return idx
