"""Wrong answers to the exercises of Step 3."""

from answers import Wrong

WRONG = {
    "ex-step3-mirror": [
        Wrong(
            1,
            "turns each embedding around as well",
            """
class MirroredMLP(CharMLP):
    def forward(self, idx, targets=None):
        x = self.embed(idx).flatten(start_dim=1).flip(1)
        logits = self.head(torch.tanh(self.hidden(x)))
        return logits, None if targets is None else F.cross_entropy(logits, targets)
""",
        ),
        Wrong(
            1,
            "loses the targets",
            """
class MirroredMLP(CharMLP):
    def forward(self, idx, targets=None):
        return super().forward(idx.flip(1))
""",
        ),
        Wrong(
            0,
            "flips the batch",
            """
class MirroredMLP(CharMLP):
    def forward(self, idx, targets=None):
        return super().forward(idx.flip(0), targets)
""",
        ),
    ],
    "ex-step3-two": [
        Wrong(
            0,
            "lets every row be its own neighbour",
            """
def same_kind(table, kinds):
    nearest = torch.cdist(table, table).argmin(dim=1).tolist()
    return sum(a == kinds[j] for a, j in zip(kinds, nearest)) / len(kinds)
""",
        ),
        Wrong(
            1,
            "takes the largest inner product for the smallest distance",
            """
def same_kind(table, kinds):
    near = (table @ table.T).fill_diagonal_(-math.inf).argmax(dim=1).tolist()
    return sum(a == kinds[j] for a, j in zip(kinds, near)) / len(kinds)
""",
        ),
        Wrong(
            1,
            "leaves out distances of zero",
            """
def same_kind(table, kinds):
    apart = (table[:, None] - table[None]).norm(dim=-1)
    apart = apart.masked_fill(apart == 0, math.inf)
    near = apart.argmin(dim=1).tolist()
    return sum(a == kinds[j] for a, j in zip(kinds, near)) / len(kinds)
""",
        ),
    ],
    "ex-step3-places": [
        Wrong(
            1,
            "reads an id that is too large from the next place's table",
            """
class PlacedMLP(CharMLP):
    def __init__(self, V, k, e, hidden):
        super().__init__(V, k, e, hidden)
        self.embed = nn.Embedding(k * V, e)

    def forward(self, idx, targets=None):
        shift = self.head.out_features * torch.arange(self.k)
        return super().forward(idx + shift, targets)
""",
        ),
        Wrong(
            1,
            "adds the place and not V times the place",
            """
class PlacedMLP(CharMLP):
    def __init__(self, V, k, e, hidden):
        super().__init__(V, k, e, hidden)
        self.embed = nn.Embedding(k * V, e)

    def forward(self, idx, targets=None):
        if idx.min() < 0 or idx.max() >= self.head.out_features:
            raise ValueError("ids are out of range")
        return super().forward(idx + torch.arange(self.k), targets)
""",
        ),
        Wrong(
            0,
            "gives all places the first table",
            """
class PlacedMLP(CharMLP):
    def __init__(self, V, k, e, hidden):
        super().__init__(V, k, e, hidden)
        self.embed = nn.Embedding(k * V, e)
""",
        ),
    ],
    "ex-step3-rescue": [
        Wrong(
            1,
            "counts one end of tanh only",
            """
@torch.no_grad()
def saturated_share(model, contexts):
    a = torch.tanh(model.hidden(model.embed(contexts).flatten(1)))
    return (a > 0.97).float().mean().item()
""",
        ),
        Wrong(
            1,
            "puts the limit before tanh",
            """
@torch.no_grad()
def saturated_share(model, contexts):
    z = model.hidden(model.embed(contexts).flatten(1))
    return (z.abs() > 0.97).float().mean().item()
""",
        ),
        Wrong(
            1,
            "counts the units that are saturated for every context",
            """
@torch.no_grad()
def saturated_share(model, contexts):
    a = torch.tanh(model.hidden(model.embed(contexts).flatten(1)))
    return (a.abs() > 0.97).all(dim=0).float().mean().item()
""",
        ),
    ],
    "ex-step3-budget": [
        Wrong(
            1,
            "never hands on the size of the batch",
            """
def spend(model, ids, budget, batch_size, peak, generator):
    return train_mlp(model, ids, falling_rates(peak, budget // batch_size), generator)
""",
        ),
        Wrong(
            1,
            "rounds the number of steps up",
            """
def spend(model, ids, budget, batch_size, peak, generator):
    rates = falling_rates(peak, math.ceil(budget / batch_size))
    return train_mlp(model, ids, rates, generator, batch_size)
""",
        ),
        Wrong(
            0,
            "keeps the rate constant",
            """
def spend(model, ids, budget, batch_size, peak, generator):
    rates = [peak] * (budget // batch_size)
    return train_mlp(model, ids, rates, generator, batch_size)
""",
        ),
    ],
}
