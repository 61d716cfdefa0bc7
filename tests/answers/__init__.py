"""Wrong answers to the exercises: what people really write, and what it must get.

Each module here is named after a page and holds ``WRONG``: for the label of each
exercise that is answered in code, its typical wrong answers.
"""

from typing import NamedTuple


class Wrong(NamedTuple):
    """A wrong answer: the points that it must get, what is wrong, and the code."""

    points: int
    why: str
    code: str
