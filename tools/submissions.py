"""What students handed in, read with care and put in order for the grader.

A submission is a folder ``STUDENT/`` with notebooks, or one file ``STUDENT.ipynb``. The
sources of its cells are all that is used. A canonical notebook is made from the
instructor's source, into which the student's answers are put:

* An answer is known by its cell's grade id, else by the marker in its first line, else
  by the names that it defines. Of several the last is taken that is not the stub.
* The student's other code cells keep their place before the answer that follows them,
  and what an answer uses of earlier cells is put before it once more, since each
  exercise is graded in a kernel of its own.
* Set-up and check cells are always the instructor's.

What was found on the way is noted, for each exercise, in words.
"""

import ast
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.assignments import marker
from tools.exercises import names_of

LARGEST = 20 * 2**20
STUDENTS_CELL = "helper"
SUSPICIOUS = {
    r"\b_getframe\b|\bcurrentframe\b|\bf_back\b|\btb_frame\b": "looks at frames",
    r"\binspect\s*\.\s*(stack|trace|getouterframes)\b": "looks at its callers",
    r"\bget_ipython\b|\b_ih\b|\bIn\s*\[|\bget_parent\b": "looks at the notebook itself",
    r"\bgc\s*\.\s*get_(referrers|objects)\b": "looks at all objects",
    r"\blinecache\b|\bctypes\b|\bsettrace\b|\bsetprofile\b": "looks into Python",
    r"\b(os|posix)\s*\.\s*(_exit|kill|fork|exec\w*|system|popen)\b": "runs programs",
    r"\bsubprocess\b|\bsocket\b|\burllib\b|\brequests\b": "runs programs or connects",
    r"(?m)^\s*!|^%%(bash|sh|script|system)|^\s*%system": "runs programs",
    r"\bAssertionError\b|\b__builtins__\b|\bbuiltins\b": "touches what checks rest on",
}


@dataclass(frozen=True)
class Cell:
    """One cell that a student handed in."""

    kind: str
    source: str
    grade_id: str = ""


@dataclass
class Submission:
    """Everything that one student handed in."""

    student: str  # as nbgrader calls the student: safe in paths and in patterns
    shown: str  # as the folder or file is called
    cells: list[Cell] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class UnreadableError(Exception):
    """Why a file is no notebook that can be graded."""


# -- reading --------------------------------------------------------------------------


def read_submissions(folder: Path) -> list[Submission]:
    """The submissions below a folder, one for each student, in alphabetical order."""
    found: list[Submission] = []
    taken: set[str] = set()
    for path in sorted(folder.iterdir(), key=lambda path: path.name.casefold()):
        if path.name.startswith((".", "__")):
            continue
        whole = path.is_dir() and not path.is_symlink()
        shown = path.name if whole else path.stem if path.suffix else path.name
        submission = Submission(
            _safe(shown, taken), unicodedata.normalize("NFC", shown)
        )
        found.append(submission)
        paths = _files(path) if whole else [path]
        if not paths:
            submission.remarks.append("the folder holds no notebook")
        for file in paths:
            name = str(file.relative_to(path)) if whole else file.name
            try:
                submission.cells += read_cells(file)
            except UnreadableError as error:
                submission.remarks.append(f"{name} {error}")
    return found


