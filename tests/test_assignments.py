"""Assignments: what students get, what is kept from them, and what answers earn."""

import ast
import contextlib
import copy
import csv
import importlib
import io
import random
import re

import nbformat
import pytest
from answers import Wrong
from assignment_tree import make_tree

from tools import assignments
from tools.assignments import (
    Outcome,
    checks_of,
    key_notebook,
    pages_with_exercises,
    pick,
    run_exercise,
    setup_code,
    setup_namespace,
    source_notebook,
    write,
)
from tools.exercises import read_exercises
from tools.markdown import Library
from tools.notebooks import serialise, third_party
from tools.pages import ROOT, PageError, read_page
from tools.submissions import without_hidden

REFERENCE = {
    "ex-step9-twice": "def twice(x):\n    return FACTOR * x",
    "ex-step9-rows": "def rows(n):\n    return list(range(n))",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(make_tree(tmp_path_factory.mktemp("book")))


def text_of(node) -> str:
    return "\n".join(cell.source for cell in node.cells)


def released(node):
    """The notebook as nbgrader releases it: without the hidden regions."""
    node = copy.deepcopy(node)
    for cell in node.cells:
        cell.source = without_hidden(cell.source)
    return node


def run(node, answers: dict[str, str] | None = None) -> str:
    """Run a notebook's code cells in one namespace, as a student does."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in node.cells:
            about = cell.metadata.tinygpt
            if cell.cell_type == "code":
                answer = about.part == "answer" and (answers or {}).get(about.exercise)
                exec(answer or cell.source, namespace)
    return printed.getvalue()


# What students get


def test_a_release_holds_no_solution_no_hidden_check_and_no_note(library):
    (sheet,) = pick(library, ["step9:all"], "one")
    text = text_of(released(source_notebook(library, sheet, "one")))
    for shown in ("Write it", "Think.", "raise NotImplementedError", "check_twice"):
        assert shown in text
    for secret in (
        "secret",
        "A note",
        "hidden_",
        "below zero",
        "FACTOR * x",
        "marking",
    ):
        assert secret not in text
    assert "HIDDEN" not in text


def test_a_release_runs_alone_and_its_checks_answer_in_words(library):
    (sheet,) = pick(library, ["step9:all"], "one")
    release = released(source_notebook(library, sheet, "one"))
    assert not re.search(r"(from|import) (tinygpt|tools)", text_of(release))
    codes = [cell.source for cell in release.cells if cell.cell_type == "code"]
    assert third_party(codes) <= set(assignments.PROVIDED)
    assert sum(cell.metadata.tinygpt.part == "set-up" for cell in release.cells) == 1
    untouched = run(release).splitlines()
    assert [line.partition(".")[0] for line in untouched] == [
        "twice: not yet",
        "rows: not yet",
    ]
    assert run(release, REFERENCE) == "twice: passed.\nrows: passed.\n"


def test_the_source_is_what_nbgrader_expects(library):
    (sheet,) = pick(library, ["step9:all"], "one")
    node = source_notebook(library, sheet, "one")
    known = [
        cell.metadata.nbgrader for cell in node.cells if "nbgrader" in cell.metadata
    ]
    ids = [about.grade_id for about in known]
    assert len(ids) == len(set(ids))
    points = {about.grade_id: about.points for about in known if about.grade}
    assert points == {
        "ex-step9-twice-check": 1,
        "ex-step9-twice-hidden": 2,
        "ex-step9-rows-check": 2,
        "ex-step9-rows-hidden": 1,
        "ex-step9-why": 4,
    }
    answers = {about.grade_id for about in known if about.solution}
    assert answers == {"ex-step9-twice", "ex-step9-rows", "ex-step9-why"}
    for cell in node.cells:
        if "nbgrader" in cell.metadata and cell.metadata.nbgrader.solution:
            assert f"{cell.metadata.tinygpt.exercise}: your answer" in cell.source


def test_the_same_pages_give_the_same_bytes(library, tmp_path):
    sheets = pick(library, ["step9:all", "step8:2"], "both")
    write(library, sheets, "both", tmp_path / "a")
    write(Library(library.root), sheets, "both", tmp_path / "b")
    files = sorted(p.relative_to(tmp_path / "a") for p in tmp_path.glob("a/**/*.*"))
    assert len(files) == 5
    for file in files:
        left, right = (tmp_path / side / file for side in "ab")
        assert left.read_bytes() == right.read_bytes()
    nodes = [source_notebook(library, sheet, "both") for sheet in sheets]
    ids = [cell.id for node in nodes for cell in node.cells]
    assert len(ids) == len(set(ids))


def test_two_pages_that_save_the_same_names_become_two_notebooks(library):
    sheets = pick(library, ["step9:2", "step8:2"], "week")
    assert [sheet.name for sheet in sheets] == ["week-step9-page", "week-step8-page"]
    sources = [text_of(source_notebook(library, sheet, "week")) for sheet in sheets]
    assert "return 9 * x" in sources[0]
    assert "return 8 * x" not in sources[0]
    assert "return 8 * x" in sources[1]


def test_names_that_the_text_mentions_are_there_too(library):
    page = library.pages["chapters/step9-page"]
    twice = read_exercises(page)[0]
    namespace = setup_namespace(library.root, page, [twice])
    assert "scale" in namespace  # no cell of the exercise uses it, its statement does
    assert "try_check" in namespace
    assert "base" not in namespace


def test_the_key_has_solutions_checks_marking_and_notes(library):
    (sheet,) = pick(library, ["step9:all"], "one")
    text = text_of(key_notebook(library, sheet, "one"))
    for part in ("The secret of ex-step9-twice", "FACTOR * x", "hidden_rows"):
        assert part in text
    for part in ("A note on ex-step9-why", "the marking of ex-step9-why", "Because"):
        assert part in text


def test_the_table_of_points_adds_up(library, tmp_path):
    place = write(library, pick(library, ["step9:1,3"], "two"), "two", tmp_path)
    rows = list(csv.DictReader((place / "points.csv").open(encoding="utf-8")))
    assert [row["exercise"] for row in rows] == ["ex-step9-twice", "ex-step9-why"]
    assert [row["kind"] for row in rows] == ["code", "written"]
    assert [row["total"] for row in rows] == ["3", "4"]


# Picking


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["step9:1,3"], [1, 3]),
        (["step9:3,1,1"], [1, 3]),
        (["step9:2-3"], [2, 3]),
        (["step9-page:all"], [1, 2, 3]),
        (["step9"], [1, 2, 3]),
        (["step9:1", "step9:2"], [1, 2]),
    ],
)
def test_exercises_are_picked_by_page_and_number(library, words, numbers):
    (sheet,) = pick(library, words, "x")
    assert [exercise.number for exercise in sheet.exercises] == numbers
    assert sheet.name == "x"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("step7:1", "no page is called 'step7'; those with exercises are step8, step9"),
        ("step9:4", "'4' is no number of an exercise there; there are 1 to 3"),
        ("step9:0", "there are 1 to 3"),
        ("step9:3-2", "'3-2' is no number"),
        ("step9:one", "'one' is no number"),
        ("setup:all", "there are none"),
    ],
)
def test_a_wrong_pick_says_what_there_is(library, word, message):
    with pytest.raises(PageError, match=re.escape(message)):
        pick(library, [word], "x")


def test_two_pages_that_would_be_called_alike_are_picked_by_their_whole_names(
    tmp_path,
):
    root = make_tree(tmp_path / "book")
    other = root / "chapters/step9-sequel.md"
    text = (root / "chapters/step9-page.md").read_text(encoding="utf-8")
    text = text.replace("ex-step9", "ex-sequel").replace(
        "tinygpt.step9", "tinygpt.more"
    )
    other.write_text(text, encoding="utf-8")
    library = Library(root)
    (sheet,) = pick(library, ["step9-sequel:2"], "x")
    assert sheet.page.stem == "step9-sequel"
    assert pick(library, ["step8:1"], "x")[0].page.stem == "step8-page"
    known = "those with exercises are step8, step9-page, step9-sequel"
    with pytest.raises(PageError, match=f"no page is called 'step9'; {known}"):
        pick(library, ["step9:1"], "x")


def test_an_assignment_with_graded_work_is_not_changed_under_it(library, tmp_path):
    place = write(library, pick(library, ["step9:1"], "one"), "one", tmp_path)
    (place / "submitted").mkdir()
    write(library, pick(library, ["step9:1"], "one"), "one", tmp_path)
    before = (place / "source/one/one.ipynb").read_bytes()
    with pytest.raises(PageError, match="choose another name"):
        write(library, pick(library, ["step9:1,2"], "one"), "one", tmp_path)
    assert (place / "source/one/one.ipynb").read_bytes() == before


# What a source must not do


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("try_check(check_twice)\n", "check_twice\n", "does not end with try_check"),
        ("twice(-3) == -6", "twice(-3) == ANSWER", "ANSWER, which only its solution"),
        ("import math", "import math\nimport yaml", "it needs 'import yaml'"),
    ],
)
def test_an_exercise_that_cannot_be_handed_out_is_named(tmp_path, old, new, message):
    root = make_tree(tmp_path / "book")
    path = root / "chapters" / "step9-page.md"
    text = path.read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new, 1)
    if "ANSWER" in new:
        text = text.replace(
            "    return FACTOR * x", "    return FACTOR * x\nANSWER = -6"
        )
    if "yaml" in new:
        text = text.replace("twice(True) == 2", "yaml and twice(True) == 2", 1)
    path.write_text(text, encoding="utf-8")
    library = Library(root)
    with pytest.raises(PageError, match=message) as caught:
        source_notebook(library, *pick(library, ["step9:1"], "x"), "x")
    assert "step9-page.md, line" in str(caught.value)
    assert "(ex-step9-twice)" in str(caught.value)


def test_the_calls_of_a_check_are_cut_off_and_nothing_else(library):
    twice = read_exercises(library.pages["chapters/step9-page"])[0]
    source, names = checks_of(twice)
    assert names == ["check_twice"]
    assert source.endswith('f"twice({x}) is {twice(x)}"')
    ast.parse(source)


# What answers earn


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("def twice(x):\n    raise NotImplementedError", (0, "NotImpl", "NotImpl")),
        ("def twice(x):\n    return FACTOR * x", (3, "", "")),
        ("def twice(x):\n    return 3 * x", (0, "twice(1) is 3", "look at numbers")),
        ("def twice(x):\n    return abs(2 * x)", (1, "", "look at numbers below zero")),
        ("def twice(x):\n    return 2 if x == 1 else 2 * x\n1 / 0", (3, "", "")),
        ("twice = 3", (0, "TypeError", "TypeError")),
        ("import sys\ndef twice(x):\n    sys.exit()", (0, "SystemExit", "SystemExit")),
        ("def twice(x:\n", (0, "NameError", "NameError")),
    ],
)
def test_points_are_for_what_holds(library, code, outcome):
    page = library.pages["chapters/step9-page"]
    twice = read_exercises(page)[0]
    namespace = setup_namespace(library.root, page, [twice])
    found = run_exercise(twice, code, namespace)
    points, *said = outcome
    assert found.points == points
    for text, expected in zip((found.visible, found.hidden), said, strict=True):
        assert text.startswith(expected) if expected else text == ""
    assert "twice" not in namespace


# Every exercise of the book


def wrong_answers(stem: str) -> dict[str, list[Wrong]]:
    """The typical wrong answers to the exercises of a page."""
    return importlib.import_module(f"answers.{stem.replace('-', '_')}").WRONG


def earned(exercise, code: str, namespace) -> Outcome:
    """What an answer earns; each answer meets the same random numbers."""
    import torch

    state = random.getstate(), torch.get_rng_state()
    try:
        return run_exercise(exercise, code, namespace)
    finally:
        random.setstate(state[0])
        torch.set_rng_state(state[1])


STEMS = [
    path.stem
    for path in sorted((ROOT / "chapters").glob("*.md"))
    if "\n```{task}" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("stem", STEMS)
def test_answers_to_the_books_exercises_earn_what_they_should(stem, monkeypatch):
    page = read_page(ROOT / "chapters" / f"{stem}.md")
    exercises = read_exercises(page)
    monkeypatch.chdir(ROOT)
    codes = [exercise for exercise in exercises if exercise.kind == "code"]
    namespace = setup_namespace(ROOT, page, exercises)
    wrong = wrong_answers(stem)
    assert set(wrong) == {exercise.label for exercise in codes}
    for exercise in codes:
        where = exercise.where
        assert earned(exercise, exercise.stub[0], namespace).points == 0, where
        right = earned(exercise, exercise.solution[0], namespace)
        assert right == Outcome(sum(exercise.points), "", ""), where
        assert len(wrong[exercise.label]) >= 2, where
        for answer in wrong[exercise.label]:
            found = earned(exercise, answer.code, namespace)
            assert found.points == answer.points, (where, answer.why, found)
            assert found.points < sum(exercise.points), (where, answer.why)


@pytest.mark.parametrize("stem", STEMS)
def test_the_books_assignments_need_nothing_that_colab_lacks(stem):
    page = read_page(ROOT / "chapters" / f"{stem}.md")
    exercises = read_exercises(page)
    code = setup_code(ROOT, page, exercises)
    assert third_party([code]) <= set(assignments.PROVIDED)
    assert "from tinygpt" not in code
    assert "import tinygpt" not in code


def test_only_pages_with_tasks_become_assignments(library):
    assert list(pages_with_exercises(library)) == [
        "chapters/step8-page",
        "chapters/step9-page",
    ]


def test_notebooks_are_valid(library):
    for sheet in pick(library, ["step9:all", "step8:all"], "all"):
        for node in (
            source_notebook(library, sheet, "all"),
            key_notebook(library, sheet, "all"),
        ):
            nbformat.validate(nbformat.reads(serialise(node), as_version=4))
