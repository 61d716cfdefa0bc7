"""The package is exactly what the saved cells say, wherever it is written."""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tools import export
from tools.pages import ROOT, PageError, read_page, read_pages

PYPROJECT = """
[project]
name = "tinygpt"
version = "1.2.3"
dependencies = ["torch>=2.4"]

[tool.tinygpt]
repository = "https://github.com/example/tinygpt"
branch = "main"
site = "https://example.org/book/"
"""
FRONT = """---
file_format: mystnb
kernelspec: {{name: python3, display_name: Python 3}}
tinygpt: {{module: {module}}}
---

"""


def cell(*lines: str) -> str:
    """A code cell of a page."""
    return "\n".join(["```{code-cell} python", *lines, "```", ""]) + "\n"


def saved(*lines: str) -> str:
    return cell("# @save", *lines)


@pytest.fixture
def tree(tmp_path):
    """A made-up repository without pages."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    return tmp_path


def page(tree: Path, stem: str, *parts: str, module: str | None = None) -> Path:
    """Write a page that consists of a title and the given parts."""
    text = FRONT.format(module=module or f"tinygpt.{stem}") + f"# Page {stem}\n\n"
    path = tree / "chapters" / f"{stem}.md"
    path.write_text(text + "\n".join(parts), encoding="utf-8")
    return path


def findings(tree: Path) -> str:
    with pytest.raises(PageError) as error:
        export.build(tree)
    return str(error.value)


def ruff(folder: Path, *arguments: str) -> str:
    """What ruff says about files in ``folder``; nothing when all is well."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("print('hello')", "the call print(...) runs at import"),
        ("torch.manual_seed(0)", "the call torch.manual_seed(...) runs at import"),
        ("torch.set_num_threads(1)", "the call torch.set_num_threads(...)"),
        ("WEIGHT = torch.randn(3)", "the call torch.randn(...) runs at import"),
        ("A, B = 1, [float(x) for x in open('f')]", "the call open(...)"),
        ("TEXT = f'{input()}'", "the call input(...) runs at import"),
        ("SIZES = dict(a=print())", "the call print(...) runs at import"),
        ("for i in range(3): N = i", "'for' runs at import"),
        ("if True: N = 1", "'if' runs at import"),
        ("with torch.no_grad(): N = 1", "'with' runs at import"),
        ("try: N = 1\nexcept ValueError: N = 2", "'try' runs at import"),
        ("while False: pass", "'while' runs at import"),
        ("assert torch", "'assert' runs at import"),
        ("del torch", "'delete' runs at import"),
        ("N = 0\nN += 1", "'+=' runs at import"),
        ("torch.backends.flag = True", "assigning to 'torch.backends.flag'"),
        ("torch.flag = 1", "attach a function by its name"),
        ("D = {}\nD['a'] = 1", "changes an object at import"),
        ("'just words'", "a bare string"),
        ("torch", "an expression whose value is lost"),
        ("A = 1; B = 2", "two statements on one line"),
        ("from .other import name", "a relative import"),
        ("from math import *", "'import *'"),
        ("def f(x=print()):\n    '''F.'''", "the call print(...)"),
        ("def f(x=lambda y=print(): 1):\n    '''F.'''", "the call print(...)"),
        ("def f(x: print()):\n    '''F.'''", "the call print(...)"),
        ("def f() -> print():\n    '''F.'''", "the call print(...)"),
        ("N: print() = 1", "the call print(...) runs at import"),
        ("@print\ndef f():\n    '''F.'''", "the decorator @print runs at import"),
        ("@(lambda f: f)\ndef f():\n    '''F.'''", "runs at import"),
        ("class A:\n    '''A.'''\n    print('x')", "the call print(...)"),
        ("class A:\n    '''A.'''\n    torch.x = 1", "'torch.x = 1' runs at import"),
        ("class A:\n    '''A.'''\n    N = torch.rand(1)", "the call torch.rand(...)"),
        ("class A(print()):\n    '''A.'''", "the call print(...) runs at import"),
        ("def tuple():\n    '''T.'''\nX = tuple()", "the call tuple(...)"),
    ],
)
def test_a_saved_cell_with_a_side_effect_names_page_line_and_cell(tree, line, says):
    page(tree, "a", "Text.\n", cell("1"), saved("import torch", *line.split("\n")))
    text = findings(tree)
    assert says in text
    assert re.search(r"chapters/a\.md, line (1[7-9]|2\d) \(code cell 2\)", text)


