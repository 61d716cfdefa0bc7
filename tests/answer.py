"""A wrong answer to an exercise, as the files of ``tests/answers/`` list them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """An answer that many give: what is wrong with it, and what it still earns."""

    points: int
    why: str
    code: str
