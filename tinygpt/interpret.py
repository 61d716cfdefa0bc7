# Generated from chapters/step8-interpretability.md by `make export`.
# Change the page, not this file.
"""Step 8: looking inside.

The saved code of https://example.org/tinygpt/chapters/step8-interpretability.html
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.gpt import GPT

__all__ = [
    "Part",
    "Record",
    "ablated",
    "ablation_effects",
    "all_parts",
    "bootstrap_interval",
    "evaluating",
    "even_attention",
    "half_bits",
    "head_scores",
    "induction_strings",
    "key_patterns",
    "logit_attribution",
    "logit_lens",
    "neuron_scores",
    "part_changes",
    "record",
    "speaker_mask",
    "spread_windows",
    "target_bits",
]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model into evaluation mode; afterwards each module's mode is restored.

    Built in Step 8: looking inside, section The model and the text:
    https://example.org/tinygpt/chapters/step8-interpretability.html#the-model-and-the-text
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, was_training in modes:
            module.training = was_training


def spread_windows(data: Tensor, T: int, n: int) -> Tensor:
    """Cut ``n`` windows of T + 1 ids from a text, at even distances, nothing drawn.

    Args:
        data: ids (m,).
        T: inputs in a window; one more id is the last target.
        n: number of windows; they overlap if the text is short.

    Returns:
        windows (n, T + 1), on the device of ``data``.

    Raises:
        ValueError: a size is not positive, or the text is shorter than a window.

    Built in Step 8: looking inside, section The model and the text:
    https://example.org/tinygpt/chapters/step8-interpretability.html#the-model-and-the-text
    """
    if T < 1 or n < 1:
        raise ValueError(f"T is {T}, n is {n}; expected positive numbers")
    if len(data) < T + 1:
        raise ValueError(f"the text has {len(data)} ids; need at least {T + 1}")
    starts = torch.arange(n) * (len(data) - T - 1) // max(n - 1, 1)
    places = starts[:, None] + torch.arange(T + 1)  # (n, T + 1)
    return data[places.to(data.device)]


@torch.no_grad()
def target_bits(model: nn.Module, windows: Tensor) -> Tensor:
    """Bits that a model pays for each target of windows (n, T + 1): shape (n, T).

    Built in Step 8: looking inside, section The model and the text:
    https://example.org/tinygpt/chapters/step8-interpretability.html#the-model-and-the-text
    """
    with evaluating(model):
        logits, _ = model(windows[:, :-1])  # (n, T, V)
    loss = F.cross_entropy(logits.mT, windows[:, 1:], reduction="none")
    return loss / math.log(2)


def bootstrap_interval(
    values: Tensor, counts: Tensor | None = None, draws: int = 1_000, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over windows, and the interval that 95% of resampled means fall into.

    Each draw takes as many windows as there are, with repetition (Efron 1979). The
    interval speaks of the choice of windows, not of the training seed.

    Args:
        values: one number for each window, (..., n).
        counts: the weight of each window, (n,); by default all weigh the same.
        draws: how often the windows are resampled.
        seed: of the generator of the draws.

    Returns:
        mean, lower end and upper end, each (...).

    Raises:
        ValueError: fewer than two windows, or weights that do not fit or are all zero.

    Built in Step 8: looking inside, section How sure is a mean over windows?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#how-sure-is-a-mean-over-windows
    """
    n = values.shape[-1]
    counts = values.new_ones(n) if counts is None else counts.to(values)
    if n < 2 or counts.shape != (n,) or not (counts >= 0).all() or counts.sum() == 0:
        raise ValueError(
            f"{n} windows with weights {tuple(counts.shape)}; expected at least two, "
            "and one weight for each, not negative and not all zero"
        )
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n, (draws, n), generator=generator)
    times = torch.zeros(draws, n).scatter_add_(1, drawn, torch.ones(draws, n))
    weight = times.to(values) * counts  # (draws, n)
    weight = weight[weight.sum(dim=-1) > 0]
    means = values @ weight.T / weight.sum(dim=-1)  # (..., draws)
    ends = torch.quantile(means, means.new_tensor([0.025, 0.975]), dim=-1)
    return (values * counts).sum(dim=-1) / counts.sum(), ends[0], ends[1]


