"""Grading: whatever is handed in gets a mark or a reason, and harms nobody."""

import csv
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import nbformat
import pytest
from assignment_tree import make_tree
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import sandbox
from tools.assignments import pick, source_notebook, write
from tools.markdown import Library
from tools.pages import ROOT
from tools.submissions import (
    Cell,
    canonical,
    read_cells,
    read_submissions,
    suspicions,
    tasks_of,
    without_hidden,
)

REQUIRED = os.environ.get("TINYGPT_REQUIRE_GRADER") == "1"
TWICE = "def twice(x):\n    return FACTOR * x"
ROWS = "def rows(n):\n    return list(range(n))"
GOOD = {"ex-step9-twice": TWICE, "ex-step9-rows": ROWS, "ex-step9-why": "So it is."}


def needs_nbgrader() -> None:
    try:
        import nbgrader  # noqa: F401
    except ImportError:
        if REQUIRED:
            raise
        pytest.skip("nbgrader is missing: run 'make instructor'")


def needs_isolation() -> None:
    if reason := sandbox.available(ROOT):
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(make_tree(tmp_path_factory.mktemp("book")))


@pytest.fixture(scope="module")
def source(library: Library) -> nbformat.NotebookNode:
    return source_notebook(library, *pick(library, ["step9:all"], "one"), "one")


def handed_in(
    source: nbformat.NotebookNode, answers: dict[str, str] | None = None
) -> list[Cell]:
    """The released notebook with these answers, keeping each answer's first line."""
    cells = []
    for cell in source.cells:
        about = cell.metadata.tinygpt
        text = without_hidden(cell.source)
        if about.part == "answer" and (answers or {}).get(about.exercise):
            text = text.split("\n", 1)[0] + "\n" + answers[about.exercise]
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        cells.append(Cell(cell.cell_type, text, grade_id))
    return cells


def answers_in(node: nbformat.NotebookNode) -> dict[str, str]:
    """The answers that a canonical notebook holds, without their first line."""
    return {
        task.label: task.stub.split("\n", 1)[1].strip()
        for task in tasks_of(node)
        if task.stub.startswith(("#", "<"))
    }


def order_of(node: nbformat.NotebookNode, label: str) -> list[str]:
    (task,) = [task for task in tasks_of(node) if task.label == label]
    return [cell.metadata.tinygpt.part for cell in task.cells]


def notebook(cells: list[Cell]) -> str:
    """The text of a notebook file with these cells."""
    node = nbformat.v4.new_notebook()
    for cell in cells:
        new = getattr(nbformat.v4, f"new_{cell.kind}_cell")(cell.source)
        if cell.grade_id:
            new.metadata.nbgrader = {"grade_id": cell.grade_id}
        node.cells.append(new)
    return nbformat.writes(node)


# Finding the answers


def test_a_whole_submission_is_taken_as_it_is(source):
    node = canonical(source, handed_in(source, GOOD))
    assert answers_in(node) == GOOD
    assert node.metadata.tinygpt.notes == {}
    assert node.metadata.tinygpt.unanswered == []
    assert [cell.id for cell in node.cells] == [cell.id for cell in source.cells]


def test_an_untouched_submission_is_not_answered(source):
    node = canonical(source, handed_in(source))
    assert node.metadata.tinygpt.unanswered == list(GOOD)
    assert node.metadata.tinygpt.notes == {label: ["not answered"] for label in GOOD}
    assert [cell.source for cell in node.cells] == [
        cell.source for cell in source.cells
    ]


@settings(max_examples=40, deadline=None)
@given(order=st.randoms(use_true_random=False), metadata=st.booleans(), data=st.data())
def test_order_copies_and_lost_metadata_change_no_answer(source, order, metadata, data):
    cells = handed_in(source, GOOD)
    twice = data.draw(st.lists(st.sampled_from(cells), max_size=4))
    cells = cells + twice
    order.shuffle(cells)
    if not metadata:
        cells = [Cell(cell.kind, cell.source) for cell in cells]
    node = canonical(source, cells)
    assert answers_in(node) == GOOD
    given_back = [c.source for c in node.cells if c.metadata.tinygpt.part == "check"]
    wanted = [c.source for c in source.cells if c.metadata.tinygpt.part == "check"]
    assert given_back == wanted


def test_answers_are_known_by_what_they_define_when_all_marks_are_gone(source):
    node = canonical(source, [Cell("code", TWICE), Cell("code", ROWS)])
    task_twice, task_rows, task_why = tasks_of(node)
    assert (task_twice.stub, task_rows.stub) == (TWICE, ROWS)
    assert node.metadata.tinygpt.unanswered == [task_why.label]
    assert node.metadata.tinygpt.notes == {
        task_why.label: ["the answer's cell is missing"]
    }


