"""Write the assignments: ``make assignments``.

Each page with exercises becomes an assignment; ``--pick`` makes one from chosen
exercises: ``python -m tools.assignments --pick ch02:1,3,5 step5:all --name week3``.
An assignment is a course folder of nbgrader, ``_build/assignments/NAME``, with

* ``source/NAME/``: what nbgrader reads, with stubs, checks and hidden checks;
* ``release/NAME/``: what students get; nbgrader makes it from the source;
* ``key/``: solutions, marking and notes, for instructors;
* ``points.csv``: what each exercise is worth.

Each holds one notebook for each page that exercises were picked from, ``NAME.ipynb``
when that is one page and ``NAME-PAGE.ipynb`` when there are more: two pages may save
different things under one name, and one notebook could not hold both. A notebook runs
alone. Its first code cell installs what is missing and re-creates the saved source that
its exercises need.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import ast
import contextlib
import csv
import hashlib
import io
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import nbformat
from nbformat import NotebookNode

from tools.exercises import (
    Block,
    Exercise,
    blocks,
    names_of,
    page_names,
    read_exercises,
    short_names,
)
from tools.export import import_lines, saved_definitions
from tools.markdown import Library, Rewriter
from tools.notebooks import KERNELSPEC, LANGUAGE, serialise, setup_source
from tools.pages import ROOT, Page, PageError

PROVIDED = ("torch", "numpy", "matplotlib")  # what Colab has and the book's code uses
TRY_CHECK = ("tinygpt.corpus", "try_check")
BEGIN, END = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
COLUMNS = (
    *("exercise", "title", "page", "kind", "difficulty", "minutes"),
    *("visible", "hidden", "total"),
)


@dataclass(frozen=True)
class Sheet:
    """One notebook of an assignment: the exercises picked from one page."""

    name: str
    page: Page
    exercises: tuple[Exercise, ...]


# -- which exercises ------------------------------------------------------------------


def pages_with_exercises(library: Library) -> dict[str, list[Exercise]]:
    """The exercises of each page that has some, by the page's name in the library."""
    found = {}
    for name, page in library.pages.items():
        text = page.path.read_text(encoding="utf-8")
        if name.startswith("chapters/") and any(b.name == "task" for b in blocks(text)):
            found[name] = read_exercises(page)
    return found


def pick(library: Library, words: list[str], name: str) -> list[Sheet]:
    """The sheets of an assignment, from words such as ``step5:1,3`` or ``ch02:all``.

    Raises:
        PageError: a word names no page or no exercise; the message lists what there is.
    """
    chosen: dict[str, list[Exercise]] = {}
    pages = [page for page in library.pages if page.startswith("chapters/")]
    called = short_names(Path(page).stem for page in pages)
    for word in words:
        stem, _, numbers = word.partition(":")
        found = [
            page
            for page in pages
            if stem in (page.removeprefix("chapters/"), called[Path(page).stem])
        ]
        if len(found) != 1:
            known = sorted(
                called[Path(page).stem] for page in pages_with_exercises(library)
            )
            raise PageError(
                f"{word!r}: no page is called {stem!r}; those with exercises are "
                f"{', '.join(known)}"
            )
        exercises = read_exercises(library.pages[found[0]])
        kept = chosen.setdefault(found[0], [])
        for number in _numbers(word, numbers or "all", exercises):
            if exercises[number - 1] not in kept:
                kept.append(exercises[number - 1])
    alone = len(chosen) == 1
    return [
        Sheet(
            name if alone else f"{name}-{Path(page).stem}",
            library.pages[page],
            tuple(sorted(exercises, key=lambda exercise: exercise.number)),
        )
        for page, exercises in chosen.items()
    ]


def _numbers(word: str, text: str, exercises: list[Exercise]) -> list[int]:
    """The numbers that ``1,3``, ``2-4`` or ``all`` stand for."""
    if text == "all" and exercises:
        return list(range(1, len(exercises) + 1))
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else 0
        if not 1 <= first <= last <= len(exercises):
            there = f"1 to {len(exercises)}" if exercises else "none"
            raise PageError(
                f"{word!r}: {part!r} is no number of an exercise there; there are "
                f"{there}, or 'all'"
            )
        numbers += range(first, last + 1)
    return numbers


# -- what an exercise says ------------------------------------------------------------


@dataclass
class Texts:
    """The words of one exercise as plain Markdown, its solution in order."""

    statement: list[str] = field(default_factory=list)
    solution: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Apart(Rewriter):
    """Rewrites text that is read away from its page: its equations are links, too."""

    def _reference(self, name: str, title: str, label: str, line: int) -> str:
        text = super()._reference(name, title, label, line)
        if text.startswith("["):
            return text
        return f"[{text}]({self._to(self._target(label, line))[0]})"


