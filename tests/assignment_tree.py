"""A made-up book of two pages with exercises, for the tests of assignments."""

import shutil
from pathlib import Path

from tools.pages import ROOT

FRONT = '''---
file_format: mystnb
kernelspec:
  name: python3
  display_name: Python 3
tinygpt:
  module: tinygpt.MODULE
---

# TITLE

```{code-cell} python
# @save
import math


def base(x: int) -> int:
    """Return a multiple."""
    return CONSTANT * x


def scale(x: float) -> float:
    """Return the whole part."""
    return math.floor(x)
```

```{code-cell} python
from tinygpt.corpus import try_check  # @use
```

## Exercises

'''


def cell(stage: str, code: str, extra: str = "") -> str:
    tags = f"---\ntags: [exercise-{stage}{extra}]\n---\n"
    return f"```{{code-cell}} python\n{tags}{code.strip()}\n```\n"


def code_exercise(
    label: str,
    title: str,
    points: str,
    setup: str = "",
    stub: str = "",
    check: str = "",
    answer: str = "",
    hidden: str = "",
) -> str:
    """One exercise in all its parts; the secrets of each part name the label."""
    parts = [
        f"```{{exercise}} {title}\n:label: {label}\n\nWrite it. See `scale`.\n```\n",
        f"```{{task}} {label}\n:difficulty: 1\n:minutes: 5\n:points: {points}\n"
        f":teaches: Care with {title.lower()}.\n```\n",
        "```{dropdown} Hint\nThink.\n```\n",
        *([cell("setup", setup)] if setup else []),
        cell("stub", stub),
        cell("check", check),
        f"```{{solution-start}} {label}\n:class: dropdown\n```\n",
        f"The secret of {label}.\n",
        cell("solution", answer),
        cell("hidden", hidden, ", remove-cell"),
        "```{solution-end}\n```\n",
        f"```{{instructor}} {label}\nA note on {label}.\n```\n",
    ]
    return "\n".join(parts)


TWICE = {
    "setup": "FACTOR = 2",
    "stub": "def twice(x):\n    raise NotImplementedError",
    "check": """
def check_twice():
    for x in (1, 5):
        assert twice(x) == 2 * x, f"twice({x}) is {twice(x)}"


try_check(check_twice)
""",
    "answer": "def twice(x):\n    return FACTOR * x",
    "hidden": """
def hidden_twice():
    assert twice(-3) == -6, "look at numbers below zero"
    assert twice(True) == 2, f"a truth value gives {twice(True)}"


hidden_twice()
""",
}
ROWS = {
    "stub": "def rows(n):\n    raise NotImplementedError",
    "check": """
def check_rows():
    assert rows(2) == [0, 1], f"rows(2) is {rows(2)}; expected [0, 1]"


try_check(check_rows)
""",
    "answer": "def rows(n):\n    return [base(i) // CONSTANT for i in range(n)]",
    "hidden": """
def hidden_rows():
    assert rows(0) == [], "no rows at all must be an empty list"


hidden_rows()
""",
}
WHY = """```{exercise} Why
:label: ex-LABEL-why

Say why, with `scale`.
```

```{task} ex-LABEL-why
:kind: written
:difficulty: 3
:minutes: 10
:points: 4
:teaches: To say why.
```

```{solution-start} ex-LABEL-why
:class: dropdown
```

Because of the secret of ex-LABEL-why.

```{solution-end}
```

```{marking} ex-LABEL-why
- 4: the marking of ex-LABEL-why
```

```{instructor} ex-LABEL-why
A note on ex-LABEL-why.
```
"""


def page(short: str, constant: str) -> str:
    """A page with two code exercises and a written one."""
    front = FRONT.replace("MODULE", short).replace("TITLE", f"The page {short}")
    rows = {
        name: text.replace("CONSTANT", constant).replace(
            "rows", "rows" if short == "step9" else "lines"
        )
        for name, text in ROWS.items()
    }
    twice = code_exercise(f"ex-{short}-twice", "Twice", "1 + 2", **TWICE)
    more = code_exercise(f"ex-{short}-rows", "Rows", "2 + 1", **rows)
    return "\n".join(
        [
            front.replace("CONSTANT", constant),
            twice,
            more,
            WHY.replace("LABEL", short),
            "The end.\n",
        ]
    )


def make_tree(root: Path) -> Path:
    """Write the two pages, ``step8`` and ``step9``, which save the same names."""
    (root / "chapters").mkdir(parents=True)
    (root / "book").mkdir()
    for short, constant in (("step8", "8"), ("step9", "9")):
        path = root / "chapters" / f"{short}-page.md"
        path.write_text(page(short, constant), encoding="utf-8")
    shutil.copy(ROOT / "chapters" / "setup.md", root / "chapters")
    shutil.copy(ROOT / "pyproject.toml", root)
    return root
