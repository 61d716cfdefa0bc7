# Generated from chapters/ch02-transformer.md by `make export`.
# Change the page, not this file.
"""The Transformer from first principles.

The saved code of https://example.org/tinygpt/chapters/ch02-transformer.html
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "Block",
    "BytePairTokenizer",
    "CausalSelfAttention",
    "GPTConfig",
    "History",
    "LayerCache",
    "Merge",
    "SwiGLU",
    "TinyGPT",
    "as_prompt",
    "attention_weights",
    "causal_mask",
    "choose",
    "count_pairs",
    "flops_per_token",
    "future_change",
    "generate",
    "heldout_loss",
    "kv_cache_bytes",
    "learn_merges",
    "longest_copied_span",
    "lr_schedule",
    "merge_pair",
    "next_token_batch",
    "param_breakdown",
    "parameter_count",
    "scaled_dot_product_attention",
    "train_model",
    "utf8_bytes",
]


@dataclass(frozen=True)
class Merge:
    """One learned rule: the neighbours ``left, right`` become the token ``new_id``.

    Built in The Transformer from first principles, section A merge is a rule:
    https://example.org/tinygpt/chapters/ch02-transformer.html#a-merge-is-a-rule
    """

    left: int
    right: int
    new_id: int


def count_pairs(ids: Sequence[int]) -> Counter[tuple[int, int]]:
    """Count each pair of neighbours: ``[1, 2, 1, 2]`` -> ``{(1, 2): 2, (2, 1): 1}``.

    Built in The Transformer from first principles, section A merge is a rule:
    https://example.org/tinygpt/chapters/ch02-transformer.html#a-merge-is-a-rule
    """
    return Counter(zip(ids, ids[1:]))


def merge_pair(ids: Sequence[int], merge: Merge) -> list[int]:
    """Apply one merge from left to right: ``aaa`` becomes ``(aa)a``.

    Returns a new list; ``ids`` is left as it was.

    Built in The Transformer from first principles, section A merge is a rule:
    https://example.org/tinygpt/chapters/ch02-transformer.html#a-merge-is-a-rule
    """
    merged = []
    i = 0
    while i < len(ids):
        has_next = i + 1 < len(ids)
        if has_next and ids[i] == merge.left and ids[i + 1] == merge.right:
            merged.append(merge.new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def learn_merges(ids: list[int], n_merges: int) -> list[Merge]:
    """Learn up to ``n_merges`` merges; stop early when no pair of neighbours is left.

    Each round merges the most frequent pair, ties going to the smallest pair.

    Built in The Transformer from first principles, section Learning the merges:
    https://example.org/tinygpt/chapters/ch02-transformer.html#learning-the-merges
    """
    merges: list[Merge] = []
    for new_id in range(256, 256 + n_merges):
        counts = count_pairs(ids)
        if not counts:
            break
        left, right = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(Merge(left, right, new_id))
        ids = merge_pair(ids, merges[-1])
    return merges


def utf8_bytes(text: str) -> list[int]:
    """Return the UTF-8 bytes of ``text``, each an integer from 0 to 255.

    Raises:
        ValueError: ``text`` holds a lone surrogate, which UTF-8 cannot express.

    Built in The Transformer from first principles, section Learning the merges:
    https://example.org/tinygpt/chapters/ch02-transformer.html#learning-the-merges
    """
    try:
        return list(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is {text[error.start]!r}, a lone "
            "surrogate; expected text that UTF-8 can encode"
        ) from None


class BytePairTokenizer:
    """Byte-level byte-pair encoding; its merges are all that it has learned.

    Any text can be encoded, and ``decode(encode(text)) == text``. There are no
    special tokens: text that looks like one is encoded as the bytes it is.

    Args:
        merges: the rules in the order learned; their new ids count up from 256.

    Raises:
        ValueError: a merge's ``new_id`` is out of order, or it uses an unknown token.

    Built in The Transformer from first principles, section The tokenizer:
    https://example.org/tinygpt/chapters/ch02-transformer.html#the-tokenizer
    """

    def __init__(self, merges: Sequence[Merge] | None = None) -> None:
        self.merges = list(merges or ())
        self.token_bytes = [bytes([byte]) for byte in range(256)]
        for merge in self.merges:
            new_id = len(self.token_bytes)
            parts = (merge.left, merge.right)
            if merge.new_id != new_id or not all(0 <= part < new_id for part in parts):
                raise ValueError(
                    f"{merge} cannot follow; expected new_id {new_id} and two parts "
                    f"from 0 to {new_id - 1}"
                )
            self.token_bytes.append(b"".join(self.token_bytes[part] for part in parts))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are: 256 bytes and one more for each merge."""
        return len(self.token_bytes)

    @classmethod
    def train(cls, text: str, vocab_size: int) -> "BytePairTokenizer":
        """Learn a tokenizer with ``vocab_size`` tokens, or fewer if pairs run out."""
        if vocab_size < 256:
            raise ValueError(f"vocab_size is {vocab_size}; need at least 256 (bytes)")
        return cls(learn_merges(utf8_bytes(text), vocab_size - 256))

    def encode(self, text: str) -> list[int]:
        """Turn text into token ids by replaying the merges in the order learned."""
        ids = utf8_bytes(text)
        for merge in self.merges:
            ids = merge_pair(ids, merge)
        return ids

    def decode(self, ids: Sequence[int], errors: str = "strict") -> str:
        """Turn ids into text; ``errors`` is that of ``bytes.decode``.

        Raises:
            ValueError: an id is not in the vocabulary, or (strict) bytes are no UTF-8.
        """
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise ValueError(
                    f"token {position} is {token}; expected 0 to {self.vocab_size - 1}"
                )
        return b"".join(self.token_bytes[i] for i in ids).decode("utf-8", errors)

    def save(self, path: str | Path) -> None:
        """Write the merges as JSON: numbers only, so no byte can be lost."""
        pairs = [[merge.left, merge.right] for merge in self.merges]
        Path(path).write_text(json.dumps({"merges": pairs}), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "BytePairTokenizer":
        """Read a tokenizer that ``save`` wrote; anything else is a ``ValueError``."""
        try:
            pairs = json.loads(Path(path).read_text(encoding="utf-8"))["merges"]
            parts = [part for pair in pairs for part in pair]
            if type(pairs) is not list or not all(type(part) is int for part in parts):
                raise ValueError("merges is no list of pairs of whole numbers")
            return cls([Merge(a, b, i) for i, (a, b) in enumerate(pairs, start=256)])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a saved tokenizer: {error!r}") from error


def next_token_batch(
    data: Tensor, block_size: int, batch_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw random windows and the same windows shifted by one.

    One call of ``torch.randint`` draws the starts from ``range(n - block_size - 1)``
    for a stream of n tokens. So the very last legal window is never drawn.

    Args:
        data: token ids, shape (n,), int64.
        block_size: length T of a window.
        batch_size: number B of windows.
        generator: the source of chance; it advances by one draw.

    Returns:
        inputs and targets, both (B, T), with ``inputs[:, 1:] == targets[:, :-1]``.

    Raises:
        ValueError: the stream is too short for a choice of windows, or a size is not
            positive.

    Built in The Transformer from first principles, section A batch of windows:
    https://example.org/tinygpt/chapters/ch02-transformer.html#a-batch-of-windows
    """
    if block_size < 1 or batch_size < 1:
        raise ValueError(
            f"block_size is {block_size} and batch_size is {batch_size}; expected both "
            "positive"
        )
    if len(data) < block_size + 2:
        raise ValueError(
            f"block_size is {block_size} but the stream has {len(data)} tokens; "
            f"need at least {block_size + 2}"
        )
    shape = (batch_size,)
    starts = torch.randint(len(data) - block_size - 1, shape, generator=generator)
    windows = torch.stack([data[s : s + block_size + 1] for s in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mix the values, each row weighted by how well its query matches the keys.

    The formula of Vaswani et al. (2017). Leading dimensions, such as batch and head,
    are carried along.

    Args:
        query: (..., T, d_k).
        key: (..., S, d_k).
        value: (..., S, d_v).
        mask: booleans that broadcast to (..., T, S); True hides. A row that hides
            everything has no answer: its output is NaN.

    Returns:
        output (..., T, d_v) and weights (..., T, S), whose rows add up to 1.

    Built in The Transformer from first principles, section Queries ask, keys advertise,
    values deliver:
    https://example.org/tinygpt/chapters/ch02-transformer.html#queries-ask-keys-advertise-values-deliver
    """
    query = query / math.sqrt(query.shape[-1])
    scores = query @ key.transpose(-2, -1)  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


def causal_mask(
    n_queries: int, n_keys: int, device: torch.device | str | None = None
) -> Tensor:
    """Hide the future: True where a key stands later than the query.

    The queries are the last ``n_queries`` of the ``n_keys`` positions.

    Returns:
        booleans of shape (n_queries, n_keys), as ``scaled_dot_product_attention``
        takes them.

    Built in The Transformer from first principles, section A bug story:
    https://example.org/tinygpt/chapters/ch02-transformer.html#a-bug-story
    """
    hidden = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return hidden.triu(diagonal=n_keys - n_queries + 1)


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a TinyGPT.

    Args:
        vocab_size: number V of tokens.
        block_size: longest sequence T, prompt and continuation together.
        d_model: width d of the residual stream.
        n_heads: number H of attention heads; must divide ``d_model``.
        n_layers: number L of blocks.
        mlp_ratio: hidden width of the MLP as a multiple of ``d_model``.

    Raises:
        ValueError: a size is not positive, or the heads do not divide the width.

    Built in The Transformer from first principles, section One map is not enough:
    https://example.org/tinygpt/chapters/ch02-transformer.html#one-map-is-not-enough
    """

    vocab_size: int
    block_size: int = 128
    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2
    mlp_ratio: float = 8 / 3

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if not 0 < size < math.inf:
                raise ValueError(f"{name} is {size}; expected a positive number")
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model is {self.d_model} and n_heads is {self.n_heads}; "
                "expected heads that divide the width evenly"
            )

    @property
    def head_dim(self) -> int:
        """Width of one head, d / H."""
        return self.d_model // self.n_heads

    @property
    def mlp_hidden(self) -> int:
        """Hidden width of the MLP, at least 8."""
        return max(8, round(self.mlp_ratio * self.d_model))


LayerCache = tuple[Tensor, Tensor]  # keys and values of one layer, each (B, H, T, d_h)


class CausalSelfAttention(nn.Module):
    """Multi-head attention that cannot see the future, with QK-norm and a cache.

    Built in The Transformer from first principles, section One map is not enough:
    https://example.org/tinygpt/chapters/ch02-transformer.html#one-map-is-not-enough
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim)
        self.k_norm = nn.RMSNorm(config.head_dim)
        self.output = nn.Linear(config.d_model, config.d_model, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Make normalised queries, normalised keys, and values, each (B, H, T, d_h)."""
        B, T, d = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_heads, d // self.n_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, d_h)
        return self.q_norm(query), self.k_norm(key), value

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Look up without seeing the future; return the mixtures and the weights."""
        mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
        return scaled_dot_product_attention(query, key, value, mask)

    def forward(
        self, x: Tensor, past: LayerCache | None = None
    ) -> tuple[Tensor, LayerCache]:
        """Map x (B, T, d) to an update (B, T, d) and all keys and values so far."""
        query, key, value = self.project(x)
        if past is not None:
            key = torch.cat([past[0], key], dim=-2)  # (B, H, past + T, d_h)
            value = torch.cat([past[1], value], dim=-2)
        mixed, _ = self.attend(query, key, value)  # (B, H, T, d_h)
        merged = mixed.transpose(1, 2).flatten(start_dim=2)  # (B, T, d)
        return self.output(merged), (key, value)


class SwiGLU(nn.Module):
    """A gated MLP on each position: the first half of the wide layer is the gate.

    Built in The Transformer from first principles, section An MLP with a gate:
    https://example.org/tinygpt/chapters/ch02-transformer.html#an-mlp-with-a-gate
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up_gate = nn.Linear(config.d_model, 2 * config.mlp_hidden, bias=False)
        self.down = nn.Linear(config.mlp_hidden, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, d) to an update of the same shape."""
        gate, up = self.up_gate(x).chunk(2, dim=-1)  # each (B, T, hidden)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """One pre-norm Transformer block: attention, then MLP, each added to the stream.

    Built in The Transformer from first principles, section Both together:
    https://example.org/tinygpt/chapters/ch02-transformer.html#both-together
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = nn.RMSNorm(config.d_model)
        self.mlp = SwiGLU(config)

    def forward(
        self, x: Tensor, past: LayerCache | None = None
    ) -> tuple[Tensor, LayerCache]:
        """Map the stream x (B, T, d) to the stream after this block, and its cache."""
        update, present = self.attention(self.attention_norm(x), past)
        x = x + update
        return x + self.mlp(self.mlp_norm(x)), present


class TinyGPT(nn.Module):
    """A decoder-only Transformer with learned positions and a tied head.

    Built in The Transformer from first principles, section Into the stream and out of
    it:
    https://example.org/tinygpt/chapters/ch02-transformer.html#into-the-stream-and-out-of-it
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position_embedding = nn.Embedding(config.block_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = nn.RMSNorm(config.d_model)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.apply(self._redraw)
        self.lm_head.weight = self.token_embedding.weight

    @staticmethod
    def _redraw(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def check(self, tokens: Tensor, n_past: int = 0) -> None:
        """Refuse tokens that the tables have no row for, and say which.

        Raises:
            ValueError: not (B, T) with T at least 1, a sequence longer than the
                block, or an id outside of the vocabulary.
        """
        if tokens.dim() != 2 or tokens.numel() == 0:
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}; expected (B, T), not empty"
            )
        length, block_size = n_past + tokens.shape[1], self.config.block_size
        if length > block_size:
            raise ValueError(
                f"{n_past} cached and {tokens.shape[1]} new tokens make {length}; "
                f"expected at most block_size, {block_size}"
            )
        V = self.config.vocab_size
        wrong = tokens[(tokens < 0) | (tokens >= V)]
        if wrong.numel():
            raise ValueError(f"token id {wrong[0].item()}; expected 0 to {V - 1}")

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor | None = None,
        cache: list[LayerCache] | None = None,
    ) -> tuple[Tensor, Tensor | None, list[LayerCache]]:
        """Predict the next token at each position.

        Args:
            tokens: ids (B, T), on the model's device.
            targets: the true next ids (B, T), if a loss is wanted.
            cache: what an earlier call returned; ``tokens`` then continue it.

        Returns:
            logits (B, T, V); the mean cross-entropy in nats, or None; the cache, one
            pair of keys and values (B, H, past + T, d_h) for each layer.
        """
        n_past = 0 if cache is None else cache[0][0].shape[-2]
        self.check(tokens, n_past)
        if targets is not None:
            self.check(targets)
        positions = torch.arange(n_past, n_past + tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        present = []
        for layer, block in enumerate(self.blocks):
            x, pair = block(x, None if cache is None else cache[layer])
            present.append(pair)
        logits = self.lm_head(self.final_norm(x))  # (B, T, V)
        if targets is None:
            return logits, None, present
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss, present


def parameter_count(model: nn.Module) -> int:
    """Count the numbers that training adjusts; a tied matrix counts once.

    Built in The Transformer from first principles, section One matrix, two jobs:
    https://example.org/tinygpt/chapters/ch02-transformer.html#one-matrix-two-jobs
    """
    return sum(parameter.numel() for parameter in model.parameters())


TinyGPT.parameter_count = parameter_count


def as_prompt(
    model: TinyGPT, prompt: Sequence[int] | Tensor, max_new_tokens: int
) -> Tensor:
    """Turn a prompt into ids (B, T) on the model's device, or say what is wrong.

    Raises:
        ValueError: the prompt is empty, ragged, not of whole numbers, out of the
            vocabulary, or too long for ``max_new_tokens`` to fit behind it.

    Built in The Transformer from first principles, section Writing:
    https://example.org/tinygpt/chapters/ch02-transformer.html#writing
    """
    try:
        tokens = torch.as_tensor(prompt)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the prompt is no rectangular list of ids: {error}") from None
    if tokens.numel() == 0:
        raise ValueError("the prompt is empty; expected at least one token id")
    if tokens.dim() not in (1, 2):
        shape = tuple(tokens.shape)
        raise ValueError(f"the prompt has shape {shape}; expected (T,) or (B, T)")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"the prompt holds {tokens.dtype}; expected integer ids")
    tokens = tokens.long().reshape(-1, tokens.shape[-1])  # (B, T)
    model.check(tokens)
    finished, block_size = tokens.shape[1] + max_new_tokens, model.config.block_size
    if max_new_tokens < 0 or finished > block_size:
        raise ValueError(
            f"a prompt of {tokens.shape[1]} and max_new_tokens {max_new_tokens} make "
            f"{finished} tokens; expected 0 or more new ones and a total of at most "
            f"block_size, {block_size}"
        )
    return tokens.to(model.token_embedding.weight.device)


def choose(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Choose the next ids (B, 1) from logits (B, V); temperature 0 takes the largest.

    The draw is made on the CPU, so that a seed means the same on every device.

    Built in The Transformer from first principles, section Writing:
    https://example.org/tinygpt/chapters/ch02-transformer.html#writing
    """
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    tiny = 1e-30  # below it the division would overflow; the choice is made long before
    weights = (logits.float() / max(temperature, tiny)).softmax(dim=-1).cpu()
    return torch.multinomial(weights, 1, generator=generator).to(logits.device)


@torch.no_grad()
def generate(
    model: TinyGPT,
    prompt: Sequence[int] | Tensor,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    use_cache: bool = True,
) -> Tensor:
    """Continue a prompt, one token at a time.

    Args:
        model: its mode is restored afterwards.
        prompt: ids (T,) or (B, T), a list or a tensor on any device.
        max_new_tokens: how many to write; the finished sequence must fit the block.
        temperature: 0 is greedy; 1 draws from the model's own distribution.
        seed: of the one generator that all draws come from.
        use_cache: feed only the newest token; the result is the same.

    Returns:
        prompt and continuation, shaped as the prompt was, on the model's device.

    Raises:
        ValueError: a bad prompt (see ``as_prompt``), or a temperature that is
            negative or not a finite number.

    Built in The Transformer from first principles, section Writing:
    https://example.org/tinygpt/chapters/ch02-transformer.html#writing
    """
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature!r}; expected a number from 0 up")
    tokens = as_prompt(model, prompt, max_new_tokens)  # (B, T)
    generator = torch.Generator().manual_seed(seed)
    was_training = model.training
    model.eval()
    try:
        cache, new = None, tokens
        for _ in range(max_new_tokens):
            logits, _, cache = model(new, cache=cache)
            new = choose(logits[:, -1], temperature, generator)  # (B, 1)
            tokens = torch.cat([tokens, new], dim=1)
            if not use_cache:
                cache, new = None, tokens
    finally:
        model.train(was_training)
    return tokens if torch.as_tensor(prompt).dim() > 1 else tokens[0]


TinyGPT.generate = generate


def param_breakdown(config: GPTConfig) -> dict[str, int]:
    """Predict the parameters of a TinyGPT, part by part, without building it.

    Built in The Transformer from first principles, section Parameters, predicted:
    https://example.org/tinygpt/chapters/ch02-transformer.html#parameters-predicted
    """
    V, T, d, L = config.vocab_size, config.block_size, config.d_model, config.n_layers
    parts = {
        "embedding (tied with LM head)": V * d,
        "position table": T * d,
        "attention projections": L * 4 * d * d,
        "feed-forward (SwiGLU)": L * 3 * d * config.mlp_hidden,
        "norm scales": L * (2 * d + 2 * config.head_dim) + d,
    }
    return parts | {"total": sum(parts.values())}


def flops_per_token(config: GPTConfig, context_len: int) -> dict[str, int]:
    """Predict the forward FLOPs of one token that looks at ``context_len`` positions.

    A product of a vector and a matrix with n entries counts 2 n. Looking a row up is
    no product, so the embedding is free; the head is not, tied or untied.

    Built in The Transformer from first principles, section Operations, predicted:
    https://example.org/tinygpt/chapters/ch02-transformer.html#operations-predicted
    """
    parts = param_breakdown(config)
    head = config.vocab_size * config.d_model
    matrices = parts["attention projections"] + parts["feed-forward (SwiGLU)"] + head
    attention = config.n_layers * 4 * context_len * config.d_model
    return {
        "weights": 2 * matrices,
        "attention": attention,
        "total": 2 * matrices + attention,
    }


def lr_schedule(step: int, total_steps: int, peak: float) -> float:
    """Learning rate of one step: linear warm-up, then a half cosine to a tenth.

    The warm-up takes ``max(1, total_steps // 20)`` steps. Step 0 already moves. The
    last step, and any step after it, has ``peak / 10``.

    Raises:
        ValueError: ``step`` is negative or ``total_steps`` is not positive.

    Built in The Transformer from first principles, section Warm-up, then a cosine:
    https://example.org/tinygpt/chapters/ch02-transformer.html#warm-up-then-a-cosine
    """
    if step < 0 or total_steps < 1:
        raise ValueError(
            f"step {step} of {total_steps}; expected a step from 0 up and one or more "
            "steps in all"
        )
    warmup = max(1, total_steps // 20)
    if step < warmup:
        return peak * (step + 1) / warmup
    last = total_steps - 1
    progress = 1.0 if step >= last else (step - warmup) / (last - warmup)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


@torch.no_grad()
def heldout_loss(model: TinyGPT, data: Tensor, n_windows: int = 4) -> float:
    """Mean loss in nats over evenly spread windows of ``data``; the mode is restored.

    Raises:
        ValueError: ``data`` is shorter than one window and its last target.

    Built in The Transformer from first principles, section What the model must not see:
    https://example.org/tinygpt/chapters/ch02-transformer.html#what-the-model-must-not-see
    """
    T = model.config.block_size
    if len(data) < T + 1:
        raise ValueError(
            f"block_size is {T} but the held-out stream has {len(data)} tokens; "
            f"need at least {T + 1}"
        )
    last = len(data) - T - 1
    starts = torch.linspace(0, last, n_windows, dtype=torch.float64).long().tolist()
    windows = torch.stack([data[start : start + T + 1] for start in starts])
    windows = windows.to(model.token_embedding.weight.device)
    was_training = model.training
    model.eval()
    try:
        _, loss, _ = model(windows[:, :-1], windows[:, 1:])
    finally:
        model.train(was_training)
    return loss.item()


@torch.no_grad()
def attention_weights(
    model: TinyGPT, token_ids: Sequence[int] | Tensor, layer: int = 0
) -> Tensor:
    """Return what each head of one layer attends to on one sequence.

    Args:
        model: its mode is restored afterwards.
        token_ids: ids (T,).
        layer: which block, counted from 0.

    Returns:
        weights (H, T, T), on the CPU; rows are queries and add up to 1.

    Raises:
        ValueError: a bad sequence (see ``as_prompt``), or no such layer.

    Built in The Transformer from first principles, section A photograph before
    training:
    https://example.org/tinygpt/chapters/ch02-transformer.html#a-photograph-before-training
    """
    if not 0 <= layer < len(model.blocks):
        raise ValueError(f"layer is {layer}; expected 0 to {len(model.blocks) - 1}")
    tokens = as_prompt(model, token_ids, max_new_tokens=0)  # (1, T)
    if len(tokens) > 1:
        raise ValueError(f"a batch of {len(tokens)} sequences; expected one, (T,)")
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    was_training = model.training
    model.eval()
    try:
        x = model.token_embedding(tokens) + model.position_embedding(positions)
        for block in model.blocks[:layer]:
            x, _ = block(x)
        block = model.blocks[layer]
        query, key, value = block.attention.project(block.attention_norm(x))
        _, weights = block.attention.attend(query, key, value)
    finally:
        model.train(was_training)
    return weights[0].cpu()


@dataclass
class History:
    """What a training run wrote down, losses in nats per token.

    Built in The Transformer from first principles, section The loop:
    https://example.org/tinygpt/chapters/ch02-transformer.html#the-loop
    """

    train_loss: list[float] = field(default_factory=list)
    heldout_steps: list[int] = field(default_factory=list)
    heldout_loss: list[float] = field(default_factory=list)

    def best(self) -> tuple[int, float]:
        """Return the step with the least held-out loss, and that loss."""
        loss = min(self.heldout_loss)
        return self.heldout_steps[self.heldout_loss.index(loss)], loss

    def final_train_loss(self) -> float:
        """Return the mean training loss of the last ten steps."""
        return sum(self.train_loss[-10:]) / len(self.train_loss[-10:])


def train_model(
    model: TinyGPT,
    train_data: Tensor,
    heldout_data: Tensor,
    steps: int = 400,
    batch_size: int = 16,
    peak: float = 3e-3,
    weight_decay: float = 0.01,
    seed: int = 7,
    eval_every: int = 25,
    sample_batch: Callable[..., tuple[Tensor, Tensor]] = next_token_batch,
    after_step: Callable[[int], None] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> History:
    """Train a model in place and return its history.

    Args:
        train_data, heldout_data: token ids (n,), on the model's device.
        steps: how many batches to learn from.
        batch_size: windows of ``block_size`` tokens in a batch.
        peak: highest learning rate of ``lr_schedule``.
        weight_decay: of AdamW, on every parameter.
        seed: of the generator that draws the batches.
        eval_every: steps between two held-out losses; one more is taken at the end.
        sample_batch: draws a batch; called like ``next_token_batch``.
        after_step: called with the number of steps done.
        optimizer: in place of AdamW with ``weight_decay``. Its rates are set.

    Built in The Transformer from first principles, section The loop:
    https://example.org/tinygpt/chapters/ch02-transformer.html#the-loop
    """
    if optimizer is None:
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=peak, weight_decay=weight_decay
        )
    generator = torch.Generator().manual_seed(seed)
    history = History()
    for step in range(steps + 1):
        if step % eval_every == 0 or step == steps:
            history.heldout_steps.append(step)
            history.heldout_loss.append(heldout_loss(model, heldout_data))
        if step == steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = lr_schedule(step, steps, peak)
        block_size = model.config.block_size
        inputs, targets = sample_batch(train_data, block_size, batch_size, generator)
        _, loss, _ = model(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        history.train_loss.append(loss.item())
        if after_step is not None:
            after_step(step + 1)
    return history


def longest_copied_span(text: str, corpus: str) -> str:
    """Return the longest piece of ``text`` that stands in ``corpus`` word for word.

    Built in The Transformer from first principles, section What it writes:
    https://example.org/tinygpt/chapters/ch02-transformer.html#what-it-writes
    """
    best = ""
    for start in range(len(text)):
        stop = start + len(best) + 1  # one longer than the best so far
        while stop <= len(text) and text[start:stop] in corpus:
            best = text[start:stop]
            stop += 1
    return best


def kv_cache_bytes(cache: list[LayerCache]) -> int:
    """Measure the bytes of a cache: every key and value of every layer.

    Built in The Transformer from first principles, section What does it cost in
    memory?:
    https://example.org/tinygpt/chapters/ch02-transformer.html#what-does-it-cost-in-memory
    """
    return sum(
        tensor.numel() * tensor.element_size() for pair in cache for tensor in pair
    )


@torch.no_grad()
def future_change(model: TinyGPT, tokens: Tensor) -> float:
    """Return by how much earlier logits move when the last token of each row changes.

    A causal model returns exactly 0.0. The mode is restored.

    Args:
        tokens: ids (B, T) with T at least 2.

    Built in The Transformer from first principles, section A gallery of broken models:
    https://example.org/tinygpt/chapters/ch02-transformer.html#sec-gallery
    """
    if tokens.dim() != 2 or tokens.shape[1] < 2:
        raise ValueError(
            f"tokens have shape {tuple(tokens.shape)}; expected (B, T) with T from 2 up"
        )
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % model.config.vocab_size
    was_training = model.training
    model.eval()
    try:
        before, after = model(tokens)[0], model(changed)[0]
    finally:
        model.train(was_training)
    return (before - after)[:, :-1].abs().max().item()