@dataclass(frozen=True)
class Record:
    """What one forward pass computed inside of a GPT; made by ``record``.

    Attributes:
        logits: (B, T, V).
        token, position: the two parts of the embedding, (B, T, d) each.
        head_outputs: what each head hands to the projection, (L, H, B, T, dh).
        head_writes: what the projection makes of it, without bias, (L, H, B, T, d).
        attention_biases: the bias of each block's projection, (L, d).
        neurons: the hidden layer of each MLP, after its GELU, (L, B, T, 4d).
        mlp_writes: (L, B, T, d).
        attention: the weights of each head, (L, H, B, T, T).

    Built in Step 8: looking inside, section One pass, everything kept:
    https://example.org/tinygpt/chapters/step8-interpretability.html#one-pass-everything-kept
    """

    logits: Tensor
    token: Tensor
    position: Tensor
    head_outputs: Tensor
    head_writes: Tensor
    attention_biases: Tensor
    neurons: Tensor
    mlp_writes: Tensor
    attention: Tensor

    def stream(self) -> Tensor:
        """The residual stream at its start and after each write, (2L + 1, B, T, d)."""
        attention = self.head_writes.sum(dim=1) + self.attention_biases[:, None, None]
        writes = torch.stack([attention, self.mlp_writes], dim=1)  # (L, 2, B, T, d)
        start = self.token + self.position
        return torch.cat([start[None], writes.flatten(0, 1)]).cumsum(dim=0)


@torch.no_grad()
def record(model: GPT, ids: Tensor) -> Record:
    """Run a GPT on ids (B, T) and keep what its parts computed.

    The model may be fused or not: what a head hands on is read where the projection
    takes it, and its weights are computed by the head itself, which keeps them in its
    ``A``. Hooks are removed and modes restored, also after an error. Nothing keeps a
    gradient.

    Raises:
        ValueError: ids that the model refuses.

    Built in Step 8: looking inside, section One pass, everything kept:
    https://example.org/tinygpt/chapters/step8-interpretability.html#one-pass-everything-kept
    """
    read: list[Tensor] = []
    joined: list[Tensor] = []
    hidden: list[Tensor] = []
    written: list[Tensor] = []
    handles = []
    try:
        for block in model.blocks:
            for module, inputs in (
                (block.attn, read),
                (block.attn.proj, joined),
                (block.mlp.down, hidden),
            ):
                handles.append(
                    module.register_forward_pre_hook(
                        lambda _, args, inputs=inputs: inputs.append(args[0])
                    )
                )
            handles.append(
                block.mlp.register_forward_hook(lambda _, __, out: written.append(out))
            )
        with evaluating(model):
            logits, _ = model(ids)
    finally:
        for handle in handles:
            handle.remove()
    outputs, writes, weights = [], [], []
    for block, X, together in zip(model.blocks, read, joined):
        heads, proj = block.attn.heads, block.attn.proj
        each = together.chunk(len(heads), dim=-1)  # H times (B, T, dh)
        matrices = proj.weight.chunk(len(heads), dim=1)  # H times (d, dh)
        outputs.append(torch.stack(each))
        writes.append(torch.stack([z @ W.T for z, W in zip(each, matrices)]))
        for head in heads:
            head(X)
        weights.append(torch.stack([head.A for head in heads]))
    token = model.tok(ids)  # (B, T, d)
    places = torch.arange(ids.shape[1], device=ids.device)
    return Record(
        logits=logits,
        token=token,
        position=model.pos(places).expand_as(token),
        head_outputs=torch.stack(outputs),
        head_writes=torch.stack(writes),
        attention_biases=torch.stack([block.attn.proj.bias for block in model.blocks]),
        neurons=torch.stack(hidden),
        mlp_writes=torch.stack(written),
        attention=torch.stack(weights),
    )


