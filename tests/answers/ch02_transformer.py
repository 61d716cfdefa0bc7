"""Typical wrong answers to the exercises of Chapter 2."""

from answers import Wrong

WRONG = {
    "ex-missing-mask": [
        Wrong(
            0,
            "differentiates the rows of the table, which the tied head uses as well",
            """
def reach(model, tokens):
    logits = model(tokens)[0][0]
    rows = []
    for row in logits:
        weight = model.token_embedding.weight
        (pull,) = torch.autograd.grad(row.sum(), weight, retain_graph=True)
        rows.append((pull[tokens[0]] != 0).any(dim=-1))
    return torch.stack(rows)
""",
        ),
        Wrong(
            0,
            "rows and columns are exchanged",
            """
def reach(model, tokens):
    T, V = tokens.shape[1], model.config.vocab_size
    table = torch.zeros(T, T, dtype=torch.bool)
    with torch.no_grad():
        old = model(tokens)[0][0]
        for s in range(T):
            changed = tokens.clone()
            changed[0, s] = (changed[0, s] + 1) % V
            table[s] = (model(changed)[0][0] != old).any(dim=-1)
    return table
""",
        ),
        Wrong(
            2,
            "asks the probe of the page, which changes the last token alone",
            """
def reach(model, tokens):
    T = tokens.shape[1]
    table = torch.ones(T, T, dtype=torch.bool)
    return table if future_change(model, tokens) > 0 else table.tril()
""",
        ),
        Wrong(
            2,
            "changes the mode and leaves it so",
            """
def reach(model, tokens):
    model.train()
    T, V = tokens.shape[1], model.config.vocab_size
    table = torch.zeros(T, T, dtype=torch.bool)
    with torch.no_grad():
        old = model(tokens)[0][0]
        for s in range(T):
            changed = tokens.clone()
            changed[0, s] = (changed[0, s] + 1) % V
            table[:, s] = (model(changed)[0][0] != old).any(dim=-1)
    return table
""",
        ),
        Wrong(
            2,
            "goes backward through the whole model and leaves gradients in it",
            """
def reach(model, tokens):
    kept = []
    hook = model.token_embedding.register_forward_hook(
        lambda module, inputs, output: kept.append(output) or output.retain_grad()
    )
    rows = []
    for t in range(tokens.shape[1]):
        kept.clear()
        model(tokens)[0][0, t].sum().backward()
        rows.append((kept[0].grad[0] != 0).any(dim=-1))
    hook.remove()
    return torch.stack(rows)
""",
        ),
    ],
    "ex-heads": [
        Wrong(
            1,
            "writes the configuration out again and loses the other sizes",
            """
def trade_heads(config, n_heads):
    new = GPTConfig(config.vocab_size, n_heads=n_heads)
    old, now = param_breakdown(config), param_breakdown(new)
    moved = {part: now[part] - old[part] for part in old if now[part] != old[part]}
    return moved, (n_heads, new.head_dim)
""",
        ),
        Wrong(
            0,
            "old less new",
            """
def trade_heads(config, n_heads):
    new = GPTConfig(**{**vars(config), "n_heads": n_heads})
    old, now = param_breakdown(config), param_breakdown(new)
    moved = {part: old[part] - now[part] for part in old if now[part] != old[part]}
    return moved, (n_heads, new.head_dim)
""",
        ),
        Wrong(
            0,
            "believes that heads of the same width are added",
            """
def trade_heads(config, n_heads):
    new = GPTConfig(**{**vars(config), "n_heads": n_heads})
    old, now = param_breakdown(config), param_breakdown(new)
    moved = {part: now[part] - old[part] for part in old if now[part] != old[part]}
    return moved, (n_heads, config.head_dim)
""",
        ),
    ],
    "ex-audit": [
        Wrong(
            1,
            "counts characters in place of bytes",
            """
def cross_audit(tokenizers, texts):
    return {
        (a, b): len(text) / len(tokenizer.encode(text))
        for a, tokenizer in tokenizers.items()
        for b, text in texts.items()
    }
""",
        ),
        Wrong(
            0,
            "tokens per byte",
            """
def cross_audit(tokenizers, texts):
    return {
        (a, b): len(tokenizer.encode(text)) / len(text.encode())
        for a, tokenizer in tokenizers.items()
        for b, text in texts.items()
    }
""",
        ),
        Wrong(
            0,
            "the text first in the key",
            """
def cross_audit(tokenizers, texts):
    return {
        (b, a): len(text.encode()) / len(tokenizer.encode(text))
        for a, tokenizer in tokenizers.items()
        for b, text in texts.items()
    }
""",
        ),
    ],
    "ex-untie": [
        Wrong(
            0,
            "redraws the shared tensor in place",
            """
def untie(model, generator):
    with torch.no_grad():
        model.lm_head.weight.normal_(std=0.02, generator=generator)
    return model
""",
        ),
        Wrong(
            0,
            "copies the embedding",
            """
def untie(model, generator):
    copy = model.token_embedding.weight.detach().clone()
    model.lm_head.weight = nn.Parameter(copy)
    return model
""",
        ),
        Wrong(
            1,
            "a new layer brings a scale and a source of chance of its own",
            """
def untie(model, generator):
    V, d = model.lm_head.weight.shape
    model.lm_head = nn.Linear(d, V, bias=False)
    return model
""",
        ),
        Wrong(
            1,
            "draws from the global source of chance",
            """
def untie(model, generator):
    fresh = torch.randn_like(model.lm_head.weight) * 0.02
    model.lm_head.weight = nn.Parameter(fresh.detach())
    return model
""",
        ),
    ],
    "ex-7b": [
        Wrong(
            1,
            "leaves the ratio of the MLP at its default",
            """
def account(vocab_size, d_model, hidden, n_layers, n_heads, bytes_per_number):
    config = GPTConfig(
        vocab_size, d_model=d_model, n_heads=n_heads, n_layers=n_layers
    )
    parts = param_breakdown(config)
    gains = parts["norm scales"]
    matrices = parts["total"] - parts["position table"] - gains
    return matrices, gains, 2 * n_layers * d_model * bytes_per_number
""",
        ),
        Wrong(
            0,
            "counts the position table",
            """
def account(vocab_size, d_model, hidden, n_layers, n_heads, bytes_per_number):
    config = GPTConfig(
        vocab_size, 128, d_model, n_heads, n_layers, mlp_ratio=hidden / d_model
    )
    parts = param_breakdown(config)
    gains = parts["norm scales"]
    cache = 2 * n_layers * d_model * bytes_per_number
    return parts["total"] - gains, gains, cache
""",
        ),
        Wrong(
            0,
            "keys without values",
            """
def account(vocab_size, d_model, hidden, n_layers, n_heads, bytes_per_number):
    d, L = d_model, n_layers
    matrices = vocab_size * d + L * (4 * d * d + 3 * d * hidden)
    gains = L * (2 * d + 2 * d // n_heads) + d
    return matrices, gains, L * d * bytes_per_number
""",
        ),
        Wrong(
            1,
            "counts the cache at four bytes, whatever is asked",
            """
def account(vocab_size, d_model, hidden, n_layers, n_heads, bytes_per_number):
    d, L = d_model, n_layers
    matrices = vocab_size * d + L * (4 * d * d + 3 * d * hidden)
    gains = L * (2 * d + 2 * d // n_heads) + d
    return matrices, gains, 8 * L * d
""",
        ),
    ],
    "ex-roofline": [
        Wrong(
            0,
            "reads the weights once for each sequence",
            """
def intensity(config, batch, length, n_new, bytes_per_number=2):
    contexts = range(length - n_new + 1, length + 1)
    flops = sum(flops_per_token(config, c)["total"] for c in contexts)
    weights = flops_per_token(config, 0)["weights"] // 2
    cached = length * 2 * config.n_layers * config.d_model
    return flops / (bytes_per_number * (weights + cached))
""",
        ),
        Wrong(
            0,
            "one cache for the whole batch",
            """
def intensity(config, batch, length, n_new, bytes_per_number=2):
    contexts = range(length - n_new + 1, length + 1)
    flops = batch * sum(flops_per_token(config, c)["total"] for c in contexts)
    weights = flops_per_token(config, 0)["weights"] // 2
    cached = length * 2 * config.n_layers * config.d_model
    return flops / (bytes_per_number * (weights + cached))
""",
        ),
        Wrong(
            1,
            "knows decoding and prefill only, nothing between them",
            """
def intensity(config, batch, length, n_new, bytes_per_number=2):
    contexts = [length] if n_new == 1 else range(1, n_new + 1)
    flops = batch * sum(flops_per_token(config, c)["total"] for c in contexts)
    weights = flops_per_token(config, 0)["weights"] // 2
    cached = batch * length * 2 * config.n_layers * config.d_model
    return flops / (bytes_per_number * (weights + cached))
""",
        ),
        Wrong(
            1,
            "two bytes for each number of the cache, whatever is asked",
            """
def intensity(config, batch, length, n_new, bytes_per_number=2):
    contexts = range(length - n_new + 1, length + 1)
    flops = batch * sum(flops_per_token(config, c)["total"] for c in contexts)
    weights = flops_per_token(config, 0)["weights"] // 2
    cached = batch * length * 2 * config.n_layers * config.d_model
    return flops / (bytes_per_number * weights + 2 * cached)
""",
        ),
    ],
    "ex-window": [
        Wrong(
            0,
            "the range of the page, unchanged",
            """
def full_range_batch(data, block_size, batch_size, generator):
    return next_token_batch(data, block_size, batch_size, generator)
""",
        ),
        Wrong(
            0,
            "one start too many, so that the last window is too short",
            """
def full_range_batch(data, block_size, batch_size, generator):
    n = len(data) - block_size + 1
    starts = torch.randint(n, (batch_size,), generator=generator)
    windows = torch.stack([data[s : s + block_size + 1] for s in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]
""",
        ),
        Wrong(
            1,
            "keeps the old guard, so that a single window is refused",
            """
def full_range_batch(data, block_size, batch_size, generator):
    if block_size < 1 or batch_size < 1 or len(data) < block_size + 2:
        raise ValueError("too little data")
    n = len(data) - block_size
    starts = torch.randint(n, (batch_size,), generator=generator)
    windows = torch.stack([data[s : s + block_size + 1] for s in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]
""",
        ),
        Wrong(
            1,
            "forgets the generator",
            """
def full_range_batch(data, block_size, batch_size, generator):
    if block_size < 1 or batch_size < 1 or len(data) < block_size + 1:
        raise ValueError("too little data")
    starts = torch.randint(len(data) - block_size, (batch_size,))
    windows = torch.stack([data[s : s + block_size + 1] for s in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]
""",
        ),
    ],
    "ex-ch2-scale": [
        Wrong(
            0,
            "says what the divisor should be",
            """
def divisor(attend, head_dim):
    return math.sqrt(head_dim)
""",
        ),
        Wrong(
            0,
            "looks at the first row, which sees itself alone",
            """
def divisor(attend, head_dim):
    query = torch.ones(1, 1, 2, head_dim)
    key = torch.zeros(1, 1, 2, head_dim)
    key[:, :, 1, 0] = 1.0
    weights = attend(query, key, key)[1][0, 0]
    return 1 / math.log(weights[0, 1] / weights[0, 0])
""",
        ),
        Wrong(
            1,
            "dot products so large that a weight is rounded to zero",
            """
def divisor(attend, head_dim):
    query = torch.zeros(1, 1, 2, head_dim)
    key = torch.zeros(1, 1, 2, head_dim)
    query[..., 0] = 16.0
    key[:, :, 1, 0] = 16.0
    first, second = attend(query, key, key)[1][0, 0, -1].tolist()
    return 256 / (math.log(second) - math.log(first))
""",
        ),
        Wrong(
            1,
            "takes the page's width of a head, whatever is given",
            """
def divisor(attend, head_dim):
    query, key = torch.zeros(1, 1, 2, 16), torch.zeros(1, 1, 2, 16)
    query[..., 0] = 1.0
    key[:, :, 1, 0] = 1.0
    first, second = attend(query, key, key)[1][0, 0, -1].tolist()
    return 1 / math.log(second / first)
""",
        ),
    ],
    "ex-ch2-norm": [
        Wrong(
            0,
            "over the positions",
            """
def rms_norm(x, gain, eps=1e-6):
    return x / (x.pow(2).mean(dim=-2, keepdim=True) + eps).sqrt() * gain
""",
        ),
        Wrong(
            0,
            "the length in place of the root mean square",
            """
def rms_norm(x, gain, eps=1e-6):
    return x / (x.norm(dim=-1, keepdim=True) + eps) * gain
""",
        ),
        Wrong(
            0,
            "over the whole tensor",
            """
def rms_norm(x, gain, eps=1e-6):
    return x / (x.pow(2).mean() + eps).sqrt() * gain
""",
        ),
        Wrong(
            1,
            "counts the axis from the front",
            """
def rms_norm(x, gain, eps=1e-6):
    return x / (x.pow(2).mean(dim=2, keepdim=True) + eps).sqrt() * gain
""",
        ),
        Wrong(
            1,
            "changes the argument in place",
            """
def rms_norm(x, gain, eps=1e-6):
    x /= (x.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt()
    return x * gain
""",
        ),
        Wrong(
            1,
            "the gain decides the dtype",
            """
def rms_norm(x, gain, eps=1e-6):
    return x / (x.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt() * gain
""",
        ),
        Wrong(
            1,
            "eps outside the root",
            """
def rms_norm(x, gain, eps=1e-6):
    root = x.pow(2).mean(dim=-1, keepdim=True).sqrt()
    return (x / (root + eps) * gain).to(x.dtype)
""",
        ),
    ],
    "ex-ch2-past": [
        Wrong(
            0,
            "slides the cache",
            """
@torch.no_grad()
def write_on(model, tokens, n):
    T = model.config.block_size
    cache, new = None, tokens[-T:]
    for _ in range(n):
        logits, _, cache = model(new[None], cache=cache)
        new = logits[0, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, new])
        if cache[0][0].shape[-2] == T:
            cache = [(keys[:, :, 1:], values[:, :, 1:]) for keys, values in cache]
    return tokens
""",
        ),
        Wrong(
            0,
            "writes as far as the block goes and stops",
            """
def write_on(model, tokens, n):
    return model.generate(tokens, min(n, model.config.block_size - len(tokens)))
""",
        ),
        Wrong(
            2,
            "uses no cache at all",
            """
@torch.no_grad()
def write_on(model, tokens, n):
    for _ in range(n):
        logits = model(tokens[None, -model.config.block_size :])[0]
        tokens = torch.cat([tokens, logits[0, -1:].argmax(dim=-1)])
    return tokens
""",
        ),
        Wrong(
            2,
            "feeds the whole prompt, also one that is longer than the block",
            """
@torch.no_grad()
def write_on(model, tokens, n):
    T = model.config.block_size
    cache, new = None, tokens
    for _ in range(n):
        logits, _, cache = model(new[None], cache=cache)
        new = logits[0, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, new])
        if len(tokens) > T:
            cache, new = None, tokens[-T:]
    return tokens
""",
        ),
        Wrong(
            0,
            "drops the cache and begins again from the newest token",
            """
@torch.no_grad()
def write_on(model, tokens, n):
    T = model.config.block_size
    cache, new, seen = None, tokens[-T:], 0
    for _ in range(n):
        if seen + len(new) > T:
            cache, seen = None, 0
        logits, _, cache = model(new[None], cache=cache)
        seen += len(new)
        new = logits[0, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, new])
    return tokens
""",
        ),
    ],
    "ex-ch2-flops": [
        Wrong(
            0,
            "the triangle that is needed, not the square that is computed",
            """
def pass_flops(config, n_new, n_past=0, batch=1):
    contexts = range(n_past + 1, n_past + n_new + 1)
    return batch * sum(flops_per_token(config, c)["total"] for c in contexts)
""",
        ),
        Wrong(
            0,
            "the new tokens see no cached ones",
            """
def pass_flops(config, n_new, n_past=0, batch=1):
    return batch * n_new * flops_per_token(config, n_new)["total"]
""",
        ),
        Wrong(
            1,
            "the attention of one sequence for the whole batch",
            """
def pass_flops(config, n_new, n_past=0, batch=1):
    cost = flops_per_token(config, n_past + n_new)
    return batch * n_new * cost["weights"] + n_new * cost["attention"]
""",
        ),
        Wrong(
            1,
            "forgets the batch",
            """
def pass_flops(config, n_new, n_past=0, batch=1):
    return n_new * flops_per_token(config, n_past + n_new)["total"]
""",
        ),
    ],
    "ex-ch2-tie": [
        Wrong(
            0,
            "compares addresses, as the page does",
            """
def tie_state(model):
    table, head = model.token_embedding.weight, model.lm_head.weight
    return "tied" if table.data_ptr() == head.data_ptr() else "apart"
""",
        ),
        Wrong(
            0,
            "compares values",
            """
def tie_state(model):
    table, head = model.token_embedding.weight, model.lm_head.weight
    if table is head:
        return "tied"
    return "shared memory" if torch.equal(table, head) else "apart"
""",
        ),
        Wrong(
            1,
            "compares storages, which may hold more than one parameter",
            """
def tie_state(model):
    table, head = model.token_embedding.weight, model.lm_head.weight
    if table is head:
        return "tied"
    storages = {t.untyped_storage().data_ptr() for t in (table, head)}
    return "shared memory" if len(storages) == 1 else "apart"
""",
        ),
        Wrong(
            1,
            "changes a number to see whether it moves, and leaves it changed",
            """
@torch.no_grad()
def tie_state(model):
    table, head = model.token_embedding.weight, model.lm_head.weight
    if table is head:
        return "tied"
    table[0, 0] = head[0, 0] + 1
    return "shared memory" if head[0, 0] == table[0, 0] else "apart"
""",
        ),
    ],
    "ex-ch2-decay": [
        Wrong(
            1,
            "picks by name",
            """
def decay_groups(model, weight_decay):
    named = list(model.named_parameters())
    return [
        {
            "params": [p for name, p in named if "norm" not in name],
            "weight_decay": weight_decay,
        },
        {"params": [p for name, p in named if "norm" in name], "weight_decay": 0.0},
    ]
""",
        ),
        Wrong(
            1,
            "leaves the head out, because it is tied",
            """
def decay_groups(model, weight_decay):
    named = [(n, p) for n, p in model.named_parameters() if "lm_head.weight" not in n]
    return [
        {
            "params": [p for _, p in named if p.dim() >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0},
    ]
""",
        ),
        Wrong(
            0,
            "walks over the modules and meets the tied matrix twice",
            """
def decay_groups(model, weight_decay):
    found = [p for m in model.modules() for p in m.parameters(recurse=False)]
    return [
        {"params": [p for p in found if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in found if p.dim() < 2], "weight_decay": 0.0},
    ]
""",
        ),
        Wrong(
            0,
            "spares the matrices and decays the gains",
            """
def decay_groups(model, weight_decay):
    found = list(model.parameters())
    return [
        {"params": [p for p in found if p.dim() < 2], "weight_decay": weight_decay},
        {"params": [p for p in found if p.dim() >= 2], "weight_decay": 0.0},
    ]
""",
        ),
    ],
}
