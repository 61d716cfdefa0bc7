"""What the tests of single pages share: what a page prints, and what it proves."""

import re

import nbformat

from tools.pages import ROOT

BLOCK = re.compile(r"^```\{(?:prf:)?([\w-]+)\}", re.MULTILINE)


def printed_by(stem: str) -> list[str]:
    """What each code cell of a page's stored notebook prints, blanks made single."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = ["".join(out.get("text", "") for out in cell.outputs) for cell in cells]
    return [" ".join(text.split()) for text in texts]


def proven_claims(stem: str) -> int:
    """Count a page's claims; each has a proof, and behind it in its section a cell."""
    text = (ROOT / "chapters" / f"{stem}.md").read_text(encoding="utf-8")
    claims = 0
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        order = BLOCK.findall(section)
        for i, kind in enumerate(order):
            if kind in ("proposition", "theorem"):
                claims += 1
                assert order[i + 1] == "proof", f"claim {claims} has no proof"
                assert "code-cell" in order[i + 2 :], f"claim {claims} has no cell"
    return claims