def key_patterns(ids: Tensor, newline: int) -> dict[str, Tensor]:
    """Mark, for each query, the keys before it that a kind of head would look at.

    Args:
        ids: (B, T).
        newline: the id that ends a line.

    Returns:
        masks (B, T, T), True at (query t, key s), by name:
        "previous": s is t - 1.
        "two back": s is t - 2.
        "line start": s is the last newline before t.
        "same": s holds the character of t.
        "after same": s follows an earlier occurrence of the character of t (induction).

    Example: in ``abca`` the last query has the previous key 2, the key 1 two back, the
    same key 0, and the key 1 after the same.

    Built in Step 8: looking inside, section Five patterns and a score:
    https://example.org/tinygpt/chapters/step8-interpretability.html#five-patterns-and-a-score
    """
    B, T = ids.shape
    place = torch.arange(T, device=ids.device)
    query, key = place[:, None], place[None, :]
    before = (key < query).expand(B, T, T)
    same = (ids[:, :, None] == ids[:, None, :]) & before
    ends = (ids == newline)[:, None, :] & before  # (B, T, T)
    last = torch.where(ends, key, -1).amax(dim=-1, keepdim=True)  # (B, T, 1)
    return {
        "previous": (key == query - 1).expand(B, T, T),
        "two back": (key == query - 2).expand(B, T, T),
        "line start": key == last,
        "same": same,
        "after same": F.pad(same, (1, 0))[:, :, :T] & before,
    }


def head_scores(weights: Tensor, pattern: Tensor) -> tuple[Tensor, Tensor]:
    """Mean attention that falls on a pattern, over the queries that have such a key.

    Args:
        weights: attention (..., B, T, T), each row summing to one.
        pattern: mask (B, T, T), True at (query, key).

    Returns:
        the mean weight in each window, (..., B), 0 where no query has such a key; and
        the number of queries that have one, (B,).

    Raises:
        ValueError: the shapes do not fit.

    Built in Step 8: looking inside, section Five patterns and a score:
    https://example.org/tinygpt/chapters/step8-interpretability.html#five-patterns-and-a-score
    """
    if weights.shape[-3:] != pattern.shape:
        raise ValueError(
            f"weights have shape {tuple(weights.shape)}, the pattern "
            f"{tuple(pattern.shape)}; expected the same last three"
        )
    asked = pattern.any(dim=-1).sum(dim=-1)  # (B,)
    on_it = (weights * pattern).sum(dim=(-2, -1))  # (..., B)
    return on_it / asked.clamp(min=1), asked


def even_attention(B: int, T: int, device: torch.device | str | None = None) -> Tensor:
    """Weights (B, T, T) of a head that attends evenly to all that it may see.

    Built in Step 8: looking inside, section Five patterns and a score:
    https://example.org/tinygpt/chapters/step8-interpretability.html#five-patterns-and-a-score
    """
    lower = torch.ones(T, T, device=device).tril()
    return (lower / lower.sum(dim=-1, keepdim=True)).expand(B, T, T)


@torch.no_grad()
def logit_lens(model: GPT, seen: Record) -> Tensor:
    """Read the stream as if it were the last: logits (2L + 1, B, T, V).

    The final norm and the head are applied to the stream after the embedding and after
    each write. The last entry is the model's own prediction.

    Built in Step 8: looking inside, section The logit lens:
    https://example.org/tinygpt/chapters/step8-interpretability.html#the-logit-lens
    """
    return model.head(model.lnf(seen.stream()))


