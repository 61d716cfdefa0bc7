"""Wrong answers to the exercises of Lecture 8."""

from answers import Wrong

PATHS = """
def head_paths(A, OV, norm, writes, reader):
    stream = writes.sum(dim=0)
    s = (stream.var(dim=-1, correction=0, keepdim=True) + norm.eps).sqrt()
    read = (writes - writes.mean(dim=-1, keepdim=True)) * norm.weight / s
    read = torch.cat([read, norm.bias.expand_as(stream)[None]])
    return torch.einsum("ts,isd,de,te->tsi", A, read, OV, reader)
"""

ABLATION = """
@torch.no_grad()
def ablation_loss(model, ids, targets, modules, how):
    stand_in = {
        "zero": lambda out: torch.zeros_like(out),
        "mean": lambda out: out.mean(dim=(0, 1)).expand_as(out),
        "resample": lambda out: out.roll(1, dims=0),
    }[how]
    new = {}
    handles = [
        m.register_forward_hook(lambda m, _, out: new.update({m: stand_in(out)}))
        for m in modules
    ]
    model(ids)
    for handle in handles:
        handle.remove()
    handles = [m.register_forward_hook(lambda m, _, out: new[m]) for m in modules]
    logits, _ = model(ids)
    for handle in handles:
        handle.remove()
    return F.cross_entropy(logits.mT, targets).item()
"""

WRONG = {
    "ex-l8-paths": [
        Wrong(
            0,
            "divides each write by its own spread",
            PATHS.replace("stream.var", "writes.var"),
        ),
        Wrong(
            0,
            "forgets the shift",
            PATHS.replace("norm.bias.expand_as(stream)", "torch.zeros_like(stream)"),
        ),
        Wrong(
            1,
            "spreads the shift over the writes, so that no term is its own",
            PATHS.replace(
                "    read = torch.cat",
                "    read = read + norm.bias / len(writes)\n    read = torch.cat",
            )
            .replace("norm.bias.expand_as(stream)", "torch.zeros_like(stream)")
            .replace("\\\n", "\n"),
        ),
        Wrong(
            0,
            "takes the spread at the position that asks",
            """
def head_paths(A, OV, norm, writes, reader):
    stream = writes.sum(dim=0)
    s = (stream.var(dim=-1, correction=0) + norm.eps).sqrt()
    read = (writes - writes.mean(dim=-1, keepdim=True)) * norm.weight
    terms = torch.einsum("ts,isd,de,te->tsi", A, read, OV, reader) / s[:, None, None]
    shift = torch.einsum("ts,d,de,te->ts", A, norm.bias, OV, reader)
    return torch.cat([terms, shift[..., None]], dim=-1)
""",
        ),
        Wrong(
            1,
            "centres the sum and not the writes, and gives the rest to the shift",
            """
def head_paths(A, OV, norm, writes, reader):
    stream = writes.sum(dim=0)
    s = (stream.var(dim=-1, correction=0, keepdim=True) + norm.eps).sqrt()
    read = writes * norm.weight / s
    rest = norm.bias - stream.mean(dim=-1, keepdim=True) * norm.weight / s
    read = torch.cat([read, rest[None]])
    return torch.einsum("ts,isd,de,te->tsi", A, read, OV, reader)
""",
        ),
    ],
    "ex-l8-repeats": [
        Wrong(
            0,
            "counts the last occurrence only",
            """
def votes(ids, W):
    rows = []
    text = ids.tolist()
    for t in range(len(text)):
        found = [text[j] for j in range(1, t + 1) if text[j - 1] == text[t]]
        found = found[-1:] if t else text[:1]
        found = found or text[: t + 1]
        rows.append([found.count(v) / len(found) for v in range(W)])
    return torch.tensor(rows)
""",
        ),
        Wrong(
            1,
            "does not let a position see itself, which a doubled character does",
            """
def votes(ids, W):
    rows = []
    text = ids.tolist()
    for t in range(len(text)):
        found = [text[j] for j in range(1, t) if text[j - 1] == text[t]]
        found = found if t else text[:1]
        found = found or text[: t + 1]
        rows.append([found.count(v) / len(found) for v in range(W)])
    return torch.tensor(rows)
""",
        ),
        Wrong(
            0,
            "reads the future: counts later occurrences too",
            """
def votes(ids, W):
    before = torch.cat([ids[:1], ids[:-1]])
    match = (before[None, :] == ids[:, None]).float()
    visible = torch.ones(len(ids), len(ids)).tril()
    silent = match.sum(dim=1, keepdim=True) == 0
    match = torch.where(silent, visible, match)
    return match / match.sum(dim=1, keepdim=True) @ F.one_hot(ids, W).float()
""",
        ),
        Wrong(
            0,
            "leaves a row of zeros where nothing matches",
            """
def votes(ids, W):
    before = torch.cat([ids[:1], ids[:-1]])
    visible = torch.ones(len(ids), len(ids)).tril()
    match = visible * (before[None, :] == ids[:, None])
    total = match.sum(dim=1, keepdim=True).clamp(min=1)
    return match / total @ F.one_hot(ids, W).float()
""",
        ),
        Wrong(
            0,
            "takes the last id as what stands before the first",
            """
def votes(ids, W):
    before = ids.roll(1)
    visible = torch.ones(len(ids), len(ids)).tril()
    match = visible * (before[None, :] == ids[:, None])
    silent = match.sum(dim=1, keepdim=True) == 0
    match = torch.where(silent, visible, match)
    return match / match.sum(dim=1, keepdim=True) @ F.one_hot(ids, W).float()
""",
        ),
    ],
    "ex-l8-twins": [
        Wrong(
            0,
            "takes the mean over the rows, and keeps the positions apart",
            ABLATION.replace("out.mean(dim=(0, 1))", "out.mean(dim=0)"),
        ),
        Wrong(
            1,
            "computes what stands in while earlier parts are replaced already",
            """
@torch.no_grad()
def ablation_loss(model, ids, targets, modules, how):
    stand_in = {
        "zero": lambda out: torch.zeros_like(out),
        "mean": lambda out: out.mean(dim=(0, 1)).expand_as(out),
        "resample": lambda out: out.roll(1, dims=0),
    }[how]
    handles = [
        m.register_forward_hook(lambda m, _, out: stand_in(out)) for m in modules
    ]
    logits, _ = model(ids)
    for handle in handles:
        handle.remove()
    return F.cross_entropy(logits.mT, targets).item()
""",
        ),
        Wrong(
            1,
            "replaces the first of the modules only",
            ABLATION.replace("    new = {}", "    new, modules = {}, modules[:1]"),
        ),
        Wrong(
            0,
            "leaves the hooks in the model",
            ABLATION.replace(
                """    logits, _ = model(ids)
    for handle in handles:
        handle.remove()
""",
                "    logits, _ = model(ids)\n",
            ),
        ),
        Wrong(
            0,
            "takes the row behind in place of the row before",
            ABLATION.replace("roll(1, dims=0)", "roll(-1, dims=0)"),
        ),
    ],
}