@pytest.mark.parametrize("line", ["%time x = 1", "!pip install x", "x?", "def f(:"])
def test_a_magic_in_a_saved_cell_is_shown_with_its_place(tree, line):
    page(tree, "a", saved("X = 1", line))
    text = findings(tree)
    assert "chapters/a.md, line 12 (code cell 1): not plain Python" in text
    assert repr(line) in text
    assert "move it to a cell without '# @save'" in text


def test_a_magic_in_a_cell_that_is_not_saved_is_fine(tree):
    page(tree, "a", cell("%time x = 1", "!ls"), saved("X = 1"))
    assert "X = 1\n" in export.build(tree)["a.py"]


def test_a_name_defined_twice_names_both_cells(tree):
    page(tree, "a", saved("X = 1"), cell("2"), saved("def X():", "    '''X.'''"))
    text = findings(tree)
    assert "X is defined twice" in text
    assert "line 22 (code cell 3)" in text
    assert "line 11 (code cell 1)" in text


def test_a_method_that_is_also_attached_is_defined_twice(tree):
    body = ["class A:", "    '''A.'''", "", "    def f(self): ..."]
    attach = ["def f(a):", "    '''F.'''", "", "", "A.f = f"]
    page(tree, "a", saved(*body), saved(*attach))
    text = findings(tree)
    assert "A.f is defined twice" in text
    assert "(code cell 1)" in text
    assert "(code cell 2)" in text


def test_a_method_written_twice_is_found_and_a_setter_is_not(tree):
    setter = ["@property", "def x(self): ...", "@x.setter", "def x(self, v): ..."]
    once = ["class A:", "    '''A.'''", *(f"    {line}" for line in setter)]
    page(tree, "a", saved(*once))
    assert "class A:" in export.build(tree)["a.py"]
    page(tree, "a", saved(*once, "    def y(self): ...", "    def y(self): ..."))
    assert "A.y is defined twice" in findings(tree)


def test_an_import_and_a_definition_of_one_name_are_reported(tree):
    page(tree, "a", saved("from math import pi"), saved("pi = 3"))
    assert "pi is imported here and defined in chapters/a.md" in findings(tree)
    page(tree, "a", saved("import math as m", "import re as m", "X = m"))
    assert "m is imported as two things" in findings(tree)


def test_an_undefined_name_is_reported_at_its_place_in_the_page(tree):
    lines = ["def f():", '    """F."""', "    return missing + 1"]
    page(tree, "a", "Word.\n", cell("missing = 2"), saved(*lines))
    text = findings(tree)
    assert "chapters/a.md, line 20 (code cell 2): undefined name 'missing'" in text
    assert "save the cell" in text


def test_a_public_definition_without_a_docstring_is_an_error(tree):
    lines = ["def f(): ...", "class A: ...", "def _g(): ...", "def h(): 'Same line.'"]
    page(tree, "a", saved(*lines))
    text = findings(tree)
    assert "line 11 (code cell 1): the public function f has no docstring" in text
    assert "line 12 (code cell 1): the public class A has no docstring" in text
    assert "_g" not in text
    assert "the docstring of h begins on a line of its own" in text


def test_a_docstring_in_two_pieces_is_an_error(tree):
    page(tree, "a", saved("def f():", "    'One ' 'two.'"))
    assert "the docstring of f is written as one string" in findings(tree)


@pytest.mark.parametrize("mark", ["# @save", "#@save", "## @save", "# @save this"])
def test_a_save_comment_below_the_first_line_is_an_error(tree, mark):
    page(tree, "a", cell("", "X = 1", f"Y = 2  {mark}"), saved("Z = 1"))
    text = findings(tree)
    assert f"line 12 (code cell 1): {mark!r} does not export" in text