@dataclass(frozen=True)
class Part:
    """A part of a GPT that can be replaced: a head, an MLP, or a neuron of an MLP.

    Blocks, heads and neurons are counted from 0. ``str`` gives ``head 0.3``, ``MLP 2``,
    ``neuron 3.452``.

    Raises:
        ValueError: the kind is none of "head", "MLP", "neuron".

    Built in Step 8: looking inside, section Who wrote the logit?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#who-wrote-the-logit
    """

    kind: str
    block: int
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("head", "MLP", "neuron"):
            raise ValueError(f"kind is {self.kind!r}; expected head, MLP or neuron")

    def __str__(self) -> str:
        place = f"{self.block}" if self.kind == "MLP" else f"{self.block}.{self.index}"
        return f"{self.kind} {place}"

    def output(self, seen: Record) -> Tensor:
        """What the part computed: (B, T, dh) of a head, (B, T, d), or (B, T)."""
        if self.kind == "head":
            return seen.head_outputs[self.block, self.index]
        if self.kind == "MLP":
            return seen.mlp_writes[self.block]
        return seen.neurons[self.block, ..., self.index]


def all_parts(model: GPT) -> list[Part]:
    """The heads and the MLP of each block, in the order of the model.

    Built in Step 8: looking inside, section Who wrote the logit?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#who-wrote-the-logit
    """
    parts = []
    for i, block in enumerate(model.blocks):
        parts += [Part("head", i, h) for h in range(len(block.attn.heads))]
        parts.append(Part("MLP", i))
    return parts


@contextmanager
def ablated(model: GPT, part: Part, value: Tensor | float = 0.0) -> Iterator[GPT]:
    """Replace what a part computes by ``value`` while the context lasts.

    Zero by default; the mean of the part's output and its output on another text are
    the other usual choices. The weights are not touched, and the replacement ends with
    the context, also after an error. Several parts: several contexts, one in the other.

    Args:
        model: fused or not.
        part: which head, MLP or neuron.
        value: a number, or a tensor that expands to what the part computes, see
            ``Part.output``.

    Raises:
        ValueError: the model has no such part; in the forward pass, a value whose shape
            does not fit.

    Example: ``with ablated(model, Part("head", 0, 3)): model(ids)``.

    Built in Step 8: looking inside, section Who wrote the logit?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#who-wrote-the-logit
    """
    L = len(model.blocks)
    if not 0 <= part.block < L:
        raise ValueError(f"{part}: the model has blocks 0 to {L - 1}")
    block = model.blocks[part.block]
    counts = {"head": len(block.attn.heads), "MLP": 1}
    n = counts.get(part.kind, block.mlp.down.in_features)
    if not 0 <= part.index < n:
        raise ValueError(f"{part}: expected an index from 0 to {n - 1}")

    def fill(place: Tensor) -> None:
        new = torch.as_tensor(value, dtype=place.dtype, device=place.device)
        try:
            new = new.expand(place.shape)
        except RuntimeError:
            raise ValueError(
                f"value has shape {tuple(new.shape)}; expected one that expands to "
                f"{tuple(place.shape)}, the output of {part}"
            ) from None
        place.copy_(new)

    def replace_head(_: nn.Module, args: tuple[Tensor]) -> Tensor:
        joined = args[0].clone()  # (B, T, d)
        width = joined.shape[-1] // n
        fill(joined.narrow(-1, part.index * width, width))
        return joined

    def replace_neuron(_: nn.Module, args: tuple[Tensor]) -> Tensor:
        hidden = args[0].clone()  # (B, T, 4d)
        fill(hidden[..., part.index])
        return hidden

    def replace_write(_: nn.Module, __: tuple[Tensor], out: Tensor) -> Tensor:
        out = out.clone()  # (B, T, d)
        fill(out)
        return out

    if part.kind == "head":
        handle = block.attn.proj.register_forward_pre_hook(replace_head)
    elif part.kind == "neuron":
        handle = block.mlp.down.register_forward_pre_hook(replace_neuron)
    else:
        handle = block.mlp.register_forward_hook(replace_write)
    try:
        yield model
    finally:
        handle.remove()