def test_one_cell_may_answer_everything(source):
    node = canonical(source, [Cell("code", f"{TWICE}\n\n\n{ROWS}")])
    assert [task.stub for task in tasks_of(node)[:2]] == [f"{TWICE}\n\n\n{ROWS}"] * 2


def test_the_last_of_several_answers_counts_and_a_stub_never_does(source):
    first = "def twice(x):\n    return 7"
    cells = handed_in(source, GOOD | {"ex-step9-twice": first})
    stubs = [c for c in handed_in(source) if c.grade_id == "ex-step9-twice"]
    node = canonical(source, [*cells, Cell("code", TWICE), *stubs])
    assert tasks_of(node)[0].stub == TWICE
    assert node.metadata.tinygpt.notes["ex-step9-twice"] == [
        "2 cells answer this; the last one counts"
    ]


def test_a_copied_cell_that_kept_the_other_exercises_mark_is_understood(source):
    cells = [
        Cell("code", TWICE, "ex-step9-twice"),
        Cell("code", ROWS, "ex-step9-twice"),
    ]
    node = canonical(source, cells)
    assert [task.stub for task in tasks_of(node)[:2]] == [TWICE, ROWS]


def test_an_answer_in_the_cell_of_the_further_checks_is_found(source):
    cells = handed_in(source)
    cells = [
        Cell("code", f"{c.source}\n{TWICE}", c.grade_id)
        if c.grade_id == "ex-step9-twice-hidden"
        else c
        for c in cells
    ]
    assert TWICE in tasks_of(canonical(source, cells))[0].stub


def test_helper_cells_stay_before_the_answer_that_follows_them(source):
    cells = handed_in(source, GOOD)
    helper, unused = Cell("code", "def half(x): ..."), Cell("code", "print(1)")
    at = [cell.grade_id for cell in cells].index("ex-step9-twice")
    cells[at + 1 : at + 1] = [unused]
    cells[at:at] = [helper, Cell("markdown", "thoughts")]
    node = canonical(source, cells)
    assert order_of(node, "ex-step9-twice") == [
        *("statement", "setup", "helper", "answer", "helper", "check", "hidden")
    ]
    assert order_of(node, "ex-step9-rows") == ["statement", "answer", "check", "hidden"]


def test_what_an_answer_uses_of_earlier_cells_is_put_before_it(source):
    shared = Cell("code", "def shared(n):\n    return other(n)")
    other = Cell("code", "def other(n):\n    return list(range(n))")
    noise = Cell("code", "noise = 1")
    rows = "def rows(n):\n    return shared(n)"
    cells = handed_in(source, GOOD | {"ex-step9-rows": rows})
    at = [cell.grade_id for cell in cells].index("ex-step9-twice")
    cells[at:at] = [noise, other, shared]
    task = tasks_of(canonical(source, cells))[1]
    helpers = [c.source for c in task.cells if c.metadata.tinygpt.part == "helper"]
    assert helpers == [other.source, shared.source]


def test_a_changed_check_is_replaced_and_named(source):
    cells = [
        Cell(
            "code", "# ex-step9-twice: check\ndef check_twice():\n    pass", c.grade_id
        )
        if c.grade_id == "ex-step9-twice-check"
        else c
        for c in handed_in(source, GOOD)
    ]
    node = canonical(source, cells)
    assert "assert twice(x) == 2 * x" in tasks_of(node)[0].part("check").source
    assert node.metadata.tinygpt.notes == {
        "ex-step9-twice": ["the check's cell was changed; the original was used"]
    }


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys\nsys._getframe(1)", "looks at frames (_getframe)"),
        ("inspect.stack()", "looks at its callers"),
        ("In[-1]", "looks at the notebook itself"),
        ("gc.get_referrers(f)", "looks at all objects"),
        ("os._exit(0)", "runs programs (os._exit)"),
        ("!cat secrets", "runs programs"),
        ("torch.equal = lambda a, b: True", "replaces torch.equal"),
        ("import math as m\nsetattr(m, 'pi', 3)", "replaces a part of m"),
        ("def hidden_twice(): pass", "defines hidden_twice"),
        ("try_check = print", "defines try_check"),
    ],
)
def test_code_that_a_person_should_read_is_pointed_at(code, said):
    (found,) = suspicions(code, {"hidden_twice", "try_check"})
    assert found.startswith("look at it: the code")
    assert said in found


