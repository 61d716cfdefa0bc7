# Generated from chapters/fast-generation.md by `make export`.
# Change the page, not this file.
"""Generation at the speed of the machine.

The saved code of https://example.org/tinygpt/chapters/fast-generation.html
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tinygpt.transformer import Block, TinyGPT, as_prompt, choose

__all__ = [
    "Decoder",
    "FoldedBlock",
    "OperatorCount",
    "Place",
    "attainable",
    "bytes_read",
    "decode",
    "floor_of",
    "fold",
    "fold_block",
    "generate_fast",
    "prefill",
    "unit_length",
    "write",
]


class OperatorCount(TorchDispatchMode):
    """Count the operators that run inside a ``with`` block, and the tensors they make.

    Attributes:
        operators: how often each operator ran, by its name.
        new_tensors: results that share memory with none of the arguments. A view, and
            a result written in place, share theirs.

    Built in Generation at the speed of the machine, section Where does the time go?:
    https://example.org/tinygpt/chapters/fast-generation.html#where-does-the-time-go
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.new_tensors = 0

    def __torch_dispatch__(
        self,
        operator: Callable[..., Any],
        types: Any,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator and write down that it ran."""
        result = operator(*args, **(kwargs or {}))
        self.operators[str(operator)] += 1

        def memory(value: Any) -> list[int]:
            leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
            return [leaf.untyped_storage().data_ptr() for leaf in leaves]

        given = memory((args, kwargs))
        self.new_tensors += sum(place not in given for place in memory(result))
        return result


def floor_of(norm: nn.RMSNorm) -> Tensor:
    """Return the second leg of a norm's triangle, the root of d·eps, a scalar.

    Built in Generation at the speed of the machine, section Gains that disappear into
    matrices:
    https://example.org/tinygpt/chapters/fast-generation.html#gains-that-disappear-into-matrices
    """
    eps = norm.eps
    if eps is None:  # then PyTorch takes the rounding of the type
        eps = torch.finfo(norm.weight.dtype).eps
    return norm.weight.new_tensor(math.sqrt(norm.weight.numel() * eps))


def unit_length(x: Tensor, floor: Tensor, length: Tensor, out: Tensor) -> None:
    """Divide each row of x by the root of its squared length plus ``floor`` squared.

    Args:
        x: (..., d); ``out`` has the same shape and may be ``x`` itself.
        floor: a scalar; see ``floor_of``.
        length: (..., 1), a buffer for the lengths.

    Built in Generation at the speed of the machine, section Gains that disappear into
    matrices:
    https://example.org/tinygpt/chapters/fast-generation.html#gains-that-disappear-into-matrices
    """
    torch.linalg.vector_norm(x, dim=-1, keepdim=True, out=length)
    length.hypot_(floor)
    torch.div(x, length, out=out)


def fold(norm: nn.RMSNorm, linear: nn.Linear) -> Tensor:
    """Return the one matrix (inputs, outputs) that does a norm's gain and a layer.

    Built in Generation at the speed of the machine, section Gains that disappear into
    matrices:
    https://example.org/tinygpt/chapters/fast-generation.html#gains-that-disappear-into-matrices
    """
    gain = norm.weight * math.sqrt(norm.weight.numel())
    return (linear.weight * gain).T.contiguous()


class Place(NamedTuple):
    """What a step at one position works on: views of the buffers, with n = t + 1.

    The last four have one entry a layer.

    Built in Generation at the speed of the machine, section Views made once:
    https://example.org/tinygpt/chapters/fast-generation.html#views-made-once
    """

    ids: Tensor  # (B,), the tokens at this position
    position: Tensor  # (d,), the row of the position table
    scores: Tensor  # (B·H, 1, n)
    weights: Tensor  # (B·H, 1, n)
    new_key: tuple[Tensor, ...]  # (B, H, d_h), where the new keys are written
    new_value: tuple[Tensor, ...]  # (B, H, d_h)
    keys: tuple[Tensor, ...]  # (B·H, d_h, n), all keys up to here, transposed
    values: tuple[Tensor, ...]  # (B·H, n, d_h)


class FoldedBlock(NamedTuple):
    """The weights of one block as a decoding step uses them, (inputs, outputs) each.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """

    qkv: Tensor  # (d, 3d), with the gain of the norm before it
    query_gain: Tensor  # (d_h,)
    key_gain: Tensor  # (d_h,), with the root of d_h
    output: Tensor  # (d, d)
    up_gate: Tensor  # (d, 2·hidden), with the gain of the norm before it
    down: Tensor  # (hidden, d)


def fold_block(block: Block) -> FoldedBlock:
    """Fold the gains of a block's norms into what comes after them.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """
    attention, mlp = block.attention, block.mlp
    root = math.sqrt(attention.k_norm.weight.numel())
    return FoldedBlock(
        fold(block.attention_norm, attention.qkv),
        attention.q_norm.weight.clone(),
        attention.k_norm.weight * root,
        attention.output.weight.T.contiguous(),
        fold(block.mlp_norm, mlp.up_gate),
        mlp.down.weight.T.contiguous(),
    )


class Decoder:
    """A model that writes into buffers made once, for a fixed number of sequences.

    Call ``prefill`` with a prompt, then ``decode`` once for each further token, or
    leave both to ``generate_fast``.

    Args:
        model: reads the prompts; its weights are taken over at each ``prefill``.
        batch_size: number B of sequences.

    Attributes:
        position: how many tokens the cache holds. It may be set to a smaller number:
            what lies beyond is overwritten.
        cache: (L, 2, B, H, T, d_h), keys and values.
        logits: (B, V), those of the last call; the next call overwrites them.
        tokens: (T, B), the ids that ``prefill`` and ``write`` have seen.

    Raises:
        ValueError: ``batch_size`` is no whole number from 1 up.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """

    def __init__(self, model: TinyGPT, batch_size: int = 1) -> None:
        if type(batch_size) is not int or batch_size < 1:
            raise ValueError(
                f"batch_size is {batch_size!r}; expected a whole number from 1 up"
            )
        self.model, self.batch_size, self.position = model, batch_size, 0
        B, c, weight = batch_size, model.config, model.token_embedding.weight
        H, T, d_h, d = c.n_heads, c.block_size, c.head_dim, c.d_model

        def buffer(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=weight.dtype, device=weight.device)

        self.cache = buffer(c.n_layers, 2, B, H, T, d_h)
        self.logits = buffer(B, c.vocab_size)
        self.tokens = torch.zeros(T, B, dtype=torch.long, device=weight.device)
        self.position_table = buffer(T, d)
        self.x, self.scaled, self.length = buffer(B, d), buffer(B, d), buffer(B, 1)
        self.qkv = buffer(B, 3 * d)
        self.query_key = self.qkv.view(B, 3, H, d_h)[:, :2]  # (B, 2, H, d_h)
        self.new_query, self.new_key, self.new_value = self.qkv.view(
            B, 3, H, d_h
        ).unbind(1)  # (B, H, d_h) each
        self.head_length = buffer(B, 2, H, 1)
        self.query, self.mixed = buffer(B, H, d_h), buffer(B, d)
        self.query_rows = self.query.view(B * H, 1, d_h)
        self.mixed_rows = self.mixed.view(B * H, 1, d_h)
        self.wide = buffer(B, 2 * c.mlp_hidden)
        self.gate, self.up = self.wide.chunk(2, dim=-1)  # (B, hidden) each
        self.scores, self.weights = buffer(B * H * T), buffer(B * H * T)
        self.places = [self.place(t) for t in range(T)]
        self.read_weights()

    def place(self, t: int) -> Place:
        """Make the views that a step at position ``t`` works on."""
        n, rows = t + 1, self.batch_size * self.model.config.n_heads
        flat = self.cache.flatten(2, 3)  # (L, 2, B·H, T, d_h)
        return Place(
            self.tokens[t],
            self.position_table[t],
            self.scores[: rows * n].view(rows, 1, n),
            self.weights[: rows * n].view(rows, 1, n),
            self.cache[:, 0, :, :, t].unbind(0),
            self.cache[:, 1, :, :, t].unbind(0),
            flat[:, 0, :, :n].mT.unbind(0),
            flat[:, 1, :, :n].unbind(0),
        )

    @torch.no_grad()
    def read_weights(self) -> None:
        """Take over the weights of the model as they are now."""
        model = self.model
        self.blocks = [fold_block(block) for block in model.blocks]
        self.embedding = model.token_embedding.weight.clone()
        self.head = fold(model.final_norm, model.lm_head)  # (d, V)
        self.position_table.copy_(model.position_embedding.weight)
        self.floor = floor_of(model.final_norm)
        self.head_floor = floor_of(model.blocks[0].attention.q_norm)


def prefill(self: Decoder, prompt: Sequence[int] | Tensor) -> Tensor:
    """Read a prompt, and begin a new text with it.

    Args:
        prompt: ids (B, T), or (T,) if there is one sequence.

    Returns:
        the logits (B, V) behind the last token, a buffer that the next call changes.

    Raises:
        ValueError: a bad prompt (see ``as_prompt``), or not B sequences.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """
    tokens = as_prompt(self.model, prompt, 0)  # (B, T)
    B, T = tokens.shape
    if B != self.batch_size:
        raise ValueError(
            f"the prompt has {B} sequences; expected {self.batch_size}, the decoder's "
            "batch_size"
        )
    self.read_weights()
    with torch.inference_mode():
        logits, _, present = self.model(tokens)
        for cached, (keys, values) in zip(self.cache, present):
            cached[0, :, :, :T], cached[1, :, :, :T] = keys, values
        self.logits.copy_(logits[:, -1])
        self.tokens[:T] = tokens.T
    self.position = T
    return self.logits


Decoder.prefill = prefill


def decode(self: Decoder, ids: Tensor) -> Tensor:
    """Read one more token of each sequence, and predict the next.

    Args:
        ids: (B,), int64, on the model's device, each in the vocabulary.

    Returns:
        the logits (B, V), a buffer that the next call changes.

    Raises:
        ValueError: the cache is full.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """
    if self.position >= len(self.places):
        raise ValueError(
            f"the cache holds {self.position} tokens; expected fewer than block_size, "
            f"{len(self.places)}"
        )
    x, place = self.x, self.places[self.position]
    torch.index_select(self.embedding, 0, ids, out=x)  # (B, d)
    x.add_(place.position)
    for layer, block in enumerate(self.blocks):
        unit_length(x, self.floor, self.length, self.scaled)
        torch.mm(self.scaled, block.qkv, out=self.qkv)  # (B, 3d)
        unit_length(self.query_key, self.head_floor, self.head_length, self.query_key)
        torch.mul(self.new_query, block.query_gain, out=self.query)
        torch.mul(self.new_key, block.key_gain, out=place.new_key[layer])
        place.new_value[layer].copy_(self.new_value)
        torch.bmm(self.query_rows, place.keys[layer], out=place.scores)  # (B·H, 1, n)
        torch.softmax(place.scores, dim=-1, out=place.weights)
        torch.bmm(place.weights, place.values[layer], out=self.mixed_rows)
        x.addmm_(self.mixed, block.output)  # x plus the update
        unit_length(x, self.floor, self.length, self.scaled)
        torch.mm(self.scaled, block.up_gate, out=self.wide)  # (B, 2·hidden)
        F.silu(self.gate, inplace=True).mul_(self.up)
        x.addmm_(self.gate, block.down)
    unit_length(x, self.floor, self.length, self.scaled)
    torch.mm(self.scaled, self.head, out=self.logits)  # (B, V)
    self.position += 1
    return self.logits


Decoder.decode = decode


def write(
    decoder: Decoder,
    n_new: int,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Continue from a decoder's logits, one token at a time.

    The last token is written and not read, so the cache ends one short of the text.

    Args:
        n_new: how many tokens.
        temperature: 0 is greedy; otherwise see ``choose``.
        generator: of the draws.

    Returns:
        the new ids (B, n_new), a tensor of their own.

    Raises:
        ValueError: the text would be longer than the block.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """
    first, block_size = decoder.position, len(decoder.places)
    if n_new < 0 or first + n_new > block_size:
        raise ValueError(
            f"n_new is {n_new} behind {first} tokens; expected 0 or more, and a total "
            f"of at most block_size, {block_size}"
        )
    with torch.inference_mode():
        for t in range(first, first + n_new):
            ids = decoder.places[t].ids  # (B,)
            if temperature == 0:
                torch.argmax(decoder.logits, dim=-1, out=ids)
            else:
                ids.copy_(choose(decoder.logits, temperature, generator)[:, 0])
            if t < first + n_new - 1:
                decoder.decode(ids)
    return decoder.tokens[first : first + n_new].T.clone()


def generate_fast(
    decoder: Decoder,
    prompt: Sequence[int] | Tensor,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """Continue a prompt as ``transformer.generate`` does, in a decoder's buffers.

    Args:
        decoder: its batch size is the number of sequences in the prompt.
        prompt: ids (T,) or (B, T), a list or a tensor on any device.
        max_new_tokens: how many to write; the finished sequence must fit the block.
        temperature: 0 is greedy; 1 draws from the model's own distribution.
        seed: of the one generator that all draws come from.

    Returns:
        prompt and continuation, shaped as the prompt was, on the model's device.

    Raises:
        ValueError: a bad prompt (see ``as_prompt``), another number of sequences, or
            a temperature that is negative or not a finite number.

    Built in Generation at the speed of the machine, section The decoder:
    https://example.org/tinygpt/chapters/fast-generation.html#the-decoder
    """
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature!r}; expected a number from 0 up")
    tokens = as_prompt(decoder.model, prompt, max_new_tokens)  # (B, T)
    decoder.prefill(tokens)
    generator = torch.Generator().manual_seed(seed)
    new = write(decoder, max_new_tokens, temperature, generator)
    tokens = torch.cat([tokens, new], dim=1)
    return tokens if torch.as_tensor(prompt).dim() > 1 else tokens[0]


def bytes_read(decoder: Decoder, n: int) -> int:
    """Count the bytes that a decoding step reads: all matrices, and n cached positions.

    What is small against these is left out: the rows of the tables, the gains, and
    the buffers between the operators.

    Args:
        n: positions that the new token looks at, itself among them.

    Built in Generation at the speed of the machine, section What does each point wait
    for?:
    https://example.org/tinygpt/chapters/fast-generation.html#what-does-each-point-wait-for
    """
    matrices = [decoder.head]
    for block in decoder.blocks:
        matrices += [block.qkv, block.output, block.up_gate, block.down]
    read = [*matrices, decoder.cache[..., :n, :]]
    return sum(tensor.numel() * tensor.element_size() for tensor in read)


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """Return the FLOP/s that a roofline allows at an intensity in FLOPs per byte.

    Args:
        peak: FLOP/s of the processor.
        bandwidth: bytes/s of the memory.

    Built in Generation at the speed of the machine, section What does each point wait
    for?:
    https://example.org/tinygpt/chapters/fast-generation.html#what-does-each-point-wait-for
    """
    return min(peak, intensity * bandwidth)