def read_texts(library: Library, page: Page) -> dict[str, Texts]:
    """The words of a page's exercises, by label, as plain Markdown."""
    source = page.path.read_text(encoding="utf-8")
    rewriter = _Apart(library, f"chapters/{page.stem}", page)
    found: dict[str, Texts] = {}
    current = Texts()
    solving = False
    for piece, line in _pieces(page, source):
        if not isinstance(piece, Block):
            text = rewriter.text(piece, line).strip("\n")
            if solving and text:
                current.solution.append(("markdown", text))
        elif piece.name == "solution-start":
            solving = True
        elif piece.name == "solution-end":
            solving = False
        elif piece.stage == "solution":
            current.solution.append(("code", piece.body))
        elif piece.name in ("instructor", "marking"):
            heading = {"instructor": "For the instructor", "marking": "Marking"}
            text = rewriter.text(piece.body, line)
            current.notes.append(f"**{heading[piece.name]}**\n\n{text}")
        elif piece.name != "code-cell":
            if piece.name == "exercise":
                current = found.setdefault(piece.options.get("label", ""), Texts())
            lines = source.split("\n")[piece.first : piece.last]
            current.statement.append(rewriter.text("\n".join(lines), line))
    return found


def _pieces(page: Page, source: str) -> Iterator[tuple[Block | str, int]]:
    """A page's text, cut at the blocks of its exercises, each piece with its line."""
    lines = source.split("\n")
    begins = next((c.line - 1 for c in page.cells), 0)
    for block in blocks(source):
        hint = block.name == "dropdown" and block.argument == "Hint"
        ours = block.name in (
            *("exercise", "task", "instructor", "marking"),
            *("solution-start", "solution-end", "code-cell"),
        )
        if block.first < begins or not (ours or hint):
            continue
        yield "\n".join(lines[begins : block.first]), begins + 1
        yield block, block.first + 1
        begins = block.last
    yield "\n".join(lines[begins:]), begins + 1


def worth(exercise: Exercise) -> str:
    """What an exercise is worth, in words."""
    visible, hidden = exercise.points
    if exercise.kind == "written":
        return f"*{_points(visible)}, marked by a person.*"
    return (
        f"*{_points(visible)} for the check below, {hidden} for further checks, which "
        "run when your work is graded.*"
    )


def _points(number: int) -> str:
    return f"{number} point" + ("s" if number != 1 else "")


# -- what the code of an exercise needs -----------------------------------------------


def answer_names(exercise: Exercise) -> set[str]:
    """The names that an answer defines: those of the stub."""
    return names_of(exercise.stub[0])[0] if exercise.stub else set()


def checks_of(exercise: Exercise) -> tuple[str, list[str]]:
    """The visible check without its calls, and the names of its check functions."""
    source = exercise.check[0]
    lines = source.split("\n")
    names: list[str] = []
    for node in reversed(ast.parse(source).body):
        match node:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Name(id="try_check"), args=[ast.Name(id=name)], keywords=[]
                )
            ):
                names.insert(0, name)
                lines[node.lineno - 1 : node.end_lineno] = []
            case _:
                break
    if not names:
        raise PageError(
            f"{exercise.where}: its check does not end with try_check(check_NAME)"
        )
    return "\n".join(lines).strip("\n"), names


def graded_check(exercise: Exercise) -> str:
    """The visible check as it is graded: it stops with what is wrong."""
    source, names = checks_of(exercise)
    return "\n\n\n".join([source, "\n".join(f"{name}()" for name in names)])


def _independent(exercise: Exercise, known: set[str]) -> None:
    """Fail when a check needs a name that only the solution defines."""
    known = known | answer_names(exercise)
    for stage in ("setup", "check", "hidden"):
        for source in getattr(exercise, stage):
            defined, used = names_of(source)
            if missing := sorted(used - defined - known):
                raise PageError(
                    f"{exercise.where}: its {stage} uses {', '.join(missing)}, which "
                    "only its solution defines; an assignment has no solution"
                )
            known |= defined


