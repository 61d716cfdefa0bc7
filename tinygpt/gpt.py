# Generated from chapters/step5-gpt.md by `make export`.
# Change the page, not this file.
"""Step 5: assembling the GPT.

The saved code of https://example.org/tinygpt/chapters/step5-gpt.html
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "GPT",
    "MHA",
    "MLP",
    "Block",
    "Head",
    "check_sizes",
    "component_counts",
    "continue_ids",
]


def check_sizes(**sizes: int) -> None:
    """Refuse a size that is not a positive integer, naming it and its value.

    Built in Step 5: assembling the GPT, section What we assemble:
    https://example.org/tinygpt/chapters/step5-gpt.html#what-we-assemble
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} is {size!r}; expected a positive integer")


class Head(nn.Module):
    """One causal attention head: each position reads from itself and earlier ones.

    Args:
        d: width of the residual stream.
        dh: width of the head.
        T: the longest sequence.

    Its last weights stay in ``A``, detached, (B, T, T), for whoever wants to look.

    Built in Step 5: assembling the GPT, section One head:
    https://example.org/tinygpt/chapters/step5-gpt.html#one-head
    """

    def __init__(self, d: int, dh: int, T: int) -> None:
        super().__init__()
        check_sizes(d=d, dh=dh, T=T)
        self.key = nn.Linear(d, dh, bias=False)
        self.query = nn.Linear(d, dh, bias=False)
        self.value = nn.Linear(d, dh, bias=False)
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)  # (T, T), True hides
        self.register_buffer("mask", hidden, persistent=False)
        self.A: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream (B, T, d) to the head's output (B, T, dh)."""
        T = x.shape[1]
        if T > self.mask.shape[0]:
            raise ValueError(
                f"{T} positions; expected at most the {len(self.mask)} of this head"
            )
        q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, dh) each
        scores = q / math.sqrt(k.shape[-1]) @ k.transpose(-2, -1)  # (B, T, T)
        scores = scores.masked_fill(self.mask[:T, :T], float("-inf"))
        A = scores.softmax(dim=-1)  # (B, T, T)
        self.A = A.detach()
        return A @ v


