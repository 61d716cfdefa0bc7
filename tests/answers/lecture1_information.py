"""Wrong answers to the exercises of Lecture 1."""

from answers import Wrong

WRONG = {
    "ex-l1-coin": [
        Wrong(
            1,
            "the length is rounded once for each symbol, and not for the block",
            """
def shannon_rate(p, k):
    return sum(a * math.ceil(-math.log2(a)) for a in p)
""",
        ),
        Wrong(
            0,
            "the length of the block is not divided by k",
            """
def shannon_rate(p, k):
    blocks = [math.prod(block) for block in product(p, repeat=k)]
    return sum(P * math.ceil(-math.log2(P)) for P in blocks)
""",
        ),
        Wrong(
            0,
            "rounded to the nearest whole number in place of up",
            """
def shannon_rate(p, k):
    blocks = [math.prod(block) for block in product(p, repeat=k)]
    return sum(P * round(-math.log2(P)) for P in blocks) / k
""",
        ),
        Wrong(
            1,
            "there are always two symbols",
            """
def shannon_rate(p, k):
    rate = 0.0
    for heads in range(k + 1):
        P = p[0] ** heads * p[1] ** (k - heads)
        rate += math.comb(k, heads) * P * math.ceil(-math.log2(P))
    return rate / k
""",
        ),
    ],
    "ex-l1-urn": [
        Wrong(
            0,
            "the symbol is counted before the urn is asked",
            """
def urn_regret(text, p):
    total, sums = 0.0, []
    for t in range(len(text)):
        seen = text[: t + 1]
        urns = (1 + seen.count(text[t])) / (len(seen) + len(p))
        total += math.log2(p[text[t]] / urns)
        sums.append(total)
    return sums
""",
        ),
        Wrong(
            1,
            "the alphabet is what the text happens to contain",
            """
def urn_regret(text, p):
    V, total, sums = len(set(text)), 0.0, []
    for t, symbol in enumerate(text):
        urns = (1 + text[:t].count(symbol)) / (t + V)
        total += math.log2(p[symbol] / urns)
        sums.append(total)
    return sums
""",
        ),
        Wrong(
            1,
            "three symbols, as on the page",
            """
def urn_regret(text, p):
    total, sums = 0.0, []
    for t, symbol in enumerate(text):
        urns = (1 + text[:t].count(symbol)) / (t + 3)
        total += math.log2(p[symbol] / urns)
        sums.append(total)
    return sums
""",
        ),
        Wrong(
            0,
            "the differences at the places, not summed up",
            """
def urn_regret(text, p):
    return [
        math.log2(p[s] * (t + len(p)) / (1 + text[:t].count(s)))
        for t, s in enumerate(text)
    ]
""",
        ),
    ],
    "ex-l1-improper": [
        Wrong(
            1,
            "zero times minus infinity is not a number",
            """
def best_answer(p, score, parts=20):
    rows = product(range(parts + 1), repeat=len(p))
    tried = [[a / parts for a in row] for row in rows if sum(row) == parts]
    return max(tried, key=lambda q: sum(a * score(b) for a, b in zip(p, q)))
""",
        ),
        Wrong(
            1,
            "only two symbols are tried",
            """
def best_answer(p, score, parts=20):
    tried = [[i / parts, (parts - i) / parts] for i in range(parts + 1)]
    return max(tried, key=lambda q: sum(a * score(b) for a, b in zip(p, q)))
""",
        ),
        Wrong(
            0,
            "the ends 0 and 1 are left out",
            """
def best_answer(p, score, parts=20):
    rows = product(range(1, parts), repeat=len(p))
    tried = [[a / parts for a in row] for row in rows if sum(row) == parts]
    return max(tried, key=lambda q: sum(a * score(b) for a, b in zip(p, q)))
""",
        ),
        Wrong(
            0,
            "everything on the most probable symbol, whatever the score",
            """
def best_answer(p, score, parts=20):
    return [float(i == p.index(max(p))) for i in range(len(p))]
""",
        ),
        Wrong(
            0,
            "always the truth, whatever the score",
            """
def best_answer(p, score, parts=20):
    return list(p)
""",
        ),
    ],
    "ex-l1-direction": [
        Wrong(
            1,
            "terms with a zero in q are dropped",
            """
def divergence(p, q):
    return sum(a * math.log2(a / b) for a, b in zip(p, q) if a > 0 and b > 0)


def nearest(p):
    grid = [i / 10_000 for i in range(1, 5_000)]
    there = min(grid, key=lambda a: divergence(p, [a, a, 1 - 2 * a]))
    back = min(grid, key=lambda a: divergence([a, a, 1 - 2 * a], p))
    return there, back
""",
        ),
        Wrong(
            1,
            "both numbers are those of the first direction",
            """
def divergence(p, q):
    if any(a > 0 and b == 0 for a, b in zip(p, q)):
        return math.inf
    return sum(a * math.log2(a / b) for a, b in zip(p, q) if a > 0)


def nearest(p):
    return (p[0] + p[1]) / 2, (p[0] + p[1]) / 2
""",
        ),
        Wrong(
            1,
            "the grid has steps of a hundredth",
            """
def divergence(p, q):
    if any(a > 0 and b == 0 for a, b in zip(p, q)):
        return math.inf
    return sum(a * math.log2(a / b) for a, b in zip(p, q) if a > 0)


def nearest(p):
    grid = [i / 100 for i in range(1, 50)]
    there = min(grid, key=lambda a: divergence(p, [a, a, 1 - 2 * a]))
    back = min(grid, key=lambda a: divergence([a, a, 1 - 2 * a], p))
    return there, back
""",
        ),
        Wrong(
            0,
            "nats in place of bits",
            """
def divergence(p, q):
    if any(a > 0 and b == 0 for a, b in zip(p, q)):
        return math.inf
    return sum(a * math.log(a / b) for a, b in zip(p, q) if a > 0)


def nearest(p):
    grid = [i / 10_000 for i in range(1, 5_000)]
    there = min(grid, key=lambda a: divergence(p, [a, a, 1 - 2 * a]))
    back = min(grid, key=lambda a: divergence([a, a, 1 - 2 * a], p))
    return there, back
""",
        ),
    ],
}
