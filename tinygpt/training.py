# Generated from chapters/step6-training.md by `make export`.
# Change the page, not this file.
"""Step 6: training the GPT.

The saved code of https://example.org/tinygpt/chapters/step6-training.html
"""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.corpus import load_stored

__all__ = [
    "REFERENCE",
    "FusedMHA",
    "TrainConfig",
    "Trainer",
    "WindowMLP",
    "estimate_loss",
    "fuse",
    "get_batch",
    "learning_rate",
    "load_reference",
    "progress",
    "save_whole",
    "whole_text_loss",
]


def get_batch(data: Tensor, T: int, batch_size: int) -> tuple[Tensor, Tensor]:
    """Draw random windows and the same windows shifted by one.

    One draw of all starts from ``range(n - T - 1)``, from the global generator, on the
    CPU, so that a seed means the same on every device.

    Args:
        data: character ids (n,).
        T: length of a window.
        batch_size: number B of windows.

    Returns:
        inputs and targets, both (B, T), on the device of ``data``.

    Raises:
        ValueError: the text is too short, or a size is not positive.

    Built in Step 6: training the GPT, section The split and the batch:
    https://example.org/tinygpt/chapters/step6-training.html#the-split-and-the-batch
    """
    if T < 1 or batch_size < 1:
        raise ValueError(f"T {T}, batch_size {batch_size}; expected positive numbers")
    if len(data) < T + 2:
        raise ValueError(
            f"T is {T} but the text has {len(data)} characters; need at least {T + 2}"
        )
    starts = torch.randint(len(data) - T - 1, (batch_size,))
    places = starts[:, None] + torch.arange(T + 1)  # (B, T + 1)
    windows = data[places.to(data.device)]
    return windows[:, :-1], windows[:, 1:]


@torch.no_grad()
def estimate_loss(
    model: nn.Module, data: Tensor, n_batches: int, batch_size: int = 64
) -> float:
    """Mean loss in nats over random batches, in evaluation mode, which is undone.

    The batches come from the global generator, like those of training.

    Built in Step 6: training the GPT, section How good is it? Estimates and their
    spread:
    https://example.org/tinygpt/chapters/step6-training.html#how-good-is-it-estimates-and-their-spread
    """
    if n_batches < 1:
        raise ValueError(f"n_batches is {n_batches}; expected a positive number")
    was_training = model.training
    model.eval()
    try:
        losses = [
            model(*get_batch(data, model.T, batch_size))[1].item()
            for _ in range(n_batches)
        ]
    finally:
        model.train(was_training)
    return sum(losses) / n_batches


@torch.no_grad()
def whole_text_loss(
    model: nn.Module, data: Tensor, stride: int | None = None, batch_size: int = 64
) -> float:
    """Mean loss in nats over a whole text, each target counted once, nothing drawn.

    Windows of T start every ``stride`` characters. Of each but the first only the last
    ``stride`` targets count: those have the longest context. The default stride, T,
    makes the windows disjoint. A rest shorter than a window is left out.

    Raises:
        ValueError: ``stride`` is not from 1 to T, or the text is shorter than a window.

    Built in Step 6: training the GPT, section How good is it? Estimates and their
    spread:
    https://example.org/tinygpt/chapters/step6-training.html#how-good-is-it-estimates-and-their-spread
    """
    T = model.T
    stride = T if stride is None else stride
    if not 1 <= stride <= T:
        raise ValueError(f"stride is {stride}; expected 1 to T, {T}")
    if len(data) < T + 1:
        raise ValueError(f"the text has {len(data)} characters; need at least {T + 1}")
    windows = data.unfold(0, T + 1, stride)  # (N, T + 1)
    was_training = model.training
    model.eval()
    try:
        losses = []
        for rows in windows.split(batch_size):
            logits, _ = model(rows[:, :-1])  # (B, T, V)
            loss = F.cross_entropy(
                logits.transpose(1, 2), rows[:, 1:], reduction="none"
            )  # (B, T)
            losses.append(loss.double())
    finally:
        model.train(was_training)
    table = torch.cat(losses)  # (N, T)
    counted = torch.cat([table[0], table[1:, -stride:].flatten()])
    return counted.mean().item()


@dataclass(frozen=True)
class TrainConfig:
    """The recipe of a run: AdamW, warm-up from zero, a cosine, clipping, evaluation.

    Built in Step 6: training the GPT, section The recipe:
    https://example.org/tinygpt/chapters/step6-training.html#the-recipe
    """

    steps: int = 5_000
    batch_size: int = 64
    max_rate: float = 3e-3
    min_rate: float = 3e-4
    warmup: int = 100
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0
    eval_every: int = 500
    eval_batches: int = 50
    final_batches: int = 200


