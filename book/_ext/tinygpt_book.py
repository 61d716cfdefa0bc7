"""What this book adds to Sphinx: its addresses, its buttons, its cache, its citations.

* The repository's and the site's address come from ``[tool.tinygpt]`` of
  ``pyproject.toml``, so no other file of the book names them.
* A page of ``chapters/`` offers its standalone notebook, on Colab and as a download;
  the notebook itself is copied into the site. A page without one offers neither.
* Executed outputs are cached in a folder whose name depends on everything that a cell
  can see beyond its own text (see ``tools/book.py``).
* An exercise's ``{task}`` is a line about it; what only instructors are to see is taken
  out of the pages and of their sources (see ``tools/exercises.py``). An exercise that
  lacks a part, or an id that is taken, stops the build; ``{exercise-table}`` lists all.
* The bibliography is labelled by author and year, like the citations.
"""

import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pybtex.plugin
from docutils import nodes
from docutils.statemachine import StringList
from pybtex.style.formatting.plain import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.book import cache_folder
from tools.exercises import all_exercises, edition_text, exercise_rows, task_line
from tools.pages import PageError, Site, read_site

LOGGER = logging.getLogger(__name__)

REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>TinyGPT</title>
<meta http-equiv="refresh" content="0; url={page}">
</head>
<body><p>The book begins at <a href="{page}">{page}</a>.</p></body>
</html>
"""


def configure(app, config) -> None:
    """Fill in what is not typed into ``_config.yml``: addresses and the cache."""
    root = Path(app.srcdir)
    site = read_site(root)
    config.html_baseurl = site.url
    config.html_theme_options["repository_url"] = site.repository
    config.html_theme_options["repository_branch"] = site.branch
    config.nb_execution_cache_path = str(cache_folder(root))


def rewrite_buttons(app, pagename, templatename, context, doctree) -> None:
    """Offer the standalone notebook of a chapter, and name each download plainly."""
    buttons = context.get("header_buttons", [])
    downloads = next((b for b in buttons if b.get("label") == "download-buttons"), None)
    names = {
        "download-source-button": "MyST source (.md)",
        "download-pdf-button": "Print or save as PDF",
    }
    for button in downloads["buttons"] if downloads else ():
        button["text"] = names.get(button.get("label"), button["text"])

    folder, _, stem = pagename.rpartition("/")
    if folder != "chapters":
        return
    notebook = Path(app.srcdir, "notebooks", f"{stem}.ipynb")
    if not notebook.is_file():
        LOGGER.warning(
            "notebooks/%s.ipynb is missing: run 'make notebooks'",
            stem,
            location=pagename,
            type="tinygpt",
        )
        return
    target = Path(app.outdir, "notebooks", notebook.name)
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(notebook, target)
    buttons.insert(0, _colab_button(read_site(Path(app.srcdir)), stem))
    if downloads:
        downloads["buttons"].insert(
            0,
            {
                "type": "link",
                "url": context["pathto"](f"notebooks/{notebook.name}", 1),
                "text": "Notebook (.ipynb)",
                "icon": "fas fa-code",
                "tooltip": "Download this page as a notebook that runs anywhere",
                "label": "download-notebook-button",
            },
        )


def _colab_button(site: Site, stem: str) -> dict[str, str]:
    return {
        "type": "link",
        "url": site.colab(stem),
        "text": "Colab",
        "icon": "_static/images/logo_colab.png",
        "tooltip": "Run this page in Colab",
        "label": "launch-colab-button",
    }


def write_first_page(app, exception) -> None:
    """Lead ``index.html`` to the book's first page, which lies in a folder."""
    if exception is None and app.builder.name == "html":
        page = f"{app.config.root_doc}.html"
        Path(app.outdir, "index.html").write_text(
            REDIRECT.format(page=page), encoding="utf-8"
        )


