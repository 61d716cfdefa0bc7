"""The tool that writes the notebooks, on made-up pages; and the stored ones as such."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import notebooks
from tools.markdown import Library
from tools.pages import ROOT, read_pages

FRONT = """---
file_format: mystnb
kernelspec:
  name: python3
  display_name: Python 3
tinygpt:
  module: tinygpt.{module}
---

"""

FIRST = '''# The first page

```{code-cell} python
# @save
import math

BASE = 2


def bits(n: int) -> float:
    """Count the bits that tell n things apart."""
    return math.log(n, BASE)
```

```{code-cell} python
print(bits(8))
```
'''

SECOND = """(start)=
# The second page

```{code-cell} python
from tinygpt.first import bits  # @use

print(f"{bits(1024):.1f} bits")
```

```{code-cell} python
---
tags: [hide-input]
mystnb:
  figure:
    caption: How fast do bits grow?
    name: fig-bits
  image:
    alt: A curve that rises ever more slowly.
---
import matplotlib.pyplot as plt

figure, axes = plt.subplots()
axes.plot([1, 2, 4], [bits(n) for n in (1, 2, 4)])
plt.show()
```

{numref}`fig-bits` bends.

```{code-cell} python
---
tags: [nbval-ignore-output, chaotic]
---
print("same", 0.25)
```
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of two pages, of which the second uses the first."""
    for folder in ("chapters", "book", "notebooks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text(
        "[tool.tinygpt]\n"
        'repository = "https://github.com/example/tinygpt"\n'
        'branch = "main"\n'
        'site = "https://example.org/tinygpt/"\n',
        encoding="utf-8",
    )
    (tmp_path / "book" / "tinygpt.mplstyle").write_text(
        "axes.prop_cycle: cycler('color', ['0072B2', 'D55E00'])\n"
        "figure.figsize: 3, 2\n"
        "axes.grid: True\n",
        encoding="utf-8",
    )
    page(tmp_path, "first", FIRST)
    page(tmp_path, "second", SECOND)
    return tmp_path


def page(root: Path, stem: str, text: str) -> None:
    front = FRONT.replace("{module}", stem)
    (root / "chapters" / f"{stem}.md").write_text(front + text, encoding="utf-8")


def run(root: Path, *arguments: str) -> int:
    return notebooks.main([*arguments, "--root", str(root)])


def stored(root: Path, stem: str) -> nbformat.NotebookNode:
    return nbformat.read(root / "notebooks" / f"{stem}.ipynb", as_version=4)


def built(root: Path, stem: str) -> nbformat.NotebookNode:
    library = Library(root)
    return notebooks.build(root, library.pages[f"chapters/{stem}"], library).node


def codes(node: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in node.cells if cell.cell_type == "code"]


# -- what is built ------------------------------------------------------------------


def test_first_cells_say_what_this_is_and_set_up(tree: Path):
    note, setup = built(tree, "second").cells[:2]
    assert "(https://example.org/tinygpt/chapters/second.html)" in note.source
    assert "tinygpt/blob/main/notebooks/second.ipynb)" in note.source
    assert "`chapters/second.md` by `make notebooks`" in note.source
    assert setup.cell_type == "code"
    assert '{"matplotlib": "matplotlib"}' in setup.source
    assert '"figure.figsize": [3.0, 2.0],' in setup.source
    assert 'plt.cycler(color=["#0072B2", "#D55E00"])' in setup.source


def test_page_that_needs_nothing_has_no_setup_cell(tree: Path):
    assert [cell.cell_type for cell in built(tree, "first").cells[:3]] == [
        "markdown",
        "markdown",
        "code",
    ]


def test_without_a_style_file_the_setup_cell_sets_no_style(tree: Path):
    (tree / "book" / "tinygpt.mplstyle").unlink()
    assert "rcParams" not in built(tree, "second").cells[1].source


def test_import_inside_try_is_optional_and_standard_library_is_no_package():
    source = (
        "import os\nfrom numpy.linalg import norm\n"
        "try:\n    import tqdm\nexcept ImportError:\n    tqdm = None\n"
        "def later():\n    import PIL.Image\n%matplotlib inline\n"
    )
    assert notebooks.third_party([source, "not python ("]) == {"numpy", "PIL"}


def test_setup_cell_run_twice_is_harmless(tree: Path):
    setup = built(tree, "second").cells[1].source
    script = "\n".join(
        [
            "import subprocess; real = subprocess.run",
            "def run(command, **options):",
            "    assert 'pip' not in command, 'pip was called'",
            "    return real(command, **options)",
            "subprocess.run = run",
            setup,
            "import matplotlib; first = dict(matplotlib.rcParams)",
            setup,
            "print(first == dict(matplotlib.rcParams), first['axes.grid'])",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tree,
        env={**os.environ, "MPLBACKEND": "agg"},
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout == "True True\n"
    assert sorted(path.name for path in (tree / "notebooks").iterdir()) == []


def test_setup_cell_installs_exactly_what_is_missing(capsys: pytest.CaptureFixture):
    setup = notebooks.setup_source(ROOT, ["import json, no_such_module_here"])
    script = (
        "import subprocess\n"
        "subprocess.run = lambda command, check: print(command[1:], check)\n" + setup
    )
    done = subprocess.run(
        [sys.executable, "-c", script], text=True, capture_output=True, check=True
    )
    expected = "['-m', 'pip', 'install', '--quiet', 'no_such_module_here'] True\n"
    assert done.stdout == expected


def test_saved_source_takes_the_place_of_the_import(tree: Path):
    source = codes(built(tree, "second"))[1].source
    assert "tinygpt.first" not in source
    assert source.startswith("import math")
    assert "BASE = 2" in source
    assert "def bits(n: int) -> float:" in source
    assert "# bits: built in https://example.org/tinygpt/chapters/first" in source
    assert source.endswith('print(f"{bits(1024):.1f} bits")')


def test_source_that_an_earlier_cell_holds_is_not_repeated(tree: Path):
    again = "\n```{code-cell} python\nfrom tinygpt.first import bits  # @use\n```\n"
    page(tree, "second", SECOND + again)
    last = codes(built(tree, "second"))[-1].source
    assert "def bits" not in last


def test_use_of_an_unknown_module_names_page_and_line(
    tree: Path, capsys: pytest.CaptureFixture
):
    cell = "```{code-cell} python\nfrom tinygpt.nowhere import x  # @use\n```\n"
    page(tree, "second", f"# Title\n\n{cell}")
    assert run(tree, "--check") == 1
    said = capsys.readouterr().out
    assert "chapters/second.md, line 13" in said
    assert "no page builds the module tinygpt.nowhere" in said


def test_unknown_directive_names_page_and_line(
    tree: Path, capsys: pytest.CaptureFixture
):
    page(tree, "first", f"{FIRST}\n```{{mystery}}\nx\n```\n")
    assert run(tree) == 1
    said = capsys.readouterr().out
    assert said == "chapters/first.md, line 28: unknown directive '{mystery}'\n"
    assert not list((tree / "notebooks").iterdir())


def test_metadata_is_what_front_ends_need_and_no_more(tree: Path):
    node = built(tree, "second")
    assert node.metadata.kernelspec == {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    assert set(node.metadata) == {"kernelspec", "language_info"}
    assert "version" not in node.metadata.language_info
    assert [dict(cell.metadata) for cell in codes(node)[1:]] == [
        {},
        {
            "tags": ["hide-input"],
            "cellView": "form",
            "jupyter": {"source_hidden": True},
        },
        {"tags": ["nbval-ignore-output", "chaotic"]},
    ]


def test_cell_ids_are_unique_and_survive_a_rebuild(tree: Path):
    ids = [cell.id for cell in built(tree, "second").cells]
    assert len(set(ids)) == len(ids)
    assert ids == [cell.id for cell in built(tree, "second").cells]
    assert not set(ids) & {cell.id for cell in built(tree, "first").cells}


# -- what is executed ---------------------------------------------------------------


def test_two_runs_are_byte_identical_and_the_second_executes_nothing(
    tree: Path, capsys: pytest.CaptureFixture
):
    assert run(tree) == 0
    paths = [tree / "notebooks" / f"{stem}.ipynb" for stem in ("first", "second")]
    before = [path.read_bytes() for path in paths]
    capsys.readouterr()
    assert run(tree) == 0
    assert capsys.readouterr().out == ""
    assert run(tree, "--force") == 0
    assert [path.read_bytes() for path in paths] == before
    assert run(tree, "--check") == 0

    first, uses, drawing, chaotic = codes(stored(tree, "second"))
    assert first.outputs == []
    assert uses.outputs[0].text == "10.0 bits\n"
    assert chaotic.outputs[0].text == "same 0.25\n"
    (output,) = drawing.outputs
    assert output.metadata["image/png"] == {
        "alt": "A curve that rises ever more slowly."
    }
    assert "image/svg+xml" not in output.data
    texts = [cell.source for cell in stored(tree, "second").cells]
    assert "**Figure 1.** How fast do bits grow?" in texts
    assert before[1].endswith(b"}\n")
    raw = json.loads(before[1])
    assert "execution" not in json.dumps([cell["metadata"] for cell in raw["cells"]])
    assert "widgets" not in raw["metadata"]


def test_only_what_changed_is_executed_again(tree: Path, capsys: pytest.CaptureFixture):
    assert run(tree) == 0
    capsys.readouterr()
    page(tree, "first", FIRST.replace("bits(8)", "bits(16)"))
    assert run(tree, "--check") == 1
    assert "cell 4 (code cell 2): source is stale" in capsys.readouterr().out
    assert run(tree) == 0
    said = capsys.readouterr().out
    assert "first.ipynb: executed" in said
    assert "second" not in said


def test_change_of_saved_source_makes_its_users_stale(
    tree: Path, capsys: pytest.CaptureFixture
):
    assert run(tree) == 0
    capsys.readouterr()
    page(tree, "first", FIRST.replace("BASE = 2", "BASE = 4"))
    assert run(tree, "second") == 0
    assert "second.ipynb: executed" in capsys.readouterr().out
    assert codes(stored(tree, "second"))[1].outputs[0].text == "5.0 bits\n"


def test_package_cannot_be_imported_while_a_notebook_runs(
    tree: Path, capsys: pytest.CaptureFixture
):
    sly = "```{code-cell} python\n__import__('tiny' + 'gpt')\n```\n"
    page(tree, "first", f"# Title\n\n{sly}")
    (tree / "chapters" / "second.md").unlink()
    assert run(tree) == 1
    assert "No module named 'tinygpt'" in capsys.readouterr().out


def test_failing_cell_is_named_and_the_stored_notebook_stays(
    tree: Path, capsys: pytest.CaptureFixture
):
    assert run(tree, "first") == 0
    path = tree / "notebooks" / "first.ipynb"
    before = path.read_bytes()
    capsys.readouterr()
    page(tree, "first", FIRST.replace("print(bits(8))", "print(bits('8'))"))
    assert run(tree, "first") == 1
    said = capsys.readouterr().out
    assert said.startswith("chapters/first.md, code cell 2: TypeError: ")
    assert "print(bits('8'))" in said
    assert "\x1b" not in said
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["first.ipynb"]


def test_unknown_name_is_refused(tree: Path, capsys: pytest.CaptureFixture):
    assert run(tree, "third") == 1
    assert "no page with code is called third" in capsys.readouterr().out


# -- what --check finds -------------------------------------------------------------


@pytest.fixture
def fresh(tree: Path) -> Path:
    """The tree with the first page only, its notebook stored."""
    (tree / "chapters" / "second.md").unlink()
    assert run(tree) == 0
    return tree


def spoil(root: Path, change: object) -> None:
    node = stored(root, "first")
    change(node)
    path = root / "notebooks" / "first.ipynb"
    path.write_text(notebooks.serialise(node), encoding="utf-8")


def unexecuted(node: nbformat.NotebookNode) -> None:
    cell = codes(node)[1]
    cell.execution_count, cell.outputs = None, []


def other_kernel(node: nbformat.NotebookNode) -> None:
    node.metadata.kernelspec.name = "my-env"


def with_widgets(node: nbformat.NotebookNode) -> None:
    node.metadata.widgets = {}


def with_timing(node: nbformat.NotebookNode) -> None:
    codes(node)[0].metadata.execution = {"iopub.status.busy": "2026"}


def edited_by_hand(node: nbformat.NotebookNode) -> None:
    codes(node)[1].source = "print(4)"


def shortened(node: nbformat.NotebookNode) -> None:
    node.cells.pop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unexecuted, "cell 4: never executed (no execution count)"),
        (other_kernel, "kernelspec.name is 'my-env', expected 'python3'"),
        (with_widgets, "metadata.widgets is there"),
        (with_timing, "cell 3 (code cell 1): metadata is stale"),
        (edited_by_hand, "cell 4 (code cell 2): source is stale"),
        (shortened, "3 cells, expected 4"),
    ],
)
def test_check_finds(
    fresh: Path, capsys: pytest.CaptureFixture, change: object, message: str
):
    assert run(fresh, "--check") == 0
    spoil(fresh, change)
    assert run(fresh, "--check") == 1
    said = capsys.readouterr().out
    assert "notebooks/first.ipynb" in said
    assert message in said


def test_check_finds_missing_and_leftover(fresh: Path, capsys: pytest.CaptureFixture):
    path = fresh / "notebooks" / "first.ipynb"
    path.rename(path.with_name("gone.ipynb"))
    assert run(fresh, "--check") == 1
    said = capsys.readouterr().out
    assert "notebooks/first.ipynb: missing" in said
    assert "notebooks/gone.ipynb: left over" in said
    assert run(fresh) == 0
    assert [file.name for file in path.parent.iterdir()] == ["first.ipynb"]


def test_unreadable_notebook_is_reported_and_made_again(
    fresh: Path, capsys: pytest.CaptureFixture
):
    path = fresh / "notebooks" / "first.ipynb"
    path.write_text(path.read_text("utf-8")[:200], encoding="utf-8")
    assert run(fresh, "--check") == 1
    assert "cannot be read" in capsys.readouterr().out
    assert run(fresh) == 0
    assert run(fresh, "--check") == 0


def test_works_as_a_script_and_as_a_module(fresh: Path):
    arguments = ["--check", "--root", str(fresh)]
    for command in (["tools/notebooks.py"], ["-m", "tools.notebooks"]):
        subprocess.run([sys.executable, *command, *arguments], cwd=ROOT, check=True)


# -- the stored notebooks -----------------------------------------------------------

STORED = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_stored_notebooks_fit_their_pages(capsys: pytest.CaptureFixture):
    status = notebooks.main(["--check"])
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_notebook_opens_anywhere(path: Path):
    node = nbformat.read(path, as_version=4)
    nbformat.validate(node)
    assert node.metadata.kernelspec.name == "python3"
    assert "widgets" not in node.metadata
    nbconvert = pytest.importorskip("nbconvert", reason="needs nbconvert")
    body, _ = nbconvert.HTMLExporter().from_notebook_node(node)
    title = next(
        cell.source.splitlines()[0].removeprefix("# ")
        for cell in node.cells
        if cell.source.startswith("# ") and cell.cell_type == "markdown"
    )
    assert title in re.sub(r"<[^>]+>", "", body)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_notebook_holds_no_leftover_of_the_source_format(path: Path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"`[^`\n]*`", "", re.sub(r"(?s)```.*?```", "", cell.source))
            assert not re.search(r"\{[\w:-]+\}`|^:{3,}|^\([\w-]+\)=$|^%", text, re.M)
        else:
            assert "import *" not in cell.source
            assert not re.search(r"^\s*(from|import) tinygpt\b", cell.source, re.M)


def test_every_name_of_the_package_that_pages_mention_exists():
    mentions = set()
    for source in read_pages():
        for cell in source.cells:
            mentions |= set(re.findall(r"\btinygpt(?:\.[A-Za-z_]\w*)+", cell.source))
    assert "tinygpt.corpus" in mentions
    for mention in sorted(mentions):
        _, module, *names = mention.split(".")
        thing = importlib.import_module(f"tinygpt.{module}")
        for name in names:
            assert hasattr(thing, name), mention
            thing = getattr(thing, name)


@pytest.mark.parametrize("pin", ["torch", "numpy", "matplotlib"])
def test_another_version_is_not_the_locked_environment(tmp_path: Path, pin: str):
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    changed = re.sub(rf"(?m)^{pin}==.*$", f"{pin}==0.0.1", lock)
    assert changed != lock
    (tmp_path / "requirements.lock").write_text(changed, encoding="utf-8")
    assert not notebooks.locked_environment(tmp_path)