@pytest.mark.parametrize(
    "code",
    [TWICE, "hidden_size = 3", "model.training = False", "check = 1", "x.In = [1]"],
)
def test_ordinary_code_is_not_pointed_at(code):
    assert suspicions(code, {"hidden_twice", "try_check"}) == []


# Reading files


def test_every_folder_and_file_is_a_student(tmp_path, source):
    text = notebook(handed_in(source, GOOD))
    for name in ("Zoë Ångström", "a b [1]", "nested"):
        (tmp_path / name).mkdir()
    (tmp_path / "Zoë Ångström" / "copy of one (1).ipynb").write_text(text, "utf-8")
    (tmp_path / "a b [1]" / "one.ipynb").write_text(text, "utf-8")
    (tmp_path / "nested" / "deep").mkdir()
    (tmp_path / "nested" / "deep" / "one.ipynb").write_text(text, "utf-8")
    (tmp_path / "solo.ipynb").write_text(text, "utf-8")
    (tmp_path / "report.pdf").write_bytes(b"%PDF\xff")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "solo.ipynb")
    found = {s.shown: s for s in read_submissions(tmp_path)}
    assert found["Zoë Ångström"].student == "Zoë Ångström"
    assert found["a b [1]"].student == "a b _1_"
    whole = ("Zoë Ångström", "a b [1]", "nested", "solo")
    assert {len(found[name].cells) for name in whole} == {len(source.cells)}
    assert found["report"].remarks == [
        "report.pdf is not a notebook (UnicodeDecodeError)"
    ]
    assert found["empty"].remarks == ["the folder holds no notebook"]
    assert found["link"].remarks == ["link.ipynb is a link, which is not followed"]
    assert len(found) == 7


def test_names_that_look_the_same_stay_two_students(tmp_path):
    for form in ("NFC", "NFD"):
        (tmp_path / unicodedata.normalize(form, "José")).mkdir()
    (tmp_path / "a_b").mkdir()
    (tmp_path / "a?b").mkdir()
    ids = [submission.student for submission in read_submissions(tmp_path)]
    assert len({name.casefold() for name in ids}) == 4


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '{"cells": 3}', '{"cells": [3]}', "[" * 100_000],
)
def test_what_is_no_notebook_says_so(tmp_path, text):
    path = tmp_path / "x.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Exception, match="is not a notebook"):
        read_cells(path)


def test_notebooks_of_any_age_and_front_end_are_read(tmp_path):
    path = tmp_path / "x.ipynb"
    colab = {
        "cells": [
            {"cell_type": "code", "source": ["a\n", "b"], "metadata": {"id": "x"}},
            {"cell_type": "code", "source": "c\r\n"},
            {"cell_type": "raw", "source": None, "metadata": None},
        ]
    }
    path.write_text("\ufeff" + json.dumps(colab), encoding="utf-8")
    assert [cell.source for cell in read_cells(path)] == ["a\nb", "c\n", ""]
    old = nbformat.v3.new_notebook(
        worksheets=[nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell("old")])]
    )
    path.write_text(json.dumps(old), encoding="utf-8")
    assert read_cells(path)[0].source == "old"


# The sandbox