def setup_code(root: Path, page: Page, exercises: list[Exercise]) -> str:
    """The one set-up cell of a notebook with these exercises of a page.

    It holds the page's plain imports, and the saved source of every name of the page
    that the exercises use, or name in their text, with what that source needs.
    """
    names = page_names(page)
    used: set[str] = set()
    for exercise in exercises:
        _independent(exercise, set(names))
        for stage in ("setup", "stub", "check", "hidden", "solution"):
            for source in getattr(exercise, stage):
                used |= names_of(source)[1]
        for word in re.findall(r"`([^`\n]+)`", exercise.statement + exercise.hint):
            used |= set(re.findall(r"\w+", word))
    imports = {names[name] for name in names if _is_import(names[name])}
    plain = {line for line in imports if _provided(line)}
    for exercise in exercises:
        for name in sorted(used & set(names)):
            if names[name] in imports - plain and name in _graded_names(exercise):
                raise PageError(
                    f"{exercise.where}: it needs '{names[name]}', but an assignment "
                    f"has only the standard library, {', '.join(PROVIDED)}"
                )
    wanted = [
        (names[name], name)
        for name in names
        if name in used and names[name] and not _is_import(names[name])
    ]
    needed, definitions = saved_definitions(root, [TRY_CHECK, *wanted])
    lines = sorted(
        {*plain, *(line for line in import_lines(needed) if line)},
        key=lambda line: (line.startswith("from"), line),
    )
    future = [line for line in lines if "__future__" in line]
    head = "\n".join(line for line in lines if line not in future)
    sources = [item.source.strip("\n") for item in definitions]
    code = "\n\n\n".join([head, *sources])
    return "\n\n".join(
        filter(None, ["\n".join(future), setup_source(root, [code]), code])
    )


def _graded_names(exercise: Exercise) -> set[str]:
    """The names that grading an exercise takes from outside."""
    sources = [*exercise.setup, *exercise.stub, *exercise.check, *exercise.hidden]
    return set().union(*(names_of(source)[1] for source in sources), set())


def _is_import(text: str) -> bool:
    return text.startswith(("import ", "from "))


def _provided(line: str) -> bool:
    """Is this import of a module that a student has?"""
    top = re.split(r"[ .]", line)[1]
    return top in PROVIDED or top in sys.stdlib_module_names


# -- the notebooks --------------------------------------------------------------------


def marker(label: str, part: str = "your answer") -> str:
    """The words by which a cell is known even when its metadata are lost."""
    return f"{label}: {part}"


def source_notebook(library: Library, sheet: Sheet, name: str) -> NotebookNode:
    """What nbgrader reads: statements, stubs, checks, and hidden checks."""
    node = _notebook(sheet, name)
    texts = read_texts(library, sheet.page)
    _add(node, "markdown", _note(library, sheet, name), "note")
    setup = setup_code(library.root, sheet.page, list(sheet.exercises))
    _add(node, "code", setup, "set-up", locked=True)
    for exercise in sheet.exercises:
        statement = [*texts[exercise.label].statement, worth(exercise)]
        _add(node, "markdown", "\n\n".join(statement), "statement", exercise)
        if exercise.kind == "written":
            _add_written(node, exercise)
        else:
            _add_code(node, exercise)
    return node


def _add_written(node: NotebookNode, exercise: Exercise) -> None:
    text = f"<!-- {marker(exercise.label)} -->\n\n*Your answer, in words.*"
    worth = exercise.points[0]
    _add(node, "markdown", text, "answer", exercise, points=worth, solution=True)


def _add_code(node: NotebookNode, exercise: Exercise) -> None:
    label = exercise.label
    visible, hidden = exercise.points
    for source in exercise.setup:
        _add(node, "code", source, "setup", exercise, locked=True)
    stub = f"# {marker(label)}\n{exercise.stub[0]}"
    _add(node, "code", stub, "answer", exercise, solution=True)
    check, names = checks_of(exercise)
    lines = [
        f"# {marker(label, 'check')}, {_points(visible)}",
        f"{check}\n\n",
        BEGIN,
        *(f"{name}()" for name in names),
        END,
        *(f"try_check({name})" for name in names),
    ]
    _add(node, "code", "\n".join(lines), "check", exercise, points=visible, locked=True)
    lines = [
        f"# {marker(label, 'further checks')}, {_points(hidden)}: run when your work "
        "is graded",
        *(BEGIN, exercise.hidden[0], END),
    ]
    _add(node, "code", "\n".join(lines), "hidden", exercise, points=hidden, locked=True)


def _notebook(sheet: Sheet, name: str) -> NotebookNode:
    node = nbformat.v4.new_notebook()
    about = {"assignment": name, "notebook": sheet.name, "page": sheet.page.stem}
    node.metadata = nbformat.from_dict(
        {
            "kernelspec": dict(KERNELSPEC),
            "language_info": dict(LANGUAGE),
            "tinygpt": about,
        }
    )
    return node


