"""Make lecture slides of the lectures: ``make slides``.

The slides have no source of their own. They are read from the lecture's notebook, which
holds what its cells printed, by these rules:

* A section begins a slide, to the right; a subsection begins one below it.
* A definition, a proposition, another box, a table, a list and a code cell stand on a
  slide each, a proof on one below its proposition. The section's title stands above.
* A cell that only draws shows its figure and the figure's caption. Set-up cells, cells
  that repeat earlier pages, hints and solutions are left out.
* A formula stays, with the sentence that leads to it. The other prose goes into the
  speaker notes (key S). Of a section's first paragraph the first sentence stays too,
  which says what the section is for; a slide that would hold its title alone shows the
  first sentence of each paragraph, and the summary shows all of its sentences.

``_build/slides`` opens from the disk, without a network: reveal.js lies in
``book/slides``, MathJax comes from the locked environment.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import copy
import html
import re
import shutil
from dataclasses import dataclass, field
from importlib.metadata import files

import nbformat
from jinja2 import FileSystemLoader
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbconvert import SlidesExporter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

from tools.pages import ROOT, PageError

PARSER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
SHOWN = ("blockquote_open", "bullet_list_open", "ordered_list_open", "table_open")
# What MathJax needs for the lectures: the rest of its package is for other uses.
MATHJAX = ("tex-svg.js", "input/", "output/svg", "a11y/", "sre/", "ui/")


@dataclass
class Slide:
    """One slide: where it stands, its title, what is seen and what is said."""

    kind: str  # "slide" to the right, "subslide" below
    title: str
    heading: str  # as Markdown; empty where the title is only repeated above
    shown: list[NotebookNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    holds: str = ""  # "formula" or "thing", when it holds more than a title


def blocks(text: str) -> list[tuple[Token, str]]:
    """The blocks of a text: the token that opens each, and its Markdown."""
    lines = text.split("\n")
    return [
        (token, "\n".join(lines[token.map[0] : token.map[1]]).strip("\n"))
        for token in PARSER.parse(text)
        if token.level == 0 and token.map and token.nesting >= 0
    ]


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph; a formula or a piece of code is never cut."""
    flat = " ".join(text.split())
    held: list[str] = []

    def hold(match: re.Match) -> str:
        held.append(match[0])
        return f"\0{len(held) - 1}\0"

    covered = re.sub(r"`[^`]+`|\$[^$]+\$|\[[^\]]*\]\([^)]*\)", hold, flat)
    parts = re.split(r"(?<=[.!?])[*)\"]*\s+(?=[\0A-Z*(\"])", covered)
    return [re.sub(r"\0(\d+)\0", lambda m: held[int(m[1])], part) for part in parts]


