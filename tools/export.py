"""Write the package: the saved cells of each page become one module of ``tinygpt``.

    python -m tools.export            write what changed, remove what is left over
    python -m tools.export --check    write nothing, fail when something is stale

A cell whose first line is ``# @save`` is exported. It may hold imports, definitions,
constants, and ``Class.name = function``; it is read as a syntax tree, and nothing of
it runs. Other tools ask ``saved_source`` for the source of a saved name together with
everything that it needs.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import ast
import builtins
import io
import keyword
import os
import re
import symtable
import textwrap
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from docutils.nodes import make_id
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from pyflakes import checker, messages

from tools.pages import (
    MYST_EXTENSIONS,
    ROOT,
    SAVE,
    Cell,
    Page,
    PageError,
    Site,
    read_page,
    read_site,
    uses,
)

PACKAGE = "tinygpt"
HEADER = "# Generated from "
WIDTH = 88

# Calls that a constant may make: they build a value and do nothing else.
PURE_CALLS = frozenset(
    {
        *("abs", "bool", "bytes", "classmethod", "dict", "float", "frozenset", "int"),
        *("len", "list", "max", "min", "object", "property", "range", "round", "set"),
        *("slice", "sorted", "staticmethod", "str", "sum", "tuple"),
        *("dataclasses.field", "decimal.Decimal", "enum.auto", "fractions.Fraction"),
        *("math.exp", "math.log", "math.log2", "math.sqrt"),
        *("pathlib.Path", "pathlib.PurePath", "re.compile", "types.MappingProxyType"),
        *("typing.NewType", "typing.ParamSpec", "typing.TypeVar"),
    }
)
# The built-in names that may decorate a definition.
BUILTIN_DECORATORS = frozenset({"classmethod", "property", "staticmethod"})

IMPURE = (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True)
class Import:
    """One imported name: ``import module as alias``, ``from module import name``."""

    module: str
    name: str | None = None
    alias: str | None = None

    @property
    def binds(self) -> str:
        """The name that the import brings into the module."""
        return self.alias or self.name or self.module.split(".")[0]

    @property
    def ours(self) -> bool:
        return self.module.split(".")[0] == PACKAGE


@dataclass(frozen=True)
class Place:
    """A line of a code cell, for messages."""

    page: Page
    cell: Cell
    line: int = 1

    def __str__(self) -> str:
        return self.page.where(self.cell, self.line)


@dataclass(frozen=True, eq=False)
class Definition:
    """A statement of a saved cell that is kept: a definition, constant, attachment.

    ``names`` are the names it binds; an attachment binds none and has ``attached``,
    such as ``TinyGPT.generate``, instead. ``source`` is its text with the comments
    above it; ``place`` is where that text begins. ``needs`` are the names that it
    uses and does not bind itself, built-in names among them.
    """

    names: tuple[str, ...]
    attached: str
    source: str
    needs: frozenset[str]
    place: Place
    node: ast.stmt | None
    space: int  # blank lines above it, in its cell

    @property
    def is_block(self) -> bool:
        return isinstance(self.node, DEFINITIONS)


@dataclass(frozen=True)
class Saved:
    """What the saved cells of one page hold, in document order."""

    page: Page
    imports: tuple[tuple[Import, Place], ...]
    definitions: tuple[Definition, ...]
    findings: tuple[str, ...]

    @property
    def module(self) -> str:
        return self.page.module or ""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name defined here, in document order."""
        return tuple(name for item in self.definitions for name in item.names)

    @property
    def public(self) -> list[str]:
        """The names that the module offers, in the order of ``__all__``."""
        return sorted((n for n in self.names if not n.startswith("_")), key=member_key)

    def definition(self, name: str) -> Definition | None:
        return next((item for item in self.definitions if name in item.names), None)

    def attachments(self, name: str) -> list[Definition]:
        """The statements that attach something to the class ``name``."""
        return [d for d in self.definitions if d.attached.split(".")[0] == name]

    def imported(self, name: str) -> list[Import]:
        """The imports that bind ``name`` (``import a`` and ``import a.b`` both do)."""
        return [item for item, _ in self.imports if item.binds == name]


# ------------------------------------------------------------- reading saved cells


def find_saved(page: Page) -> Saved:
    """Read the saved cells of a page; every broken rule is in ``findings``."""
    findings: list[str] = []
    imports: list[tuple[Import, Place]] = []
    definitions: list[Definition] = []
    for cell in page.code_cells:
        findings += _stray_marks(page, cell)
        if not cell.saved:
            continue
        try:
            tree = ast.parse(cell.source)
        except SyntaxError as error:
            findings.append(_not_python(page, cell, error))
            continue
        except ValueError as error:  # a null character
            findings.append(f"{Place(page, cell)}: not plain Python ({error})")
            continue
        try:
            uses(page, cell)
        except PageError as error:
            findings.append(str(error))
        _read_cell(page, cell, tree, imports, definitions, findings)
    findings += _forbidden(page, imports, definitions)
    findings += _defined_twice(imports, definitions)
    if any(cell.saved for cell in page.code_cells):
        findings += _bad_module(page)
    return Saved(page, tuple(imports), tuple(definitions), tuple(findings))