def learning_rate(step: int, config: TrainConfig) -> float:
    """Rate of one step: ``max_rate * step / warmup``, then a cosine to ``min_rate``.

    With a warm-up the rate of step 0 is 0, so the first step moves nothing. Without
    one, step 0 has ``max_rate``. From step ``steps`` on it is ``min_rate``.

    Built in Step 6: training the GPT, section The recipe:
    https://example.org/tinygpt/chapters/step6-training.html#the-recipe
    """
    if step >= config.steps:
        return config.min_rate
    if step < config.warmup:
        return config.max_rate * step / config.warmup
    progress = (step - config.warmup) / (config.steps - config.warmup)
    half_cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return config.min_rate + (config.max_rate - config.min_rate) * half_cosine


class FusedMHA(nn.Module):
    """All heads of an ``MHA`` computed at once, on the same parameters.

    The heads and the projection are those of the module it is made from, under the
    same names, so a state dict fits both.

    Built in Step 6: training the GPT, section All heads at once:
    https://example.org/tinygpt/chapters/step6-training.html#all-heads-at-once
    """

    def __init__(self, mha: nn.Module) -> None:
        super().__init__()
        self.heads = mha.heads
        self.proj = mha.proj

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream (B, T, d) to the update (B, T, d)."""
        B, T, d = x.shape
        H = len(self.heads)
        parts = ("query", "key", "value")
        weight = torch.cat(
            [getattr(head, part).weight for part in parts for head in self.heads]
        )  # (3d, d)
        qkv = F.linear(x, weight).view(B, T, 3, H, d // H)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # (B, H, T, dh) each
        if torch.is_autocast_enabled(x.device.type) and x.device.type == "cpu":
            # In bfloat16 on a CPU, writing attention out is faster than the fused call.
            scores = query / math.sqrt(d // H) @ key.transpose(-2, -1)
            hidden = self.heads[0].mask[:T, :T]
            mixed = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(mixed.transpose(1, 2).reshape(B, T, d))


def fuse(model: nn.Module) -> nn.Module:
    """Let each block compute its heads at once; return the same model.

    Built in Step 6: training the GPT, section All heads at once:
    https://example.org/tinygpt/chapters/step6-training.html#all-heads-at-once
    """
    for block in model.blocks:
        if not isinstance(block.attn, FusedMHA):
            block.attn = FusedMHA(block.attn)
    return model


def save_whole(value: Any, path: str | Path) -> None:
    """``torch.save`` that leaves the old file or the new one, never half of one.

    Built in Step 6: training the GPT, section A run that can be interrupted:
    https://example.org/tinygpt/chapters/step6-training.html#a-run-that-can-be-interrupted
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save(value, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def progress(steps: Iterable[int]) -> Iterable[int]:
    """Show a bar on a terminal where tqdm is installed, and nothing elsewhere.

    Built in Step 6: training the GPT, section A run that can be interrupted:
    https://example.org/tinygpt/chapters/step6-training.html#a-run-that-can-be-interrupted
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, disable=None)


class Trainer:
    """One training run that can be stopped at any time and continued identically.

    Everything random is drawn from the global generator, in this order: at an
    evaluation all training batches, then all validation batches; then the step's batch.

    Args:
        model: trained in place; its ``forward(idx, targets)`` returns logits and loss.
        train_data, val_data: character ids (n,), on the model's device.
        config: the recipe.
        checkpoint: where to keep the state of the run; one that is there is continued.
        on_evaluation: called with the step and the model after each evaluation; it
            must leave the global generator as it was.
        bfloat16: run the forward pass under bfloat16 autocast.

    Attributes:
        log: the losses, pre-clip gradient norms and rates of all steps, and the
            evaluations; plain lists and numbers, ready for JSON.
        best: step, validation loss and weights of the best evaluation so far.

    Built in Step 6: training the GPT, section A run that can be interrupted:
    https://example.org/tinygpt/chapters/step6-training.html#a-run-that-can-be-interrupted
    """

    def __init__(
        self,
        model: nn.Module,
        train_data: Tensor,
        val_data: Tensor,
        config: TrainConfig,
        checkpoint: str | Path | None = None,
        on_evaluation: Callable[[int, nn.Module], None] | None = None,
        bfloat16: bool = False,
    ) -> None:
        self.model, self.config = model, config
        self.train_data, self.val_data = train_data, val_data
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.on_evaluation, self.bfloat16 = on_evaluation, bfloat16
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=config.max_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        self.log: dict[str, list] = {
            "train_loss": [],
            "grad_norm": [],
            "rate": [],
            "evaluations": [],
        }
        self.best: dict[str, Any] = {"step": -1, "validation": math.inf, "model": {}}
        if self.checkpoint is not None and self.checkpoint.is_file():
            self._load()

    @property
    def step(self) -> int:
        """How many steps are done."""
        return len(self.log["train_loss"])

    def run(self, until: int | None = None) -> dict[str, list]:
        """Train up to step ``until``, by default to the end; return the log.

        Raises:
            ValueError: ``until`` lies before what is done or beyond the recipe.
            FloatingPointError: the loss of a step is not finite.
        """
        until = self.config.steps if until is None else until
        if not self.step <= until <= self.config.steps:
            raise ValueError(
                f"until is {until}; expected {self.step} to {self.config.steps}"
            )
        for step in progress(range(self.step, until)):
            self._evaluate_if_due(step)
            self._one_step(step)
        self._evaluate_if_due(until)
        return self.log

    def _evaluate_if_due(self, step: int) -> None:
        config, evaluations = self.config, self.log["evaluations"]
        due = step % config.eval_every == 0 or step == config.steps
        if not due or (evaluations and evaluations[-1]["step"] == step):
            return
        n = config.final_batches if step == config.steps else config.eval_batches
        train = estimate_loss(self.model, self.train_data, n, config.batch_size)
        validation = estimate_loss(self.model, self.val_data, n, config.batch_size)
        evaluations.append({"step": step, "train": train, "validation": validation})
        if validation < self.best["validation"]:
            weights = {k: v.clone() for k, v in self.model.state_dict().items()}
            self.best = {"step": step, "validation": validation, "model": weights}
        if self.on_evaluation is not None:
            self.on_evaluation(step, self.model)
        if self.checkpoint is not None:
            self._save()

    def _one_step(self, step: int) -> None:
        config, model = self.config, self.model
        rate = learning_rate(step, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        inputs, targets = get_batch(self.train_data, model.T, config.batch_size)
        device = inputs.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.bfloat16):
            _, loss = model(inputs, targets)
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the loss of step {step} is {loss.item()} at rate {rate:.2e}; "
                f"the last checkpoint is {self.checkpoint or 'not kept'}; "
                "lower max_rate"
            )
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        self.optimizer.step()
        self.log["train_loss"].append(loss.item())
        self.log["grad_norm"].append(norm.item())
        self.log["rate"].append(rate)

    def _save(self) -> None:
        state = {
            "config": asdict(self.config),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": torch.get_rng_state(),
            "log": self.log,
            "best": self.best,
        }
        save_whole(state, self.checkpoint)

    def _load(self) -> None:
        state = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        if state["config"] != asdict(self.config):
            raise ValueError(
                f"{self.checkpoint} belongs to another recipe: {state['config']}; "
                f"expected {asdict(self.config)}"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["generator"])
        self.log, self.best = state["log"], state["best"]


REFERENCE: dict[str, tuple[int, str]] = {
    "step6_log.json": (
        318_556,
        "3f2998e62c575e8f7f33a13ebf66dcb17f1b8fab4395d1aab296825e363c30d1",
    ),
    "step6_model.pt": (
        3_296_403,
        "d6ce1cee98c32c015c66ca13cf6444883277046a05382d74e2264c46fed02c3d",
    ),
    "step6_experiments.json": (
        108_938,
        "8147c7b9677545f6dd348446bd38706e7ea0c6fd52c7ec1b37d067d54b517c8f",
    ),
}


def load_reference(name: str, start: str | Path = ".") -> bytes:
    """Return a stored file of the reference run: found, or downloaded, and verified.

    Raises:
        ValueError: an unknown name, or a file that is not the one stated.
        OSError: it is not on this machine and no address answers.

    Built in Step 6: training the GPT, section The reference run:
    https://example.org/tinygpt/chapters/step6-training.html#the-reference-run
    """
    if name not in REFERENCE:
        raise ValueError(f"unknown file {name!r}; the names are {sorted(REFERENCE)}")
    return load_stored(name, *REFERENCE[name], start)


class WindowMLP(nn.Module):
    """A character model without attention: an MLP over the last T characters.

    Its forward pass predicts what follows the window, so of ``targets`` (B, T) only
    the last column counts.

    Built in Step 6: training the GPT, section Is it attention, or is it size?:
    https://example.org/tinygpt/chapters/step6-training.html#is-it-attention-or-is-it-size
    """

    def __init__(self, V: int, T: int, e: int, hidden: int) -> None:
        super().__init__()
        self.T = T
        self.embed = nn.Embedding(V, e)
        self.wide = nn.Linear(T * e, hidden)
        self.head = nn.Linear(hidden, V)

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Map ids (B, T) to logits (B, V), and the loss of the last target."""
        x = self.embed(idx).flatten(start_dim=1)  # (B, T e)
        logits = self.head(F.gelu(self.wide(x)))  # (B, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits, targets[:, -1])