@torch.no_grad()
def logit_attribution(
    model: GPT, seen: Record, target: Tensor, against: Tensor | None = None
) -> dict[str, Tensor]:
    """Split a logit exactly into what each part wrote, the final norm's scale held.

    Split is the logit of ``target`` less the mean of all logits, or less the logit of
    ``against``: a constant added to all logits changes no probability.

    Args:
        model: the model of which ``seen`` is the record.
        seen: made by ``record``.
        target, against: ids (B, T).

    Returns:
        by name of the part, in the order of the model, its share (B, T). The shares add
        up to the difference.

    Raises:
        ValueError: ids that have another shape than the record, or are out of range.

    Built in Step 8: looking inside, section Who wrote the logit?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#who-wrote-the-logit
    """
    U, norm = model.head.weight, model.lnf  # (V, d)
    for name, ids in (("target", target), ("against", against)):
        if ids is not None and ids.shape != seen.token.shape[:2]:
            raise ValueError(
                f"{name} has shape {tuple(ids.shape)}; expected "
                f"{tuple(seen.token.shape[:2])}"
            )
        if ids is not None and not ((ids >= 0) & (ids < len(U))).all():
            raise ValueError(f"{name} holds an id outside of 0 to {len(U) - 1}")
    rest = U.mean(dim=0) if against is None else U[against]
    direction = U[target] - rest  # (B, T, d)
    end = seen.stream()[-1]  # (B, T, d)
    scale = (end.var(dim=-1, correction=0, keepdim=True) + norm.eps).sqrt()
    reader = direction * norm.weight / scale
    reader = reader - reader.mean(dim=-1, keepdim=True)  # instead of centring writes
    parts = {"token": seen.token, "position": seen.position}
    for block in range(len(seen.mlp_writes)):
        for index, write in enumerate(seen.head_writes[block]):
            parts[str(Part("head", block, index))] = write
        parts[f"attention bias {block}"] = seen.attention_biases[block]
        parts[str(Part("MLP", block))] = seen.mlp_writes[block]
    shares = {name: (reader * write).sum(dim=-1) for name, write in parts.items()}
    return {**shares, "norm's shift": direction @ norm.bias}


def ablation_effects(
    model: GPT, windows: Tensor, values: dict[Part, Tensor | float]
) -> dict[Part, Tensor]:
    """What it costs to replace parts, one at a time, in bits a character.

    Args:
        model: fused or not.
        windows: ids (n, T + 1).
        values: the value that replaces each part, as for ``ablated``.

    Returns:
        for each part, the cost in each window, (n,); negative where it helps.

    Built in Step 8: looking inside, section Taking parts out:
    https://example.org/tinygpt/chapters/step8-interpretability.html#taking-parts-out
    """
    before = target_bits(model, windows)  # (n, T)
    effects = {}
    for part, value in values.items():
        with ablated(model, part, value):
            effects[part] = (target_bits(model, windows) - before).mean(dim=-1)
    return effects


def induction_strings(
    n: int, length: int, V: int, generator: torch.Generator | None = None
) -> Tensor:
    """Random strings that are written twice: ids (n, 2 length).

    Within a copy no id occurs twice, so each id of the second copy has one earlier
    occurrence, and what followed it there follows it again. Drawn on the CPU.

    Raises:
        ValueError: ``n`` is not positive, or ``length`` is not from 2 to V.

    Built in Step 8: looking inside, section Is there an induction head?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#sec-s8-induction
    """
    if n < 1 or not 2 <= length <= V:
        raise ValueError(
            f"n is {n}, length is {length}; expected at least 1, and 2 to V, {V}"
        )
    order = torch.rand(n, V, generator=generator).argsort(dim=-1)
    return order[:, :length].repeat(1, 2)