def test_a_save_mark_with_a_misspelling_on_the_first_line_is_an_error(tree):
    page(tree, "a", cell("#@save", "X = 1"))
    assert "the cell's first line must be exactly '# @save'" in findings(tree)


def test_a_save_mark_in_a_string_is_text(tree):
    page(
        tree,
        "a",
        cell('s = """', "# @save", "Q = 1", '"""'),
        cell('s = "# @save"'),
        "# @save in prose\n",
        saved('X = """', "# @save", '"""'),
    )
    text = export.build(tree)["a.py"]
    assert 'X = """\n# @save\n"""\n' in text
    assert "Q = 1" not in text
    assert '__all__ = ["X"]' in text


def test_attaching_wants_a_class_and_a_function_of_the_cells_above(tree):
    f = ["def f(a):", "    '''F.'''"]
    page(tree, "a", saved("import torch", *f, "torch.f = f"))
    assert "torch is no class of the saved cells above" in findings(tree)
    page(tree, "a", saved("class A:", "    '''A.'''", "A.f = f", *f))
    assert "f is not defined in the saved cells above" in findings(tree)
    page(tree, "a", saved("class A:", "    '''A.'''", "A.f = A().g"))
    assert "attach a function by its name" in findings(tree)


@pytest.mark.parametrize("module", ["gpt", "tinygpt", "tinygpt.a.b", "tinygpt.class"])
def test_a_module_outside_the_package_is_an_error(tree, module):
    page(tree, "a", saved("X = 1"), module=module)
    assert f"module '{module}'; expected tinygpt.name" in findings(tree)


def test_saved_cells_need_a_module_and_two_pages_need_two(tree):
    path = page(tree, "a", saved("X = 1"), module="tinygpt.one")
    page(tree, "b", saved("Y = 1"), module="tinygpt.one")
    text = findings(tree)
    assert "chapters/b.md: its module tinygpt.one is that of chapters/a.md" in text
    path.write_text(re.sub("tinygpt: .*\n", "", path.read_text("utf-8")), "utf-8")
    assert "chapters/a.md: has '# @save' cells but" in findings(tree)


def test_a_package_that_is_no_dependency_is_refused_at_the_top_only(tree):
    page(tree, "a", saved("import numpy as np", "X = np.pi"))
    assert "saved code imports numpy" in findings(tree)
    inside = ["def f():", '    """F."""', "    import numpy as np", "    return np.pi"]
    page(tree, "a", saved(*inside))
    assert "import numpy as np" in export.build(tree)["a.py"]


def test_all_findings_of_all_pages_are_told_at_once(tree, capsys):
    page(tree, "a", saved("print(1)"), saved("X = 1"), saved("X = 2"))
    page(tree, "b", saved("Y = 1", "Y = nothing"))
    assert export.main(["--root", str(tree)]) == 1
    text = capsys.readouterr().out
    for part in ("print(...)", "X is defined twice", "Y is defined twice"):
        assert part in text
    assert not (tree / "tinygpt").exists()


# ------------------------------------------------------------- using another page


def test_a_use_becomes_a_plain_import(tree):
    page(tree, "a", saved("def load():", '    """Load."""'))
    page(
        tree, "b", saved("from tinygpt.a import load  # @use", "", "AGAIN = (load, 1)")
    )
    text = export.build(tree)["b.py"]
    assert "\nfrom tinygpt.a import load\n" in text
    assert "@use" not in text


def test_a_use_of_something_that_nobody_exports_is_an_error(tree):
    page(tree, "a", saved("X = 1"), cell("Y = 1"))
    page(tree, "b", cell("from tinygpt.a import X, Y  # @use"))
    page(tree, "c", cell("from tinygpt.nowhere import X  # @use"))
    text = findings(tree)
    assert (
        "chapters/b.md, line 10 (code cell 1): chapters/a.md exports no name Y" in text
    )
    assert "(code cell 1): no page exports tinygpt.nowhere" in text


