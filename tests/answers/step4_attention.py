"""Wrong answers to the exercises of Step 4."""

from answers import Wrong

WRONG = {
    "ex-step4-residual": [
        Wrong(
            1,
            "never returns a loss",
            """
class AroundHeadModel(OneHeadModel):
    def forward(self, idx, targets=None):
        x = self.embed(idx)
        return self.readout(x + self.attention(x)), None
""",
        ),
        Wrong(
            1,
            "keeps the loss of the parent class, and any width of the head",
            """
class AroundHeadModel(OneHeadModel):
    def forward(self, idx, targets=None):
        _, loss = super().forward(idx, targets)
        x = self.embed(idx)
        return self.readout(x + self.attention(x)), loss
""",
        ),
        Wrong(
            1,
            "does not refuse a width of 1, which is broadcast",
            """
class AroundHeadModel(OneHeadModel):
    def forward(self, idx, targets=None):
        x = self.embed(idx)
        logits = self.readout(x + self.attention(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
""",
        ),
        Wrong(
            0,
            "adds the row of the token without that of the position",
            """
class AroundHeadModel(OneHeadModel):
    def forward(self, idx, targets=None):
        x = self.embed(idx)
        logits = self.readout(self.tok(idx) + self.attention(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
""",
        ),
    ],
    "ex-step4-width": [
        Wrong(
            1,
            "lets the last matrix read the stream's width",
            """
def one_head_count(V, T, d, dh):
    return (V + T) * d + 3 * d * dh + (d + 1) * V
""",
        ),
        Wrong(
            0,
            "gives query, key and value an offset",
            """
def one_head_count(V, T, d, dh):
    return (V + T) * d + 3 * (d + 1) * dh + (dh + 1) * V
""",
        ),
        Wrong(
            0,
            "returns the number of the page",
            """
def one_head_count(V, T, d, dh):
    return 22_721
""",
        ),
    ],
    "ex-step4-scale": [
        Wrong(
            1,
            "takes the width of the stream",
            """
class PowerHead(CausalHead):
    def __init__(self, d, dh, T, power):
        super().__init__(d, dh, T)
        self.divisor = d**power

    def weights(self, x):
        n = x.shape[-2]
        scores = self.query(x) / self.divisor @ self.key(x).mT
        return scores.masked_fill(self.mask[:n, :n], -math.inf).softmax(dim=-1)
""",
        ),
        Wrong(
            0,
            "divides by the power on top of the square root",
            """
class PowerHead(CausalHead):
    def __init__(self, d, dh, T, power):
        super().__init__(d, dh, T)
        self.factor = dh**-power

    def weights(self, x):
        n = x.shape[-2]
        scores = self.query(x) / math.sqrt(self.key.out_features) @ self.key(x).mT
        scores = scores * self.factor
        return scores.masked_fill(self.mask[:n, :n], -math.inf).softmax(dim=-1)
""",
        ),
        Wrong(
            1,
            "hides nothing in a shorter input: the mask is cut from the wrong end",
            """
class PowerHead(CausalHead):
    def __init__(self, d, dh, T, power):
        super().__init__(d, dh, T)
        self.divisor = dh**power

    def weights(self, x):
        n = x.shape[-2]
        scores = self.query(x) / self.divisor @ self.key(x).mT
        return scores.masked_fill(self.mask[:n, -n:], -math.inf).softmax(dim=-1)
""",
        ),
    ],
    "ex-step4-finite": [
        Wrong(
            1,
            "adds the number to the score",
            """
class FiniteHead(CausalHead):
    def __init__(self, d, dh, T, value):
        super().__init__(d, dh, T)
        self.instead = value

    def weights(self, x):
        n = x.shape[-2]
        scores = self.query(x) / math.sqrt(self.key.out_features) @ self.key(x).mT
        return (scores + self.instead * self.mask[:n, :n]).softmax(dim=-1)
""",
        ),
        Wrong(
            1,
            "ignores the number",
            """
class FiniteHead(CausalHead):
    def __init__(self, d, dh, T, value):
        super().__init__(d, dh, T)
""",
        ),
        Wrong(
            0,
            "hides the weights after the softmax",
            """
class FiniteHead(CausalHead):
    def __init__(self, d, dh, T, value):
        super().__init__(d, dh, T)
        self.instead = value

    def weights(self, x):
        n = x.shape[-2]
        scores = self.query(x) / math.sqrt(self.key.out_features) @ self.key(x).mT
        return scores.softmax(dim=-1).masked_fill(self.mask[:n, :n], self.instead)
""",
        ),
    ],
    "ex-step4-argmax": [
        Wrong(
            1,
            "hides a derivative from autograd with detach",
            """
def peek(x):
    return x + F.pad(x[:, 1:], (0, 0, 0, 1)).detach()
""",
        ),
        Wrong(
            0,
            "looks at its own vector only",
            """
def peek(x):
    return x + x.argmax(dim=-1, keepdim=True)
""",
        ),
        Wrong(
            0,
            "leaks with a gradient",
            """
def peek(x):
    return x + F.pad(x[:, 1:], (0, 0, 0, 1))
""",
        ),
        Wrong(
            0,
            "has no path back",
            """
def peek(x):
    return F.pad((x[:, 1:] > 0).to(x.dtype), (0, 0, 0, 1))
""",
        ),
    ],
}
