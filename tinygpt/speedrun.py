# Generated from chapters/step9-speedrun.md by `make export`.
# Change the page, not this file.
"""Step 9: the speed run.

The saved code of https://example.org/tinygpt/chapters/step9-speedrun.html
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.gpt import GPT, check_sizes, continue_ids
from tinygpt.training import (
    TrainConfig,
    get_batch,
    learning_rate,
    progress,
    whole_text_loss,
)

__all__ = [
    "INGREDIENTS",
    "QUINTIC",
    "REACH",
    "SPEED_LOG",
    "TARGET",
    "TIMES_LOG",
    "FastBlock",
    "FastGPT",
    "Muon",
    "SpeedConfig",
    "computes_bfloat16",
    "deal_windows",
    "newton_schulz",
    "optimizers",
    "rate_factor",
    "rotary_table",
    "rotate",
    "shift_mix",
    "speed_run",
    "steps_to",
    "uses_bfloat16",
]

TARGET = 1.5178  # nats a character; the reported run of Step 6's recipe at its end


@dataclass(frozen=True)
class SpeedConfig:
    """The recipe of the speed run, with a switch for each ingredient.

    Switches:
        muon: orthogonal updates for the matrices of the blocks; else AdamW for all.
        rotary: positions by rotation; else a learned table, as in Step 5.
        token_shift: each position sees the three characters before it from the start.
        zero_start: each block begins as the identity; else small random weights.
        linear_decay: the rate falls in a line to zero; else the schedule of Step 6.
        bfloat16: half-size numbers, where the processor computes with them.
        every_window: each window once in a pass of the text; else drawn with
            replacement, as in Step 6.
        qk_norm: queries and keys of one length; else as they come. The one switch
            that is off in the record.

    Built in Step 9: the speed run, section The recipe, with a switch for every
    ingredient:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-recipe-with-a-switch-for-every-ingredient
    """

    muon: bool = True
    rotary: bool = True
    token_shift: bool = True
    zero_start: bool = True
    linear_decay: bool = True
    bfloat16: bool = True
    every_window: bool = True
    qk_norm: bool = False

    steps: int = 720
    batch_size: int = 64
    seed: int = 1337
    warmup: int = 10
    muon_rate: float = 0.05
    momentum: float = 0.9
    adam_rate: float = 0.02
    betas: tuple[float, float] = (0.8, 0.95)
    weight_decay: float = 0.05

    V: int = 65
    T: int = 64
    d: int = 128
    H: int = 4
    L: int = 4
    hidden: int = 384

    def __post_init__(self) -> None:
        check_sizes(V=self.V, T=self.T, d=self.d, H=self.H, L=self.L)
        check_sizes(hidden=self.hidden, steps=self.steps, batch_size=self.batch_size)
        if self.d % (2 * self.H):
            raise ValueError(
                f"d is {self.d} and H is {self.H}; expected a d that 2H divides, "
                "for the positions turn pairs of coordinates"
            )
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}; expected 0 or more")


INGREDIENTS = (
    *("muon", "rotary", "token_shift", "zero_start"),
    *("linear_decay", "bfloat16", "every_window"),
)

QUINTIC = (3.4445, -4.7750, 2.0315)  # a, b, c: steep at 0, near 1 after five turns


def newton_schulz(G: Tensor, turns: int = 5) -> Tensor:
    """Replace the singular values of each matrix by numbers near one.

    The directions stay: ``U S V^T`` becomes about ``U V^T``. It takes products of
    matrices only, so it runs in the number format of ``G``, bfloat16 included.

    Args:
        G: a matrix, or a stack of them, (..., rows, columns).
        turns: how often the polynomial is applied.

    Returns:
        the same shape; singular values between about 0.7 and 1.2 where those of ``G``
        were not far below the largest; zeros where ``G`` is zero.

    Raises:
        ValueError: ``G`` has less than two axes, or ``turns`` is negative.

    Built in Step 9: the speed run, section Newton and Schulz:
    https://example.org/tinygpt/chapters/step9-speedrun.html#newton-and-schulz
    """
    if G.dim() < 2:
        raise ValueError(f"G has shape {tuple(G.shape)}; expected (..., rows, columns)")
    if turns < 0:
        raise ValueError(f"turns is {turns}; expected 0 or more")
    a, b, c = QUINTIC
    wide = G.shape[-2] <= G.shape[-1]
    X = G if wide else G.mT  # the square X X^T is then the small one
    X = X.reshape(-1, *X.shape[-2:])  # (n, r, s) with r the smaller side
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)  # none above one
    for _ in range(turns):
        A = X @ X.mT  # (n, r, r)
        B = torch.baddbmm(A, A, A, beta=b, alpha=c)  # b A + c A A
        X = torch.baddbmm(X, B, X, beta=a)  # a X + B X
    return X.reshape(G.shape) if wide else X.mT.reshape(G.shape)


def _is_tall(p: Tensor) -> bool:
    """Has a matrix, or each of a stack, more rows than columns?"""
    return p.shape[-2] > p.shape[-1]


class Muon(torch.optim.Optimizer):
    """Momentum, then orthogonal updates, for parameters that are matrices.

    A parameter may also be a stack of matrices, (..., rows, columns); each is treated
    by itself.

    Args:
        params: the parameters, each of at least two axes.
        lr: length of a step; the update's singular values are near one before it.
        momentum: how much of the running mean of gradients is kept, from 0 to below 1.
        weight_decay: the weights shrink by ``lr * weight_decay`` at each step.
        turns: of the polynomial.
        dtype: the number format of the polynomial; by default that of the gradients.

    Raises:
        ValueError: a parameter that is no matrix, or a number out of its range.

    Built in Step 9: the speed run, section The optimiser:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-optimiser
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        turns: int = 5,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not lr >= 0 or not weight_decay >= 0:
            raise ValueError(
                f"lr {lr}, weight_decay {weight_decay}; expected 0 or more"
            )
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}; expected 0 to below 1")
        if turns < 0:
            raise ValueError(f"turns is {turns}; expected 0 or more")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"turns": turns, "dtype": dtype})

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Take in parameters, each of at least two axes."""
        super().add_param_group(group)
        for p in self.param_groups[-1]["params"]:
            if p.dim() < 2:
                raise ValueError(
                    f"a parameter has shape {tuple(p.shape)}; Muon expects matrices"
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Move every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for p in (p for p in group["params"] if p.grad is not None):
                ahead = self._momentum(p, group["momentum"])
                ahead = ahead.reshape(-1, *p.shape[-2:])  # a stack, if of one
                flat = ahead.mT if _is_tall(p) else ahead
                by_shape.setdefault(flat.shape[-2:], []).append((p, flat))
            for pairs in by_shape.values():
                stack = torch.cat([flat for _, flat in pairs])  # (n, r, s), r <= s
                stack = stack.to(group["dtype"] or stack.dtype)
                update = newton_schulz(stack, group["turns"])
                parts = update.split([len(flat) for _, flat in pairs])
                for (p, _), part in zip(pairs, parts, strict=True):
                    rate = group["lr"] * max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5
                    part = part.mT if _is_tall(p) else part
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(part.reshape(p.shape).to(p.dtype), alpha=-rate)
        return loss

    def _momentum(self, p: Tensor, momentum: float) -> Tensor:
        """Take the gradient into the running mean; return that, one step ahead."""
        state = self.state[p]
        if "mean" not in state:
            state["mean"] = torch.zeros_like(p)
        state["mean"].lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(state["mean"], momentum)


def rotary_table(T: int, dh: int, base: float = 1_000.0) -> Tensor:
    """Cosine and sine of the angle of each position and pair, (2, T, dh / 2).

    Pair ``i`` turns by ``base ** (-2 i / dh)`` at each position.

    Raises:
        ValueError: a size is not positive, or dh is odd.

    Built in Step 9: the speed run, section Positions by rotation:
    https://example.org/tinygpt/chapters/step9-speedrun.html#positions-by-rotation
    """
    check_sizes(T=T, dh=dh)
    if dh % 2:
        raise ValueError(f"dh is {dh}; expected an even number, for pairs")
    speeds = base ** (-torch.arange(0, dh, 2) / dh)  # (dh / 2,)
    angles = torch.arange(T)[:, None] * speeds  # (T, dh / 2)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turn the pairs of each vector of (..., T, dh) by the angles of its position.

    Pair ``i`` is made of the coordinates ``i`` and ``i + dh / 2``.

    Built in Step 9: the speed run, section Positions by rotation:
    https://example.org/tinygpt/chapters/step9-speedrun.html#positions-by-rotation
    """
    cos, sin = table[:, : x.shape[-2]].to(x.dtype)  # (T, dh / 2) each
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