def test_a_use_without_its_mark_or_inside_a_function_is_an_error(tree):
    page(tree, "a", saved("X = 1"))
    page(tree, "b", saved("from tinygpt.a import X", "Y = X"))
    assert "ends with '# @use'" in findings(tree)
    inside = ["def f():", '    """F."""', "    from tinygpt.a import X  # @use"]
    page(tree, "b", saved(*inside, "    return X"))
    assert "an import from the package inside a function" in findings(tree)


def test_pages_that_use_each_other_are_an_error(tree):
    page(tree, "a", saved("from tinygpt.b import Y  # @use", "X = (Y,)"))
    page(tree, "b", saved("from tinygpt.a import X  # @use", "Y = (X,)"))
    assert "modules use each other: tinygpt." in findings(tree)


def test_saved_source_runs_alone_and_brings_all_that_is_needed(tree):
    page(
        tree,
        "base",
        saved(
            "from dataclasses import dataclass", "import math", "import re", "BASE = 2"
        ),
        saved("@dataclass", "class Config:", '    """C."""', "", "    n: int = BASE"),
        saved("UNUSED = re.compile('x')"),
    )
    page(
        tree,
        "above",
        saved("import math", "from tinygpt.base import Config  # @use"),
        saved("class Net:", '    """N."""', "", '    config: "Config"'),
        saved("def grow(net: Net) -> float:", '    """G."""', "    return area() + 1"),
        saved("def area():", '    """A."""', "    return math.pi", "", ""),
        saved("def alone():", '    """A."""'),
        saved("# How a net grows.", "Net.grow = grow"),
    )
    imports, sources = export.saved_source(tree, "tinygpt.above", ["Net"])
    assert imports == ["import math", "from dataclasses import dataclass"]
    assert [source.split("\n")[-1] for source in sources] == [
        "BASE = 2",
        "    n: int = BASE",
        '    config: "Config"',
        "    return area() + 1",
        "    return math.pi",
        "Net.grow = grow",
    ]
    space = {"__name__": "alone"}
    sys.modules["alone"] = sys  # dataclass looks its module up
    try:
        exec("\n".join([*imports, *sources]), space)
    finally:
        del sys.modules["alone"]
    assert space["Net"]().grow() == pytest.approx(4.14159, abs=1e-5)
    assert space["Config"]().n == 2


def test_saved_source_says_what_is_missing_or_in_conflict(tree):
    page(tree, "a", saved("X = 1"))
    page(tree, "b", saved("from tinygpt.a import X  # @use", "Y = (X,)"))
    page(tree, "c", saved("from tinygpt.b import Y  # @use", "X = (Y,)"))
    with pytest.raises(PageError, match="exports no name Z"):
        export.saved_source(tree, "tinygpt.a", ["Z"])
    with pytest.raises(PageError, match=r"no page exports tinygpt\.d"):
        export.saved_source(tree, "tinygpt.d", ["Z"])
    with pytest.raises(PageError, match=r"X is defined by chapters/a\.md"):
        export.saved_source(tree, "tinygpt.c", ["X"])


def test_find_saved_gives_names_needs_and_places(tree):
    lines = ["import math", "from typing import Any", "", "A = 1"]
    body = ["def f(x: 'B', n=A) -> Any:", '    """F."""', "    y = x + math.pi"]
    path = page(tree, "a", saved(*lines), saved(*body, "    return [y for z in Q]"))
    found = export.find_saved(read_page(path))
    assert found.names == ("A", "f")
    assert [i for i, _ in found.imports] == [
        export.Import("math"),
        export.Import("typing", "Any"),
    ]
    f = found.definition("f")
    assert f.needs == {"A", "Any", "B", "Q", "math"}
    assert str(f.place) == "chapters/a.md, line 20 (code cell 2)"


# ------------------------------------------------------------- what is written, how


