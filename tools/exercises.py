"""The exercises of a page: what a reader, a student and a grader get to see of them.

An exercise is a run of blocks in a page's text. In this order: the statement, an
``{exercise}`` with its label; its ``{task}``, which says how hard and how long it is,
what it is worth and what it teaches; a hint; code cells tagged ``exercise-setup``,
``exercise-stub`` and ``exercise-check``; between ``{solution-start}`` and
``{solution-end}`` the solution, with cells tagged ``exercise-solution`` and at last the
one tagged ``exercise-hidden``; and an ``{instructor}`` note. An exercise that is
answered in words has a ``{marking}`` block in place of the cells.

Two editions come of it. The *reader's* has neither hidden checks nor what is meant for
the instructor. The *student's* has no solutions either.
"""

import ast
import builtins
import functools
import re
import symtable
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt

from tools.pages import ROOT, Page, PageError, pages_in_order, read_page, uses

TAG = "exercise-"
STAGES = ("setup", "stub", "check", "solution", "hidden")
KINDS = ("code", "written")
DIFFICULTIES = range(1, 4)
# The blocks that an edition leaves out; a solution reaches from its start to its end.
LEFT_OUT = {
    "reader": {"exercise-hidden", "instructor", "marking"},
    "student": {"exercise-hidden", "instructor", "marking", "solution"},
}
FENCES = MarkdownIt("commonmark").disable("inline")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: what it is, its argument, options, body and lines."""

    name: str
    argument: str
    options: dict[str, Any]
    body: str
    first: int  # counted from 0, inclusive
    last: int  # exclusive

    @property
    def stage(self) -> str | None:
        """Which part of an exercise a code cell is, or none."""
        stages = [tag.removeprefix(TAG) for tag in self.tags if tag.startswith(TAG)]
        return stages[0] if stages else None

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.options.get("tags") or ()) if self.name == "code-cell" else ()


@dataclass
class Exercise:
    """One exercise of a page, in all its parts."""

    label: str
    title: str
    page: str
    number: int
    line: int
    statement: str
    kind: str = "code"
    difficulty: int = 0
    minutes: int = 0
    points: tuple[int, int] = (0, 0)
    teaches: str = ""
    hint: str = ""
    setup: list[str] = field(default_factory=list)
    stub: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    solution: list[str] = field(default_factory=list)
    solution_text: str = ""
    marking: str = ""
    instructor: str = ""

    @property
    def where(self) -> str:
        return f"chapters/{self.page}.md, line {self.line} ({self.label})"


@functools.lru_cache(maxsize=128)
def blocks(text: str) -> tuple[Block, ...]:
    """The fenced directives at the top level of a page's text."""
    return tuple(_blocks(text))


def _blocks(text: str) -> Iterator[Block]:
    for token in FENCES.parse(text):
        match = re.match(r"\{([\w:-]+)\}\s*(.*)", token.info or "")
        if token.type != "fence" or token.level or not match:
            continue
        options, body = _options(token.content)
        first, last = token.map
        yield Block(match[1], match[2].strip(), options, body, first, last)


def _options(content: str) -> tuple[dict[str, Any], str]:
    """A directive's options, in either way of writing them, and its body."""
    lines = content.split("\n")
    if lines[0].startswith("---"):
        end = next(i for i, line in enumerate(lines[1:], 1) if line.startswith("---"))
        head, rest = "\n".join(lines[1:end]), lines[end + 1 :]
        return yaml.safe_load(head) or {}, "\n".join(rest).strip("\n")
    options = {}
    while lines and (match := re.match(r":([\w-]+):\s*(.*)", lines[0])):
        options[match[1]] = match[2].strip()
        lines.pop(0)
    return options, "\n".join(lines).strip("\n")


def edition_text(text: str, edition: str, keep_lines: bool = False) -> str:
    """The text of a page as one edition has it.

    Args:
        text: the source.
        edition: ``reader`` or ``student``.
        keep_lines: leave a blank line for each line that goes, so that the places which
            messages name stay right.
    """
    left_out = LEFT_OUT[edition]
    lines = text.split("\n")
    gone: list[tuple[int, int]] = []
    opened: Block | None = None
    for block in blocks(text):
        if block.name == "solution-start":
            opened = block
        elif block.name == "solution-end" and opened and "solution" in left_out:
            gone.append((opened.first, block.last))
        whole = block.name == "solution" and "solution" in left_out
        if whole or left_out & {block.name, *block.tags}:
            gone.append((block.first, block.last))
    for first, last in gone:
        lines[first:last] = [None] * (last - first)
    if keep_lines:
        return "\n".join(line or "" for line in lines)
    kept: list[str] = []
    after_gap = False
    for line in lines:
        if line is None:
            after_gap = True
            while kept and not kept[-1]:
                kept.pop()
        elif line or not after_gap:
            kept += [""] if after_gap else []
            kept.append(line)
            after_gap = False
    return "\n".join([*kept, ""] if after_gap else kept)


