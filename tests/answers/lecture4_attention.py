"""Wrong answers to the exercises of Lecture 4."""

from answers import Wrong

WRONG = {
    "ex-l4-long": [
        Wrong(
            0,
            "forgets the lengths of the keys",
            """
def weights_by_distance(q, k, beta):
    return (-beta / 2 * torch.cdist(q, k).square()).softmax(dim=-1)
""",
        ),
        Wrong(
            1,
            "multiplies exponentials, of which one is zero and the other infinite",
            """
def weights_by_distance(q, k, beta):
    bell = (-beta / 2 * torch.cdist(q, k).square()).exp()
    weights = bell * (beta / 2 * k.square().sum(dim=-1)).exp()
    return weights / weights.sum(dim=-1, keepdim=True)
""",
        ),
        Wrong(
            0,
            "normalises over the queries",
            """
def weights_by_distance(q, k, beta):
    bonus = k.square().sum(dim=-1)
    return (beta / 2 * (bonus - torch.cdist(q, k).square())).softmax(dim=0)
""",
        ),
    ],
    "ex-l4-count": [
        Wrong(
            1,
            "computes the count first and puts it into the value",
            """
def counting(marks):
    n = len(marks) + 1
    return torch.zeros(n), torch.full(
        (n,), 1 / (1 + int(marks.sum())), dtype=torch.float64
    )
""",
        ),
        Wrong(
            1,
            "puts the special position at the end",
            """
def counting(marks):
    hidden = torch.cat([~marks, torch.zeros(1, dtype=torch.bool)])
    values = torch.zeros(len(hidden))
    values[-1] = 1.0
    return torch.zeros(len(hidden)).masked_fill(hidden, -math.inf), values
""",
        ),
        Wrong(
            0,
            "lets the other letters share the weight",
            """
def counting(marks):
    values = torch.zeros(len(marks) + 1)
    values[0] = 1.0
    return torch.zeros(len(marks) + 1), values
""",
        ),
    ],
    "ex-l4-bound": [
        Wrong(
            1,
            "takes one minus the weight as a difference",
            """
def stretch_of_two(g):
    a = g.sigmoid()
    return 2 * a * (1 - a)
""",
        ),
        Wrong(
            0,
            "gives the entry of the matrix for its eigenvalue",
            """
def stretch_of_two(g):
    return g.sigmoid() * (-g).sigmoid()
""",
        ),
        Wrong(
            0,
            "returns the bound",
            """
def stretch_of_two(g):
    return 2 * (-g.abs()).sigmoid()
""",
        ),
    ],
    "ex-l4-reverse": [
        Wrong(
            0,
            "hides the position itself too",
            """
def looks_ahead(X, W_Q, W_K, W_V):
    scores = (X @ W_Q) @ (X @ W_K).T / math.sqrt(W_Q.shape[1])
    past = torch.ones_like(scores, dtype=torch.bool).tril()
    return scores.masked_fill(past, -math.inf).softmax(dim=-1) @ (X @ W_V)
""",
        ),
        Wrong(
            1,
            "sets zeros after the softmax and renormalises",
            """
def looks_ahead(X, W_Q, W_K, W_V):
    A = ((X @ W_Q) @ (X @ W_K).T / math.sqrt(W_Q.shape[1])).softmax(dim=-1).triu()
    return A / A.sum(dim=-1, keepdim=True) @ (X @ W_V)
""",
        ),
        Wrong(
            1,
            "divides by the square root of the stream's width",
            """
def looks_ahead(X, W_Q, W_K, W_V):
    scores = (X @ W_Q) @ (X @ W_K).T / math.sqrt(X.shape[1])
    past = torch.ones_like(scores, dtype=torch.bool).tril(-1)
    return scores.masked_fill(past, -math.inf).softmax(dim=-1) @ (X @ W_V)
""",
        ),
        Wrong(
            0,
            "hides the future, as always",
            """
def looks_ahead(X, W_Q, W_K, W_V):
    scores = (X @ W_Q) @ (X @ W_K).T / math.sqrt(W_Q.shape[1])
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(dim=-1) @ (X @ W_V)
""",
        ),
    ],
}
