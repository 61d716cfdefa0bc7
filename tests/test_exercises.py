"""Exercises: one source, read strictly, and what each edition gets to see of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpt.corpus import try_check
from tools.exercises import blocks, edition_text, names_of, read_exercises
from tools.pages import PageError, read_page

FRONT = """---
file_format: mystnb
kernelspec:
  name: python3
  display_name: Python 3
tinygpt:
  module: tinygpt.example
---

# A page

```{code-cell} python
# @save
import math


def base(x: int) -> int:
    return x
```

"""


def cell(stage: str, code: str, extra: str = "") -> str:
    tags = f"---\ntags: [exercise-{stage}{extra}]\n---\n"
    return f"```{{code-cell}} python\n{tags}{code}\n```\n"


PARTS = {
    "exercise": "```{exercise} Twice\n:label: ex-twice\n\nWrite `twice`.\n```\n",
    "task": "```{task} ex-twice\n:difficulty: 1\n:minutes: 5\n:points: 1 + 2\n"
    ":teaches: Adding a number to itself.\n```\n",
    "hint": "```{dropdown} Hint\nAdd.\n```\n",
    "stub": cell("stub", "def twice(x):\n    raise NotImplementedError"),
    "check": cell("check", 'def check_twice():\n    assert twice(1) == 2, "one"'),
    "start": "```{solution-start} ex-twice\n:class: dropdown\n```\n",
    "words": "The secret is to add.\n",
    "solution": cell(
        "solution", "def twice(x):\n    return base(x) + x\n\n\ntwice(math.e)"
    ),
    "hidden": cell("hidden", 'assert twice(3) == 6, "a trap"', ", remove-cell"),
    "end": "```{solution-end}\n```\n",
    "instructor": "```{instructor} ex-twice\nMany multiply by three.\n```\n",
}
WRITTEN = {
    "exercise": "```{exercise} Why\n:label: ex-why\n\nSay why.\n```\n",
    "task": "```{task} ex-why\n:kind: written\n:difficulty: 3\n:minutes: 10\n"
    ":points: 4\n:teaches: To say why.\n```\n",
    "start": "```{solution-start} ex-why\n:class: dropdown\n```\n",
    "words": "Because.\n",
    "end": "```{solution-end}\n```\n",
    "marking": "```{marking} ex-why\n- 4: because\n```\n",
    "instructor": "```{instructor} ex-why\nAsk again.\n```\n",
}


def text_of(parts, front: str = FRONT) -> str:
    return front + "\n".join(parts) + "\nThe end.\n"


def exercises_of(tmp_path, text: str):
    path = tmp_path / "step9-page.md"
    path.write_text(text, encoding="utf-8")
    return read_exercises(read_page(path))


def test_an_exercise_is_read_with_all_its_parts(tmp_path):
    found = exercises_of(tmp_path, text_of([*PARTS.values(), *WRITTEN.values()]))
    first, second = found
    assert (first.label, first.title, first.number) == ("ex-twice", "Twice", 1)
    assert (first.difficulty, first.minutes, first.points) == (1, 5, (1, 2))
    assert first.teaches == "Adding a number to itself."
    assert (first.statement, first.hint) == ("Write `twice`.", "Add.")
    assert first.stub == ["def twice(x):\n    raise NotImplementedError"]
    assert first.hidden == ['assert twice(3) == 6, "a trap"']
    assert first.solution_text == "The secret is to add."
    assert first.instructor == "Many multiply by three."
    assert (second.kind, second.points, second.marking) == (
        "written",
        (4, 0),
        "- 4: because",
    )


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("task", "no difficulty"),
        ("stub", "no stub"),
        ("check", "no check"),
        ("solution", "no solution"),
        ("hidden", "no hidden"),
        ("words", "no solution text"),
        ("instructor", "no instructor"),
    ],
)
def test_an_exercise_without_a_part_is_refused_by_name(tmp_path, part, message):
    parts = [text for name, text in PARTS.items() if name != part]
    with pytest.raises(
        PageError, match=rf"step9-page\.md, line 21 \(ex-twice\).*{message}"
    ):
        exercises_of(tmp_path, text_of(parts))


@pytest.mark.parametrize("part", ["marking", "words", "instructor"])
def test_a_written_exercise_needs_its_parts_too(tmp_path, part):
    parts = [text for name, text in WRITTEN.items() if name != part]
    with pytest.raises(PageError, match="ex-why"):
        exercises_of(tmp_path, text_of(parts))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":difficulty: 1", ":difficulty: 4", "difficulty is '4'; expected .* 1 to 3"),
        (":minutes: 5", ":minutes: soon", "minutes is 'soon'"),
        (":points: 1 + 2", ":points: 3", "points is '3'; expected the form '1 \\+ 2'"),
        (":teaches: Adding", ":teach: Adding", r"unknown options \['teach'\]"),
        ("{task} ex-twice", "{task} ex-once", "names 'ex-once'"),
        ("exercise-hidden", "exercise-hiden", "unknown tag exercise-hiden"),
        ("base(x) + x", "other(x) + x", "its solution uses other"),
        ('"a trap"', "trap", "its hidden uses trap"),
        (":label: ex-twice", "", "needs a label"),
    ],
)
def test_a_slip_in_the_source_is_named(tmp_path, old, new, message):
    text = text_of(PARTS.values())
    assert old in text
    message = message.replace("1 \\+ 2", "1 \\+ 3")
    with pytest.raises(PageError, match=message):
        exercises_of(tmp_path, text.replace(old, new, 1))


def test_only_the_first_cell_of_a_solution_has_to_stand_alone(tmp_path):
    shown = cell("solution", "print(a_variable_of_the_page)")
    parts = {**PARTS, "solution": PARTS["solution"] + "\n" + shown}
    (exercise,) = exercises_of(tmp_path, text_of(parts.values()))
    assert len(exercise.solution) == 2


SECRETS = {
    "reader": ("a trap", "Many multiply by three", "4: because", "Ask again"),
    "student": ("The secret is to add", "base(x) + x", "Because."),
}
SHOWN = (
    "Write `twice`",
    "raise NotImplementedError",
    "check_twice",
    "Hint",
    "The end.",
)


@pytest.mark.parametrize("keep_lines", [False, True])
def test_each_edition_lacks_what_is_not_for_it_and_has_the_rest(keep_lines):
    text = text_of([*PARTS.values(), *WRITTEN.values()])
    reader = edition_text(text, "reader", keep_lines)
    student = edition_text(text, "student", keep_lines)
    for secret in SECRETS["reader"]:
        assert secret in text
        assert secret not in reader
        assert secret not in student
    for secret in SECRETS["student"]:
        assert secret in reader
        assert secret not in student
    for shown in SHOWN:
        assert shown in reader
        assert shown in student


def test_lines_can_keep_their_places():
    text = text_of(PARTS.values())
    student = edition_text(text, "student", keep_lines=True).split("\n")
    assert len(student) == len(text.split("\n"))
    assert student.index("The end.") == text.split("\n").index("The end.")


def test_what_stays_is_not_changed_and_no_hole_is_left():
    text = text_of(PARTS.values())
    student = edition_text(text, "student")
    assert student.startswith(FRONT)
    assert student.endswith("\n\nThe end.\n")
    assert "\n\n\n```" not in student
    assert "def check_twice" in student


@given(st.lists(st.sampled_from(["A line.", "", "- item", "    code", "> quote"])))
def test_a_page_without_exercises_is_the_same_in_every_edition(lines):
    text = FRONT + "\n".join(lines)
    assert edition_text(text, "reader") == text
    assert edition_text(text, "student") == text


def test_blocks_are_those_of_the_top_level_only():
    text = "````{note}\n```{exercise} Inner\n```\n````\n\n```python\n```\n"
    assert [block.name for block in blocks(text)] == ["note"]


@pytest.mark.parametrize(
    ("source", "bound", "taken"),
    [
        ("x = a + 1", {"x"}, {"a"}),
        ("def f(x):\n    return g(x) + y", {"f"}, {"g", "y"}),
        ("import os.path as p\nprint(p, len(q))", {"p"}, {"q"}),
        (
            "class A(B):\n    z = 1\n    def m(self):\n        return self.z",
            {"A"},
            {"B"},
        ),
        ("r = [i * k for i in range(3)]", {"r"}, {"k"}),
        ("def f() -> T: ...", {"f"}, {"T"}),
    ],
)
def test_names_that_a_cell_binds_and_takes(source, bound, taken):
    defined, used = names_of(source)
    assert bound <= defined
    assert used - defined == taken


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "it: passed.\n"),
        (NotImplementedError(), "it: not yet. The function is still to be written.\n"),
        (AssertionError("look here"), "it: not yet. look here\n"),
        (KeyError("k"), "it: not yet. It stopped with KeyError: 'k'\n"),
    ],
)
def test_a_check_answers_in_words(capsys, error, said):
    def check_it():
        if error is not None:
            raise error

    try_check(check_it)
    assert capsys.readouterr().out == said


def test_the_tag_of_a_hidden_check_keeps_it_out_of_notebooks():
    from tools.notebooks import built_notebooks
    from tools.pages import ROOT

    (built,) = built_notebooks(ROOT, ["step5-gpt"])
    text = "\n".join(c.source for c in built.node.cells)
    assert "hidden_" not in text
    assert not re.search(r"\{(task|instructor|marking)\}", text)