def _not_python(page: Page, cell: Cell, error: SyntaxError) -> str:
    line = min(error.lineno or 1, len(cell.source.splitlines()))
    text = cell.source.splitlines()[line - 1].strip()
    return (
        f"{Place(page, cell, line)}: not plain Python ({error.msg}): {text!r}; a saved "
        "cell holds no magic and no shell command, so move it to a cell without "
        f"'{SAVE}'"
    )


def _stray_marks(page: Page, cell: Cell) -> Iterator[str]:
    """Comments that look like the mark but do not export: surely a mistake."""
    if "@save" not in cell.source:
        return
    reader = io.StringIO(cell.source + "\n").readline
    try:
        for token in tokenize.generate_tokens(reader):
            if token.type != tokenize.COMMENT:
                continue
            if not re.match(r"#+\s*@save\b", token.string):
                continue
            if token.start == (1, 0) and cell.saved:
                continue
            yield (
                f"{Place(page, cell, token.start[0])}: {token.string!r} does not "
                f"export; the cell's first line must be exactly '{SAVE}'"
            )
    except (tokenize.TokenError, SyntaxError):
        return  # not Python: the mark would be refused in a saved cell anyway


def _bad_module(page: Page) -> Iterator[str]:
    module = page.module
    if not module:
        yield (
            f"{page.name}: has '{SAVE}' cells but its front matter names no module; "
            f"add 'tinygpt: {{module: {PACKAGE}.name}}'"
        )
        return
    head, _, tail = str(module).partition(".")
    good = re.fullmatch(r"[a-z][a-z0-9_]*", tail) and not keyword.iskeyword(tail)
    if head != PACKAGE or not good:
        yield (
            f"{page.name}: module {module!r}; expected {PACKAGE}.name, where name is "
            "lower-case letters, digits and underscores"
        )


def _read_cell(
    page: Page,
    cell: Cell,
    tree: ast.Module,
    imports: list[tuple[Import, Place]],
    definitions: list[Definition],
    findings: list[str],
) -> None:
    """Sort the statements of one saved cell into imports and definitions."""
    lines = cell.source.split("\n")
    end = 1  # the last line that is taken; line 1 is the mark
    for node in tree.body:
        first = _first_line(node)
        if first <= end:
            findings.append(
                f"{Place(page, cell, first)}: two statements on one line; "
                "a saved cell has one a line"
            )
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            place = Place(page, cell, node.lineno)
            imports += [(item, place) for item in _read_import(node, place, findings)]
            end = node.end_lineno
            continue
        start = end + 1
        while not lines[start - 1].strip():
            start += 1
        last = _last_line(lines, node)
        source = "\n".join(lines[start - 1 : last])
        names, attached = _binds(node)
        definitions.append(
            Definition(
                names=names,
                attached=attached,
                source=source,
                needs=free_names(node, source) - set(names),
                place=Place(page, cell, start),
                node=node,
                space=start - end - 1,
            )
        )
        end = last
    rest = [number for number in range(end + 1, len(lines) + 1) if lines[number - 1]]
    rest = [number for number in rest if lines[number - 1].strip()]
    if rest and tree.body:  # comments that close the cell
        definitions.append(
            Definition(
                names=(),
                attached="",
                source="\n".join(lines[rest[0] - 1 : rest[-1]]),
                needs=frozenset(),
                place=Place(page, cell, rest[0]),
                node=None,
                space=rest[0] - end - 1,
            )
        )


