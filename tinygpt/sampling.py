# Generated from chapters/step7-sampling.md by `make export`.
# Change the page, not this file.
"""Step 7, second part: sampling and scaling.

The saved code of https://example.org/tinygpt/chapters/step7-sampling.html
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = [
    "STEP7_LOG",
    "PowerLaw",
    "apply_temperature",
    "check_logits",
    "check_share",
    "fit_power_law",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "penalise_repetition",
    "sample",
    "sampling_probabilities",
    "widened",
    "write",
]


def check_logits(logits: Tensor) -> None:
    """Refuse logits (..., V) from which nothing can be drawn.

    Raises:
        ValueError: no floating-point tensor with a last axis, a NaN, a plus infinity,
            or a row that is minus infinity throughout.

    Built in Step 7, second part: sampling and scaling, section Small functions on
    logits:
    https://example.org/tinygpt/chapters/step7-sampling.html#small-functions-on-logits
    """
    if not logits.is_floating_point() or logits.dim() == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; expected "
            "floating-point numbers of shape (..., V), V at least 1"
        )
    if logits.isnan().any():
        raise ValueError("logits contain NaN; expected numbers, or -inf for dropped")
    if (logits == math.inf).any():
        raise ValueError("logits contain inf; expected numbers, or -inf for dropped")
    if (logits == -math.inf).all(dim=-1).any():
        raise ValueError("a row of logits is all -inf; expected one finite entry")


def check_share(name: str, value: float) -> None:
    """Refuse a share that is not from 0 to 1, naming it and its value.

    Built in Step 7, second part: sampling and scaling, section Small functions on
    logits:
    https://example.org/tinygpt/chapters/step7-sampling.html#small-functions-on-logits
    """
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}; expected a number from 0 to 1")


def widened(logits: Tensor) -> Tensor:
    """Return the logits in float32 if they are in half precision, else themselves.

    Built in Step 7, second part: sampling and scaling, section Small functions on
    logits:
    https://example.org/tinygpt/chapters/step7-sampling.html#small-functions-on-logits
    """
    return logits.float() if logits.element_size() < 4 else logits


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature: below 1 sharpens, above 1 flattens.

    The result is shifted so that each row's largest entry is 0. That changes no
    probability and keeps a tiny temperature from dividing its way to infinity.

    Args:
        logits: (..., V), any floating-point type; -inf stays -inf.
        temperature: from 0 up; 0 keeps the largest entry alone, of equals the one
            with the lowest id.

    Returns:
        A new tensor (..., V) of the same type, on the same device.

    Raises:
        ValueError: unusable logits, or a temperature that is negative or not finite.

    Example: logits 0 and 2 at temperature 0.5 become -4 and 0.

    Built in Step 7, second part: sampling and scaling, section Temperature:
    https://example.org/tinygpt/chapters/step7-sampling.html#temperature
    """
    check_logits(logits)
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; expected a number from 0 up")
    if temperature == 0:
        first = logits.argmax(dim=-1, keepdim=True)  # (..., 1)
        return torch.full_like(logits, -math.inf).scatter(-1, first, 0.0)
    below = widened(logits) - widened(logits).amax(dim=-1, keepdim=True)  # (..., V)
    least = max(temperature, torch.finfo(below.dtype).tiny)
    return (below / least).to(logits.dtype)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits of each row, set the others to -inf.

    Exactly k are kept, or all if k is V or more. Of equal logits at the border those
    with the lower ids are kept, so k = 1 is the choice of argmax.

    Args:
        logits: (..., V), any floating-point type.
        k: how many to keep, at least 1.

    Returns:
        A new tensor (..., V) of the same type; what is kept is unchanged.

    Raises:
        ValueError: unusable logits, or a k below 1.

    Example: of the logits 1, 2, 2, 2, 3 with k = 3 the ids 1, 2 and 4 are kept.

    Built in Step 7, second part: sampling and scaling, section Top-k:
    https://example.org/tinygpt/chapters/step7-sampling.html#top-k
    """
    check_logits(logits)
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"k is {k!r}; expected a positive integer")
    order = logits.sort(dim=-1, descending=True, stable=True).indices  # (..., V)
    kept = torch.zeros_like(logits, dtype=torch.bool)
    kept = kept.scatter(-1, order[..., :k], True)
    return logits.masked_fill(~kept, -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest symbols that together have probability p or more.

    Symbols are taken in order of probability, of equals the lower id first, until the
    mass taken reaches p. The likeliest is always kept, so p = 0 is the choice of
    argmax; p = 1 keeps all. The method is called nucleus sampling.

    Args:
        logits: (..., V), any floating-point type.
        p: the mass to keep, from 0 to 1.

    Returns:
        A new tensor (..., V) of the same type; what is kept is unchanged.

    Raises:
        ValueError: unusable logits, or a p outside 0 to 1.

    Example: of the probabilities 0.5, 0.3, 0.2 with p = 0.6 the first two are kept.

    Built in Step 7, second part: sampling and scaling, section Top-p:
    https://example.org/tinygpt/chapters/step7-sampling.html#top-p
    """
    check_logits(logits)
    check_share("p", p)
    if p == 1:  # a rounded sum may reach 1 before the last symbol
        return logits.clone()
    order = logits.sort(dim=-1, descending=True, stable=True).indices  # (..., V)
    mass = widened(logits).softmax(dim=-1).gather(-1, order).cumsum(dim=-1)
    taken = torch.ones_like(order, dtype=torch.bool)  # in order; the first always
    taken[..., 1:] = mass[..., :-1] < p  # was the mass ahead of it too little?
    kept = torch.zeros_like(taken).scatter(-1, order, taken)
    return logits.masked_fill(~kept, -math.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep the symbols at least p times as probable as the likeliest one.

    The bar is relative: high where the model is sure, low where it is not. Equal
    logits are kept or dropped together. p = 0 keeps all, p = 1 only the largest.

    Args:
        logits: (..., V), any floating-point type.
        p: the share of the largest probability, from 0 to 1.

    Returns:
        A new tensor (..., V) of the same type; what is kept is unchanged.

    Raises:
        ValueError: unusable logits, or a p outside 0 to 1.

    Example: of the probabilities 0.5, 0.3, 0.2 with p = 0.5 the first two are kept.

    Built in Step 7, second part: sampling and scaling, section Min-p:
    https://example.org/tinygpt/chapters/step7-sampling.html#min-p
    """
    check_logits(logits)
    check_share("p", p)
    if p == 0:
        return logits.clone()
    below = widened(logits) - widened(logits).amax(dim=-1, keepdim=True)  # (..., V)
    return logits.masked_fill(below < math.log(p), -math.inf)


def sampling_probabilities(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """Turn logits into the probabilities that are drawn from.

    The order is: temperature, then top-k, top-p, min-p, each applied to what the one
    before has kept, renormalised. So p speaks of the distribution that is drawn from,
    not of the model's own. ``None`` leaves a step out.

    Args:
        logits: (..., V), any floating-point type.
        temperature, top_k, top_p, min_p: see ``apply_temperature``, ``keep_top_k``,
            ``keep_top_p``, ``keep_min_p``.

    Returns:
        Probabilities (..., V) of the same type; each row sums to 1 up to rounding.

    Raises:
        ValueError: unusable logits or settings.

    Example: equal logits with ``top_k=1`` give the lowest id probability 1.

    Built in Step 7, second part: sampling and scaling, section One order:
    https://example.org/tinygpt/chapters/step7-sampling.html#one-order
    """
    check_logits(logits)
    scores = apply_temperature(widened(logits), temperature)
    if top_k is not None:
        scores = keep_top_k(scores, top_k)
    if top_p is not None:
        scores = keep_top_p(scores, top_p)
    if min_p is not None:
        scores = keep_min_p(scores, min_p)
    return scores.softmax(dim=-1).to(logits.dtype)


def sample(
    logits: Tensor,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """Draw one id for each row of logits (..., V).

    The draw is made on the CPU, so that a seed means the same on every device.

    Args:
        logits: (..., V), any floating-point type.
        generator: on the CPU; without one the global generator is used.
        temperature, top_k, top_p, min_p: see ``sampling_probabilities``.

    Returns:
        ids (...), on the device of the logits.

    Raises:
        ValueError: unusable logits or settings.

    Built in Step 7, second part: sampling and scaling, section One order:
    https://example.org/tinygpt/chapters/step7-sampling.html#one-order
    """
    check_logits(logits)
    probabilities = sampling_probabilities(
        widened(logits), temperature, top_k, top_p, min_p
    )
    rows = probabilities.reshape(-1, logits.shape[-1]).cpu()
    ids = torch.multinomial(rows, 1, generator=generator)
    return ids.view(logits.shape[:-1]).to(logits.device)


def penalise_repetition(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Make the symbols less likely that already stand in the text.

    A positive logit is divided by the penalty, a negative one multiplied, once for
    each symbol, however often it stands there. The rule depends on where the zero of
    the logits lies, so it must see the model's own logits, before any shift.

    Args:
        logits: (..., V), any floating-point type.
        ids: the text so far, (..., n), with the leading axes of the logits; n may be 0.
        penalty: 1 changes nothing, above 1 discourages, below 1 encourages.

    Returns:
        A new tensor (..., V) of the same type.

    Raises:
        ValueError: unusable logits, ids that do not fit them, or a penalty that is
            not positive and finite.

    Example: logits 2 and -1 with penalty 2, both seen, become 1 and -2.

    Built in Step 7, second part: sampling and scaling, section Writing:
    https://example.org/tinygpt/chapters/step7-sampling.html#writing
    """
    check_logits(logits)
    if not 0 < penalty < math.inf:
        raise ValueError(f"penalty is {penalty}; expected a positive number")
    if ids.shape[:-1] != logits.shape[:-1] or ids.dim() == 0:
        raise ValueError(
            f"ids have shape {tuple(ids.shape)}; expected the leading axes of the "
            f"logits, {tuple(logits.shape[:-1])}, and one axis more"
        )
    if ids.numel() and not 0 <= ids.min() <= ids.max() < logits.shape[-1]:
        raise ValueError(f"an id is out of range; expected 0 to {logits.shape[-1] - 1}")
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen = seen.scatter(-1, ids.to(logits.device).long(), True)
    wide = widened(logits)
    punished = torch.where(wide > 0, wide / penalty, wide * penalty).to(logits.dtype)
    return torch.where(seen, punished, logits)


@torch.no_grad()
def write(
    model: nn.Module,
    idx: Tensor,
    n_new: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    penalty: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Continue each row of ids by ``n_new`` ids, with any of the samplers.

    The model sees the last T ids, and the penalty counts what the model sees. Without
    settings the ids are those of the model's ``generate`` under the same seed.

    Args:
        model: like the GPT of Step 5: it has ``T``, and its forward pass maps ids
            (B, n) to logits (B, n, V) and something else. Its mode is restored.
        idx: the prompt, (B, n) with n at least 1, on any device.
        n_new: how many ids to append.
        temperature, top_k, top_p, min_p: see ``sampling_probabilities``.
        penalty: see ``penalise_repetition``; applied first.
        generator: on the CPU; without one the global generator is used.

    Returns:
        prompt and continuation, (B, n + n_new), on the model's device.

    Raises:
        ValueError: an empty prompt, a negative ``n_new``, or unusable settings.

    Built in Step 7, second part: sampling and scaling, section Writing:
    https://example.org/tinygpt/chapters/step7-sampling.html#writing
    """
    if idx.dim() != 2 or idx.numel() == 0:
        raise ValueError(
            f"the prompt has shape {tuple(idx.shape)}; expected (B, n), both at least 1"
        )
    if n_new < 0:
        raise ValueError(f"n_new is {n_new}; expected 0 or more")
    idx = idx.to(next(model.parameters()).device)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for _ in range(n_new):
            seen = idx[:, -model.T :]  # (B, up to T)
            logits = model(seen)[0][:, -1]  # (B, V)
            if penalty != 1:
                logits = penalise_repetition(logits, seen, penalty)
            new = sample(logits, generator, temperature, top_k, top_p, min_p)  # (B,)
            idx = torch.cat([idx, new[:, None]], dim=1)
    finally:
        for module, was_training in modes:
            module.training = was_training
    return idx


STEP7_LOG: tuple[str, int, str] = (
    "step7_experiments.json",
    88_479,
    "c1251b56b0de956877312bacc4eb0a02f19c6482ec64fbb0310d29c281972329",
)


class PowerLaw(NamedTuple):
    """A fitted curve ``floor + factor * x ** -exponent``.

    Built in Step 7, second part: sampling and scaling, section A curve through the
    points:
    https://example.org/tinygpt/chapters/step7-sampling.html#a-curve-through-the-points
    """

    floor: float
    factor: float
    exponent: float

    def at(self, x: float) -> float:
        """Return the value of the curve at a positive x."""
        return self.floor + self.factor * x**-self.exponent


def fit_power_law(x: Sequence[float], loss: Sequence[float]) -> PowerLaw:
    """Fit ``floor + factor * x ** -exponent`` to losses by least squares.

    For a given exponent the other two are an ordinary linear fit, so only the
    exponent is searched for: on a grid from 0.02 to 2, in ratios of 1.005. The floor
    is not allowed below 0.

    Args:
        x: positive sizes, at least three different ones.
        loss: as many losses, in nats.

    Returns:
        The fitted curve.

    Raises:
        ValueError: lengths that differ, too few sizes, or one that is not positive.

    Built in Step 7, second part: sampling and scaling, section A curve through the
    points:
    https://example.org/tinygpt/chapters/step7-sampling.html#a-curve-through-the-points
    """
    if len(x) != len(loss):
        raise ValueError(f"{len(x)} sizes and {len(loss)} losses; expected as many")
    if len(set(x)) < 3 or min(x) <= 0:
        raise ValueError(f"sizes are {list(x)}; expected three or more, positive")
    sizes = torch.as_tensor(x, dtype=torch.float64)
    y = torch.as_tensor(loss, dtype=torch.float64)
    exponents = 0.02 * 1.005 ** torch.arange(924, dtype=torch.float64)  # (G,)
    centre = sizes.log().mean().exp()  # so that the powers stay near 1
    z = (sizes / centre) ** -exponents[:, None]  # (G, n)
    spread = z - z.mean(dim=1, keepdim=True)
    slope = (spread * y).sum(dim=1) / spread.square().sum(dim=1)  # (G,)
    floor = y.mean() - slope * z.mean(dim=1)
    through_zero = (z * y).sum(dim=1) / z.square().sum(dim=1)
    slope = torch.where(floor < 0, through_zero, slope)
    floor = floor.clamp(min=0)
    error = (floor[:, None] + slope[:, None] * z - y).square().sum(dim=1)
    best = int(error.argmin())
    exponent = float(exponents[best])
    factor = float(slope[best] * centre**exponent)
    return PowerLaw(float(floor[best]), factor, exponent)