RICH = (
    saved(
        "from collections.abc import Iterator  # tokens",
        "import torch, re, math",
        "from torch import nn",
        "from dataclasses import dataclass, field",
        "import torch.nn.functional as F",
        "import os  # not used by what is saved",
    ),
    "(numbers)=\n## 1. Sizes & `names`\n",
    saved(
        "# How many.",
        "BLOCK = 64  # positions",
        "RATE: float = math.sqrt(2)",
        "WORD = re.compile(r'\\w+')".replace("'", '"'),
        "",
        "Pair = tuple[torch.Tensor, torch.Tensor]",
    ),
    saved(
        "# Größe.",
        "@dataclass(frozen=True)",
        "class Config:",
        '    """All sizes, 16 bytes a café."""',
        "",
        "    width: int = 8  # d",
        "    names: list[str] = field(default_factory=list)",
    ),
    "### The loss\n",
    saved(
        "class Net(nn.Module):",
        '    """A net.',
        "",
        "    It has one layer.",
        '    """',
        "",
        "    def __init__(",
        "        self,",
        "        config: Config,  # the sizes",
        "    ) -> None:",
        "        super().__init__()",
        "        self.layer = nn.Linear(config.width, BLOCK)",
        "",
        "",
        "@torch.no_grad()",
        "def loss_of(",
        "    net: Net, batches: Iterator[Pair], *, label_smoothing: float = 0.0",
        ") -> float:",
        r'    r"""Mean loss, \alpha."""',
        "    total = [F.cross_entropy(net.layer(x), y) for x, y in batches]",
        "    # the mean",
        "    return float(sum(total))  # nats",
        "    # done",
        "",
        "",
        "Net.loss_of = loss_of",
        "# That is all.",
    ),
)

RICH_MODULE = '''# Generated from chapters/a.md by `make export`.
# Change the page, not this file.
"""Page a.

The saved code of https://example.org/book/chapters/a.html
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["BLOCK", "RATE", "WORD", "Config", "Net", "Pair", "loss_of"]

# How many.
BLOCK = 64  # positions
RATE: float = math.sqrt(2)
WORD = re.compile(r"\\w+")

Pair = tuple[torch.Tensor, torch.Tensor]


# Größe.
@dataclass(frozen=True)
class Config:
    """All sizes, 16 bytes a café.

    Built in Page a, section 1. Sizes & names:
    https://example.org/book/chapters/a.html#numbers
    """

    width: int = 8  # d
    names: list[str] = field(default_factory=list)


class Net(nn.Module):
    """A net.

    It has one layer.

    Built in Page a, section The loss: https://example.org/book/chapters/a.html#the-loss
    """

    def __init__(
        self,
        config: Config,  # the sizes
    ) -> None:
        super().__init__()
        self.layer = nn.Linear(config.width, BLOCK)


@torch.no_grad()
def loss_of(
    net: Net, batches: Iterator[Pair], *, label_smoothing: float = 0.0
) -> float:
    r"""Mean loss, \\alpha.

    Built in Page a, section The loss: https://example.org/book/chapters/a.html#the-loss
    """
    total = [F.cross_entropy(net.layer(x), y) for x, y in batches]
    # the mean
    return float(sum(total))  # nats
    # done


Net.loss_of = loss_of
# That is all.
'''


def test_a_module_keeps_comments_decorators_and_wrapped_signatures(tree):
    page(tree, "a", *RICH)
    assert export.build(tree)["a.py"] == RICH_MODULE