def task_line(options: dict[str, str]) -> str:
    """What a reader is told of a task: how hard, how long, and what it teaches."""
    how = ", answered in words" if options.get("kind") == "written" else ""
    return (
        f"Difficulty {options.get('difficulty')} of {DIFFICULTIES[-1]}, about "
        f"{options.get('minutes')} minutes{how}. {options.get('teaches', '')}"
    )


def read_exercises(page: Page, whole: bool = True) -> list[Exercise]:
    """The exercises of a page; one that lacks a part fails, named by page and line.

    Args:
        page: a page of the book.
        whole: False for an edition that leaves parts out.
    """
    text = page.path.read_text(encoding="utf-8")
    lines = text.split("\n")
    found: list[Exercise] = []
    solving: int | None = None
    for block in blocks(text):
        if block.name == "exercise":
            label = block.options.get("label", "")
            found.append(
                Exercise(
                    label=label,
                    title=block.argument,
                    page=page.stem,
                    number=len(found) + 1,
                    line=block.first + 1,
                    statement=block.body,
                )
            )
            if not label:
                raise PageError(f"{found[-1].where}: an exercise needs a label")
            continue
        if block.name == "solution-start":
            solving = block.last
        if block.stage is None and block.name not in (
            *("task", "instructor", "marking", "solution-start", "solution-end"),
            *(["dropdown"] if found and block.argument == "Hint" else []),
        ):
            continue
        place = f"chapters/{page.stem}.md, line {block.first + 1}"
        if not found:
            raise PageError(f"{place}: {block.name} stands before any exercise")
        exercise = found[-1]
        if block.stage:
            if block.stage not in STAGES:
                raise PageError(
                    f"{place}: unknown tag {TAG}{block.stage}; expected one of "
                    f"{', '.join(TAG + stage for stage in STAGES)}"
                )
            getattr(exercise, block.stage).append(block.body)
        elif block.name == "dropdown":
            exercise.hint = exercise.hint or block.body
        elif block.argument != exercise.label and block.name != "solution-end":
            raise PageError(
                f"{place}: {block.name} names '{block.argument}', but the exercise "
                f"above it is '{exercise.label}'"
            )
        elif block.name == "task":
            _read_task(exercise, block, place)
        elif block.name == "solution-end":
            if solving is None:
                raise PageError(f"{place}: solution-end without solution-start")
            exercise.solution_text = _prose(lines[solving : block.first])
            solving = None
        elif block.name != "solution-start":
            setattr(exercise, block.name, block.body)
    for exercise in found if whole else ():
        _complete(exercise)
        _names(page, exercise)
    return found


def _read_task(exercise: Exercise, block: Block, place: str) -> None:
    known = {"kind", "difficulty", "minutes", "points", "teaches"}
    if unknown := sorted(set(block.options) - known):
        raise PageError(f"{place}: unknown options {unknown} of task")
    exercise.kind = block.options.get("kind", "code")
    if exercise.kind not in KINDS:
        raise PageError(f"{place}: kind is {exercise.kind!r}; expected one of {KINDS}")
    exercise.teaches = block.options.get("teaches", "")
    pattern = r"(\d+)" if exercise.kind == "written" else r"(\d+) \+ (\d+)"
    points = re.fullmatch(pattern, block.options.get("points", ""))
    if not points:
        form = "'4'" if exercise.kind == "written" else "'1 + 3'"
        raise PageError(
            f"{place}: points is {block.options.get('points')!r}; expected the form "
            f"{form}"
        )
    visible, hidden = int(points[1]), int(points[2]) if points.lastindex == 2 else 0
    exercise.points = (visible, hidden)
    for name, values in (("difficulty", DIFFICULTIES), ("minutes", range(1, 601))):
        value = block.options.get(name, "")
        if not value.isdecimal() or int(value) not in values:
            raise PageError(
                f"{place}: {name} is {value!r}; expected a whole number from "
                f"{values[0]} to {values[-1]}"
            )
        setattr(exercise, name, int(value))


def _prose(lines: list[str]) -> str:
    """The text between the code cells of a solution."""
    text = "\n".join(lines)
    kept = text.split("\n")
    for block in blocks(text):
        if block.name == "code-cell":
            kept[block.first : block.last] = [""] * (block.last - block.first)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n")


