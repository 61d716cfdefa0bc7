"""The experiments whose logs the pages read: one module for each log.

A module names the log's file, ``LOG``, and has ``runs(root)``, which gives each run by
name as a function that makes it and returns what is to be stored.
"""

import ast
from pathlib import Path
from typing import Any

from tools.pages import read_page


def definitions(root: Path, stem: str, **given: Any) -> dict[str, Any]:
    """What a page imports and defines, by name, for a page that does not save it.

    Its cells are read in order and only imports, functions and classes are taken, so
    that nothing is computed. A function that reads a variable of the page finds it in
    ``given``.
    """
    names = {"__name__": stem, **given}
    taken = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    for cell in read_page(root / "chapters" / f"{stem}.md").code_cells:
        body = [node for node in ast.parse(cell.source).body if isinstance(node, taken)]
        exec(compile(ast.Module(body, []), stem, "exec"), names)  # the page's own code
    return names