def _add(
    node: NotebookNode,
    kind: str,
    source: str,
    part: str,
    exercise: Exercise | None = None,
    points: int | None = None,
    solution: bool = False,
    locked: bool = False,
) -> NotebookNode:
    """Append a cell; one that nbgrader must know gets its metadata."""
    label = exercise.label if exercise else ""
    about: dict[str, Any] = {"part": part}
    if exercise:
        about |= {"exercise": label, "title": exercise.title, "kind": exercise.kind}
    metadata: dict[str, Any] = {"tinygpt": about}
    identity = "-".join(filter(None, [label, "" if part == "answer" else part]))
    same = sum(c.metadata.tinygpt == about for c in node.cells)
    identity += f"-{same + 1}" if same else ""
    if solution or locked:
        metadata["nbgrader"] = {
            "schema_version": 3,
            "grade_id": identity,
            "grade": points is not None,
            "solution": solution,
            "locked": locked,
            "task": False,
        }
        if points is not None:
            metadata["nbgrader"]["points"] = points
    new = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    place = f"{node.metadata.tinygpt.notebook} {identity} {len(node.cells)}"
    number = hashlib.sha256(place.encode()).hexdigest()[:12]
    node.cells.append(new(source, id=number, metadata=nbformat.from_dict(metadata)))
    return node.cells[-1]


def _note(library: Library, sheet: Sheet, name: str) -> str:
    """The first cell: what this is and what to do with it."""
    page = library.site.page(f"chapters/{sheet.page.stem}")
    total = sum(sum(exercise.points) for exercise in sheet.exercises)
    minutes = sum(exercise.minutes for exercise in sheet.exercises)
    many = len(sheet.exercises)
    return (
        f"# Assignment {name}\n"
        "\n"
        f"{many} exercise{'s' if many != 1 else ''} from the chapter "
        f"[{sheet.page.title}]({page}) of the book *TinyGPT*, {_points(total)}, about "
        f"{minutes} minutes. This notebook needs no other file. Run the set-up cell "
        "first, then answer each exercise in the cell that says so; keep that cell's "
        "first line. You may add cells of your own before it. Hand in this file."
    )


def key_notebook(library: Library, sheet: Sheet, name: str) -> NotebookNode:
    """The solutions with their text and, where stored, their outputs; the notes."""
    node = _notebook(sheet, name)
    texts = read_texts(library, sheet.page)
    printed = _stored_outputs(library.root, sheet.page.stem)
    _add(node, "markdown", f"# Solutions to assignment {name}", "note")
    setup = setup_code(library.root, sheet.page, list(sheet.exercises))
    _add(node, "code", setup, "set-up")
    for exercise in sheet.exercises:
        text = texts[exercise.label]
        statement = "\n\n".join([*text.statement, worth(exercise)])
        _add(node, "markdown", statement, "statement", exercise)
        for source in exercise.setup:
            _add(node, "code", source, "setup", exercise)
        if exercise.kind == "code":
            _add(node, "code", checks_of(exercise)[0], "check", exercise)
        for kind, source in text.solution:
            cell = _add(node, kind, source, "solution", exercise)
            if kind == "code":
                cell.outputs = printed.get(source, [])
        for source in exercise.hidden:
            _add(node, "code", source, "hidden", exercise)
        for note in text.notes:
            _add(node, "markdown", note, "notes", exercise)
    for cell, number in zip(node.cells, count()):
        place = f"key {sheet.name} {number}"
        cell.id = hashlib.sha256(place.encode()).hexdigest()[:12]
    return node


def _stored_outputs(root: Path, stem: str) -> dict[str, list[NotebookNode]]:
    """What the cells of a page's stored notebook printed, by their source."""
    path = root / "notebooks" / f"{stem}.ipynb"
    if not path.is_file():
        return {}
    cells = nbformat.read(path, as_version=4).cells
    return {cell.source: cell.outputs for cell in cells if cell.cell_type == "code"}


# -- the folder -----------------------------------------------------------------------