class Deck:
    """Reads a notebook's cells in order and sorts them onto slides."""

    def __init__(self) -> None:
        self.slides: list[Slide] = []
        self.section = ""
        self.folded = False
        self.drawn = False  # was the cell before this one a figure?
        self.leading = ""  # the paragraph just before

    # -- cells -------------------------------------------------------------------

    def read(self, node: NotebookNode) -> list[Slide]:
        """The slides of a notebook; its note and its set-up cell are left out."""
        for cell in node.cells:
            if not self.slides and not cell.source.startswith("# "):
                continue
            if cell.cell_type == "markdown":
                self._text(cell.source)
                self.drawn = False
            else:
                self._code(cell)
        for slide in self.slides:
            _fill(slide)
        return self.slides

    def _code(self, cell: NotebookNode) -> None:
        self.leading = ""
        tags = cell.metadata.get("tags", [])
        drawing = "hide-input" in tags
        repeats = re.search(r"(?m)^# .*: built in http", cell.source)
        hidden = any(tag.startswith("exercise-") for tag in tags)
        bare = not cell.outputs and (drawing or repeats)
        if self.section == "Exercises" or hidden or bare or self.folded:
            return
        cell = copy.deepcopy(cell)
        if drawing or repeats:
            cell.metadata.tags = ["hide-input"]
        self._thing().shown.append(cell)
        self.drawn = drawing

    def _text(self, text: str) -> None:
        for token, source in blocks(text):
            if token.type == "html_block":
                self.folded = "<details" in source and "</details>" not in source
            elif token.type == "heading_open":
                self._heading(token, source)
            elif self.section == "Exercises":
                if match := re.match(r"> \*\*Exercise (.+?)\*\*", source):
                    self._exercise(match[1])
            elif self.folded or token.type in ("hr", "heading_close"):
                continue
            elif token.type == "math_block":
                self._formula(source)
            elif token.type in SHOWN or token.type == "fence":
                if token.type.endswith("list_open"):
                    self._lead_in(self._thing())
                else:
                    self._thing()
                self.slides[-1].shown.append(_markdown(source))
            else:
                self._paragraph(source)
                continue
            self.leading = ""

    # -- blocks ------------------------------------------------------------------

    def _heading(self, token: Token, source: str) -> None:
        title = source.lstrip("#").strip()
        self.folded = False
        if token.tag in ("h1", "h2"):
            self.section = title
        if self.section == "Exercises" and token.tag not in ("h1", "h2"):
            return
        kind = "slide" if token.tag in ("h1", "h2") else "subslide"
        self.slides.append(Slide(kind, title, source))

    def _thing(self) -> Slide:
        """The slide for something that stands alone: this one if it is still free."""
        slide = self.slides[-1]
        if slide.holds or slide.kind == "slide":
            self.slides.append(Slide("subslide", slide.title, ""))
        self.slides[-1].holds = "thing"
        return self.slides[-1]

    def _formula(self, source: str) -> None:
        slide = self.slides[-1]
        if slide.holds == "thing" or slide.kind == "slide":
            slide = Slide("subslide", slide.title, "")
            self.slides.append(slide)
        slide.holds = "formula"
        self._lead_in(slide)
        slide.shown.append(_markdown(source))

    def _lead_in(self, slide: Slide) -> None:
        """Show the sentence that leads to what follows, if one does."""
        if self.leading and not re.search(r"[.!?][*)]*$", self.leading):
            slide.shown.append(_markdown(sentences(self.leading)[-1]))

    def _paragraph(self, source: str) -> None:
        slide = self.slides[-1]
        self.leading = source
        if self.drawn and source.startswith("**Figure"):
            slide.shown.append(_markdown(source))
            return
        parts = sentences(source)
        if self.section == "Summary":
            slide.shown.append(_markdown("\n".join(f"- {part}" for part in parts)))
        elif slide.kind == "slide" and not slide.notes:
            slide.shown.append(_markdown(parts[0]))
        slide.notes.append(source)

    def _exercise(self, title: str) -> None:
        slide = self.slides[-1]
        slide.holds = "thing"
        slide.shown.append(_markdown(f"- Exercise {title}"))


def _fill(slide: Slide) -> None:
    """Give a slide that holds its title alone the first words of its paragraphs."""
    if not slide.shown and slide.notes:
        points = [sentences(note)[0] for note in slide.notes]
        slide.shown.append(_markdown("\n".join(f"- {point}" for point in points)))