def in_sandbox(tmp_path: Path, code: str) -> str:
    """What a program prints inside the sandbox."""
    needs_isolation()
    words = sandbox.bubblewrap(ROOT, tmp_path, sandbox.Limits())
    done = subprocess.run(
        [*words, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_sandbox_has_no_network_no_repository_and_no_other_process(tmp_path):
    secret = tmp_path.parent / "secret"
    secret.write_text("secret", encoding="utf-8")
    (ROOT / "_build").mkdir(exist_ok=True)
    code = f"""
import os, socket
for address in (("127.0.0.1", 22), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 1)
        print("connected")
    except OSError as error:
        print("refused")
print(os.path.exists({str(secret)!r}), os.path.exists({str(ROOT / "chapters")!r}))
print(os.path.exists({str(ROOT / "_build")!r}), os.path.exists("data/manifest.json"))
print(sum(name.isdecimal() for name in os.listdir("/proc")) < 5)
for path in ("data/new", "/usr/new", {str(Path(sys.prefix) / "new")!r}):
    try:
        open(path, "w")
        print("written")
    except OSError:
        print("read only")
print(sorted(os.environ)[:3])
"""
    assert in_sandbox(tmp_path, code).splitlines() == [
        *("refused", "refused", "False False", "False True", "True"),
        *("read only", "read only", "read only"),
        str(sorted({**sandbox.environment("/student"), "PWD": ""})[:3]),
    ]


def test_without_bubblewrap_nothing_is_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no bubblewrap" in sandbox.available.__wrapped__(ROOT)
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho no namespaces >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    reason = sandbox.available.__wrapped__(ROOT)
    assert "cannot isolate a process: no namespaces" in reason


# The whole way, through nbgrader

CRASH = "import ctypes\ndef twice(x):\n    ctypes.string_at(0)"
HUNGER = """
def twice(x):
    kept = []
    while True:
        kept.append(bytearray(10**7))
"""
LATE = """
import os
def twice(x):
    return os._exit(0) if x < 0 else 2 * x
"""
LOUD = """
import sys
def twice(x):
    print("x" * 10**6)
    print("a warning", file=sys.stderr)
    return 2 * x
print("x" * 10**6)
"""
SPY = f"""
import os, socket
def twice(x):
    return 2 * x
found = [path for path in {[str(ROOT / "chapters")]} if os.path.exists(path)]
try:
    socket.create_connection(("192.0.2.1", 80), 1)
    found.append("network")
except OSError:
    pass
print("found", found)
"""
THIEF = """
import sys
def twice(x):
    frame = sys._getframe(1)
    print("STOLEN", frame.f_code.co_consts)
    if x == -3:
        raise ValueError(str(frame.f_code.co_consts))
    return 2 * x
"""
CLASS = {
    "Zoë Ångström": (GOOD, {"ex-step9-twice": "3", "ex-step9-rows": "3"}),
    "untouched": (
        {},
        {"ex-step9-twice": "0", "ex-step9-rows": "0", "ex-step9-why": "0"},
    ),
    "partly": (
        {
            "ex-step9-twice": "def twice(x):\n    return abs(2 * x)",
            "ex-step9-rows": "def rows(n):\n    return [0, 1]",
        },
        {"ex-step9-twice": "1", "ex-step9-rows": "2"},
    ),
    "exit": (
        GOOD | {"ex-step9-twice": "import os\ndef twice(x):\n    os._exit(0)"},
        {"ex-step9-twice": "0", "ex-step9-rows": "3"},
    ),
    "crash": ({"ex-step9-twice": CRASH}, {"ex-step9-twice": "0"}),
    "late": (
        {"ex-step9-twice": LATE},
        {"ex-step9-twice": "1"},
    ),
    "hungry": ({"ex-step9-twice": HUNGER}, {"ex-step9-twice": "0"}),
    "loud": (
        {"ex-step9-twice": LOUD},
        {"ex-step9-twice": "3"},
    ),
    "spy": ({"ex-step9-twice": SPY}, {"ex-step9-twice": "3"}),
    "thief": ({"ex-step9-twice": THIEF}, {"ex-step9-twice": "1"}),
}


@pytest.fixture(scope="module")
def graded(library, source, tmp_path_factory) -> Path:
    """A class of students, graded in one go; the folder of marks and reports."""
    needs_nbgrader()
    needs_isolation()
    from tools import grade
    from tools.course import release

    base = tmp_path_factory.mktemp("class")
    courses = base / "courses"
    sheets = pick(library, ["step9:all"], "one")
    release(ROOT, write(library, sheets, "one", courses))
    folder = base / "handed in"
    for name, (answers, _) in CLASS.items():
        (folder / name).mkdir(parents=True)
        text = notebook(handed_in(source, answers))
        (folder / name / "one.ipynb").write_text(text, encoding="utf-8")
    (folder / "broken.ipynb").write_text("{", encoding="utf-8")
    loop = "x = 1\nwhile True:\n    pass"
    cells = handed_in(
        source, {"ex-step9-twice": TWICE, "ex-step9-rows": loop + "\n" + ROWS}
    )
    at = [cell.grade_id for cell in cells].index("ex-step9-twice")
    cells.insert(at, Cell("code", "import os\nos.kill(os.getpid(), 9)"))
    cells = [Cell(cell.kind, cell.source) for cell in cells]
    (folder / "loop.ipynb").write_text(notebook(cells), encoding="utf-8")
    out = base / "out"
    words = [str(folder), "--courses", str(courses), "--out", str(out)]
    assert grade.main([*words, "--seconds", "12", "--mebibytes", "700"]) == 0
    return out


def rows_of(out: Path) -> dict[str, dict[str, str]]:
    with (out / "marks.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_everybody_gets_a_mark_or_a_reason(graded):
    rows = rows_of(graded)
    assert set(rows) == {*CLASS, "broken", "loop"}
    for name, (_, wanted) in CLASS.items():
        found = {label: rows[name][label] for label in wanted}
        assert found == wanted, (name, rows[name]["remarks"])
        assert rows[name]["of"] == "10"
    assert rows["broken"]["total"] == "0"
    assert (
        rows["broken"]["remarks"] == "broken.ipynb is not a notebook (JSONDecodeError)"
    )


def test_written_answers_wait_for_a_person(graded):
    row = rows_of(graded)["Zoë Ångström"]
    assert row["ex-step9-why"] == ""
    assert "ex-step9-why: to be marked by a person" in row["remarks"]
    assert row["total"] == "6"


def test_what_ended_a_kernel_is_named_and_costs_that_exercise_alone(graded):
    rows = rows_of(graded)
    for name in ("exit", "crash", "late"):
        assert "the kernel died" in rows[name]["remarks"], name
    assert "longer than 12 seconds" in rows["loop"]["remarks"]
    assert rows["loop"]["ex-step9-twice"] == "3"
    assert "left out: the kernel died" in rows["loop"]["remarks"]
    assert rows["loop"]["ex-step9-rows"] == "0"


def test_reports_are_whole_pages_that_ask_for_nothing_and_tell_no_secret(graded):
    reports = {path.stem: path.read_text("utf-8") for path in graded.glob("reports/*")}
    assert set(reports) == set(rows_of(graded))
    for name, text in reports.items():
        assert not re.search(
            r"(?i)https?://|<script|src=\"(?!data:)|<link|@import", text
        )
        assert len(text) < 60_000, name
        for secret in ("hidden_twice", "def check_", "truth value gives"):
            assert secret not in text, (name, secret)
    assert "look at numbers below zero" in reports["partly"]
    assert "no rows at all must be an empty list" in reports["partly"]
    assert "STOLEN (None" not in reports["thief"]
    assert "below zero" not in reports["thief"]
    assert "It stopped with ValueError." in reports["thief"]
    assert "look at it" not in reports["thief"]
    assert "look at it: the code looks at frames" in rows_of(graded)["thief"]["remarks"]
    assert "found []" in reports["spy"].replace("&#x27;", "'")
    assert "So it is." in reports["Zoë Ångström"]


def test_the_same_marks_are_in_nbgraders_gradebook_and_stay_there(graded):
    from nbgrader.api import Gradebook

    from tools import grade

    place = graded.parent / "courses" / "one"
    with Gradebook(f"sqlite:///{place / 'gradebook.db'}") as book:
        submission = book.find_submission("one", "Zoë Ångström")
        assert (submission.score, submission.max_score) == (6, 10)
        mark = book.find_grade("ex-step9-why", "one", "one", "Zoë Ångström")
        assert mark.needs_manual_grade
        mark.manual_score, mark.needs_manual_grade = 3.5, False
        book.db.commit()
    again = graded.parent / "again"
    words = ["--collect", "--name", "one", "--courses", str(place.parent)]
    assert grade.main([*words, "--out", str(again)]) == 0
    row = rows_of(again)["Zoë Ångström"]
    assert (row["ex-step9-why"], row["total"]) == ("3.5", "9.5")
    assert len(rows_of(again)) == len(CLASS) + 2


def test_the_release_is_nbgraders_own_and_tells_nothing(graded):
    place = graded.parent / "courses" / "one"
    text = (place / "release" / "one" / "one.ipynb").read_text("utf-8")
    assert "try_check(check_twice)" in text
    for secret in ("HIDDEN TESTS", "hidden_twice", "below zero", "secret"):
        assert secret not in text


def test_no_isolation_no_grading(graded, monkeypatch, capsys):
    from tools import grade

    monkeypatch.setattr(grade, "available", lambda root: "there is no bubblewrap")
    assert grade.main([str(graded.parent / "handed in")]) == 1
    assert "not run unprotected: there is no bubblewrap" in capsys.readouterr().out


def test_an_unknown_assignment_is_named(graded, capsys, tmp_path):
    from tools import grade

    courses = ["--courses", str(graded.parent / "courses")]
    assert grade.main([str(tmp_path), *courses, "--name", "two"]) == 1
    assert "no assignment 'two'" in capsys.readouterr().out
    assert grade.main([str(tmp_path), *courses]) == 1
    assert "fits no assignment" in capsys.readouterr().out


def test_a_failure_of_the_grader_itself_stops_nobody_else(graded, monkeypatch):
    from tools import grade

    def fail(place, submission, settings):
        raise OSError("the disk is full")

    monkeypatch.setattr(grade, "grade_student", fail)
    place = graded.parent / "courses" / "one"
    found = read_submissions(graded.parent / "handed in")[:2]
    students = grade.grade_all(place, found, {})
    rows = grade.collect(place, graded.parent / "failed", students)
    assert [row["remarks"] for row in rows] == [
        "not graded: OSError: the disk is full",
        "not graded: OSError: the disk is full",
    ]