def _first_line(node: ast.stmt) -> int:
    """The line on which a statement begins, its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(item.lineno for item in decorators)])


def _last_line(lines: list[str], node: ast.stmt) -> int:
    """The last line of a statement, with comments indented under it."""
    last = node.end_lineno
    if isinstance(node, DEFINITIONS):
        for number in range(node.end_lineno + 1, len(lines) + 1):
            text = lines[number - 1]
            if text.strip() and not (text[0] in " \t" and text.lstrip()[0] == "#"):
                break
            if text.strip():
                last = number
    return last


def _read_import(
    node: ast.Import | ast.ImportFrom, place: Place, findings: list[str]
) -> list[Import]:
    if isinstance(node, ast.Import):
        return [Import(alias.name, None, alias.asname) for alias in node.names]
    if node.level:
        findings.append(
            f"{place}: a relative import; name the module in full, "
            f"'from {PACKAGE}.x import name'"
        )
        return []
    if any(alias.name == "*" for alias in node.names):
        findings.append(f"{place}: 'import *'; name what the cell needs")
        return []
    return [Import(node.module, a.name, _alias(a)) for a in node.names]


def _alias(alias: ast.alias) -> str | None:
    return None if alias.asname == alias.name else alias.asname


def _binds(node: ast.stmt) -> tuple[tuple[str, ...], str]:
    """The names that a statement binds, and what it attaches to a class."""
    if isinstance(node, DEFINITIONS):
        return (node.name,), ""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return (node.target.id,), ""
    if not isinstance(node, ast.Assign):
        return (), ""
    target = node.targets[0]
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return (), f"{target.value.id}.{target.attr}"
    names = []
    for target in node.targets:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        names += [part.id for part in parts if isinstance(part, ast.Name)]
    return tuple(names), ""


def free_names(node: ast.stmt, source: str) -> frozenset[str]:
    """The names that a top-level statement takes from outside itself."""
    found: set[str] = set()
    tables = [symtable.symtable(source, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                found.add(symbol.get_name())
    return frozenset(found | _quoted_names(node))


def _quoted_names(node: ast.AST) -> set[str]:
    """The names in annotations that are written as strings."""
    found: set[str] = set()
    for part in ast.walk(node):
        quoted = [getattr(part, "annotation", None), getattr(part, "returns", None)]
        while quoted:
            item = quoted.pop()
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                try:
                    item = ast.parse(item.value.strip(), mode="eval").body
                except SyntaxError:
                    continue
                found |= {n.id for n in ast.walk(item) if isinstance(n, ast.Name)}
            elif isinstance(item, ast.AST) and not _is_literal(item):
                quoted += ast.iter_child_nodes(item)
    return found


def _is_literal(node: ast.AST) -> bool:
    """``Literal["a"]`` holds a string that is no annotation."""
    return isinstance(node, ast.Subscript) and _dotted(node.value)[-7:] == "Literal"


# --------------------------------------------------------------- what may be saved


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes on a name, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := _dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


class _Rules:
    """What a saved statement may do, given the page's imports and definitions."""

    def __init__(self, imports: list[tuple[Import, Place]], defined: set[str]) -> None:
        self.defined = defined
        self.full: dict[str, str] = {}
        for item, _ in imports:
            if item.name or item.alias:
                full = f"{item.module}.{item.name}" if item.name else item.module
                self.full[item.binds] = full
            else:
                self.full[item.binds] = item.binds

    def full_name(self, node: ast.AST) -> str:
        """The full dotted name behind an expression, its aliases resolved."""
        head, dot, tail = _dotted(node).partition(".")
        if head in self.defined:
            return f"(this page).{head}{dot}{tail}"
        return self.full.get(head, head) + dot + tail

    def expression(self, node: ast.expr | None) -> Iterator[tuple[int, str]]:
        """What an expression that runs at import does and must not do."""
        if node is None or isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.Lambda):
            yield from self._inside(node.args)  # defaults, and not the body
            return
        if isinstance(node, IMPURE):
            yield node.lineno, f"{ast.unparse(node)!r} runs at import"
        if isinstance(node, ast.Call) and self.full_name(node.func) not in PURE_CALLS:
            name = _dotted(node.func) or ast.unparse(node.func)
            yield node.lineno, f"the call {name}(...) runs at import"
            return
        for child in ast.iter_child_nodes(node):
            yield from self._inside(child)

    def _inside(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.expr):
            yield from self.expression(node)
        else:  # keywords and comprehensions, parameters with their defaults
            for child in ast.iter_child_nodes(node):
                yield from self._inside(child)

    def _decorator(self, node: ast.expr) -> Iterator[tuple[int, str]]:
        called = node.func if isinstance(node, ast.Call) else node
        name = _dotted(called)
        if not name:
            yield node.lineno, f"the decorator {ast.unparse(node)!r} runs at import"
        elif hasattr(builtins, name) and name not in self.defined | BUILTIN_DECORATORS:
            yield node.lineno, f"the decorator @{name} runs at import"
        if isinstance(node, ast.Call):
            for part in (*node.args, *(item.value for item in node.keywords)):
                yield from self.expression(part)

    def statement(self, node: ast.stmt) -> Iterator[tuple[int, str]]:
        """What a statement at the top of a cell, or in a class, does wrongly."""
        if isinstance(node, DEFINITIONS):
            for decorator in node.decorator_list:
                yield from self._decorator(decorator)
        if isinstance(node, FUNCTIONS):
            yield from self._inside(node.args)  # defaults and annotations
            yield from self.expression(node.returns)
            yield from self._import_inside(node)
        elif isinstance(node, ast.ClassDef):
            for part in (*node.bases, *(item.value for item in node.keywords)):
                yield from self.expression(part)
            for index, inner in enumerate(node.body):
                if isinstance(inner, ast.Pass) or (index == 0 and _is_text(inner)):
                    continue
                if isinstance(inner, ast.Expr) and _is_dots(inner.value):
                    continue
                if isinstance(inner, ast.Assign) and _binds(inner)[1]:
                    yield inner.lineno, f"{ast.unparse(inner)!r} runs at import"
                    continue
                yield from self.statement(inner)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from self._assignment(node)
        elif _is_text(node):
            yield node.lineno, "a bare string; write a comment or a docstring"
        elif isinstance(node, ast.Expr):
            found = list(self.expression(node.value))
            yield from found or [(node.lineno, "an expression whose value is lost")]
        else:
            yield node.lineno, f"{_kind(node)} runs at import"

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> Iterator:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            parts = (
                target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            )
            for part in parts:
                if not isinstance(part, ast.Name):
                    yield (
                        node.lineno,
                        f"assigning to {ast.unparse(part)!r} changes an object at "
                        "import",
                    )
        yield from self.expression(getattr(node, "annotation", None))
        yield from self.expression(node.value)

    def _import_inside(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        for part in ast.walk(node):
            if isinstance(part, ast.Import | ast.ImportFrom):
                module = getattr(part, "module", None) or part.names[0].name
                if getattr(part, "level", 0) or module.split(".")[0] == PACKAGE:
                    yield (
                        part.lineno,
                        "an import from the package inside a function; move it to the "
                        "top of the cell",
                    )


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _kind(node: ast.stmt) -> str:
    names = {"AugAssign": "+=", "AsyncFor": "async for", "AsyncWith": "async with"}
    kind = type(node).__name__
    return f"'{names.get(kind, kind.lower())}'"


def _forbidden(
    page: Page,
    imports: list[tuple[Import, Place]],
    definitions: list[Definition],
) -> Iterator[str]:
    """Statements with a side effect, attachments to strangers, missing docstrings."""
    defined = {name for item in definitions for name in item.names}
    rules = _Rules(imports, defined)
    classes: set[str] = set()
    before: set[str] = set()
    for item in definitions:
        cell, node = item.place.cell, item.node
        if node is None:
            continue
        if item.attached:
            if problem := _bad_attachment(node, classes, before):
                yield f"{Place(page, cell, node.lineno)}: {problem}"
        else:
            for line, problem in rules.statement(node):
                if problem.endswith("at import"):
                    problem += f"; move it to a cell without '{SAVE}'"
                yield f"{Place(page, cell, line)}: {problem}"
        if problem := _bad_docstring(item):
            yield f"{Place(page, cell, node.lineno)}: {problem}"
        before |= set(item.names)
        if isinstance(node, ast.ClassDef):
            classes.add(node.name)


def _bad_attachment(node: ast.Assign, classes: set[str], before: set[str]) -> str:
    """Why ``Class.name = function`` may not be saved, or an empty string."""
    owner, value = node.targets[0].value.id, node.value
    if isinstance(value, ast.Call) and _dotted(value.func) in BUILTIN_DECORATORS:
        value = value.args[0] if len(value.args) == 1 else value
    text = ast.unparse(node)
    if len(node.targets) != 1 or not isinstance(value, ast.Name):
        return f"{text!r}; attach a function by its name, 'Class.name = function'"
    if owner not in classes:
        return (
            f"{text!r}: {owner} is no class of the saved cells above; attach where "
            "the class is built"
        )
    if value.id not in before:
        return f"{text!r}: {value.id} is not defined in the saved cells above"
    return ""


def _bad_docstring(item: Definition) -> str:
    """Why the docstring of a public definition cannot gain its line, or ''."""
    node = item.node
    if not isinstance(node, DEFINITIONS) or node.name.startswith("_"):
        return ""
    kind = "class" if isinstance(node, ast.ClassDef) else "function"
    if not ast.get_docstring(node, clean=False):
        return f"the public {kind} {node.name} has no docstring"
    line = item.place.cell.source.split("\n")[node.body[0].lineno - 1]
    if line.encode()[: node.body[0].col_offset].strip():
        return f"the docstring of {node.name} begins on a line of its own"
    segment = ast.get_source_segment(item.place.cell.source, node.body[0].value)
    tokens = tokenize.generate_tokens(io.StringIO(f"({segment})").readline)
    if sum(token.type == tokenize.STRING for token in tokens) != 1:
        return f"the docstring of {node.name} is written as one string"
    return ""


def _defined_twice(
    imports: list[tuple[Import, Place]], definitions: list[Definition]
) -> Iterator[str]:
    """Names, methods and attached methods that have two definitions."""
    seen: dict[str, Place] = {}
    for item in definitions:
        found = [(name, item.place) for name in item.names]
        if item.attached:
            found.append((item.attached, item.place))
        if isinstance(item.node, ast.ClassDef):
            found += _members(item)
        for name, place in found:
            if name in seen:
                yield f"{place}: {name} is defined twice; first in {seen[name]}"
            seen.setdefault(name, place)
    bound: dict[str, tuple[Import, Place]] = {}
    for item, place in imports:
        name = item.binds
        if name in seen:
            yield f"{place}: {name} is imported here and defined in {seen[name]}"
        other, first = bound.setdefault(name, (item, place))
        plain = not (item.name or item.alias or other.name or other.alias)
        if item != other and not plain:
            yield f"{place}: {name} is imported as two things; first in {first}"


def _members(item: Definition) -> Iterator[tuple[str, Place]]:
    """The attributes that a class body defines; setters and the like are no second."""
    for node in item.node.body:
        for name in _binds(node)[0]:
            decorators = [_dotted(d) for d in getattr(node, "decorator_list", [])]
            if any(d.startswith(f"{name}.") for d in decorators):
                continue
            place = Place(item.place.page, item.place.cell, node.lineno)
            yield f"{item.node.name}.{name}", place


# --------------------------------------------------- source of saved names, for others


@lru_cache(maxsize=256)
def _read_cached(path: Path, changed: int, size: int) -> Saved:
    return find_saved(read_page(path))


def saved_pages(root: Path = ROOT) -> list[Saved]:
    """The saved cells of every page, sorted by file name; read again when changed."""
    found = []
    for path in sorted((root / "chapters").glob("*.md")):
        stat = path.stat()
        found.append(_read_cached(path, stat.st_mtime_ns, stat.st_size))
    return found


def saved_modules(root: Path = ROOT) -> dict[str, Saved]:
    """The pages with saved cells, by the name of their module."""
    return {saved.module: saved for saved in saved_pages(root) if saved.definitions}


def saved_definitions(
    root: Path, wanted: Iterable[tuple[str, str]]
) -> tuple[list[Import], list[Definition]]:
    """The definitions behind pairs of module and name, and behind all that they need.

    Modules come before those that use them; within a module the order is that of the
    page. What is attached to a wanted class comes along. Raises ``PageError`` for an
    unknown module or name, a broken page, or two things that share a name.
    """
    modules = saved_modules(root)
    imports: dict[Import, str] = {}
    chosen: set[Definition] = set()
    graph: dict[str, set[str]] = {}
    done: set[tuple[str, str]] = set()

    def take(module: str, name: str) -> None:
        if (module, name) in done:
            return
        done.add((module, name))
        saved = modules.get(module)
        if saved is None:
            raise PageError(f"no page exports {module}, from which {name} is used")
        if saved.findings:
            raise PageError("\n".join(saved.findings))
        definition = saved.definition(name)
        if definition is None:
            raise PageError(f"{saved.page.name}: {module} exports no name {name}")
        others = graph.setdefault(module, set())
        for item in (definition, *saved.attachments(name)):
            chosen.add(item)
            for need in sorted(item.needs):
                if saved.definition(need):
                    take(module, need)
                for found in saved.imported(need):
                    if found.ours:
                        others.add(found.module)
                        take(found.module, found.name)
                    else:
                        imports[found] = module
        for found, _ in saved.imports:
            if found.module == "__future__":
                imports[found] = module

    for module, name in wanted:
        take(module, name)
    definitions = [
        item
        for found in in_order(graph)
        for item in modules[found].definitions
        if item in chosen
    ]
    _no_clash(imports, definitions)
    return list(imports), definitions


def in_order(graph: dict[str, set[str]]) -> list[str]:
    """Modules, each after those that it uses; a ring is an error."""
    tidy = {name: sorted(graph[name]) for name in sorted(graph)}
    try:
        return list(TopologicalSorter(tidy).static_order())
    except CycleError as error:
        raise PageError(
            f"modules use each other: {' -> '.join(error.args[1])}"
        ) from None


def _no_clash(imports: dict[Import, str], definitions: list[Definition]) -> None:
    """Two pages may use one name for two things; one notebook cannot."""
    seen: dict[str, str] = {}
    for item in definitions:
        for name in item.names:
            if name in seen:
                raise PageError(f"{name} is defined by {seen[name]} and {item.place}")
            seen[name] = str(item.place)
    bound: dict[str, Import] = {}
    for item, module in imports.items():
        other = bound.setdefault(item.binds, item)
        plain = not (item.name or item.alias or other.name or other.alias)
        if item.binds in seen or (other != item and not plain):
            first = seen.get(item.binds) or imports[other]
            raise PageError(
                f"{item.binds} is imported by {module} and bound in {first}"
            )


def saved_source(
    root: Path, module: str, names: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The import lines and the definitions' sources that re-create saved names.

    Everything that the names need is there, across modules, so that the lines and
    sources run in an empty namespace without the package.
    """
    pairs = [(module, name) for name in names]
    imports, definitions = saved_definitions(root, pairs)
    lines = [line for line in import_lines(imports) if line]
    return lines, [item.source for item in definitions]


# ------------------------------------------------------------------ order of imports


def natural_key(text: str) -> list[tuple[int, int]]:
    """Compare by character, runs of digits by their number."""
    parts = re.findall(r"\d+|\D", text)
    return [(48, int(p)) if p[0].isdigit() else (ord(p), 0) for p in parts]


def member_key(name: str) -> tuple:
    """The order of names in ``__all__``: constants, classes, then the rest."""
    kind = 2
    if len(name) > 1 and name.isupper():
        kind = 0
    elif name[:1].isupper():
        kind = 1
    return kind, natural_key(name)


def _imported_key(name: str) -> tuple:
    """The order of names within one import: as above, but regardless of case."""
    return member_key(name)[0], natural_key(name.lower()), natural_key(name)


def import_lines(imports: Iterable[Import]) -> list[str]:
    """Merge and sort imports as isort does; an empty line parts two sections."""
    sections: dict[int, set[Import]] = {}
    for item in imports:
        top = item.module.split(".")[0]
        section = 2 + (top == PACKAGE)
        if top == "__future__":
            section = 0
        elif top in sys.stdlib_module_names:
            section = 1
        sections.setdefault(section, set()).add(item)
    lines: list[str] = []
    for section in sorted(sections):
        lines += [""] if lines else []
        lines += _section_lines(sections[section])
    return lines


def _section_lines(imports: set[Import]) -> list[str]:
    straight = [item for item in imports if item.name is None]
    straight.sort(
        key=lambda i: (
            natural_key(i.module.lower()),
            natural_key(i.module),
            i.alias is not None,
            i.alias or "",
        )
    )
    lines = [
        f"import {i.module}" + (f" as {i.alias}" if i.alias else "") for i in straight
    ]
    plain: dict[str, list[str]] = {}
    groups: list[tuple[str, list[str], str]] = []
    for item in imports:
        if item.name and item.alias:
            groups.append((item.module, [item.name], item.alias))
        elif item.name:
            plain.setdefault(item.module, []).append(item.name)
    for module, names in plain.items():
        groups.append((module, sorted(names, key=_imported_key), ""))
    groups.sort(
        key=lambda g: (
            natural_key(g[0].lower()),
            natural_key(g[0]),
            _imported_key(g[1][0]),
            g[2],
        )
    )
    for module, names, alias in groups:
        line = f"from {module} import {', '.join(names)}"
        line += f" as {alias}" if alias else ""
        if len(line) > WIDTH:
            inner = [f"{n} as {alias}" if alias else n for n in names]
            lines += [f"from {module} import (", *(f"    {n}," for n in inner), ")"]
        else:
            lines.append(line)
    return lines


# ------------------------------------------------------------ links back to the pages


@dataclass(frozen=True)
class Heading:
    """A heading of a page: its line, its text without mark-up, its HTML id."""

    line: int
    level: int
    text: str
    anchor: str


def headings(page: Page) -> list[Heading]:
    """The headings of a page with the ids that MyST and Sphinx give them.

    The id comes from a label right above the heading, else from its text. A text that
    an earlier heading has already taken gives no id that we could foretell: ``""``.
    """
    config = MdParserConfig(enable_extensions=set(MYST_EXTENSIONS))
    parser = create_md_parser(config, RendererHTML)
    found: list[Heading] = []
    taken: set[str] = set()
    for cell in page.cells:
        if cell.kind != "markdown":
            continue
        label = ""
        tokens = parser.parse(cell.source)
        for index, token in enumerate(tokens):
            if token.level == 0 and token.type == "myst_target":
                label = make_id(token.content)
                taken.add(label)
            elif token.level == 0 and token.type == "heading_open":
                text = _plain_text(tokens[index + 1].children or [])
                anchor = make_id(text)
                found.append(
                    Heading(
                        line=cell.line + token.map[0],
                        level=int(token.tag[1]),
                        text=text,
                        anchor=label or ("" if anchor in taken else anchor),
                    )
                )
                taken.add(anchor)
                label = ""
            elif token.level == 0 and token.nesting >= 0 and token.type != "inline":
                label = ""
    return found


def _plain_text(children: list) -> str:
    kinds = ("text", "code_inline", "math_inline", "softbreak", "myst_role")
    parts = [
        " " if child.type == "softbreak" else child.content
        for child in children
        if child.type in kinds
    ]
    return " ".join("".join(parts).split())


def _built_in(place: Place, found: list[Heading], site: Site) -> str:
    """The sentence that says where in the book a definition is built."""
    page = place.page
    address = page.name.removesuffix(".md")
    above = [item for item in found if item.line < place.cell.line]
    title = next((item.text for item in found if item.level == 1), page.title)
    if not above or above[-1].level == 1:
        return f"Built in {title}: {site.page(address)}"
    heading = above[-1]
    if not heading.anchor:
        raise PageError(
            f"{page.name}, line {heading.line}: the heading {heading.text!r} needs a "
            "label such as '(my-label)=' above it: its text gives no address of its "
            "own, and a saved cell below is linked to it"
        )
    link = site.page(address, heading.anchor)
    return f"Built in {title}, section {heading.text}: {link}"


def _fill(text: str, indent: str) -> list[str]:
    """Break a text into lines; an address that is too long has its own line."""
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _with_link(item: Definition, sentence: str) -> list[tuple[str, Place]]:
    """The lines of a definition, its docstring ending with ``sentence``."""
    page, cell = item.place.page, item.place.cell
    lines = [
        (text, Place(page, cell, item.place.line + index))
        for index, text in enumerate(item.source.split("\n"))
    ]
    doc = item.node.body[0]
    first, last = doc.lineno - item.place.line, doc.end_lineno - item.place.line
    indent = lines[first][0][: doc.col_offset]
    rest = lines[last][0].encode()[doc.end_col_offset :].decode()
    segment = ast.get_source_segment(cell.source, doc.value)
    prefix, quote = re.match(r"""([A-Za-z]*)(\"{3}|'{3}|"|')""", segment).groups()
    body = segment[len(prefix + quote) : -len(quote)].rstrip()
    new = '"""' if '"""' not in body else "'''"
    if "r" not in prefix.lower():
        sentence = sentence.replace("\\", "\\\\")
    text = [
        *f"{indent}{prefix}{new}{body}".split("\n"),
        "",
        *_fill(sentence, indent),
        f"{indent}{new}{rest}",
    ]
    place = Place(page, cell, doc.end_lineno)
    return [*lines[:first], *((line, place) for line in text), *lines[last + 1 :]]


# ------------------------------------------------------------------ writing a module


def _all_lines(names: list[str]) -> list[str]:
    quoted = ", ".join(f'"{name}"' for name in names)
    line = f"__all__ = [{quoted}]"
    if len(line) <= WIDTH:
        return [line]
    return ["__all__ = [", *(f'    "{name}",' for name in names), "]"]


def _docstring(paragraphs: list[str]) -> list[str]:
    text = [line.replace("\\", "\\\\").replace('"""', "'''") for line in paragraphs]
    lines = ['"""' + text[0]]
    for paragraph in text[1:]:
        lines += ["", *_fill(paragraph, "")]
    return [*lines, '"""']


def render_module(saved: Saved, site: Site) -> tuple[str, list[Place | None]]:
    """The text of a module, and for each of its lines the place it comes from."""
    page = saved.page
    used = {name for item in saved.definitions for name in item.needs}
    kept = [i for i, _ in saved.imports if i.binds in used or i.module == "__future__"]
    found = headings(page)
    title = next((item.text for item in found if item.level == 1), page.title)
    address = site.page(page.name.removesuffix(".md"))
    head = [
        f"{HEADER}{page.name} by `make export`.",
        "# Change the page, not this file.",
        *_docstring([title.rstrip(".") + ".", f"The saved code of {address}"]),
    ]
    if kept:
        head += ["", *import_lines(kept)]
    head += ["", *_all_lines(saved.public)]
    lines: list[tuple[str, Place | None]] = [(line, None) for line in head]
    previous: Definition | None = None
    for item in saved.definitions:
        gap = 1
        if item.is_block or (previous and previous.is_block):
            gap = 2
        elif previous and previous.place.cell is item.place.cell:
            gap = min(item.space, 1)
        lines += [("", None)] * gap
        if item.is_block and not item.node.name.startswith("_"):
            lines += _with_link(item, _built_in(item.place, found, site))
        else:
            lines += [
                (text, Place(page, item.place.cell, item.place.line + index))
                for index, text in enumerate(item.source.split("\n"))
            ]
        previous = item
    text = "\n".join(line.rstrip() if not line.strip() else line for line, _ in lines)
    return text + "\n", [place for _, place in lines]


def _flaws(saved: Saved, text: str, places: list[Place | None]) -> Iterator[str]:
    """What pyflakes says about a module, at the place in the page."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield f"{saved.page.name}: the module is not valid Python: {error}"
        return
    imported = {item.binds: place for item, place in saved.imports}
    for flaw in sorted(checker.Checker(tree).messages, key=lambda m: (m.lineno, m.col)):
        message = flaw.message % flaw.message_args
        place = places[flaw.lineno - 1]
        if place is None:
            name = (
                str(flaw.message_args[0]).split(" as ")[-1] if flaw.message_args else ""
            )
            place = imported.get(name, saved.page.name)
        if isinstance(flaw, messages.UndefinedName):
            message += f" in saved code; save the cell ('{SAVE}') that defines it"
        yield f"{place}: {message}"


def _foreign(saved: Saved, allowed: set[str]) -> Iterator[str]:
    """Imports at the top of a module that the package does not depend on."""
    used = {name for item in saved.definitions for name in item.needs}
    for item, place in saved.imports:
        top = item.module.split(".")[0]
        known = top in sys.stdlib_module_names or top in allowed | {PACKAGE}
        if item.binds in used and not known:
            yield (
                f"{place}: saved code imports {top}, which pyproject.toml does not "
                "list under project.dependencies; import it inside the function that "
                "draws or reads with it, or do not save it"
            )


def render_init(pages: list[Saved], site: Site, version: str) -> str:
    """The text of ``tinygpt/__init__.py``: the version and the unique public names."""
    owners: dict[str, list[str]] = {}
    for saved in pages:
        for name in saved.public:
            owners.setdefault(name, []).append(saved.module)
    modules = {saved.module.split(".")[1] for saved in pages}
    unique = {
        name: found[0]
        for name, found in owners.items()
        if len(found) == 1 and name not in modules
    }
    paragraphs = [
        "A GPT from first principles: the saved code of the book, importable.",
        f"The book: {site.url}",
    ]
    shared = [name for name in sorted(owners, key=member_key) if name not in unique]
    if shared:
        paragraphs.append(
            "These names are reached through their modules, because more than one page "
            "defines them or a module has the same name: "
            + "; ".join(
                f"{name} ({', '.join(sorted(owners[name], key=natural_key))})"
                for name in shared
            )
            + "."
        )
    lines = [
        f"{HEADER}the pages in chapters/ by `make export`.",
        "# Change the pages, not this file.",
        *_docstring(paragraphs),
    ]
    if unique:
        imports = [Import(module, name) for name, module in unique.items()]
        lines += ["", *import_lines(imports)]
    names = sorted(["__version__", *unique], key=member_key)
    lines += ["", *_all_lines(names), "", f'__version__ = "{version}"']
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------- the package


def _use_findings(pages: list[Saved]) -> Iterator[str]:
    """``# @use`` of a module or a name that no page exports, and rings of pages."""
    modules = {saved.module: saved for saved in pages if saved.definitions}
    graph: dict[str, set[str]] = {}
    for saved in pages:
        for cell in saved.page.code_cells:
            try:
                found = uses(saved.page, cell)
            except PageError as error:
                if not cell.saved:  # in a saved cell it is reported already
                    yield str(error)
                continue
            for use in found:
                place = Place(saved.page, cell, use.line)
                other = modules.get(use.module)
                if other is None:
                    yield f"{place}: no page exports {use.module}"
                    continue
                for name in use.names:
                    if name not in other.names:
                        yield f"{place}: {other.page.name} exports no name {name}"
                if other is saved:
                    yield f"{place}: the page uses its own module {use.module}"
                elif cell.saved:
                    graph.setdefault(saved.module, set()).add(use.module)
    try:
        in_order(graph)
    except PageError as error:
        yield str(error)


def _project(root: Path) -> tuple[str, set[str]]:
    """The version and the names of the dependencies in ``pyproject.toml``."""
    with (root / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    names = {re.match(r"[\w.-]+", d).group() for d in project.get("dependencies", [])}
    return project["version"], {name.lower().replace("-", "_") for name in names}


def build(root: Path = ROOT) -> dict[str, str]:
    """The files of the package by name; raises ``PageError`` with all findings."""
    site = read_site(root)
    version, allowed = _project(root)
    pages = saved_pages(root)
    findings = [line for saved in pages for line in saved.findings]
    findings += _use_findings(pages)
    exported = [saved for saved in pages if saved.definitions]
    owner: dict[str, str] = {}
    for saved in exported:
        other = owner.setdefault(saved.module, saved.page.name)
        if other != saved.page.name:
            findings.append(
                f"{saved.page.name}: its module {saved.module} is that of {other}"
            )
    files: dict[str, str] = {}
    for saved in exported:
        if saved.findings:
            continue
        findings += _foreign(saved, allowed)
        try:
            text, places = render_module(saved, site)
        except PageError as error:
            findings.append(str(error))
            continue
        findings += _flaws(saved, text, places)
        files[saved.module.split(".")[1] + ".py"] = text
    if findings:
        raise PageError("\n".join(findings))
    files["__init__.py"] = render_init(exported, site, version)
    files["py.typed"] = ""
    return dict(sorted(files.items()))


def left_over(folder: Path, files: dict[str, str]) -> list[Path]:
    """Generated modules whose page is gone, recognised by their header."""
    found = []
    for path in sorted(folder.glob("*.py")):
        if path.name not in files and path.read_bytes().startswith(HEADER.encode()):
            found.append(path)
    return found


def check(folder: Path, files: dict[str, str]) -> list[str]:
    """One line for each file that is missing, stale or left over."""
    findings = []
    for name, text in files.items():
        path = folder / name
        if not path.is_file():
            findings.append(f"{PACKAGE}/{name}: missing; run 'make export'")
        elif path.read_bytes() != text.encode("utf-8"):
            findings.append(f"{PACKAGE}/{name}: stale; run 'make export'")
    for path in left_over(folder, files):
        findings.append(
            f"{PACKAGE}/{path.name}: left over, its page is gone; delete it"
        )
    return findings


def write(folder: Path, files: dict[str, str]) -> list[str]:
    """Write what changed, delete what is left over; one line for each such file."""
    done = []
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path, data = folder / name, text.encode("utf-8")
        if path.is_file() and path.read_bytes() == data:
            continue
        temporary = folder / f".{name}.{os.getpid()}.tmp"
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        done.append(f"wrote {PACKAGE}/{name}")
    for path in left_over(folder, files):
        path.unlink()
        done.append(f"deleted {PACKAGE}/{path.name}, whose page is gone")
    return done


def main(argv: list[str] | None = None) -> int:
    """Export the package, or with ``--check`` say what is stale."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(argv)
    folder = args.root / PACKAGE
    try:
        files = build(args.root)
    except PageError as error:
        print(error)
        return 1
    if args.check:
        findings = check(folder, files)
        print("\n".join(findings) if findings else f"{PACKAGE}/ is up to date")
        return int(bool(findings))
    done = write(folder, files)
    print("\n".join(done) if done else f"{PACKAGE}/ is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
