"""Typical wrong answers to the exercises, each with the points that it must get."""

from typing import NamedTuple


class Wrong(NamedTuple):
    points: int
    why: str
    code: str