def _files(folder: Path) -> list[Path]:
    """The notebooks of a student's folder, or, where there is none, its other files."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and (path.is_symlink() or path.is_file())
    ]
    return [path for path in files if path.suffix == ".ipynb"] or files


def _safe(name: str, taken: set[str]) -> str:
    """A name for nbgrader, without what a path or a pattern would read as a sign."""
    text = unicodedata.normalize("NFC", name)
    plain = re.sub(r"[^\w .@-]", "_", text).strip(" .") or "student"
    safe, number = plain, 1
    while safe.casefold() in taken:
        number += 1
        safe = f"{plain}-{number}"
    taken.add(safe.casefold())
    return safe


def read_cells(path: Path) -> list[Cell]:
    """The cells of a notebook that somebody handed in.

    Raises:
        UnreadableError: it is a link, too large, or not a notebook.
    """
    if path.is_symlink():
        raise UnreadableError("is a link, which is not followed")
    try:
        if path.stat().st_size > LARGEST:
            raise UnreadableError(f"is larger than {LARGEST // 2**20} MiB")
        text = path.read_bytes().decode("utf-8-sig")
        node = json.loads(text)
        if isinstance(node, dict) and "cells" not in node:  # an older format
            node = nbformat.reads(text, as_version=4)
        return [_cell(raw) for raw in node["cells"]]
    except UnreadableError:
        raise
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from None
    except Exception as error:
        raise UnreadableError(f"is not a notebook ({type(error).__name__})") from None


def _cell(raw: dict) -> Cell:
    source = raw.get("source") or ""
    text = source if isinstance(source, str) else "".join(map(str, source))
    about = (raw.get("metadata") or {}).get("nbgrader") or {}
    return Cell(
        kind=str(raw.get("cell_type", "")),
        source=text.replace("\r\n", "\n").encode("utf-8", "replace").decode(),
        grade_id=str(about.get("grade_id", "")) if isinstance(about, dict) else "",
    )


# -- putting in order -----------------------------------------------------------------


@dataclass
class Task:
    """One exercise of the source, as the student's cells are compared with it."""

    label: str
    title: str
    kind: str
    cells: list[NotebookNode]

    def part(self, name: str) -> NotebookNode:
        return next(cell for cell in self.cells if cell.metadata.tinygpt.part == name)

    def checks_from(self, cell: NotebookNode | None) -> list[NotebookNode]:
        """The checks that cannot run when this cell cannot: itself and later ones."""
        late = cell is not None and cell.metadata.tinygpt.part == "hidden"
        return [
            self.part(name) for name in (["hidden"] if late else ["check", "hidden"])
        ]

    @property
    def stub(self) -> str:
        return self.part("answer").source

    @property
    def names(self) -> set[str]:
        """The names that an answer defines."""
        return _bound(self.stub) if self.kind == "code" else set()

    @property
    def checks(self) -> set[str]:
        """The names that the visible check defines."""
        return _bound(self.part("check").source) if self.kind == "code" else set()

    @property
    def all_checks(self) -> set[str]:
        """The names that must not be an answer's."""
        if self.kind != "code":
            return set()
        return self.checks | _bound(self.part("hidden").source) | {"try_check"}


def tasks_of(node: NotebookNode) -> list[Task]:
    """The exercises of a source notebook, in order."""
    found: dict[str, Task] = {}
    for cell in node.cells:
        about = cell.metadata.get("tinygpt", {})
        label = about.get("exercise", "")
        if label and label not in found:
            found[label] = Task(label, about.title, about.kind, [])
        if label:
            found[label].cells.append(cell)
    return list(found.values())


def canonical(source: NotebookNode, submitted: list[Cell]) -> NotebookNode:
    """The instructor's notebook with a student's answers and helper cells in it.

    The notes on each exercise are in the notebook's metadata, in ``tinygpt.notes``.
    """
    tasks = tasks_of(source)
    parts = [_part(cell, tasks) for cell in submitted]
    notes: dict[str, list[str]] = {task.label: [] for task in tasks}
    chosen = {task.label: _answer(task, submitted, parts, notes) for task in tasks}
    before, after = _helpers(tasks, submitted, parts, chosen)
    node = nbformat.from_dict(json.loads(json.dumps(source)))
    given = set().union(*(_bound(c.source) for c in node.cells if _is_given(c)), set())
    cells: list[NotebookNode] = []
    for cell in node.cells:
        about = cell.metadata.tinygpt
        index = chosen.get(about.get("exercise"))
        if about.part == "check" and index is not None:
            cells += _helper_cells(about, after[about.exercise], submitted, "after")
        if about.part == "answer" and index is not None:
            used = [*before[about.exercise], index, *after[about.exercise]]
            carried = _carried(submitted, parts, used, given)
            own = [*carried, *before[about.exercise]]
            cells += _helper_cells(about, own, submitted, "before")
            cell.source = submitted[index].source
        cells.append(cell)
    node.cells = cells
    for task in tasks:
        label, index = task.label, chosen[task.label]
        if index is not None and task.kind == "code":
            used = [*before[label], index, *after[label]]
            code = "\n".join(submitted[i].source for i in used)
            notes[label] += suspicions(code, task.all_checks)
        notes[label] += _tampered(task, submitted, parts)
    node.metadata.tinygpt.notes = {k: v for k, v in notes.items() if v}
    node.metadata.tinygpt.unanswered = [k for k, v in chosen.items() if v is None]
    return node


