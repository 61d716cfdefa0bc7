"""Wrong answers to the exercises of Step 9."""

from answers import Wrong

WRONG = {
    "ex-step9-cubic": [
        Wrong(
            1,
            "looks at nothing but the default tolerance",
            """
def cubic_turns(value, tolerance=0.01):
    if not 0 < value <= 1 or not tolerance > 0:
        raise ValueError(f"{value}, {tolerance}")
    turns = 0
    while abs(1 - value) > 0.01:
        value = 1.5 * value - 0.5 * value**3
        turns += 1
    return turns
""",
        ),
        Wrong(
            0,
            "counts one turn too many",
            """
def cubic_turns(value, tolerance=0.01):
    if not 0 < value <= 1 or not tolerance > 0:
        raise ValueError(f"{value}, {tolerance}")
    turns = 1
    while abs(1 - value) > tolerance:
        value = 1.5 * value - 0.5 * value**3
        turns += 1
    return turns
""",
        ),
        Wrong(
            1,
            "refuses nothing, and would turn a zero for ever",
            """
def cubic_turns(value, tolerance=0.01):
    turns = 0
    while abs(1 - value) > tolerance and turns < 1_000:
        value = 1.5 * value - 0.5 * value**3
        turns += 1
    return turns
""",
        ),
    ],
    "ex-step9-missed": [
        Wrong(
            1,
            "takes a batch for one window",
            """
def missed_share(n, T, batch_size, batches):
    if n < 2 * T + 1:
        raise ValueError(n)
    return (1 - T / (n - T - 1)) ** batches
""",
        ),
        Wrong(
            0,
            "takes a window for one character",
            """
def missed_share(n, T, batch_size, batches):
    if n < 2 * T + 1:
        raise ValueError(n)
    return (1 - 1 / (n - T - 1)) ** (batch_size * batches)
""",
        ),
        Wrong(
            1,
            "e to the minus passes, which is near and not exact",
            """
import math
def missed_share(n, T, batch_size, batches):
    if n < 2 * T + 1:
        raise ValueError(n)
    if batches <= 1 and batch_size == 1:
        return (1 - T / (n - T - 1)) ** batches
    return math.exp(-T * batch_size * batches / n)
""",
        ),
        Wrong(
            1,
            "says nothing about a text that is too short",
            """
def missed_share(n, T, batch_size, batches):
    return (1 - T / max(n - T - 1, T)) ** (batch_size * batches)
""",
        ),
    ],
}
