"""Write the notebooks: every page as an executed notebook that stands alone.

``make notebooks`` turns each page of ``chapters/`` that holds code into
``notebooks/<stem>.ipynb``: plain Markdown, no import of the package, outputs stored.
Only notebooks whose source changed are executed again. ``--check`` executes nothing
and fails when a stored notebook does not fit its page.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import ast
import copy
import hashlib
import importlib.metadata
import os
import platform
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import nbformat
from cycler import Cycler
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools.export import saved_source
from tools.markdown import Library, Rewriter
from tools.pages import ROOT, Cell, Page, PageError, uses

TIMEOUT = 900
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "pygments_lexer": "ipython3",
}
# What pip calls a module, where the two names differ.
PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "PyYAML"}
HIDDEN_SOURCE = {"hide-input", "hide-cell", "exercise-solution"}

# Runs in the kernel before the notebook: hides packages that a reader lacks.
HIDE = """\
import sys


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
del sys, Hiding
"""
WITHOUT_PACKAGE = HIDE.format(names=("tinygpt",))

SETUP_INSTALL = """\
# Set-up: installs what is missing; does nothing when nothing is.
import importlib.util
import subprocess
import sys

needed = {needed}
missing = [needed[name] for name in needed if importlib.util.find_spec(name) is None]
if missing:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *missing]
    subprocess.run(pip, check=True)
    importlib.invalidate_caches()
"""

SETUP_STYLE = """
# The style of the book's figures.
import matplotlib.pyplot as plt

plt.rcParams.update(
{style}
)
"""


class NotebookError(Exception):
    """A page could not be executed; the message names page, cell and traceback."""


@dataclass
class Built:
    """A notebook without outputs, with what its cells need after execution."""

    page: Page
    node: NotebookNode
    alts: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def build(root: Path, page: Page, library: Library) -> Built:
    """Make the notebook of one page; nothing is executed."""
    built = Built(page, nbformat.v4.new_notebook())
    built.node.metadata = nbformat.from_dict(
        {"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE)}
    )
    counts: Counter[str] = Counter()

    def add(kind: str, source: str, metadata: dict[str, Any], place: str) -> None:
        counts[kind] += 1
        name = f"{page.stem} {kind} {counts[kind]}"
        identity = hashlib.sha256(name.encode()).hexdigest()[:12]
        is_code = kind in ("code", "set-up")
        new = nbformat.v4.new_code_cell if is_code else nbformat.v4.new_markdown_cell
        built.node.cells.append(new(source, id=identity, metadata=metadata))
        built.places[identity] = place

    rewritten = Rewriter(library, f"chapters/{page.stem}", page).run()
    sources = _sources(root, page, library)
    add("note", _note(page, library), {}, "the note")
    if setup := setup_source(root, list(sources.values())):
        add("set-up", setup, _metadata(("hide-input",), {}), "the set-up cell")
    for cell, text, caption in rewritten:
        if cell.kind == "markdown":
            if text.strip():
                add("text", text, {}, f"line {cell.line}")
            continue
        if "exercise-hidden" in cell.tags:  # no reader's cell: see tools/exercises.py
            continue
        metadata = _metadata(cell.tags, cell.options)
        add("code", sources[cell.number], metadata, f"code cell {cell.number}")
        image = (cell.options.get("mystnb") or {}).get("image") or {}
        if alt := str(image.get("alt") or "").strip():
            built.alts[built.node.cells[-1].id] = alt
        if caption:
            add("caption", caption, {}, f"caption of code cell {cell.number}")
    nbformat.validate(built.node)
    return built


def _note(page: Page, library: Library) -> str:
    """The first cell: what this notebook is and where its page stands."""
    site = library.site
    return (
        f"This notebook is the chapter [{page.title}]"
        f"({site.page(f'chapters/{page.stem}')}) of the book *TinyGPT*, with the "
        "outputs of its last run. It needs no other file: run its cells from top to "
        f"bottom, here or [in Colab]({site.colab(page.stem)}).\n"
        "\n"
        f"*Generated from `{page.name}` by `make notebooks`; changes belong there.*"
    )


def _metadata(tags: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a code cell: its tags, and folding that front ends know."""
    metadata = {key: value for key, value in options.items() if key != "mystnb"}
    if tags:
        metadata["tags"] = list(tags)
    if HIDDEN_SOURCE & set(tags):
        metadata["cellView"] = "form"
        metadata["jupyter"] = {"source_hidden": True}
    return metadata