class MHA(nn.Module):
    """Multi-head attention: H heads side by side, then a projection that mixes them.

    Raises:
        ValueError: H does not divide d.

    Built in Step 5: assembling the GPT, section Several heads:
    https://example.org/tinygpt/chapters/step5-gpt.html#several-heads
    """

    def __init__(self, d: int, H: int, T: int) -> None:
        super().__init__()
        check_sizes(d=d, H=H, T=T)
        if d % H:
            raise ValueError(f"d is {d} and H is {H}; expected a d that H divides")
        self.heads = nn.ModuleList(Head(d, d // H, T) for _ in range(H))
        self.proj = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream (B, T, d) to the update (B, T, d)."""
        joined = torch.cat([head(x) for head in self.heads], dim=-1)  # (B, T, d)
        return self.proj(joined)


class MLP(nn.Module):
    """Two layers with a GELU between: each position by itself, wide in the middle.

    Built in Step 5: assembling the GPT, section The MLP:
    https://example.org/tinygpt/chapters/step5-gpt.html#the-mlp
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        check_sizes(d=d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream (B, T, d) to the update (B, T, d)."""
        return self.down(F.gelu(self.up(x)))  # (B, T, 4d) in between


class Block(nn.Module):
    """Pre-norm block: attention, then the MLP, each added to the residual stream.

    Built in Step 5: assembling the GPT, section The block:
    https://example.org/tinygpt/chapters/step5-gpt.html#the-block
    """

    def __init__(self, d: int, H: int, T: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(d)
        self.attn = MHA(d, H, T)
        self.ln2 = nn.LayerNorm(d)
        self.mlp = MLP(d)

    def forward(self, x: Tensor) -> Tensor:
        """Carry the stream (B, T, d) through the block."""
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """The language model: ids in, logits for the next id out.

    Args:
        V: vocabulary size.
        T: the longest sequence.
        d: width of the residual stream.
        H: heads in each block; H divides d.
        L: blocks.

    Built in Step 5: assembling the GPT, section How the weights begin:
    https://example.org/tinygpt/chapters/step5-gpt.html#how-the-weights-begin
    """

    def __init__(self, V: int, T: int, d: int, H: int, L: int) -> None:
        super().__init__()
        check_sizes(V=V, T=T, d=d, H=H, L=L)
        self.T = T
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Embedding(T, d)
        self.blocks = nn.ModuleList(Block(d, H, T) for _ in range(L))
        self.lnf = nn.LayerNorm(d)
        self.head = nn.Linear(d, V, bias=False)
        small = 0.02 / math.sqrt(2 * L)  # the stream receives 2L updates
        for block in self.blocks:
            nn.init.normal_(block.attn.proj.weight, std=small)
            nn.init.normal_(block.mlp.down.weight, std=small)

    def check_ids(self, idx: Tensor) -> None:
        """Refuse ids that are not (B, T), are none at all, or are out of range."""
        if idx.dim() != 2 or idx.numel() == 0:
            raise ValueError(
                f"ids have shape {tuple(idx.shape)}; expected (B, T), both at least 1"
            )
        V = self.tok.num_embeddings
        unknown = (idx < 0) | (idx >= V)
        if unknown.any():
            first = idx[unknown][0].item()
            raise ValueError(f"id {first}; expected 0 to {V - 1}")

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Predict the next id at every position.

        Args:
            idx: ids, (B, T).
            targets: the ids that follow, (B, T); without them there is no loss.

        Returns:
            logits (B, T, V), and the mean cross-entropy in nats or ``None``.

        Raises:
            ValueError: ids out of range or of a wrong shape, or more positions than
                the model has.
        """
        self.check_ids(idx)
        n = idx.shape[1]
        if n > self.T:
            raise ValueError(f"{n} positions; expected at most T, {self.T}")
        x = self.tok(idx) + self.pos(torch.arange(n, device=idx.device))  # (B, T, d)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.lnf(x))  # (B, T, V)
        if targets is None:
            return logits, None
        if targets.shape != idx.shape:
            raise ValueError(
                f"targets have shape {tuple(targets.shape)}; expected that of the ids, "
                f"{tuple(idx.shape)}"
            )
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def continue_ids(
    model: GPT, idx: Tensor, n_new: int, temperature: float = 1.0
) -> Tensor:
    """Continue each row of ids by ``n_new`` ids, one at a time.

    The model sees the last T ids. Draws come from the global generator, on the CPU,
    so that a seed means the same on every device.

    It is the method ``generate`` of the model.

    Args:
        model: its mode is restored.
        idx: the prompt, (B, n) with n at least 1, on any device.
        n_new: how many ids to append.
        temperature: 1 draws from the model's distribution, 0 takes the likeliest id.

    Returns:
        prompt and continuation, (B, n + n_new), on the model's device.

    Raises:
        ValueError: an empty prompt, an id out of range, a negative ``n_new``, or a
            temperature that is negative or not finite.

    Built in Step 5: assembling the GPT, section Writing:
    https://example.org/tinygpt/chapters/step5-gpt.html#writing
    """
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; expected a number from 0 up")
    if n_new < 0:
        raise ValueError(f"n_new is {n_new}; expected 0 or more")
    model.check_ids(idx)
    idx = idx.to(model.tok.weight.device)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for _ in range(n_new):
            logits = model(idx[:, -model.T :])[0][:, -1].float().cpu()  # (B, V)
            if temperature == 0:
                new = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
            else:
                below = logits - logits.amax(dim=-1, keepdim=True)  # 0 at the likeliest
                least = max(temperature, 1e-37)  # smaller ones are 0 in float32
                new = torch.multinomial((below / least).softmax(dim=-1), 1)
            idx = torch.cat([idx, new.to(idx.device)], dim=1)
    finally:
        for module, was_training in modes:
            module.training = was_training
    return idx


GPT.generate = continue_ids


def component_counts(model: GPT) -> dict[str, int]:
    """Count the parameters of each kind of component, and all of them.

    A tensor that two components share is counted once, with the first.

    Built in Step 5: assembling the GPT, section Verification 1: the parameters, counted
    twice:
    https://example.org/tinygpt/chapters/step5-gpt.html#verification-1-the-parameters-counted-twice
    """
    blocks = model.blocks
    components = {
        "embeddings": [model.tok, model.pos],
        "attention": [block.attn for block in blocks],
        "MLPs": [block.mlp for block in blocks],
        "block norms": [norm for block in blocks for norm in (block.ln1, block.ln2)],
        "final norm + head": [model.lnf, model.head],
    }
    counted: set[Tensor] = set()
    counts = {}
    for name, modules in components.items():
        new = {p for module in modules for p in module.parameters()} - counted
        counts[name] = sum(p.numel() for p in new)
        counted |= new
    return {**counts, "total": sum(p.numel() for p in model.parameters())}