def _part(cell: Cell, tasks: list[Task]) -> tuple[str, str]:
    """What a submitted cell is: an exercise's part, or the student's own."""
    first = cell.source.lstrip().split("\n", 1)[0]
    bound = _bound(cell.source) if cell.kind == "code" else set()
    if cell.grade_id == "set-up" or first.startswith("# Set-up: installs"):
        return "", "set-up"
    for known in (
        lambda task, own: own.source.strip() == cell.source.strip(),
        lambda task, own: cell.grade_id and cell.grade_id == _grade_id(own),
        lambda task, own: _marker_of(task, own) in first,
    ):
        for task in tasks:
            for own in task.cells:
                if known(task, own):
                    part = own.metadata.tinygpt.part
                    return _corrected(task.label, part, bound, tasks)
    for task in tasks:
        if bound & task.names:
            return task.label, "answer"
    for task in tasks:
        if bound & task.checks:
            return task.label, "check"
    return "", STUDENTS_CELL


def _grade_id(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _marker_of(task: Task, own: NotebookNode) -> str:
    """The words in the first line of a part's cell; a line break where it has none."""
    words = {"answer": (), "check": ("check",), "hidden": ("further checks",)}
    part = own.metadata.tinygpt.part
    return marker(task.label, *words[part]) if part in words else "\n"


def _corrected(
    label: str, part: str, bound: set[str], tasks: list[Task]
) -> tuple[str, str]:
    """What a cell is when its mark says ``part`` but its code may say otherwise.

    A copied cell keeps the mark of the first; and some answer in the cell of a check.
    """
    (task,) = [task for task in tasks if task.label == label]
    if task.kind != "code" or bound & (task.names if part == "answer" else task.checks):
        return label, part
    for other in (task, *tasks):
        if bound & other.names:
            return other.label, "answer"
    return label, part


def _answer(
    task: Task,
    submitted: list[Cell],
    parts: list[tuple[str, str]],
    notes: dict[str, list[str]],
) -> int | None:
    """Which cell is the answer: the last one that is not the stub.

    A cell that answers several exercises at once is the answer to each of them.
    """
    wanted = "code" if task.kind == "code" else "markdown"
    found = [
        index
        for index, (label, part) in enumerate(parts)
        if submitted[index].kind == wanted
        and part == "answer"
        and (label == task.label or _bound(submitted[index].source) & task.names)
    ]
    said = notes[task.label]
    if not found:
        said += ["the answer's cell is missing"] if submitted else []
        return None
    answers = [i for i in found if _plain(submitted[i].source) != _plain(task.stub)]
    if not answers:
        said.append("not answered")
        return None
    if len(answers) > 1:
        said.append(f"{len(answers)} cells answer this; the last one counts")
    return answers[-1]


def _helpers(
    tasks: list[Task],
    submitted: list[Cell],
    parts: list[tuple[str, str]],
    chosen: dict[str, int | None],
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The student's own cells before each answer, and between it and its check."""
    before: dict[str, list[int]] = {task.label: [] for task in tasks}
    after: dict[str, list[int]] = {task.label: [] for task in tasks}
    stubs = {_plain(task.stub) for task in tasks}
    waiting: list[int] = []
    latest: list[str] = []
    for index, (label, part) in enumerate(parts):
        cell = submitted[index]
        answered = [name for name, answer in chosen.items() if answer == index]
        if answered:
            before |= dict.fromkeys(answered, waiting)
            waiting, latest = [], answered
        elif part == "check" and label in latest:
            after[label], waiting, latest = waiting, [], []
        elif (
            part in (STUDENTS_CELL, "answer")  # an earlier answer may help a later one
            and cell.kind == "code"
            and cell.source.strip()
            and _plain(cell.source) not in stubs
        ):
            waiting.append(index)
    return before, after


def _carried(
    submitted: list[Cell],
    parts: list[tuple[str, str]],
    used: list[int],
    given: set[str],
) -> list[int]:
    """The student's earlier cells that bind a name which these cells use."""
    wanted = set().union(*(_taken(submitted[i].source) for i in used)) - given
    wanted -= set().union(*(_bound(submitted[i].source) for i in used))
    carried: list[int] = []
    for index in range(min(used) - 1, -1, -1):
        cell = submitted[index]
        usable = cell.kind == "code" and parts[index][1] in (STUDENTS_CELL, "answer")
        bound = _bound(cell.source) if usable else set()
        if index not in used and bound & wanted:
            carried.insert(0, index)
            wanted = (wanted - bound) | (_taken(cell.source) - given - bound)
    return carried


def _helper_cells(
    about: NotebookNode, indices: list[int], submitted: list[Cell], where: str
) -> Iterator[NotebookNode]:
    for number, index in enumerate(indices):
        own = {"part": STUDENTS_CELL, "exercise": about.exercise}
        cell = nbformat.v4.new_code_cell(submitted[index].source)
        cell.id = re.sub(r"[^\w-]", "", f"{about.exercise}-{where}-{number}")[-60:]
        cell.metadata = nbformat.from_dict({"tinygpt": own})
        yield cell


def _tampered(
    task: Task, submitted: list[Cell], parts: list[tuple[str, str]]
) -> list[str]:
    """Whether the student changed the check, in words."""
    if task.kind != "code":
        return []
    whole = task.part("check").source
    known = (_plain(whole), _plain(without_hidden(whole)))
    for cell, part in zip(submitted, parts, strict=True):
        if part == (task.label, "check") and _plain(cell.source) not in known:
            return ["the check's cell was changed; the original was used"]
    return []


def without_hidden(source: str) -> str:
    return re.sub(r"(?s)### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS\n?", "", source)


def _is_given(cell: NotebookNode) -> bool:
    """Does this cell of the source define names before any answer?"""
    return cell.metadata.tinygpt.part in ("set-up", "setup")


def _plain(source: str) -> str:
    """A source without its comments' and blanks' differences, to compare with."""
    lines = [line.rstrip() for line in source.strip().split("\n")]
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def _bound(source: str) -> set[str]:
    try:
        return names_of(source)[0]
    except (SyntaxError, ValueError, RecursionError):
        return set(re.findall(r"(?m)^(?:def|class) (\w+)", source))


def _taken(source: str) -> set[str]:
    try:
        return names_of(source)[1]
    except (SyntaxError, ValueError, RecursionError):
        return set()


# -- what an instructor should look at ------------------------------------------------


def suspicions(source: str, checks: set[str]) -> list[str]:
    """Reasons to read a student's code before trusting its mark.

    Args:
        source: the code of an answer with its helpers.
        checks: the names of the checks, which no answer has a reason to bind.
    """
    found = [
        f"look at it: the code {why} ({match[0].strip()})"
        for pattern, why in SUSPICIOUS.items()
        if (match := re.search(pattern, source))
    ]
    if own := sorted(_bound(source) & checks):
        found.append(f"look at it: the code defines {', '.join(own)}")
    if patched := _patched(source):
        found.append(f"look at it: the code replaces {patched}")
    return found


def _patched(source: str) -> str:
    """The first attribute of an imported module that a source assigns to."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    modules = {"torch", "nn", "F", "np", "numpy", "math", "builtins"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {a.asname or a.name.partition(".")[0] for a in node.names}
    for node in ast.walk(tree):
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AnnAssign) else ():
            root = target
            while isinstance(root, ast.Attribute):
                root = root.value
            if (
                isinstance(target, ast.Attribute)
                and isinstance(root, ast.Name)
                and root.id in modules
            ):
                return ast.unparse(target)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "setattr"
            and node.args
            and isinstance(node.args[0], ast.Name)
            and node.args[0].id in modules
        ):
            return f"a part of {node.args[0].id}"
    return ""
