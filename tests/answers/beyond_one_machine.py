"""Wrong answers to the exercises of the page on training beyond one machine."""

from answers import Wrong

WRONG = {
    "ex-dist-ring": [
        Wrong(
            0,
            "adds in the second half too",
            """
def ring_all_reduce(rows):
    n = len(rows)
    rows, sent = [list(row) for row in rows], [0] * n
    for k in range(2 * (n - 1)):
        messages = [rows[r][(r - k) % n] for r in range(n)]
        for r, number in enumerate(messages):
            rows[(r + 1) % n][(r - k) % n] += number
            sent[r] += 1
    return rows, sent
""",
        ),
        Wrong(
            1,
            "every rank sends its whole row to all others",
            """
def ring_all_reduce(rows):
    n = len(rows)
    total = [sum(column) for column in zip(*rows)]
    return [list(total) for _ in rows], [n * (n - 1)] * n
""",
        ),
        Wrong(
            1,
            "changes the argument",
            """
def ring_all_reduce(rows):
    n, sent = len(rows), [0] * len(rows)
    for k in range(2 * (n - 1)):
        messages = [rows[r][(r - k) % n] for r in range(n)]
        for r, number in enumerate(messages):
            old = rows[(r + 1) % n][(r - k) % n]
            rows[(r + 1) % n][(r - k) % n] = number + (old if k < n - 1 else 0)
            sent[r] += 1
    return rows, sent
""",
        ),
    ],
    "ex-dist-most": [
        Wrong(
            0,
            "every GPU gets the whole batch",
            """
def most_gpus(N, tokens, cluster):
    n = 1
    while n < tokens and talk_seconds(n + 1, N, cluster) <= compute_seconds(
        N, tokens, cluster
    ):
        n += 1
    return n
""",
        ),
        Wrong(
            1,
            "tries powers of two only",
            """
def most_gpus(N, tokens, cluster):
    n = 1
    while 2 * n <= tokens and talk_seconds(2 * n, N, cluster) <= compute_seconds(
        N, tokens / (2 * n), cluster
    ):
        n *= 2
    return n
""",
        ),
        Wrong(
            1,
            "the number of tokens is no limit",
            """
def most_gpus(N, tokens, cluster):
    n = 1
    while talk_seconds(n + 1, N, cluster) <= compute_seconds(
        N, tokens / (n + 1), cluster
    ) and n < 10_000:
        n += 1
    return n
""",
        ),
    ],
}