def half_bits(model: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Bits a character in the first and in the second half of each row of ids.

    The first character of each half is left out: nothing before it could announce it.

    Args:
        ids: (n, 2 length).

    Returns:
        two tensors (n,).

    Raises:
        ValueError: a row cannot be halved into pieces of at least two.

    Built in Step 8: looking inside, section Is there an induction head?:
    https://example.org/tinygpt/chapters/step8-interpretability.html#sec-s8-induction
    """
    length, rest = divmod(ids.shape[1], 2)
    if rest or length < 2:
        raise ValueError(f"rows of {ids.shape[1]} ids; expected an even number from 4")
    bits = target_bits(model, ids)  # (n, 2 length - 1)
    return bits[:, : length - 1].mean(dim=-1), bits[:, length:].mean(dim=-1)


def speaker_mask(text: str) -> Tensor:
    """Which characters of a play stand in a speaker's name, its colon included: (n,).

    A name is a line that ends in a colon and stands at the beginning or behind an
    empty line.

    Built in Step 8: looking inside, section Neurons:
    https://example.org/tinygpt/chapters/step8-interpretability.html#neurons
    """
    inside = torch.zeros(len(text), dtype=torch.bool)
    for name in re.finditer(r"(?:\A|(?<=\n\n))[^\n]+:(?=\n)", text):
        inside[name.start() : name.end()] = True
    return inside


def neuron_scores(neurons: Tensor, label: Tensor) -> Tensor:
    """Correlation of each neuron's activation with a property of the position.

    Args:
        neurons: activations (L, B, T, m).
        label: True where the position has the property, (B, T).

    Returns:
        correlations (L, m), from -1 to 1; 0 for a neuron that never changes.

    Raises:
        ValueError: the shapes do not fit, or the label is the same everywhere.

    Built in Step 8: looking inside, section Neurons:
    https://example.org/tinygpt/chapters/step8-interpretability.html#neurons
    """
    if neurons.shape[1:3] != label.shape:
        raise ValueError(
            f"neurons have shape {tuple(neurons.shape)}, the label "
            f"{tuple(label.shape)}; expected (L, B, T, m) and (B, T)"
        )
    y = label.flatten().to(neurons.dtype)
    y = y - y.mean()
    if y.norm() == 0:
        raise ValueError(f"the label is {label.flatten()[0]} everywhere; expected both")
    x = neurons.flatten(1, 2)  # (L, B T, m)
    x = x - x.mean(dim=1, keepdim=True)
    size = x.norm(dim=1)  # (L, m)
    tiny = torch.finfo(size.dtype).tiny
    return (y @ x) / (size * y.norm()).clamp(min=tiny)


@torch.no_grad()
def part_changes(
    model: GPT,
    windows: Tensor,
    part: Part,
    value: Tensor | float,
    characters: Tensor,
) -> tuple[Tensor, Tensor]:
    """What replacing a part changes at each position of windows (n, T + 1).

    Args:
        model, part, value: as for ``ablated``.
        windows: ids (n, T + 1).
        characters: which ids belong to the meaning that is tested, True or False (V,).

    Returns:
        the change in the probability of these characters together, and in the bits paid
        for the character that came, (n, T) each.

    Raises:
        ValueError: ``characters`` has not one entry for each id of the vocabulary.

    Built in Step 8: looking inside, section Neurons:
    https://example.org/tinygpt/chapters/step8-interpretability.html#neurons
    """
    V = model.head.out_features
    if characters.shape != (V,) or characters.dtype != torch.bool:
        raise ValueError(
            f"characters are {characters.dtype} {tuple(characters.shape)}; expected "
            f"torch.bool ({V},)"
        )
    ids, came = windows[:, :-1], windows[:, 1:, None]
    with evaluating(model):
        before = model(ids)[0].log_softmax(dim=-1)  # (n, T, V)
        with ablated(model, part, value):
            after = model(ids)[0].log_softmax(dim=-1)
    more = (after.exp() - before.exp())[..., characters].sum(dim=-1)
    cost = (before - after).gather(-1, came)[..., 0] / math.log(2)
    return more, cost