def points_table(sheets: list[Sheet]) -> str:
    """The points of an assignment as CSV, one line for each exercise."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for sheet in sheets:
        for exercise in sheet.exercises:
            visible, hidden = exercise.points
            table.writerow(
                [
                    *(exercise.label, exercise.title, sheet.page.stem, exercise.kind),
                    *(exercise.difficulty, exercise.minutes),
                    *(visible, hidden, visible + hidden),
                ]
            )
    return text.getvalue()


def write(library: Library, sheets: list[Sheet], name: str, out: Path) -> Path:
    """Write an assignment's folder, all but the release; returns its place.

    Raises:
        PageError: submissions to it were graded, and other cells are to be graded now.
    """
    place = out / name
    source = place / "source" / name
    new = {sheet.name: source_notebook(library, sheet, name) for sheet in sheets}
    keys = {sheet.name: key_notebook(library, sheet, name) for sheet in sheets}
    if (place / "submitted").is_dir() and graded_cells(source) != {
        cell.metadata.nbgrader.grade_id
        for node in new.values()
        for cell in node.cells
        if "nbgrader" in cell.metadata
    }:
        raise PageError(
            f"{place} holds graded submissions, and the assignment '{name}' has other "
            "exercises now: choose another name, or move that folder away"
        )
    for folder, nodes in ((source, new), (place / "key", keys)):
        folder.mkdir(parents=True, exist_ok=True)
        for stem, node in nodes.items():
            nbformat.validate(node)
            path = folder / f"{stem}.ipynb"
            path.write_text(serialise(node), encoding="utf-8", newline="\n")
        for old in folder.glob("*.ipynb"):
            if old.stem not in nodes:
                old.unlink()
    table = points_table(sheets)
    (place / "points.csv").write_text(table, encoding="utf-8", newline="")
    return place


def graded_cells(folder: Path) -> set[str]:
    """The ids of the cells that the notebooks of a source folder let nbgrader know."""
    return {
        cell.metadata.nbgrader.grade_id
        for path in sorted(folder.glob("*.ipynb"))
        for cell in nbformat.read(path, as_version=4).cells
        if "nbgrader" in cell.metadata
    }


# -- one exercise in this process, for tests -------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What an answer earned, and what the checks said."""

    points: int
    visible: str  # empty when the visible check passed
    hidden: str


def setup_namespace(
    root: Path, page: Page, exercises: list[Exercise]
) -> dict[str, Any]:
    """The names that the set-up cell of a notebook with these exercises defines."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    _execute(setup_code(root, page, exercises), f"<set-up of {page.stem}>", namespace)
    return namespace


def run_exercise(exercise: Exercise, answer: str, namespace: dict[str, Any]) -> Outcome:
    """Grade one answer in this very process, without isolation: for answers we trust.

    Args:
        exercise: a code exercise.
        answer: the source of the answer cell.
        namespace: what the set-up cell defines; it is copied, not changed.
    """
    names = dict(namespace)
    said = []
    for source in exercise.setup:
        _execute(source, f"<set-up of {exercise.label}>", names)
    _stopped(answer, f"<answer to {exercise.label}>", names)
    for stage, source in (
        ("check", graded_check(exercise)),
        ("hidden check", exercise.hidden[0]),
    ):
        said.append(_stopped(source, f"<{stage} of {exercise.label}>", names))
    earned = [0 if text else part for text, part in zip(said, exercise.points)]
    return Outcome(sum(earned), *said)


def _stopped(source: str, name: str, namespace: dict[str, Any]) -> str:
    """How running a source stopped, in words; empty when it came to its end."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _execute(source, name, namespace)
    except AssertionError as error:
        return str(error) or "an assertion without a message"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Run a source whose lines ``inspect`` can find, as in a notebook."""
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)
    exec(compile(source, name, "exec"), namespace)


# -- the command ----------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Write the assignments of all pages, or one of picked exercises."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.assignments", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("--out", type=Path, help="default: _build/assignments")
    parser.add_argument(
        "--pick", nargs="+", metavar="PAGE:NUMBERS", help="such as ch02:1,3 step5:all"
    )
    parser.add_argument("--name", help="what the picked exercises are called together")
    options = parser.parse_args(argv)
    if bool(options.pick) != bool(options.name):
        parser.error("--pick and --name go together")
    if options.name and not re.fullmatch(r"\w[\w.-]*", options.name):
        parser.error("--name may hold letters, digits, '_', '.' and '-'")
    root = options.root.resolve()
    out = (options.out or root / "_build" / "assignments").resolve()
    try:
        from tools.course import CourseError, release
    except ImportError as error:
        print(f"nbgrader is missing ({error}): run 'make instructor'")
        return 1
    try:
        library = Library(root)
        words = {options.name: options.pick} if options.name else {}
        for page in [] if words else pages_with_exercises(library):
            words[Path(page).stem] = [f"{Path(page).stem}:all"]
        for name, picked in words.items():
            sheets = pick(library, picked, name)
            place = write(library, sheets, name, out)
            release(root, place)
            exercises = [exercise for s in sheets for exercise in s.exercises]
            total = sum(sum(exercise.points) for exercise in exercises)
            print(f"{place}: {len(exercises)} exercises, {_points(total)}")
    except (PageError, CourseError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