class Task(SphinxDirective):
    """The line under an exercise: how hard, how long, and what it teaches."""

    required_arguments = 1
    option_spec = dict.fromkeys(
        ("kind", "difficulty", "minutes", "points", "teaches"), str
    )

    def run(self) -> list[nodes.Node]:
        line, messages = self.parse_inline(task_line(self.options))
        return [nodes.paragraph("", "", *line, classes=["task"]), *messages]


class ExerciseTable(SphinxDirective):
    """Every exercise of the book: how hard, how long, of which kind, and its worth."""

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.app.srcdir)
        rows = exercise_rows(root)
        for stem in dict.fromkeys(exercise.page for exercise, _ in rows):
            self.env.note_dependency(str(root / "chapters" / f"{stem}.md"))
        head = "| pick | exercise | level | minutes | kind | points |"
        lines = [head, "|---|---|---|---|---|---|", *(row for _, row in rows)]
        place = nodes.container(classes=["exercise-table"])
        self.state.nested_parse(StringList(lines), self.content_offset, place)
        return [place]


def check_exercises(app) -> None:
    """Stop the build at an exercise that lacks a part, and at an id that is taken."""
    root = Path(app.srcdir)
    if (root / "EDITION").is_file():  # it leaves parts out, and says so in this file
        return
    try:
        all_exercises(root)
    except PageError as error:
        raise ExtensionError(str(error)) from None


def read_as_reader(app, name, source) -> None:
    """Take out of a chapter's text what is meant for instructors only."""
    if name.startswith("chapters/"):
        source[0] = edition_text(source[0], "reader", keep_lines=True)


def publish_readers_sources(app, exception) -> None:
    """Offer the sources of the chapters as the reader's edition has them."""
    for path in Path(app.outdir, "_sources", "chapters").glob("*.md"):
        text = edition_text(path.read_text(encoding="utf-8"), "reader")
        path.write_text(text, encoding="utf-8")


class AuthorYearLabels(BaseLabelStyle):
    """Labels such as "Vaswani et al., 2017", with a letter where two would agree."""

    def format_labels(self, sorted_entries):
        entries = list(sorted_entries)
        labels = [self._label(entry) for entry in entries]
        total, seen = Counter(labels), Counter()
        for label in labels:
            seen[label] += 1
            letter = chr(ord("a") + seen[label] - 1) if total[label] > 1 else ""
            yield label + letter

    @staticmethod
    def _label(entry) -> str:
        people = entry.persons.get("author") or entry.persons.get("editor") or []
        names = [" ".join([*p.prelast_names, *p.last_names]) for p in people]
        if len(names) > 2:
            who = f"{names[0]} et al."
        else:
            who = " and ".join(names) or entry.fields.get("title", entry.key)
        return f"{who}, {entry.fields.get('year', 'n.d.')}".replace("{", "").replace(
            "}", ""
        )


class BookStyle(PlainStyle):
    """Entries in full, sorted by author, under author-year labels."""

    default_label_style = AuthorYearLabels
    default_sorting_style = "author_year_title"


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """Citations in round brackets, which no reader takes for an index."""

    bracket_parenthetical: BracketStyle = field(default_factory=_round)
    bracket_textual: BracketStyle = field(default_factory=_round)
    bracket_author: BracketStyle = field(default_factory=_round)
    bracket_label: BracketStyle = field(default_factory=_round)
    bracket_year: BracketStyle = field(default_factory=_round)


def setup(app):
    # Jupyter Book always sets this, for an extension that the book does without.
    app.add_config_value("comments_config", {}, "")
    pybtex.plugin.register_plugin("pybtex.style.formatting", "tinygpt", BookStyle)
    register_plugin(
        "sphinxcontrib.bibtex.style.referencing", "tinygpt", RoundAuthorYear
    )
    app.add_directive("task", Task)
    app.add_directive("exercise-table", ExerciseTable)
    app.connect("config-inited", configure)
    app.connect("builder-inited", check_exercises)
    app.connect("source-read", read_as_reader)
    app.connect("html-page-context", rewrite_buttons, priority=900)
    app.connect("build-finished", write_first_page, priority=100)
    app.connect("build-finished", publish_readers_sources)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