REACH = 4  # the position itself and the three before it


def shift_mix(e: Tensor, scales: Tensor) -> Tensor:
    """Mix each position with those just before it.

    Args:
        e: embeddings (B, T, d).
        scales: (reach, d); row ``j`` weighs the position ``j`` places back.

    Returns:
        (B, T, d); what lies before the window counts as zero.

    Built in Step 9: the speed run, section The letters just before:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-letters-just-before
    """
    mixed = e * scales[0]
    for back in range(1, min(len(scales), e.shape[1])):
        earlier = F.pad(e[:, :-back], (0, 0, back, 0))  # moved right, zeros come in
        mixed = mixed + earlier * scales[back]
    return mixed


def deal_windows(
    data: Tensor, T: int, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Deal the windows of a text, each once in a pass, for ever.

    Each pass cuts the text at another place and shuffles, from the global generator.
    What is too short for a batch at the end of a pass is left out.

    Args:
        data: character ids (n,).
        T: length of a window.
        batch_size: number B of windows.

    Yields:
        inputs and targets, both (B, T), on the device of ``data``.

    Raises:
        ValueError: a size is not positive, or the text has too few windows for a batch.

    Built in Step 9: the speed run, section Every window once:
    https://example.org/tinygpt/chapters/step9-speedrun.html#every-window-once
    """
    check_sizes(T=T, batch_size=batch_size)
    if len(data) < T * (batch_size + 1):
        raise ValueError(
            f"the text has {len(data)} characters; a batch of {batch_size} windows of "
            f"{T} needs {T * (batch_size + 1)}"
        )
    while True:
        first = torch.randint(T, ())
        order = torch.randperm((len(data) - 1 - int(first)) // T)
        for batch in order.split(batch_size)[: len(order) // batch_size]:
            places = first + T * batch[:, None] + torch.arange(T + 1)  # (B, T + 1)
            windows = data[places.to(data.device)]
            yield windows[:, :-1], windows[:, 1:]


class FastBlock(nn.Module):
    """Pre-norm block with one product for query, key and value.

    Its four matrices are all that Muon trains.

    Built in Step 9: the speed run, section The block and the model:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-block-and-the-model
    """

    def __init__(self, config: SpeedConfig) -> None:
        super().__init__()
        d, H, T, L = config.d, config.H, config.T, config.L
        self.H, self.qk_norm, self.rotary = H, config.qk_norm, config.rotary
        self.qkv = nn.Parameter(torch.empty(3, d, d))  # a stack of three matrices
        self.out = nn.Parameter(torch.zeros(d, d))
        self.up = nn.Parameter(torch.empty(config.hidden, d))
        self.down = nn.Parameter(torch.zeros(d, config.hidden))
        for weight in (self.qkv, self.up):
            nn.init.uniform_(weight, -(d**-0.5), d**-0.5)  # as nn.Linear begins
        if not config.zero_start:
            for weight in (self.out, self.down):
                nn.init.normal_(weight, std=0.02 / (2 * L) ** 0.5)  # as in Step 5
        if self.qk_norm:
            self.sharpness = nn.Parameter(torch.ones(H, 1, 1))
        later = torch.full((T, T), float("-inf")).triu(1)  # (T, T), 0 where it may look
        self.register_buffer("mask", later, persistent=False)
        table = rotary_table(T, d // H)
        self.register_buffer("table", table, persistent=False)

    def attend(self, x: Tensor) -> Tensor:
        """Map the normed stream (B, T, d) to what the heads read, (B, T, d)."""
        B, T, d = x.shape
        H, dh = self.H, d // self.H
        qkv = F.linear(x, self.qkv.flatten(end_dim=1)).view(B, T, 3, H, dh)
        qk, value = qkv[:, :, :2], qkv[:, :, 2]  # (B, T, 2, H, dh), (B, T, H, dh)
        if self.qk_norm:
            qk = F.layer_norm(qk, (dh,))  # every length is the root of dh
        qk = qk.permute(2, 0, 3, 1, 4)  # (2, B, H, T, dh)
        if self.rotary:
            qk = rotate(qk, self.table)
        query, key = qk  # (B, H, T, dh) each
        scale = self.sharpness * dh**-0.5 if self.qk_norm else torch.tensor(dh**-0.5)
        scores = query * scale.to(query.dtype) @ key.mT  # (B, H, T, T)
        scores = scores + self.mask[:T, :T].to(scores.dtype)
        mixed = scores.softmax(dim=-1) @ value.transpose(1, 2)  # (B, H, T, dh)
        return mixed.transpose(1, 2).reshape(B, T, d)

    def forward(self, x: Tensor) -> Tensor:
        """Carry the stream (B, T, d) through the block."""
        width = x.shape[-1:]
        x = x + F.linear(self.attend(F.layer_norm(x, width)), self.out)
        hidden = F.gelu(F.linear(F.layer_norm(x, width), self.up))  # (B, T, hidden)
        return x + F.linear(hidden, self.down)


class FastGPT(nn.Module):
    """The model of the speed run: ids in, logits for the next id out.

    Built in Step 9: the speed run, section The block and the model:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-block-and-the-model
    """

    check_ids = GPT.check_ids
    generate = continue_ids

    def __init__(self, config: SpeedConfig) -> None:
        super().__init__()
        self.config, self.T = config, config.T
        V, T, d = config.V, config.T, config.d
        self.tok = nn.Embedding(V, d)
        self.pos = None if config.rotary else nn.Embedding(T, d)
        self.shift = None
        if config.token_shift:
            self.shift = nn.Parameter(torch.zeros(REACH, d))
            nn.init.ones_(self.shift[0])
        self.blocks = nn.ModuleList(FastBlock(config) for _ in range(config.L))
        self.head = nn.Linear(d, V, bias=False)
        nn.init.zeros_(self.head.weight)  # the first guess is the even one

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Map ids (B, T) to logits (B, T, V), and to the loss of ``targets``.

        Raises:
            ValueError: ids out of range or of a wrong shape, or more positions than
                the model has.
        """
        self.check_ids(idx)
        n, width = idx.shape[1], (self.config.d,)
        if n > self.T:
            raise ValueError(f"{n} positions; expected at most T, {self.T}")
        x = self.tok(idx)  # (B, T, d)
        if self.shift is not None:
            x = shift_mix(x, self.shift)
        if self.pos is not None:
            x = x + self.pos(torch.arange(n, device=idx.device))
        x = F.layer_norm(x, width)
        if torch.is_autocast_enabled(idx.device.type):
            x = x.to(torch.get_autocast_dtype(idx.device.type))
        for block in self.blocks:
            x = block(x)
        logits = self.head(F.layer_norm(x, width)).float()  # (B, T, V)
        if targets is None:
            return logits, None
        if targets.shape != idx.shape:
            raise ValueError(
                f"targets have shape {tuple(targets.shape)}; expected that of the ids, "
                f"{tuple(idx.shape)}"
            )
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def matrices(self) -> list[nn.Parameter]:
        """The parameters that are maps from vectors to vectors, for Muon."""
        return [
            weight
            for block in self.blocks
            for weight in (block.qkv, block.out, block.up, block.down)
        ]


def rate_factor(step: int, config: SpeedConfig) -> float:
    """The share of the peak rate at one step.

    A warm-up that moves at once, then a line that would reach 0 one step after the
    last; or the warm-up and cosine of Step 6, on the length of this run.

    Built in Step 9: the speed run, section The run:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-run
    """
    if not 0 <= step < config.steps:
        raise ValueError(f"step is {step}; expected 0 to {config.steps - 1}")
    if not config.linear_decay:
        cosine = TrainConfig(steps=config.steps, warmup=config.warmup)
        return learning_rate(step, cosine) / cosine.max_rate
    return min((step + 1) / (config.warmup + 1), 1 - step / config.steps)


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a device computes with bfloat16 itself, so that it saves time there.

    Built in Step 9: the speed run, section The run:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-run
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            return torch.cuda.is_bf16_supported(including_emulation=False)
    known = getattr(torch.cpu, "get_capabilities", dict)()
    parts = ("avx512_bf16", "amx_bf16", "bf16")
    return device.type == "cpu" and any(known.get(part, False) for part in parts)


def uses_bfloat16(model: FastGPT) -> bool:
    """Whether a run of this model computes in bfloat16: asked for, and worth it.

    Built in Step 9: the speed run, section The run:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-run
    """
    return model.config.bfloat16 and computes_bfloat16(model.head.weight.device)


def optimizers(model: FastGPT) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks and AdamW for the rest, or AdamW for all.

    Built in Step 9: the speed run, section The run:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-run
    """
    config, reference = model.config, TrainConfig()
    matrices = model.matrices()
    ids = {id(weight) for weight in matrices}
    rest = [p for p in model.parameters() if id(p) not in ids]
    adam = torch.optim.AdamW(
        rest, lr=config.adam_rate, betas=config.betas, weight_decay=0.0
    )
    if config.muon:
        muon = Muon(
            matrices,
            lr=config.muon_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            dtype=torch.bfloat16 if uses_bfloat16(model) else None,
        )
        return [muon, adam]
    plain = torch.optim.AdamW(
        matrices,
        lr=reference.max_rate,
        betas=reference.betas,
        weight_decay=reference.weight_decay,
    )
    return [plain, adam]


def speed_run(
    config: SpeedConfig,
    train_data: Tensor,
    val_data: Tensor,
    every: int = 100,
    until: int | None = None,
) -> tuple[FastGPT, dict[str, Any]]:
    """Train one model by the recipe; the clock stands still while it is examined.

    Everything random comes from the global generator, which is seeded with the
    recipe's seed and given back as it was.

    Args:
        config: the recipe.
        train_data, val_data: character ids (n,), on the device of the run.
        every: steps between two examinations on all of ``val_data``; the last step
            has one in any case.
        until: stop after so many steps, as if interrupted; by default at the end.

    Returns:
        the model in evaluation mode, and a log that is ready for JSON: the loss of
        each step, the examinations with step, seconds and validation loss, and the
        number format.

    Raises:
        ValueError: ``every`` is not positive, or ``until`` is not in the recipe.
        FloatingPointError: the loss of a step is not finite.

    Built in Step 9: the speed run, section The run:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-run
    """
    until = config.steps if until is None else until
    check_sizes(every=every, until=until)
    if until > config.steps:
        raise ValueError(f"until is {until}; expected at most {config.steps}")
    device = train_data.device
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = FastGPT(config).to(device)
        half, working = uses_bfloat16(model), optimizers(model)
        peaks = [optimizer.param_groups[0]["lr"] for optimizer in working]
        dealt = deal_windows(train_data, config.T, config.batch_size)
        losses, examinations, seconds = [], [], 0.0
        for step in progress(range(until)):
            start = time.perf_counter()
            if config.every_window:
                inputs, targets = next(dealt)
            else:
                inputs, targets = get_batch(train_data, config.T, config.batch_size)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                _, loss = model(inputs, targets)
            model.zero_grad()
            loss.backward()
            for optimizer, peak in zip(working, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * rate_factor(step, config)
                optimizer.step()
            losses.append(loss.item())
            seconds += time.perf_counter() - start
            if not loss.isfinite():
                raise FloatingPointError(f"the loss of step {step} is {losses[-1]}")
            if (step + 1) % every == 0 or step + 1 == until:
                examinations.append(
                    {
                        "step": step + 1,
                        "seconds": seconds,
                        "validation": whole_text_loss(model, val_data),
                    }
                )
    log = {
        "train_loss": losses,
        "examinations": examinations,
        "bfloat16": half,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    return model.eval(), log


SPEED_LOG = (
    "step9_experiments.json",
    355_747,
    "d5253c6a1b06da70f1852b281e4ec972f05805bb24fca0ca16c28cb7d508b82b",
)
TIMES_LOG = (
    "step9_times.json",
    699,
    "d07d980d181392e343d314f97fad951397bc32234f04feb7026529749b74e7a1",
)


def steps_to(target: float, lengths: list[int], losses: list[float]) -> float:
    """The steps at which runs of two lengths would meet a loss, by a line between them.

    Args:
        target: the loss to meet.
        lengths: steps of the shorter and of the longer run.
        losses: what each of the two reached.

    Returns:
        steps; those of the shorter run where that reaches the target, and infinity
        where the longer one does not.

    Raises:
        ValueError: there are not two of each, or the lengths fall.

    Built in Step 9: the speed run, section The clock:
    https://example.org/tinygpt/chapters/step9-speedrun.html#the-clock
    """
    if len(lengths) != 2 or len(losses) != 2 or not 0 < lengths[0] <= lengths[1]:
        raise ValueError(
            f"lengths {lengths}, losses {losses}; expected two, not falling"
        )
    (short, long), (first, second) = lengths, losses
    if first <= target:
        return short
    if second > target:
        return math.inf
    share = (first - target) / (first - second)
    return short * (long / short) ** share
