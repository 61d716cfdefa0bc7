"""Wrong answers to the exercises of Step 2."""

from answers import Wrong

WRONG = {
    "ex-step2-backwards": [
        Wrong(
            1,
            "the forward table",
            """
def backward_bits(counts):
    p = bigram_probabilities(counts)
    nats = -torch.special.xlogy(counts, p).sum() / counts.sum()
    return bits_per_character(nats.item())
""",
        ),
        Wrong(
            1,
            "an empty column is zero over zero",
            """
def backward_bits(counts):
    p = counts / counts.sum(dim=0, keepdim=True)
    nats = -torch.special.xlogy(counts, p).sum() / counts.sum()
    return bits_per_character(nats.item())
""",
        ),
        Wrong(
            1,
            "a plain mean over the columns",
            """
def backward_bits(counts):
    p = bigram_probabilities(counts.T)
    return bits_per_character(-torch.special.xlogy(p, p).sum(dim=1).mean().item())
""",
        ),
        Wrong(
            0,
            "nats in place of bits",
            """
def backward_bits(counts):
    p = bigram_probabilities(counts.T)
    return (-torch.special.xlogy(counts.T, p).sum() / counts.sum()).item()
""",
        ),
    ],
    "ex-step2-trigram": [
        Wrong(
            1,
            "the triples of the text that is paid for are counted",
            """
def trigram_bits(train, text, vocab_size, add=0.0):
    V, total = vocab_size, 0.0
    cells = (text[:-2] * V + text[1:-1]) * V + text[2:]
    n = torch.bincount(cells, minlength=V**3).view(V * V, V).double() + add
    sums = n.sum(dim=1, keepdim=True)
    p = torch.where(sums > 0, n / sums, 1 / V)
    return p[text[:-2] * V + text[1:-1], text[2:]].log2().mean().abs().item()
""",
        ),
        Wrong(
            1,
            "a pair without counts is zero over zero",
            """
def trigram_bits(train, text, vocab_size, add=0.0):
    V = vocab_size
    cells = (train[:-2] * V + train[1:-1]) * V + train[2:]
    n = torch.bincount(cells, minlength=V**3).view(V * V, V).double() + add
    p = n / n.sum(dim=1, keepdim=True)
    return p[text[:-2] * V + text[1:-1], text[2:]].log2().mean().abs().item()
""",
        ),
        Wrong(
            0,
            "the sum of a row grows by V times V in place of V",
            """
def trigram_bits(train, text, vocab_size, add=0.0):
    V = vocab_size
    cells = (train[:-2] * V + train[1:-1]) * V + train[2:]
    n = torch.bincount(cells, minlength=V**3).view(V * V, V).double()
    sums = n.sum(dim=1, keepdim=True) + add * V * V
    p = torch.where(sums > 0, (n + add) / sums, 1 / V)
    return p[text[:-2] * V + text[1:-1], text[2:]].log2().mean().abs().item()
""",
        ),
        Wrong(
            0,
            "only one of the two characters is looked at",
            """
def trigram_bits(train, text, vocab_size, add=0.0):
    p = bigram_probabilities(bigram_counts(train, vocab_size), add)
    return bigram_bits(p, text)
""",
        ),
    ],
    "ex-step2-weighted": [
        Wrong(
            1,
            "an empty row is zero over zero",
            """
def alike_gradient(logits, counts):
    return logits.softmax(dim=1) - counts / counts.sum(dim=1, keepdim=True)
""",
        ),
        Wrong(
            1,
            "divided by the shares along the wrong axis",
            """
def alike_gradient(logits, counts):
    rows = counts.sum(dim=1)
    share = (rows / rows.sum()).clamp(min=1e-12)
    by_share = (rows[:, None] * logits.softmax(dim=1) - counts) / rows.sum()
    return by_share / share
""",
        ),
        Wrong(
            1,
            "multiplied by V, as if all rows had the same share",
            """
def alike_gradient(logits, counts):
    rows = counts.sum(dim=1, keepdim=True)
    return (rows * logits.softmax(dim=1) - counts) / rows.sum() * len(counts)
""",
        ),
        Wrong(
            0,
            "the share is still in it",
            """
def alike_gradient(logits, counts):
    rows = counts.sum(dim=1, keepdim=True)
    return (rows * logits.softmax(dim=1) - counts) / rows.sum()
""",
        ),
        Wrong(
            1,
            "an empty row is taken for a uniform one",
            """
def alike_gradient(logits, counts):
    return logits.softmax(dim=1) - bigram_probabilities(counts)
""",
        ),
    ],
    "ex-step2-decay": [
        Wrong(
            1,
            "a fixed number of steps, too few for a weaker pull",
            """
def pulled_table(counts, decay):
    part = counts / counts.sum()
    share, W = part.sum(dim=1, keepdim=True), torch.zeros_like(counts)
    for _ in range(400):
        W = W - (share * W.softmax(dim=1) - part + decay * W)
    return W
""",
        ),
        Wrong(
            1,
            "an empty row is zero over zero",
            """
def pulled_table(counts, decay):
    rows = counts.sum(dim=1, keepdim=True)
    p, share, W = counts / rows, rows / rows.sum(), torch.zeros_like(counts)
    for _ in range(20_000):
        W = W - (share * (W.softmax(dim=1) - p) + decay * W)
    return W
""",
        ),
        Wrong(
            0,
            "the pull is multiplied by the share of the row",
            """
def pulled_table(counts, decay):
    part = counts / counts.sum()
    share, W = part.sum(dim=1, keepdim=True), torch.zeros_like(counts)
    for _ in range(5_000):
        W = W - (share * W.softmax(dim=1) - part + share * decay * W)
    return W
""",
        ),
        Wrong(
            0,
            "the pull is twice as strong: the half is forgotten",
            """
def pulled_table(counts, decay):
    part = counts / counts.sum()
    share, W = part.sum(dim=1, keepdim=True), torch.zeros_like(counts)
    for _ in range(5_000):
        W = W - (share * W.softmax(dim=1) - part + 2 * decay * W)
    return W
""",
        ),
        Wrong(
            0,
            "add-alpha smoothing in place of the pull",
            """
def pulled_table(counts, decay):
    return bigram_probabilities(counts, add=decay).log()
""",
        ),
    ],
    "ex-step2-adam-batch": [
        Wrong(
            1,
            "the expected number of pairs in place of the probability of one",
            """
def presence(share, batch):
    return batch * share
""",
        ),
        Wrong(
            1,
            "the expected number, cut off at 1",
            """
def presence(share, batch):
    return (batch * share).clamp(max=1)
""",
        ),
        Wrong(
            0,
            "the probability that the row is absent",
            """
def presence(share, batch):
    return (1 - share) ** batch
""",
        ),
        Wrong(
            0,
            "the probability that all pairs begin with it",
            """
def presence(share, batch):
    return share**batch
""",
        ),
    ],
}
