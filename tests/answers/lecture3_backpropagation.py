"""Wrong answers to the exercises of Lecture 3."""

from answers import Wrong

WRONG = {
    "ex-l3-forward": [
        Wrong(
            1,
            "adds the slopes of a difference",
            """
class Dual:
    def __init__(self, value, slope=0.0):
        self.value, self.slope = value, slope

    def __add__(self, other):
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other):
        return Dual(self.value - other.value, self.slope + other.slope)

    def __mul__(self, other):
        slope = self.slope * other.value + self.value * other.slope
        return Dual(self.value * other.value, slope)

    def tanh(self):
        value = math.tanh(self.value)
        return Dual(value, (1 - value * value) * self.slope)

    def exp(self):
        return Dual(math.exp(self.value), math.exp(self.value) * self.slope)

    def log(self):
        return Dual(math.log(self.value), self.slope / self.value)
""",
        ),
        Wrong(
            1,
            "forgets the inner slope of tanh, exp and log",
            """
class Dual:
    def __init__(self, value, slope=0.0):
        self.value, self.slope = value, slope

    def __add__(self, other):
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other):
        return Dual(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other):
        slope = self.slope * other.value + self.value * other.slope
        return Dual(self.value * other.value, slope)

    def tanh(self):
        value = math.tanh(self.value)
        return Dual(value, 1 - value * value)

    def exp(self):
        return Dual(math.exp(self.value), math.exp(self.value))

    def log(self):
        return Dual(math.log(self.value), 1 / self.value)
""",
        ),
        Wrong(
            0,
            "multiplies the slopes of a product",
            """
class Dual:
    def __init__(self, value, slope=0.0):
        self.value, self.slope = value, slope

    def __add__(self, other):
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other):
        return Dual(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other):
        return Dual(self.value * other.value, self.slope * other.slope)

    def tanh(self):
        value = math.tanh(self.value)
        return Dual(value, (1 - value * value) * self.slope)

    def exp(self):
        return Dual(math.exp(self.value), math.exp(self.value) * self.slope)

    def log(self):
        return Dual(math.log(self.value), self.slope / self.value)
""",
        ),
    ],
    "ex-l3-rmsnorm": [
        Wrong(
            1,
            "forgets to divide by r",
            """
def rmsnorm_backward(x, y_bar):
    y = x / x.square().mean().sqrt()
    return y_bar - (y_bar * y).mean() * y
""",
        ),
        Wrong(
            0,
            "takes r for a constant",
            """
def rmsnorm_backward(x, y_bar):
    return y_bar / x.square().mean().sqrt()
""",
        ),
        Wrong(
            0,
            "loses the number of entries",
            """
def rmsnorm_backward(x, y_bar):
    r = x.square().mean().sqrt()
    y = x / r
    return (y_bar - (y_bar * y).sum() * y) / r
""",
        ),
    ],
    "ex-l3-overwrite": [
        Wrong(
            1,
            "names what is used twice and forgets what stands before it",
            """
def suspects(sources):
    uses = [place for places in sources for place in places]
    return sorted({place for place in uses if uses.count(place) > 1})
""",
        ),
        Wrong(
            1,
            "counts a square as one use",
            """
def suspects(sources):
    uses = [0] * len(sources)
    for places in sources:
        for place in set(places):
            uses[place] += 1
    wrong = [count > 1 for count in uses]
    for i in reversed(range(len(sources))):
        for place in sources[i]:
            wrong[place] = wrong[place] or wrong[i]
    return [i for i, is_wrong in enumerate(wrong) if is_wrong]
""",
        ),
        Wrong(
            0,
            "spreads the mistake forward",
            """
def suspects(sources):
    uses = [place for places in sources for place in places]
    wrong = {place for place in uses if uses.count(place) > 1}
    for i, places in enumerate(sources):
        if wrong & set(places):
            wrong.add(i)
    return sorted(wrong)
""",
        ),
    ],
    "ex-l3-epoch": [
        Wrong(
            1,
            "with replacement, it only reshuffles for every batch",
            """
def epoch_sum(v, parts, replacement, generator):
    n = len(v)
    B = n // parts
    order = torch.randperm(n, generator=generator)
    total = 0
    for part in range(parts):
        if replacement:
            picks = torch.randperm(n, generator=generator)[:B]
        else:
            picks = order[part * B : (part + 1) * B]
        total = total + v[picks].mean(dim=0)
    return total
""",
        ),
        Wrong(
            0,
            "draws a new order for every batch, so that batches overlap",
            """
def epoch_sum(v, parts, replacement, generator):
    n = len(v)
    total = 0
    for _ in range(parts):
        if replacement:
            picks = torch.randint(n, (n // parts,), generator=generator)
        else:
            picks = torch.randperm(n, generator=generator)[: n // parts]
        total = total + v[picks].mean(dim=0)
    return total
""",
        ),
        Wrong(
            0,
            "returns the mean of the means",
            """
def epoch_sum(v, parts, replacement, generator):
    n = len(v)
    draw = torch.randint(n, (n,), generator=generator)
    picks = draw if replacement else torch.randperm(n, generator=generator)
    return v[picks].mean(dim=0)
""",
        ),
    ],
}