def _complete(exercise: Exercise) -> None:
    """Fail when a part is missing that this kind of exercise must have."""
    needed = {
        "code": ("stub", "check", "solution", "hidden", "solution_text"),
        "written": ("marking", "solution_text"),
    }[exercise.kind]
    for part in ("difficulty", "teaches", *needed, "instructor"):
        if not getattr(exercise, part):
            raise PageError(f"{exercise.where}: no {part.replace('_', ' ')}")
    if exercise.kind == "written" and (exercise.stub or exercise.check):
        raise PageError(
            f"{exercise.where}: a written exercise has no stub and no check"
        )
    for stage in ("stub", "check", "hidden"):
        if len(getattr(exercise, stage)) > 1:
            raise PageError(f"{exercise.where}: more than one {stage} cell")


def _names(page: Page, exercise: Exercise) -> None:
    """Fail when a cell uses a name that an assignment could not provide."""
    if exercise.kind == "written":  # the cells of its solution are no answers
        return
    known = set(page_names(page))
    for stage in STAGES:
        sources = getattr(exercise, stage)
        # Only the first cell of a solution is an answer; the others show what it does.
        for source in sources[:1] if stage == "solution" else sources:
            defined, used = names_of(source)
            if missing := sorted(used - defined - known):
                raise PageError(
                    f"{exercise.where}: its {stage} uses {', '.join(missing)}, which "
                    "the page neither saves nor imports, and no earlier cell of the "
                    "exercise defines"
                )
            known |= defined


def names_of(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell binds at its top level, and those it takes from outside."""
    table = symtable.symtable(source, "cell", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned()}
    bound |= {s.get_name() for s in table.get_symbols() if s.is_imported()}
    bound |= {child.get_name() for child in table.get_children()}
    taken: set[str] = set()

    def walk(scope: symtable.SymbolTable) -> None:
        for symbol in scope.get_symbols():
            outside = scope is table and not symbol.is_local()
            if symbol.is_referenced() and (outside or symbol.is_global()):
                taken.add(symbol.get_name())
        for child in scope.get_children():
            walk(child)

    walk(table)
    return bound, taken - set(dir(builtins)) - {"__name__"}


def page_names(page: Page) -> dict[str, str]:
    """What the cells of a page's exercises may use, and where it comes from.

    Each name maps to the module that saves it, or to the import that binds it.
    """
    names: dict[str, str] = {}
    for cell in page.code_cells:
        if any(tag.startswith(TAG) for tag in cell.tags):
            continue
        for use in uses(page, cell):
            names |= dict.fromkeys(use.names, use.module)
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:
            continue
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                if (getattr(node, "module", None) or "").split(".")[0] == "tinygpt":
                    continue
                for alias in node.names:
                    single = type(node)(**{**vars(node), "names": [alias]})
                    bound = alias.asname or alias.name.split(".")[0]
                    names[bound] = ast.unparse(single)
            elif cell.saved:
                for name in names_of(ast.unparse(node))[0]:
                    names[name] = page.module or ""
    return names


def all_exercises(root: Path = ROOT, whole: bool = True) -> list[Exercise]:
    """Every exercise of the book, in the order of the table of contents.

    Args:
        root: the repository, or the staged tree of an edition.
        whole: False for an edition that leaves parts out.

    Raises:
        PageError: an exercise lacks a part, or two have one id.
    """
    found: list[Exercise] = []
    for file in pages_in_order(root):
        if file.startswith("chapters/"):
            found += read_exercises(read_page(root / f"{file}.md"), whole)
    seen: dict[str, Exercise] = {}
    for exercise in found:
        if exercise.label in seen:
            raise PageError(
                f"{exercise.where}: the id is taken by {seen[exercise.label].where}"
            )
        seen[exercise.label] = exercise
    return found


def short_names(stems: Iterable[str]) -> dict[str, str]:
    """How a person calls each page: ``step5`` for ``step5-gpt``.

    Where two pages would be called alike, each keeps its whole name.
    """
    short = {stem: stem.partition("-")[0] for stem in stems}
    count = Counter(short.values())
    return {stem: name if count[name] == 1 else stem for stem, name in short.items()}


def exercise_rows(root: Path = ROOT) -> list[tuple[Exercise, str]]:
    """Each exercise that has a task, with its row of a Markdown table.

    It reads the task and the statement alone, so that it works in every edition.
    """
    rows = []
    called = short_names(path.stem for path in (root / "chapters").glob("*.md"))
    for exercise in all_exercises(root, whole=False):
        if not exercise.difficulty:
            continue
        visible, hidden = exercise.points
        points = f"{visible} + {hidden}" if exercise.kind == "code" else str(visible)
        title = exercise.title.replace("|", "\\|")
        rows.append(
            (
                exercise,
                f"| `{called[exercise.page]}:{exercise.number}` | "
                f"{{ref}}`{title} <{exercise.label}>` | "
                f"{exercise.difficulty} | {exercise.minutes} | {exercise.kind} | "
                f"{points} |",
            )
        )
    return rows