# -- what stands in place of imports from the package -------------------------------


def _sources(root: Path, page: Page, library: Library) -> dict[int, str]:
    """Each code cell's source, with saved source in place of its ``# @use`` lines."""
    modules = {other.module: name for name, other in library.pages.items()}
    emitted: set[str] = set()
    return {
        cell.number: _with_source(root, page, cell, library, modules, emitted)
        for cell in page.code_cells
    }


def _with_source(
    root: Path,
    page: Page,
    cell: Cell,
    library: Library,
    modules: dict[str | None, str],
    emitted: set[str],
) -> str:
    wanted = uses(page, cell)
    if not wanted:
        return cell.source
    imports: list[str] = []
    blocks: list[str] = []
    lines: list[str | None] = list(cell.source.splitlines())
    for use in wanted:
        if use.module not in modules:
            raise PageError(
                f"{page.where(cell, use.line)}: no page builds the module {use.module}"
            )
        heads, bodies = saved_source(root, use.module, list(use.names))
        fresh = [body.strip("\n") for body in bodies if body not in emitted]
        emitted.update(bodies)
        imports += [head for head in heads if head not in imports]
        address = library.site.page(modules[use.module])
        names = ", ".join(use.names)
        blocks.append("\n\n\n".join([f"# {names}: built in {address}", *fresh]))
        for number in range(use.line - 1, use.end_line):
            lines[number] = None
    rest = "\n".join(line for line in lines if line is not None).strip("\n")
    head = "\n".join(sorted(imports, key=_import_order))
    return "\n\n\n".join(part for part in (head, *blocks, rest) if part)


def _import_order(line: str) -> tuple[bool, str]:
    """``import x`` before ``from x import y``, each sorted; __future__ first of all."""
    return ("__future__" not in line, line.startswith("from"), line)


# -- the set-up cell ----------------------------------------------------------------


def setup_source(root: Path, sources: list[str]) -> str:
    """The set-up cell of a notebook with these code cells; empty if none is needed."""
    modules = third_party(sources)
    text = ""
    if modules:
        table = ", ".join(
            f'"{name}": "{PACKAGES.get(name, name)}"' for name in sorted(modules)
        )
        needed = f"{{{table}}}"
        if len(needed) > 70:
            inner = table.replace(", ", ",\n    ")
            needed = f"{{\n    {inner},\n}}"
        text = SETUP_INSTALL.replace("{needed}", needed)
    if "matplotlib" in modules and (style := figure_style(root)):
        text += SETUP_STYLE.replace("{style}", style)
    return text.strip("\n")


def third_party(sources: list[str]) -> set[str]:
    """The modules from outside the standard library that the cells must import.

    An import inside ``try`` that expects an ``ImportError`` is optional.
    """
    found: set[str] = set()
    for source in sources:
        try:
            tree = ast.parse(_without_magics(source))
        except SyntaxError:
            continue  # whoever executes the cell reports it
        found |= set(_imported(tree))
    return found - set(sys.stdlib_module_names) - {"tinygpt"}


