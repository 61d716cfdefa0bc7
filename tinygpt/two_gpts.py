# Generated from chapters/two-gpts.md by `make export`.
# Change the page, not this file.
"""Two GPTs, part for part.

The saved code of https://example.org/tinygpt/chapters/two-gpts.html
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.gpt import GPT, Head, check_sizes, continue_ids
from tinygpt.training import TrainConfig, Trainer

__all__ = [
    "HYBRID_PARTS",
    "HybridAttention",
    "HybridBlock",
    "HybridConfig",
    "HybridGPT",
    "HybridMLP",
    "hybrid_counts",
    "hybrid_flops",
    "match_parameters",
    "short_run",
    "variant_config",
]


@dataclass(frozen=True)
class HybridConfig:
    """The sizes of a model, and which parts are those of the second GPT.

    With every switch off it is the GPT of Step 5, with every switch on it is the
    TinyGPT of the chapter on the Transformer.

    Args:
        V, T, d, H, L: vocabulary, positions, width, heads and blocks.
        hidden: width of the MLP; by default 4d, or 8d/3 rounded if it is gated.
        rms_norm: RMSNorm in place of LayerNorm.
        gated: SwiGLU in place of two layers with a GELU.
        bias_free: no offsets in the projection of attention and in the MLP.
        fused: one matrix for all queries, keys and values of a block.
        qk_norm: RMSNorm on the queries and keys of each head.
        normal_init: every matrix from N(0, 0.02) and offsets 0, no scaled writes.
        tied: one matrix for embedding and head.

    Raises:
        ValueError: a size is no positive integer, or the heads do not divide d.

    Built in Two GPTs, part for part, section A model with switches:
    https://example.org/tinygpt/chapters/two-gpts.html#a-model-with-switches
    """

    V: int = 65
    T: int = 64
    d: int = 128
    H: int = 4
    L: int = 4
    hidden: int | None = None
    rms_norm: bool = False
    gated: bool = False
    bias_free: bool = False
    fused: bool = False
    qk_norm: bool = False
    normal_init: bool = False
    tied: bool = False

    def __post_init__(self) -> None:
        check_sizes(V=self.V, T=self.T, d=self.d, H=self.H, L=self.L)
        check_sizes(hidden=self.mlp_hidden)
        if self.d % self.H:
            raise ValueError(
                f"d is {self.d} and H is {self.H}; expected a d that H divides"
            )

    @property
    def mlp_hidden(self) -> int:
        """Hidden width of the MLP."""
        if self.hidden is not None:
            return self.hidden
        return round(8 * self.d / 3) if self.gated else 4 * self.d


class HybridAttention(nn.Module):
    """Causal attention with separate or fused heads, with or without QK-norm.

    Built in Two GPTs, part for part, section A model with switches:
    https://example.org/tinygpt/chapters/two-gpts.html#a-model-with-switches
    """

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        d, dh = config.d, config.d // config.H
        self.n_heads = config.H
        if config.fused:
            self.qkv = nn.Linear(d, 3 * d, bias=False)
        else:
            self.heads = nn.ModuleList(Head(d, dh, config.T) for _ in range(config.H))
        self.q_norm = nn.RMSNorm(dh) if config.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(dh) if config.qk_norm else nn.Identity()
        self.proj = nn.Linear(d, d, bias=not config.bias_free)

    def project(self, x: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Make queries, keys and values.

        One triple of (B, T, dh) for each separate head, or one of (B, H, T, dh).
        """
        if hasattr(self, "qkv"):
            B, T, d = x.shape
            qkv = self.qkv(x).view(B, T, 3, self.n_heads, d // self.n_heads)
            parts = [tuple(qkv.permute(2, 0, 3, 1, 4))]
        else:
            parts = [(h.query(x), h.key(x), h.value(x)) for h in self.heads]
        return [(self.q_norm(q), self.k_norm(k), v) for q, k, v in parts]

    def forward(
        self, x: Tensor, past: list[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Map x (B, T, d) to an update (B, T, d) and all keys and values so far."""
        mixed, present = [], []
        for i, (q, k, v) in enumerate(self.project(x)):
            if past is not None:
                k = torch.cat([past[i][0], k], dim=-2)
                v = torch.cat([past[i][1], v], dim=-2)
            n, m = q.shape[-2], k.shape[-2]  # n queries, the last of m positions
            later = torch.ones(n, m, dtype=torch.bool, device=x.device).triu(m - n + 1)
            scores = q / math.sqrt(q.shape[-1]) @ k.transpose(-2, -1)  # (..., n, m)
            A = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
            mixed.append(A @ v)
            present.append((k, v))
        if hasattr(self, "qkv"):
            joined = mixed[0].transpose(1, 2).flatten(start_dim=2)  # (B, T, d)
        else:
            joined = torch.cat(mixed, dim=-1)  # (B, T, d)
        return self.proj(joined), present


class HybridMLP(nn.Module):
    """An MLP on each position: two layers with a GELU, or SwiGLU.

    Built in Two GPTs, part for part, section A model with switches:
    https://example.org/tinygpt/chapters/two-gpts.html#a-model-with-switches
    """

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.gated = config.gated
        wide, bias = config.mlp_hidden, not config.bias_free
        self.up = nn.Linear(config.d, 2 * wide if config.gated else wide, bias=bias)
        self.down = nn.Linear(wide, config.d, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream (B, T, d) to the update (B, T, d)."""
        if not self.gated:
            return self.down(F.gelu(self.up(x)))
        gate, up = self.up(x).chunk(2, dim=-1)  # (B, T, hidden) each
        return self.down(F.silu(gate) * up)


class HybridBlock(nn.Module):
    """Pre-norm block of a ``HybridGPT``.

    Built in Two GPTs, part for part, section A model with switches:
    https://example.org/tinygpt/chapters/two-gpts.html#a-model-with-switches
    """

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        norm = nn.RMSNorm if config.rms_norm else nn.LayerNorm
        self.ln1 = norm(config.d)
        self.attn = HybridAttention(config)
        self.ln2 = norm(config.d)
        self.mlp = HybridMLP(config)

    def forward(
        self, x: Tensor, past: list[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Carry the stream (B, T, d) through the block; return its cache as well."""
        update, present = self.attn(self.ln1(x), past)
        x = x + update
        return x + self.mlp(self.ln2(x)), present


class HybridGPT(nn.Module):
    """A GPT whose parts are chosen one by one.

    Parameters have the names and the order of Step 5's GPT, so with every switch off
    its state dict fits, and the same seed gives the same weights. With every switch on
    the order is that of TinyGPT. It checks ids and writes as Step 5's model does.

    Built in Two GPTs, part for part, section A model with switches:
    https://example.org/tinygpt/chapters/two-gpts.html#a-model-with-switches
    """

    check_ids = GPT.check_ids
    generate = continue_ids

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config, self.T = config, config.T
        self.tok = nn.Embedding(config.V, config.d)
        self.pos = nn.Embedding(config.T, config.d)
        self.blocks = nn.ModuleList(HybridBlock(config) for _ in range(config.L))
        self.lnf = (nn.RMSNorm if config.rms_norm else nn.LayerNorm)(config.d)
        self.head = nn.Linear(config.d, config.V, bias=False)
        if config.normal_init:
            self.apply(self._redraw)
        else:
            small = 0.02 / math.sqrt(2 * config.L)  # the stream receives 2L updates
            for block in self.blocks:
                nn.init.normal_(block.attn.proj.weight, std=small)
                nn.init.normal_(block.mlp.down.weight, std=small)
        if config.tied:
            self.head.weight = self.tok.weight

    @staticmethod
    def _redraw(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def run(self, idx: Tensor, cache: list | None = None) -> tuple[Tensor, list]:
        """Predict the next id at each position, continuing a cache if there is one.

        Args:
            idx: ids (B, n), those that the cache does not hold yet.
            cache: what an earlier call returned.

        Returns:
            logits (B, n, V), and the cache: for each block the keys and values of its
            separate heads, or of all fused ones.

        Raises:
            ValueError: bad ids, or more cached and new positions than T.
        """
        self.check_ids(idx)
        n_past = 0 if cache is None else cache[0][0][0].shape[-2]
        n = n_past + idx.shape[1]
        if n > self.T:
            raise ValueError(
                f"{n_past} cached and {idx.shape[1]} new positions; expected at most "
                f"T, {self.T}"
            )
        x = self.tok(idx) + self.pos(torch.arange(n_past, n, device=idx.device))
        present = []
        for i, block in enumerate(self.blocks):
            x, pairs = block(x, None if cache is None else cache[i])
            present.append(pairs)
        return self.head(self.lnf(x)), present  # logits (B, n, V)

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return logits (B, T, V), and with targets (B, T) the loss in nats."""
        logits, _ = self.run(idx)
        if targets is None:
            return logits, None
        if targets.shape != idx.shape:
            raise ValueError(
                f"targets have shape {tuple(targets.shape)}; expected that of the ids, "
                f"{tuple(idx.shape)}"
            )
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def hybrid_counts(config: HybridConfig) -> dict[str, int]:
    """Predict the parameters of a ``HybridGPT``, part by part, without building it.

    Built in Two GPTs, part for part, section What each part costs:
    https://example.org/tinygpt/chapters/two-gpts.html#sec-two-costs
    """
    V, T, d, H, L = config.V, config.T, config.d, config.H, config.L
    h, offsets = config.mlp_hidden, not config.bias_free
    attention = 4 * d**2 + d * offsets + 2 * (d // H) * config.qk_norm
    if config.gated:
        mlp = 3 * d * h + (2 * h + d) * offsets
    else:
        mlp = 2 * d * h + (h + d) * offsets
    parts = {
        "embeddings": V * d + T * d,
        "attention": L * attention,
        "MLPs": L * mlp,
        "norms": (2 * L + 1) * d * (1 if config.rms_norm else 2),
        "head": 0 if config.tied else V * d,
    }
    return {**parts, "total": sum(parts.values())}


def hybrid_flops(config: HybridConfig, context: int) -> int:
    """Forward FLOPs of one token that looks at ``context`` positions, products only.

    A product of a vector and a matrix with n entries counts 2n, as in the chapter on
    the Transformer. Norms, curves and sums are left out.

    Built in Two GPTs, part for part, section What each part costs:
    https://example.org/tinygpt/chapters/two-gpts.html#sec-two-costs
    """
    d, matrices = config.d, 3 if config.gated else 2
    block = 4 * d**2 + matrices * d * config.mlp_hidden
    return 2 * (config.L * block + config.V * d) + config.L * 4 * context * d


def match_parameters(config: HybridConfig, total: int) -> HybridConfig:
    """Choose the hidden width whose number of parameters is nearest to ``total``.

    Raises:
        ValueError: even a hidden width of 1 has more parameters than ``total``.

    Built in Two GPTs, part for part, section What each part costs:
    https://example.org/tinygpt/chapters/two-gpts.html#sec-two-costs
    """
    one, two = (hybrid_counts(replace(config, hidden=h))["total"] for h in (1, 2))
    if total < one:
        raise ValueError(f"total is {total:,}; expected at least {one:,}")
    return replace(config, hidden=1 + round((total - one) / (two - one)))


HYBRID_PARTS: dict[str, tuple[str, ...]] = {
    "baseline": (),
    "fused heads": ("fused",),
    "RMSNorm": ("rms_norm",),
    "SwiGLU": ("gated",),
    "no offsets": ("bias_free",),
    "QK-norm": ("qk_norm",),
    "N(0, 0.02)": ("normal_init",),
    "tied head": ("tied",),
    "tied, N(0, 0.02)": ("normal_init", "tied"),
    "all but the start": ("rms_norm", "gated", "bias_free", "fused", "qk_norm"),
    "all": (
        "rms_norm",
        "gated",
        "bias_free",
        "fused",
        "qk_norm",
        "normal_init",
        "tied",
    ),
}


def variant_config(name: str) -> HybridConfig:
    """One variant of ``HYBRID_PARTS``, its hidden width matched to the baseline.

    Raises:
        ValueError: there is no variant of that name.

    Built in Two GPTs, part for part, section What each part costs:
    https://example.org/tinygpt/chapters/two-gpts.html#sec-two-costs
    """
    if name not in HYBRID_PARTS:
        raise ValueError(f"no variant {name!r}; the names are {list(HYBRID_PARTS)}")
    total = hybrid_counts(HybridConfig())["total"]
    switches = dict.fromkeys(HYBRID_PARTS[name], True)
    return match_parameters(HybridConfig(**switches), total)


def short_run(name: str, seed: int, train_data: Tensor, val_data: Tensor) -> Trainer:
    """Prepare the short run of one variant: the recipe of Step 6 in 300 steps.

    The global generator is seeded twice: for the weights, and again for the batches,
    so that all variants of one seed learn from the same batches.

    Built in Two GPTs, part for part, section What each part costs:
    https://example.org/tinygpt/chapters/two-gpts.html#sec-two-costs
    """
    torch.manual_seed(seed)
    model = HybridGPT(variant_config(name))
    torch.manual_seed(1_000 + seed)
    recipe = TrainConfig(
        steps=300,
        batch_size=16,
        warmup=30,
        eval_every=300,
        eval_batches=1,
        final_batches=1,
    )
    return Trainer(model, train_data, val_data, recipe)
