"""Wrong answers to the exercises of Lecture 2."""

from answers import Wrong

WRONG = {
    "ex-l2-temperature": [
        Wrong(
            1,
            "one factor tau in the safe rate, where the curvature has two",
            """
def tempered(counts, W, tau):
    rows, total = counts.sum(dim=1, keepdim=True), counts.sum()
    gradient = (rows * (W / tau).softmax(dim=1) - counts) / (total * tau)
    return gradient, (4 * tau * total / rows.max()).item()
""",
        ),
        Wrong(
            1,
            "an empty row is zero over zero",
            """
def tempered(counts, W, tau):
    rows, total = counts.sum(dim=1, keepdim=True), counts.sum()
    share, p = rows / total, counts / rows
    gradient = share * ((W / tau).softmax(dim=1) - p) / tau
    return gradient, (4 * tau**2 / share.max()).item()
""",
        ),
        Wrong(
            0,
            "the inner derivative is forgotten",
            """
def tempered(counts, W, tau):
    rows, total = counts.sum(dim=1, keepdim=True), counts.sum()
    gradient = (rows * (W / tau).softmax(dim=1) - counts) / total
    return gradient, (4 * tau**2 * total / rows.max()).item()
""",
        ),
        Wrong(
            0,
            "the temperature is left out of the softmax",
            """
def tempered(counts, W, tau):
    rows, total = counts.sum(dim=1, keepdim=True), counts.sum()
    gradient = (rows * W.softmax(dim=1) - counts) / (total * tau)
    return gradient, (4 * tau**2 * total / rows.max()).item()
""",
        ),
    ],
    "ex-l2-label-smoothing": [
        Wrong(
            1,
            "one alpha for all rows, from the mean number of pairs",
            """
def smoothed_target(counts, delta):
    V, rows = len(counts), counts.sum(dim=1, keepdim=True)
    p = torch.where(rows > 0, counts / rows.clamp(min=1), 1 / V)
    alpha = delta / (1 - delta) * rows.mean() / V
    return (1 - delta) * p + delta / V, alpha.expand(V)
""",
        ),
        Wrong(
            1,
            "an empty row is zero over zero",
            """
def smoothed_target(counts, delta):
    V, rows = len(counts), counts.sum(dim=1)
    p = counts / rows[:, None]
    return (1 - delta) * p + delta / V, delta / (1 - delta) * rows / V
""",
        ),
        Wrong(
            0,
            "delta goes to the other symbols only",
            """
def smoothed_target(counts, delta):
    V, rows = len(counts), counts.sum(dim=1)
    p = counts / rows[:, None].clamp(min=1)
    table = (1 - delta) * p + delta * (1 - p) / (V - 1)
    return table, delta / (1 - delta) * rows / V
""",
        ),
        Wrong(
            0,
            "alpha is delta",
            """
def smoothed_target(counts, delta):
    V, rows = len(counts), counts.sum(dim=1)
    p = counts / rows[:, None].clamp(min=1)
    return (1 - delta) * p + delta / V, torch.full((V,), delta, dtype=torch.float64)
""",
        ),
    ],
    "ex-l2-rate": [
        Wrong(
            1,
            "an exact comparison takes rounding for a rise",
            """
def loss_rises(W, target, shares, rate, steps=100):
    losses = []
    for _ in range(steps + 1):
        losses.append(-(shares @ (target * W.log_softmax(dim=1)).sum(dim=1)).item())
        W = W - rate * shares[:, None] * (W.softmax(dim=1) - target)
    return any(b > a for a, b in zip(losses, losses[1:]))
""",
        ),
        Wrong(
            1,
            "the rows are added up without their shares",
            """
def loss_rises(W, target, shares, rate, steps=100):
    losses = []
    for _ in range(steps + 1):
        losses.append(-(target * W.log_softmax(dim=1)).sum().item())
        W = W - rate * shares[:, None] * (W.softmax(dim=1) - target)
    return any(b > a + 1e-12 for a, b in zip(losses, losses[1:]))
""",
        ),
        Wrong(
            1,
            "the logits of the caller are changed in place",
            """
def loss_rises(W, target, shares, rate, steps=100):
    losses = []
    for _ in range(steps + 1):
        losses.append(-(shares @ (target * W.log_softmax(dim=1)).sum(dim=1)).item())
        W -= rate * shares[:, None] * (W.softmax(dim=1) - target)
    return any(b > a + 1e-12 for a, b in zip(losses, losses[1:]))
""",
        ),
        Wrong(
            0,
            "only the end is compared with the start",
            """
def loss_rises(W, target, shares, rate, steps=100):
    def loss(W):
        return -(shares @ (target * W.log_softmax(dim=1)).sum(dim=1)).item()

    start = loss(W)
    for _ in range(steps):
        W = W - rate * shares[:, None] * (W.softmax(dim=1) - target)
    return loss(W) > start + 1e-12
""",
        ),
        Wrong(
            0,
            "the bound of the proposition in place of a run",
            """
def loss_rises(W, target, shares, rate, steps=100):
    return rate > 4 / shares.max().item()
""",
        ),
    ],
    "ex-l2-two-clocks": [
        Wrong(
            1,
            "the formula of a lone gradient, cut off at one rate a step",
            """
def adam_pace(N, beta1=0.9, beta2=0.99):
    way = (1 - beta1) / math.sqrt(1 - beta2) / (1 - beta1 / math.sqrt(beta2))
    return min(1.0, way / N)
""",
        ),
        Wrong(
            1,
            "only one gradient, and the others are left out",
            """
def adam_pace(N, beta1=0.9, beta2=0.99):
    m = v = way = 0.0
    for k in range(1, N + 1):
        g = float(k == 1)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        way += m / math.sqrt(v)
    return way / N
""",
        ),
        Wrong(
            0,
            "the way of a whole cycle in place of a step",
            """
def adam_pace(N, beta1=0.9, beta2=0.99):
    m = v = way = 0.0
    steps = (20_000 // N + 2) * N
    for k in range(1, steps + 1):
        g = float(k % N == 0)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        if k > steps - N:
            way += m / math.sqrt(v)
    return way
""",
        ),
        Wrong(
            0,
            "the root is forgotten",
            """
def adam_pace(N, beta1=0.9, beta2=0.99):
    m = v = way = 0.0
    steps = (20_000 // N + 2) * N
    for k in range(1, steps + 1):
        g = float(k % N == 0)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        if k > steps - N:
            way += m / v
    return way / N
""",
        ),
    ],
}