def _markdown(source: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


# -- from slides to files --------------------------------------------------------------


def slide_notebook(node: NotebookNode) -> NotebookNode:
    """A notebook whose cells say on which slide they stand."""
    deck = nbformat.v4.new_notebook(metadata=node.metadata)
    for slide in Deck().read(node):
        # Markdown of one line: reveal.js shows it above what has no title of its own.
        head = slide.heading or f'<div class="running">\n\n{slide.title}\n\n</div>'
        cells = [_markdown(head), *copy.deepcopy(slide.shown)]
        if slide.notes:
            cells.append(_markdown("\n\n".join(slide.notes)))
        for cell in cells:
            cell.metadata.slideshow = {"slide_type": "-"}
        cells[0].metadata.slideshow.slide_type = slide.kind
        if slide.notes:
            cells[-1].metadata.slideshow.slide_type = "notes"
        deck.cells += cells
    for number, cell in enumerate(deck.cells, 1):
        cell.id = f"cell-{number}"
    return deck


def render(root: Path, node: NotebookNode, title: str) -> str:
    """The HTML of a lecture's slides."""
    settings = Config()
    settings.TagRemovePreprocessor.enabled = True
    settings.TagRemovePreprocessor.remove_input_tags = {"hide-input"}
    exporter = SlidesExporter(
        config=settings,
        extra_loaders=[FileSystemLoader(str(root / "book" / "slides"))],
        template_file="slides.html.j2",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    about = {"title": title, "pygments": HtmlFormatter().get_style_defs(".highlight")}
    text, _ = exporter.from_notebook_node(
        slide_notebook(node), resources={"tinygpt": about}
    )
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def write_assets(root: Path, folder: Path) -> None:
    """Copy what the slides load: reveal.js, the styles, and MathJax."""
    shutil.rmtree(folder, ignore_errors=True)
    source = root / "book" / "slides"
    shutil.copytree(source / "reveal", folder / "reveal")
    for name in ("slides.css", "slides.js"):
        shutil.copy(source / name, folder)
    for file in files("sphinx-mathjax-offline") or []:
        _, found, name = file.as_posix().partition("static/mathjax/")
        if found and name.startswith(MATHJAX):
            target = folder / "mathjax" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.locate(), target)
    if not (folder / "mathjax" / MATHJAX[0]).is_file():
        raise PageError("sphinx-mathjax-offline brings no MathJax: run 'make setup'")


INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Lecture slides</title>
<link rel="stylesheet" href="assets/slides.css">
</head>
<body>
<div class="reveal" style="max-width: 50rem; margin: 3rem auto">
<h1 style="margin: 0">Lecture slides</h1>
<p>Space goes on, S opens the speaker notes, O shows all, F fills the screen.</p>
<ul>
{items}
</ul>
</div>
</body>
</html>
"""


def write(root: Path, out: Path, stems: list[str]) -> list[Path]:
    """Write the slides of the named pages; returns the files, the list of them first.

    Raises:
        PageError: a page has no stored notebook.
    """
    write_assets(root, out / "assets")
    written, items = [], []
    for stem in stems:
        path = root / "notebooks" / f"{stem}.ipynb"
        if not path.is_file():
            raise PageError(f"notebooks/{path.name} is missing: run 'make notebooks'")
        node = nbformat.read(path, as_version=4)
        title = next(
            line.removeprefix("# ").strip()
            for cell in node.cells
            for line in cell.source.splitlines()[:1]
            if cell.cell_type == "markdown" and line.startswith("# ")
        )
        target = out / f"{stem}.html"
        target.write_text(render(root, node, title), encoding="utf-8")
        written.append(target)
        items.append(f'<li><a href="{stem}.html">{html.escape(title)}</a></li>')
    index = out / "index.html"
    index.write_text(INDEX.format(items="\n".join(items)), encoding="utf-8")
    return [index, *written]


def main(argv: list[str] | None = None) -> int:
    """Write the slides of all lectures, or of the named pages."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.slides", description=__doc__.splitlines()[0]
    )
    parser.add_argument("pages", nargs="*", help="such as lecture4-attention")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("--out", type=Path, help="default: _build/slides")
    options = parser.parse_args(argv)
    root = options.root.resolve()
    lectures = sorted((root / "chapters").glob("lecture*.md"))
    stems = options.pages or [path.stem for path in lectures]
    try:
        written = write(root, options.out or root / "_build" / "slides", stems)
    except PageError as error:
        print(error)
        return 1
    print(f"Slides of {len(written) - 1} pages. Open {written[0].resolve().as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
