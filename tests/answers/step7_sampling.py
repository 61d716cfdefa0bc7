"""Wrong answers to the exercises of Step 7's second part."""

from answers import Wrong

WRONG = {
    "ex-step7-order": [
        Wrong(
            0,
            "divides first and truncates what comes out: the page's order",
            """
def temperature_last(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    return sampling_probabilities(logits, temperature, top_k, top_p, min_p)
""",
        ),
        Wrong(
            1,
            "divides plainly, so that a temperature of zero makes NaN",
            """
def temperature_last(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    z = logits
    if top_k is not None:
        z = keep_top_k(z, top_k)
    if top_p is not None:
        z = keep_top_p(z, top_p)
    if min_p is not None:
        z = keep_min_p(z, min_p)
    return (z / temperature).softmax(dim=-1)
""",
        ),
        Wrong(
            1,
            "applies the truncations one after another to the model's distribution",
            """
def temperature_last(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    z = logits.clone()
    if top_k is not None:
        z[keep_top_k(logits, top_k) == -math.inf] = -math.inf
    if top_p is not None:
        z[keep_top_p(logits, top_p) == -math.inf] = -math.inf
    if min_p is not None:
        z[keep_min_p(logits, min_p) == -math.inf] = -math.inf
    return apply_temperature(z, temperature).softmax(dim=-1)
""",
        ),
        Wrong(
            1,
            "changes the logits that were given",
            """
def temperature_last(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    if top_k is not None:
        logits.copy_(keep_top_k(logits, top_k))
    if top_p is not None:
        logits.copy_(keep_top_p(logits, top_p))
    if min_p is not None:
        logits.copy_(keep_min_p(logits, min_p))
    return apply_temperature(logits, temperature).softmax(dim=-1)
""",
        ),
        Wrong(
            0,
            "raises the probabilities to the power and forgets to divide by the sum",
            """
def temperature_last(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    p = sampling_probabilities(logits, 1.0, top_k, top_p, min_p)
    return p ** (1 / temperature)
""",
        ),
    ],
    "ex-step7-calibrated": [
        Wrong(
            1,
            "cuts the model's own distribution, which top-k does not notice",
            """
def cut_costs(logits, came, keep, temperature=1.0):
    kept = keep(logits) > -math.inf
    p = (logits / temperature).softmax(dim=-1)
    mass = 1 - (p * kept).sum(dim=-1).mean().item()
    return mass, 1 - kept.gather(1, came[:, None]).double().mean().item()
""",
        ),
        Wrong(
            0,
            "measures the mass in the model's own distribution",
            """
def cut_costs(logits, came, keep, temperature=1.0):
    kept = keep(logits / temperature) > -math.inf
    p = logits.softmax(dim=-1)
    mass = 1 - (p * kept).sum(dim=-1).mean().item()
    return mass, 1 - kept.gather(1, came[:, None]).double().mean().item()
""",
        ),
        Wrong(
            1,
            "divides the logits in place",
            """
def cut_costs(logits, came, keep, temperature=1.0):
    if temperature != 1:
        logits = logits.contiguous()
        logits /= temperature
    kept = keep(logits) > -math.inf
    mass = 1 - (logits.softmax(dim=-1) * kept).sum(dim=-1).mean().item()
    return mass, 1 - kept.gather(1, came[:, None]).double().mean().item()
""",
        ),
        Wrong(
            0,
            "takes the mean over the symbols of all rows",
            """
def cut_costs(logits, came, keep, temperature=1.0):
    z = logits / temperature
    kept = keep(z) > -math.inf
    mass = (z.softmax(dim=-1) * ~kept).mean().item()
    return mass, 1 - kept.gather(1, came[:, None]).double().mean().item()
""",
        ),
    ],
    "ex-step7-circle": [
        Wrong(
            1,
            "looks for the window in the text before it, so none may overlap",
            """
def returning_share(text, n):
    starts = range(len(text) - n + 1)
    if not starts:
        return 0.0
    return sum(text[i : i + n] in text[:i] for i in starts) / len(starts)
""",
        ),
        Wrong(
            1,
            "divides by zero where the text has no window",
            """
def returning_share(text, n):
    windows = [text[i : i + n] for i in range(len(text) - n + 1)]
    return 1 - len(set(windows)) / len(windows)
""",
        ),
        Wrong(
            0,
            "leaves out the last window",
            """
def returning_share(text, n):
    windows = [text[i : i + n] for i in range(len(text) - n)]
    return 1 - len(set(windows)) / max(1, len(windows))
""",
        ),
        Wrong(
            0,
            "counts the first occurrence as a return",
            """
def returning_share(text, n):
    windows = [text[i : i + n] for i in range(len(text) - n + 1)]
    many = sum(windows.count(w) > 1 for w in windows)
    return many / max(1, len(windows))
""",
        ),
    ],
    "ex-step7-own": [
        Wrong(
            1,
            "joins the texts, so that pieces reach from one into the next",
            """
def copied_share(texts, source, n):
    text = "".join(texts)
    pieces = [text[i : i + n] for i in range(len(text) - n + 1)]
    return sum(piece in source for piece in pieces) / max(1, len(pieces))
""",
        ),
        Wrong(
            1,
            "takes the mean over the texts",
            """
def copied_share(texts, source, n):
    shares = []
    for text in texts:
        pieces = [text[i : i + n] for i in range(len(text) - n + 1)]
        if pieces:
            shares.append(sum(piece in source for piece in pieces) / len(pieces))
    return sum(shares) / max(1, len(shares))
""",
        ),
        Wrong(
            1,
            "counts each different piece once",
            """
def copied_share(texts, source, n):
    pieces = {text[i : i + n] for text in texts for i in range(len(text) - n + 1)}
    return sum(piece in source for piece in pieces) / max(1, len(pieces))
""",
        ),
        Wrong(
            0,
            "cuts the texts into pieces side by side",
            """
def copied_share(texts, source, n):
    pieces = [text[i : i + n] for text in texts for i in range(0, len(text), n)]
    return sum(piece in source for piece in pieces) / max(1, len(pieces))
""",
        ),
    ],
    "ex-step7-size": [
        Wrong(
            1,
            "counts the table of tokens as well",
            """
def predict_loss(V, d, L, runs):
    n = 2 * V * d + L * (12 * d**2 + 10 * d) + 2 * d
    return fit_power_law(*zip(*runs)).at(n)
""",
        ),
        Wrong(
            1,
            "leaves the head out",
            """
def predict_loss(V, d, L, runs):
    n = L * (12 * d**2 + 10 * d) + 2 * d
    sizes, losses = zip(*runs)
    law = fit_power_law(sizes, losses)
    return law.at(n)
""",
        ),
        Wrong(
            0,
            "a straight line through the logarithms, without a floor",
            """
def predict_loss(V, d, L, runs):
    n = V * d + L * (12 * d**2 + 10 * d) + 2 * d
    x = torch.tensor([math.log(size) for size, _ in runs])
    y = torch.tensor([math.log(loss) for _, loss in runs])
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    return (y.mean() + slope * (math.log(n) - x.mean())).exp().item()
""",
        ),
    ],
}