def _without_magics(source: str) -> str:
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", source)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]
    elif isinstance(node, ast.Try) and any(map(_catches_import, node.handlers)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _imported(child)


def _catches_import(handler: ast.ExceptHandler) -> bool:
    names = {part.id for part in ast.walk(handler) if isinstance(part, ast.Name)}
    return bool(names & {"ImportError", "ModuleNotFoundError", "Exception"})


def figure_style(root: Path) -> str:
    """``book/tinygpt.mplstyle`` as the lines of a dict display; empty without it."""
    path = root / "book" / "tinygpt.mplstyle"
    if not path.exists():
        return ""
    import matplotlib

    params = matplotlib.rc_params_from_file(
        str(path), fail_on_error=True, use_default_template=False
    )
    pairs = [f"        {key!r}: {_literal(params[key])}," for key in sorted(params)]
    lines = [re.sub(r"^( +)'([\w.]+)'", r'\1"\2"', pair) for pair in pairs]
    return "\n".join(["    {", *lines, "    }"])


def _literal(value: Any) -> str:
    """A style's value as Python code."""
    if isinstance(value, Cycler):
        series = ", ".join(
            f"{key}={_literal(list(values))}"
            for key, values in sorted(value.by_key().items())
        )
        return f"plt.cycler({series})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


# -- execution ----------------------------------------------------------------------


class _ThisPython(KernelSpecManager):
    """Offers one kernel, this very Python, whatever else the machine has."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def kernel_environment(ipython: Path, startup: str = WITHOUT_PACKAGE) -> dict[str, str]:
    """The environment of a kernel that starts with ``startup``; makes ``ipython``."""
    folder = ipython / "profile_default" / "startup"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "00-alone.py").write_text(startup, encoding="utf-8")
    (ipython / "matplotlibrc").touch()  # in place of the style that a person may have
    dropped = ("PYTHONPATH", "MPLBACKEND", "PYTHONSTARTUP")
    environment = {k: v for k, v in os.environ.items() if k not in dropped}
    environment |= {
        "IPYTHONDIR": str(ipython),
        "PYTHONHASHSEED": "0",
        "MATPLOTLIBRC": str(ipython / "matplotlibrc"),
    }
    return environment


def run_notebook(
    node: NotebookNode, folder: Path, startup: str = WITHOUT_PACKAGE, **options: Any
) -> None:
    """Execute a notebook in place, in ``folder``; its outputs carry no timing."""
    with tempfile.TemporaryDirectory() as place:
        manager = AsyncKernelManager(
            kernel_name="python3", kernel_spec_manager=_ThisPython()
        )
        client = NotebookClient(
            node,
            km=manager,
            timeout=TIMEOUT,
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=40"],
            resources={"metadata": {"path": str(folder)}},
            **options,
        )
        client.owns_km = True
        client.execute(env=kernel_environment(Path(place), startup))


def execute(built: Built, folder: Path) -> NotebookNode:
    """Execute a built notebook; returns it as it is stored."""
    node = copy.deepcopy(built.node)
    folder.mkdir(parents=True, exist_ok=True)
    codes = [cell for cell in node.cells if cell.cell_type == "code"]
    done = 0

    def progress(**_: Any) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            bar = f"{built.page.stem}: cell {done} of {len(codes)}"
            print(f"\r{bar}", end="", file=sys.stderr, flush=True)

    try:
        run_notebook(node, folder, on_cell_executed=progress)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(_failure(built, codes, error)) from None
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    node.metadata = copy.deepcopy(built.node.metadata)
    for cell, source in zip(node.cells, built.node.cells, strict=True):
        cell.metadata = copy.deepcopy(source.metadata)
        if alt := built.alts.get(cell.id):
            for output in _pictures(cell):
                output.metadata["image/png"] = {"alt": alt}
    return node


def _pictures(cell: NotebookNode) -> list[NotebookNode]:
    """The outputs of a cell that hold a PNG."""
    outputs = cell.get("outputs", [])
    return [output for output in outputs if "image/png" in output.get("data", {})]


def _failure(built: Built, codes: list[NotebookNode], error: Exception) -> str:
    """Say which cell of which page failed, with the end of its traceback."""
    for cell in codes:
        for output in cell.outputs:
            if output.output_type == "error":
                text = "\n".join(output.traceback)
                plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
                tail = "\n".join(f"    {line}" for line in plain[-12:])
                where = f"{built.page.name}, {built.places[cell.id]}"
                return f"{where}: {output.ename}: {output.evalue}\n{tail}"
    ran = [cell for cell in codes if cell.execution_count is not None]
    place = built.places[(ran[-1] if ran else codes[0]).id]
    return f"{built.page.name}, {place}: {type(error).__name__}: {error}".rstrip()


# -- stored notebooks ---------------------------------------------------------------


def serialise(node: NotebookNode) -> str:
    """A notebook's text, the same for the same notebook."""
    return nbformat.writes(node, version=4).rstrip("\n") + "\n"


def findings(built: Built, path: Path) -> list[str]:
    """What is wrong with the stored notebook of a page; nothing when it is fresh."""
    if not path.exists():
        return [f"notebooks/{path.name}: missing; {built.page.name} has code"]
    name = f"notebooks/{path.name}"
    try:
        stored = nbformat.read(path, as_version=4)
    except Exception as error:
        return [f"{name}: cannot be read: {error}"]
    found = []
    kernel = stored.metadata.get("kernelspec", {}).get("name")
    if kernel != KERNELSPEC["name"]:
        found.append(f"{name}: kernelspec.name is {kernel!r}, expected 'python3'")
    if "widgets" in stored.metadata:
        found.append(f"{name}: metadata.widgets is there, expected none")
    elif kernel == KERNELSPEC["name"] and stored.metadata != built.node.metadata:
        found.append(f"{name}: metadata is not what 'make notebooks' writes")
    for number, cell in enumerate(stored.cells, 1):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        if "skip-execution" in cell.metadata.get("tags", []):
            continue
        if cell.execution_count is None:
            found.append(
                f"{name}, cell {number}: never executed (no execution count), so "
                "nothing compares its output"
            )
    found += _differences(built, stored, name)
    return found


def _differences(built: Built, stored: NotebookNode, name: str) -> list[str]:
    """The first place where a stored notebook does not fit its page."""
    stale = f"stale, {built.page.name} says otherwise; run 'make notebooks'"
    for number, (old, new) in enumerate(
        zip(stored.cells, built.node.cells, strict=False), 1
    ):
        place = f"{name}, cell {number} ({built.places[new.id]})"
        for key in ("cell_type", "source", "metadata", "id"):
            if old.get(key) != new.get(key):
                return [f"{place}: {key} is {stale}"]
        for output in _pictures(old):
            alt = output.metadata.get("image/png", {}).get("alt")
            if alt != built.alts.get(new.id):
                return [f"{place}: the alt text is {stale}"]
    if len(stored.cells) != len(built.node.cells):
        counts = f"{len(stored.cells)} cells, expected {len(built.node.cells)}"
        return [f"{name}: {counts}: {stale}"]
    return []


def built_notebooks(root: Path, names: list[str] | None = None) -> list[Built]:
    """Build the notebook of every page with code, or of the named ones."""
    library = Library(root)
    pages = {
        page.stem: page
        for name, page in library.pages.items()
        if name.startswith("chapters/") and page.code_cells
    }
    stems = [Path(name).stem for name in names or []]
    if unknown := [stem for stem in stems if stem not in pages]:
        raise PageError(f"no page with code is called {', '.join(unknown)}")
    return [build(root, pages[stem], library) for stem in stems or sorted(pages)]


def leftovers(root: Path) -> list[Path]:
    """Stored notebooks whose page is gone or holds no code any more."""
    wanted = {
        name.partition("/")[2]
        for name, page in Library(root).pages.items()
        if name.startswith("chapters/") and page.code_cells
    }
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    return [path for path in paths if path.stem not in wanted]


def check(root: Path, names: list[str]) -> int:
    """Report every stored notebook that does not fit its page."""
    found = []
    for built in built_notebooks(root, names):
        path = root / "notebooks" / f"{built.page.stem}.ipynb"
        found += findings(built, path)
    if not names:
        found += [
            f"notebooks/{path.name}: left over, no page in chapters/ belongs to it"
            for path in leftovers(root)
        ]
    for line in found:
        print(line)
    return 1 if found else 0


def write(root: Path, names: list[str], force: bool) -> int:
    """Execute and store what is not fresh; remove what has no page."""
    failed = 0
    for built in built_notebooks(root, names):
        path = root / "notebooks" / f"{built.page.stem}.ipynb"
        if not force and not findings(built, path):
            continue
        start = time.monotonic()
        try:
            node = execute(built, path.parent)
        except NotebookError as error:
            failed = 1
            print(error)
            continue
        temporary = path.with_suffix(".part")
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(serialise(node))
        temporary.replace(path)
        seconds = time.monotonic() - start
        print(f"notebooks/{path.name}: executed in {seconds:.0f} s")
    for path in [] if names else leftovers(root):
        path.unlink()
        print(f"notebooks/{path.name}: removed, its page is gone")
    return failed


def locked_environment(root: Path = ROOT) -> bool:
    """Is this the environment in which even the chaotic numbers are compared?"""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    if sys.version_info[:2] != (3, 11):
        return False
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    pins = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", lock))
    try:
        return all(
            importlib.metadata.version(name).partition("+")[0] == pins[name]
            for name in ("torch", "numpy", "matplotlib")
        )
    except importlib.metadata.PackageNotFoundError:
        return False


def main(argv: list[str] | None = None) -> int:
    """Write or check the notebooks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="pages, such as ch02-transformer")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument(
        "--check", action="store_true", help="execute nothing, report what is stale"
    )
    parser.add_argument(
        "--force", action="store_true", help="execute fresh notebooks too"
    )
    options = parser.parse_args(argv)
    try:
        if options.check:
            return check(options.root, options.names)
        return write(options.root, options.names, options.force)
    except PageError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
