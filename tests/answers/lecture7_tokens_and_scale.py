"""Wrong answers to the exercises of Lecture 7."""

from answers import Wrong

WRONG = {
    "ex-l7-letters": [
        Wrong(
            1,
            "answers with a negative temperature where there is none",
            """
def temperature_of_run(r, n, chance):
    s = chance ** (1 / n)
    return math.log(r / (1 - r)) / math.log(s / (1 - s))
""",
        ),
        Wrong(
            1,
            "searches between fixed bounds",
            """
def temperature_of_run(r, n, chance):
    low, high = 0.1, 10.0
    for _ in range(100):
        T = (low + high) / 2
        odds = math.exp(math.log(r / (1 - r)) / T)
        if (odds / (1 + odds)) ** n > chance:
            low = T
        else:
            high = T
    return T
""",
        ),
        Wrong(
            0,
            "does not divide by the sum",
            """
def temperature_of_run(r, n, chance):
    return n * math.log(r) / math.log(chance)
""",
        ),
        Wrong(
            0,
            "asks for the chance in each repeat",
            """
def temperature_of_run(r, n, chance):
    if (r - 0.5) * (chance - 0.5) <= 0:
        raise ValueError("none")
    return math.log(r / (1 - r)) / math.log(chance / (1 - chance))
""",
        ),
    ],
    "ex-l7-minp": [
        Wrong(
            1,
            "one fixed pair",
            """
def two_distributions(P, T):
    short = torch.tensor([0.9, 0.1], dtype=torch.float64)
    tail = torch.full((500,), 0.1 / 500, dtype=torch.float64)
    return short, torch.cat([short[:1], tail])
""",
        ),
        Wrong(
            1,
            "a tail too short for a mild temperature",
            """
def two_distributions(P, T):
    odds = 1.5 * (P / (1 - P)) ** T
    a = odds / (1 + odds)
    short = torch.tensor([a, 1 - a], dtype=torch.float64)
    tail = torch.full((4,), (1 - a) / 4, dtype=torch.float64)
    return short, torch.cat([short[:1], tail])
""",
        ),
        Wrong(
            0,
            "the sets differ after the temperature, but one larger mass serves both",
            """
def two_distributions(P, T):
    a = P + 0.01 * (1 - P)
    short = torch.tensor([a, 1 - a], dtype=torch.float64)
    tail = torch.full((1_000,), (1 - a) / 1_000, dtype=torch.float64)
    return short, torch.cat([short[:1], tail])
""",
        ),
    ],
    "ex-l7-points": [
        Wrong(
            1,
            "takes the law of the page for the one given",
            """
def exponent_interval(sizes, noise, law):
    found = fitted_exponents(sizes, 1.5 + 15.0 * sizes**-0.3 + noise)
    ends = torch.tensor([0.05, 0.95], dtype=torch.float64)
    return tuple(found.quantile(ends).tolist())
""",
        ),
        Wrong(
            1,
            "leaves a tenth out at each end",
            """
def exponent_interval(sizes, noise, law):
    E, A, a = law
    found = fitted_exponents(sizes, E + A * sizes**-a + noise).sort().values
    n = len(found)
    return found[int(0.1 * n)].item(), found[int(0.9 * n)].item()
""",
        ),
        Wrong(
            0,
            "fits the mean of all repetitions",
            """
def exponent_interval(sizes, noise, law):
    E, A, a = law
    mean = (E + A * sizes**-a + noise).mean(dim=0, keepdim=True)
    found = fitted_exponents(sizes, mean)
    ends = torch.tensor([0.05, 0.95], dtype=torch.float64)
    return tuple(found.quantile(ends).tolist())
""",
        ),
        Wrong(
            0,
            "from the smallest to the largest",
            """
def exponent_interval(sizes, noise, law):
    E, A, a = law
    found = fitted_exponents(sizes, E + A * sizes**-a + noise)
    return found.min().item(), found.max().item()
""",
        ),
    ],
    "ex-l7-budget": [
        Wrong(
            1,
            "cuts the text off and leaves the size, so a part is not spent",
            """
def best_split(C, D0, law):
    E, A, B, a, b = law
    G = (a * A / (b * B)) ** (1 / (a + b))
    N = G * (C / 6) ** (b / (a + b))
    return N, min(D0, C / 6 / N)
""",
        ),
        Wrong(
            0,
            "reads all the text, whatever the budget",
            """
def best_split(C, D0, law):
    return C / 6 / D0, D0
""",
        ),
        Wrong(
            0,
            "exchanges the exponents",
            """
def best_split(C, D0, law):
    E, A, B, a, b = law
    G = (a * A / (b * B)) ** (1 / (a + b))
    D = min(D0, (C / 6) ** (b / (a + b)) / G)
    return C / 6 / D, D
""",
        ),
        Wrong(
            0,
            "forgets the text's end",
            """
def best_split(C, D0, law):
    E, A, B, a, b = law
    G = (a * A / (b * B)) ** (1 / (a + b))
    N = G * (C / 6) ** (b / (a + b))
    return N, C / 6 / N
""",
        ),
    ],
}
