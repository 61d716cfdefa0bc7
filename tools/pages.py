"""What every tool of the press needs to know about a page: its cells and addresses.

A page is one MyST notebook in ``chapters/``. It is read with myst-nb's own reader, so
that the tools and the book can never disagree about where a cell begins.
"""

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

ROOT = Path(__file__).resolve().parents[1]
SAVE = "# @save"
USE = "# @use"
# A page with such a line trains with several threads: it wants no neighbour meanwhile.
SEVERAL_THREADS = re.compile(r"set_num_threads\((?!1\))")

# The syntax extensions of the pages. `_config.yml` lists the same ones for the book.
MYST_EXTENSIONS = (
    "amsmath",
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
)


class PageError(Exception):
    """A page breaks a rule of the press; the message names page and place."""


@dataclass(frozen=True)
class Cell:
    """One cell of a page.

    ``line`` is the line of the file on which the cell's text begins, ``number`` counts
    the code cells of the page from 1 (0 for Markdown), ``options`` is the cell's YAML
    header without its tags.
    """

    kind: str
    source: str
    tags: tuple[str, ...]
    options: dict[str, Any]
    line: int
    number: int

    @property
    def saved(self) -> bool:
        """Is the cell exported, i.e. is its very first line the save mark?"""
        return self.kind == "code" and self.source.split("\n", 1)[0].rstrip() == SAVE


@dataclass(frozen=True)
class Page:
    """One source in ``chapters/``: its front matter and its cells, in order."""

    path: Path
    front: dict[str, Any]
    cells: tuple[Cell, ...]

    @property
    def stem(self) -> str:
        return self.path.stem

    @property
    def name(self) -> str:
        """How error messages and headers call the page."""
        return f"chapters/{self.path.name}"

    @property
    def settings(self) -> dict[str, Any]:
        """The front matter's ``tinygpt`` table: module, minutes, numbers."""
        return self.front.get("tinygpt") or {}

    @property
    def module(self) -> str | None:
        """The module that the saved cells become, such as ``tinygpt.corpus``."""
        return self.settings.get("module")

    @property
    def title(self) -> str:
        """The page's first heading, without its hashes."""
        for cell in self.cells:
            for line in cell.source.splitlines() if cell.kind == "markdown" else ():
                if line.startswith("# "):
                    return line[2:].strip()
        raise PageError(f"{self.name}: no '# Title' heading")

    @property
    def code_cells(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.kind == "code")

    def where(self, cell: Cell, line: int = 1) -> str:
        """Name a place for an error message; ``line`` counts within the cell."""
        label = f"code cell {cell.number}" if cell.kind == "code" else "text"
        return f"{self.name}, line {cell.line + line - 1} ({label})"


def front_matter(text: str) -> dict[str, Any]:
    """The front matter of a page's text; nothing where it has none.

    >>> front_matter("---\\nminutes: 5\\n---\\n# Title")
    {'minutes': 5}
    """
    match = re.match(r"---\n(.*?)^---\s*$", text, re.DOTALL | re.MULTILINE)
    return (yaml.safe_load(match[1]) or {}) if match else {}


def read_page(path: Path) -> Page:
    """Read one MyST notebook; its cells keep the line numbers of the file."""
    text = path.read_text(encoding="utf-8")
    config = MdParserConfig(enable_extensions=set(MYST_EXTENSIONS))
    notebook = read_myst_markdown_notebook(text, config, add_source_map=True)
    lines = text.splitlines()
    cells: list[Cell] = []
    number = 0
    for raw, start in zip(
        notebook.cells, notebook.metadata.pop("source_map"), strict=True
    ):
        if raw.cell_type not in ("code", "markdown"):
            raise PageError(
                f"chapters/{path.name}: a {raw.cell_type} cell; use code or text"
            )
        number += raw.cell_type == "code"
        options = dict(raw.metadata)
        tags = tuple(options.pop("tags", ()))
        cells.append(
            Cell(
                kind=raw.cell_type,
                source=raw.source,
                tags=tags,
                options=options,
                line=_first_line(lines, start, raw.source),
                number=number if raw.cell_type == "code" else 0,
            )
        )
    return Page(path=path, front=dict(notebook.metadata), cells=tuple(cells))