def test_ruff_has_nothing_to_say_about_a_module(tree):
    page(tree, "a", *RICH)
    page(tree, "b", saved("from tinygpt.a import Net  # @use", "Models = list[Net]"))
    page(
        tree,
        "c",
        saved("import torch", "from tinygpt.a import Net  # @use"),
        saved("Model = Net | torch.nn.Linear"),
    )
    (tree / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    assert export.main(["--root", str(tree)]) == 0
    assert ruff(tree, "check", "--no-cache", "tinygpt") == ""
    assert ruff(tree, "format", "--no-cache", "--diff", "tinygpt") == ""


def test_imports_and_names_are_in_the_order_of_ruff(tmp_path):
    modules = [
        "os",
        "os.path",
        "re",
        "xml.dom",
        "torch",
        "torch.nn.functional",
        "numpy",
    ]
    modules += ["tinygpt.chars", "tinygpt.Big", "tinygpt.a10", "tinygpt.a9", "_ast"]
    modules += [
        "collections",
        "collections.abc",
        "tinygpt.a_b",
        "tinygpt.ab",
        "IPython",
    ]
    names = ["b", "B", "BB", "Bb", "a10", "a9", "_c", "A1", "GPT", "Gpt", "gPT", "X_Y"]
    names += [
        "GPTConfig",
        "Ga",
        "ab",
        "a_b",
        "aB",
        "Z9",
        "Z10",
        "LONG_NAME_OF_A_CONSTANT",
    ]
    found = [export.Import(module) for module in modules]
    found += [export.Import(module, None, "x" + module[-2:]) for module in modules[:4]]
    found += [export.Import(m, n) for m in modules for n in names[:: len(m) % 3 + 1]]
    found += [export.Import(m, "b", "bee") for m in modules]
    found += [export.Import("__future__", "annotations")]
    (tmp_path / "tinygpt").mkdir()
    for module in modules:  # what is found there is first party
        if module.startswith("tinygpt."):
            (tmp_path / "tinygpt" / f"{module[8:]}.py").touch()
    ordered = export._all_lines(sorted(names, key=export.member_key))
    lines = [*export.import_lines(found), "", *ordered]
    (tmp_path / "x.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "ruff.toml").touch()
    rules = ["--no-cache", "--select", "I,RUF022", "--diff"]
    assert ruff(tmp_path, "check", *rules, "x.py") == ""
    assert ruff(tmp_path, "format", "--no-cache", "--diff", "x.py") == ""


def test_an_import_that_saved_code_does_not_use_is_left_out(tree):
    page(tree, "a", saved("import torch", "import os", "", "X = torch.float32"))
    text = export.build(tree)["a.py"]
    assert "import torch" in text
    assert "import os" not in text


def test_same_name_on_two_pages_is_left_to_its_modules(tree):
    block = ["class Block:", '    """B."""']
    page(tree, "a", saved(*block), saved("ONE = 1", "_hidden = 2"))
    page(tree, "b", saved(*block), saved("TWO = 2", "a = 3"))
    files = export.build(tree)
    assert all("class Block:" in files[name] for name in ("a.py", "b.py"))
    tree_of_init = ast.parse(files["__init__.py"])
    names = [
        alias.name
        for node in tree_of_init.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert names == ["ONE", "TWO"]
    doc = " ".join(ast.get_docstring(tree_of_init).split())
    assert "Block (tinygpt.a, tinygpt.b)" in doc
    assert "a (tinygpt.b)" in doc  # it would hide the module tinygpt.a
    assert '__all__ = ["ONE", "TWO", "__version__"]' in files["__init__.py"]
    assert '__version__ = "1.2.3"' in files["__init__.py"]


def test_docstrings_link_to_the_ids_that_sphinx_gives(tree):
    from sphinx.application import Sphinx

    heads = ["## 2.3 Über *attention*: `qkv` and $d_k^2$", "## KV-cache (Ω)"]
    heads += ["(sec:label_x)=\n## Same", "(other)=\n## Same", "## Is it O(1)?"]
    heads += ["```{note}\n# no heading\n```\n\n### Deep – down", "Setext\n------"]
    parts = []
    for index, head in enumerate(heads):
        body = [f"def f{index}():", '    """F."""', "", "", f"def _{index}(): ..."]
        parts += [head + "\n", saved(*body)]
    page(tree, "a", *parts)
    links = re.findall(r"chapters/a\.html#(\S+)", export.build(tree)["a.py"])
    assert len(links) == len(heads)
    assert len(set(links)) == len(heads)
    source = tree / "chapters"
    out = tree / "out"
    options = {
        "extensions": ["myst_nb"],
        "root_doc": "a",
        "nb_execution_mode": "off",
        "myst_enable_extensions": list(export.MYST_EXTENSIONS),
    }
    app = Sphinx(
        *(str(source), None, str(out), str(out / "trees"), "html"),
        confoverrides=options,
        status=None,
        warning=None,
    )
    app.build()
    html = (out / "a.html").read_text(encoding="utf-8")
    ids = re.findall(r'id="([^"]+)"', html)
    assert [link for link in links if link not in ids] == []


def test_a_heading_without_an_address_of_its_own_asks_for_a_label(tree):
    one = saved("def f():", '    """F."""')
    page(tree, "a", "## Try\n", "Text.\n", "## Try\n", one)
    assert "the heading 'Try' needs a label" in findings(tree)
    page(tree, "a", "## Try\n", "Text.\n", "(again)=\n## Try\n", one)
    assert "chapters/a.html#again" in export.build(tree)["a.py"]


def test_a_docstring_gains_its_line_once_and_keeps_its_text(tree):
    lines = [
        "def f():",
        "    '''Say \"hi\" \\\\ é.",
        "",
        "    More.'''",
        "    return 1",
    ]
    page(tree, "a", saved(*lines))
    space: dict = {}
    exec(export.build(tree)["a.py"], space)
    assert space["f"].__doc__ == (
        'Say "hi" \\ é.\n\n    More.\n\n'
        "    Built in Page a: https://example.org/book/chapters/a.html\n    "
    )
    assert space["f"]() == 1


# -------------------------------------------------------------------- check and write


def test_check_fails_on_a_stale_missing_or_left_over_module(tree, capsys):
    page(tree, "a", saved("X = 1"))
    page(tree, "b", saved("Y = 1"))
    run = ["--root", str(tree)]
    assert export.main([*run, "--check"]) == 1
    assert "tinygpt/a.py: missing" in capsys.readouterr().out
    assert not (tree / "tinygpt").exists()
    assert export.main(run) == 0
    assert export.main([*run, "--check"]) == 0
    page(tree, "a", saved("X = 2"))
    capsys.readouterr()
    assert export.main([*run, "--check"]) == 1
    assert capsys.readouterr().out == "tinygpt/a.py: stale; run 'make export'\n"
    assert export.main(run) == 0
    (tree / "chapters" / "b.md").unlink()
    (tree / "tinygpt" / "own.py").write_text("# mine\n", encoding="utf-8")
    capsys.readouterr()
    assert export.main([*run, "--check"]) == 1
    assert "tinygpt/b.py: left over, its page is gone" in capsys.readouterr().out
    assert export.main(run) == 0
    assert not (tree / "tinygpt" / "b.py").exists()
    assert (tree / "tinygpt" / "own.py").exists()
    assert export.main([*run, "--check"]) == 0


def test_only_files_whose_bytes_changed_are_written(tree, capsys):
    page(tree, "a", saved("X = 1"))
    page(tree, "b", saved("Y = 1"))
    assert export.main(["--root", str(tree)]) == 0
    folder = tree / "tinygpt"
    names = ["__init__.py", "a.py", "b.py", "py.typed"]
    assert sorted(path.name for path in folder.iterdir()) == names
    for path in folder.iterdir():
        os.utime(path, ns=(0, 0))
    page(tree, "b", saved("Y = 2"))
    capsys.readouterr()
    assert export.main(["--root", str(tree)]) == 0
    assert capsys.readouterr().out == "wrote tinygpt/b.py\n"
    changed = [path.name for path in folder.iterdir() if path.stat().st_mtime_ns]
    assert changed == ["b.py"]


def test_the_same_bytes_under_any_locale_hash_seed_and_folder(tree, tmp_path):
    page(tree, "a", *RICH)
    page(tree, "b", saved("from tinygpt.a import Net  # @use", "Ωs = list[Net]"))
    script = str(ROOT / "tools" / "export.py")
    ways = [
        ([script], tmp_path, {"LC_ALL": "C", "PYTHONHASHSEED": "1"}),
        (["-m", "tools.export"], ROOT, {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"}),
        ([script], Path("/"), {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}),
    ]
    seen = []
    for command, folder, extra in ways:
        for path in tree.glob("tinygpt/*"):
            path.unlink()
        done = subprocess.run(
            [sys.executable, *command, "--root", str(tree)],
            cwd=folder,
            env={"PATH": "", "PYTHONCOERCECLOCALE": "0", **extra},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        files = sorted(tree.glob("tinygpt/*"))
        seen.append({path.name: path.read_bytes() for path in files})
    assert len(seen[0]) == 4
    assert b"\r" not in b"".join(seen[0].values())
    assert seen[0] == seen[1] == seen[2]


# ------------------------------------------------------------------- the real package


IMPORT_ALONE = """
import json, random, sys, threading
sys.path.insert(0, sys.argv[1])
import torch
before = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
flags = lambda: (torch.get_default_dtype(), torch.is_grad_enabled(),
                 torch.get_num_interop_threads(), threading.active_count())
kept, loaded, events = flags(), set(sys.modules), []
def hook(event, args):
    if event == "open":
        if not str(args[0]).endswith((".py", ".pyc", ".so")):
            events.append(str(args[0]))
    elif event.split(".")[0] in ("socket", "subprocess", "os.system", "shutil"):
        events.append(event)
sys.addaudithook(hook)
import tinygpt
after = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
missing = [name for name in tinygpt.__all__ if not hasattr(tinygpt, name)]
new = sorted({m.split(".")[0] for m in set(sys.modules) - loaded})
result = [tinygpt.__file__, torch.equal(before[0], after[0]), before[1:] == after[1:],
          kept == flags(), events, missing, new]
print(json.dumps(result))
"""


def import_alone(target: Path) -> list:
    """Import the package in a Python that knows nothing of the repository."""
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", IMPORT_ALONE, str(target)],
        cwd=target,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)  # one line: the package itself printed nothing


def test_importing_the_package_has_no_side_effect(tmp_path):
    export.write(tmp_path / "tinygpt", export.build(ROOT))
    path, rng, state, flags, events, missing, new = import_alone(tmp_path)
    assert Path(path).parent == tmp_path / "tinygpt"
    assert (rng, state, flags, events, missing) == (True, True, True, [], [])
    assert not {"matplotlib", "numpy", "tools"} & set(new)


def test_the_side_effect_test_sees_a_side_effect(tmp_path):
    folder = tmp_path / "tinygpt"
    folder.mkdir()
    text = "import torch\n__all__ = ['no']\ntorch.manual_seed(torch.seed() + 1)\n"
    text += (
        "torch.set_num_threads(torch.get_num_threads() + 1)\nopen(__file__[:-3], 'w')"
    )
    (folder / "__init__.py").write_text(text, encoding="utf-8")
    _, rng, state, _, events, missing, _ = import_alone(tmp_path)
    assert (rng, state, missing) == (False, False, ["no"])
    assert events == [str(folder / "__init__")]


def test_the_package_in_the_repository_is_what_the_pages_say():
    assert export.check(ROOT / "tinygpt", export.build(ROOT)) == []


def test_ruff_has_nothing_to_say_about_the_real_package():
    assert ruff(ROOT, "check", "--no-cache", "tinygpt") == ""
    assert ruff(ROOT, "format", "--no-cache", "--diff", "tinygpt") == ""


def test_every_saved_name_is_in_its_module_once():
    files = export.build(ROOT)
    for source in read_pages():
        wanted = [
            name
            for part in source.code_cells
            if part.source.startswith("# @save\n")
            for node in ast.parse(part.source).body
            for name in top_level_names(node)
        ]
        if not wanted:
            continue
        text = files[source.module.removeprefix("tinygpt.") + ".py"]
        counts = Counter(
            name for node in ast.parse(text).body for name in top_level_names(node)
        )
        assert counts.pop("__all__") == 1
        assert counts == dict.fromkeys(wanted, 1)


def top_level_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [
        n.id
        for t in targets
        if t
        for n in ast.walk(t)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]


def test_every_public_function_and_method_has_type_hints():
    for name, text in export.build(ROOT).items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                parts = node.args
                every = [*parts.posonlyargs, *parts.args, *parts.kwonlyargs]
                bare = {part.arg for part in every if part.annotation is None}
                assert bare <= {"self", "cls"}, (name, node.name, bare)
                assert node.returns is not None, (name, node.name)