def _first_line(lines: list[str], start: int, source: str) -> int:
    """The 1-based line on which ``source`` begins, searched from the reader's hint."""
    wanted = source.split("\n")
    for index in range(max(0, start - 1), len(lines)):
        if lines[index : index + len(wanted)] == wanted:
            return index + 1
    return start + 1


def read_pages(root: Path = ROOT) -> list[Page]:
    """Every page of ``chapters/``, sorted by file name."""
    return [read_page(path) for path in sorted((root / "chapters").glob("*.md"))]


def contents(root: Path = ROOT) -> list[tuple[str, list[str]]]:
    """The parts of ``_toc.yml`` with the names of their pages, in order.

    The first part is the first page alone, and has no caption.
    """
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = [
        (part.get("caption", ""), [page["file"] for page in part["chapters"]])
        for part in toc["parts"]
    ]
    return [("", [toc["root"]]), *parts]


def pages_in_order(root: Path = ROOT) -> list[str]:
    """The names of the pages, such as ``chapters/setup``, as ``_toc.yml`` has them."""
    return [page for _, pages in contents(root) for page in pages]


@dataclass(frozen=True)
class Use:
    """One ``from tinygpt.x import a, b  # @use`` statement."""

    module: str
    names: tuple[str, ...]
    line: int
    end_line: int


def uses(page: Page, cell: Cell) -> list[Use]:
    """The ``# @use`` imports of a cell; an import of tinygpt without the mark fails."""
    if cell.kind != "code" or "tinygpt" not in cell.source:
        return []
    lines = cell.source.splitlines()
    try:
        tree = ast.parse(cell.source)
    except SyntaxError:
        return []  # a magic or a broken cell: whoever executes it reports it
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            if any(alias.name.split(".")[0] == "tinygpt" for alias in node.names):
                raise PageError(
                    f"{page.where(cell, node.lineno)}: write "
                    f"'from tinygpt.x import name  {USE}', not 'import tinygpt'"
                )
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "tinygpt"
        ):
            last = lines[node.end_lineno - 1]
            if not last.rstrip().endswith(USE):
                raise PageError(
                    f"{page.where(cell, node.lineno)}: an import from tinygpt "
                    f"ends with '{USE}'"
                )
            if any(alias.asname or alias.name == "*" for alias in node.names):
                raise PageError(
                    f"{page.where(cell, node.lineno)}: {USE} imports plain names, "
                    "without '*' and without 'as'"
                )
            names = tuple(alias.name for alias in node.names)
            found.append(Use(node.module, names, node.lineno, node.end_lineno))
    return found


@dataclass(frozen=True)
class Site:
    """Where the repository and the published book live: ``[tool.tinygpt]``."""

    repository: str
    branch: str
    url: str

    def page(self, page: str, anchor: str = "") -> str:
        """The published page of a source, e.g. ``page("chapters/setup")``."""
        return f"{self.url}{page}.html" + (f"#{anchor}" if anchor else "")

    def notebook(self, stem: str) -> str:
        """The stored notebook, on the repository's own pages."""
        return f"{self.repository}/blob/{self.branch}/notebooks/{stem}.ipynb"

    def colab(self, stem: str) -> str:
        """The address that opens the stored notebook in Colab."""
        slug = self.repository.removeprefix("https://github.com/")
        return (
            "https://colab.research.google.com/github/"
            f"{slug}/blob/{self.branch}/notebooks/{stem}.ipynb"
        )

    def raw(self, path: str) -> str:
        """The address of one file's bytes."""
        slug = self.repository.removeprefix("https://github.com/")
        return f"https://raw.githubusercontent.com/{slug}/{self.branch}/{path}"


def read_site(root: Path = ROOT) -> Site:
    """Read ``[tool.tinygpt]`` of ``pyproject.toml``."""
    with (root / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]["tinygpt"]
    return Site(
        repository=table["repository"].rstrip("/"),
        branch=table["branch"],
        url=table["site"].rstrip("/") + "/",
    )
