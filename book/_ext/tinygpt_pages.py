"""What a reader sees around a page: its facts, its neighbours, its place in the book.

* Below the title stands one line: how long the page takes to read, how long its cells
  run, and what can be done with it. The reading time comes from the words of the page,
  the run time from the execution whose outputs the page shows.
* Each page says in its front matter, in one sentence, what it builds: ``sentence`` in
  the ``tinygpt`` table. The sentence stands at the foot of the pages before and after
  it, and in ``{part-pages}``, the table of contents on the first page. A page without
  one stops the build.
* A comment that gives a tensor's shape, such as ``# (B, T, d)``, is marked, so that the
  style sheet can set it apart. The text stays as it is, and is copied as it is.
* ``{cover}`` puts a drawing into the page itself, where it follows light and dark.
"""

import html
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.pages import PageError, contents, front_matter, pages_in_order, read_site

WORDS_A_MINUTE = 200
# Nothing in these is read as running text: code, formulas, and what is folded away.
UNREAD = (nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.comment)
FOLDED = {"dropdown_main", "solution_node", "solution_start_node"}
LONGEST_SENTENCE = 150

# ---- how long ------------------------------------------------------------------------


def words(node: nodes.Node) -> int:
    """The words that stand open on a page: no code, no formula, nothing folded."""
    if isinstance(node, nodes.Text):
        return len(re.findall(r"\w[\w'’.-]*", node.astext()))
    if isinstance(node, UNREAD) or type(node).__name__ in FOLDED:
        return 0
    return sum(words(child) for child in node.children)


def reading_time(count: int) -> str:
    """The minutes that so many words take: exact below ten, by fives above.

    >>> reading_time(3), reading_time(1000), reading_time(4321)
    ('1 minute to read', '5 minutes to read', '20 minutes to read')
    """
    minutes = max(1, round(count / WORDS_A_MINUTE))
    if minutes > 10:
        minutes = 5 * round(minutes / 5)
    return f"{minutes} minute{'s' if minutes > 1 else ''} to read"


def run_time(seconds: float) -> str:
    """A measured time as a person would say it.

    >>> run_time(0.4), run_time(7.3), run_time(21.4), run_time(58), run_time(130)
    ('about a second', 'about 7 seconds', 'about 20 seconds', 'about a minute', \
'about 2 minutes')
    """
    if seconds < 1.5:
        return "about a second"
    if seconds < 9.5:
        return f"about {round(seconds)} seconds"
    if seconds < 57.5:
        return f"about {5 * round(seconds / 5)} seconds"
    if seconds < 90:
        return "about a minute"
    return f"about {round(seconds / 60)} minutes"


def running(runtime: float | None, minutes: int | None) -> str:
    """What the page says of its running: the measured time, or else its time budget."""
    if runtime is not None:
        return f"runs in {run_time(runtime)}"
    return f"{minutes} minutes to work through" if minutes else ""


# ---- the sentences -------------------------------------------------------------------


def sentence(root: Path, page: str) -> str:
    """What a page builds, in the one sentence of its front matter.

    Raises:
        PageError: there is none, or it is no single sentence.
    """
    text = (root / f"{page}.md").read_text(encoding="utf-8")
    table = front_matter(text).get("tinygpt") or {}
    found = " ".join(str(table.get("sentence") or "").split())
    where = f"{page}.md: the front matter's 'sentence', in the 'tinygpt' table,"
    if not found:
        raise PageError(f"{where} is missing; it says what the page builds")
    if not re.fullmatch(r"[^.!?]+(?:[.](?=\S)[^.!?]*)*[.]", found):
        raise PageError(f"{where} is no single sentence that ends in a full stop")
    if len(found) > LONGEST_SENTENCE:
        raise PageError(
            f"{where} has {len(found)} characters; {LONGEST_SENTENCE} are the most"
        )
    return found


def sentences(root: Path) -> dict[str, str]:
    """The sentence of each page of the contents, in their order."""
    return {page: sentence(root, page) for page in pages_in_order(root)}


def read_sentences(app) -> None:
    """Read the sentences once; a page without one stops the build."""
    try:
        app.tinygpt_sentences = sentences(Path(app.srcdir))
    except PageError as error:
        raise ExtensionError(str(error)) from None


class PartPages(SphinxDirective):
    """The pages of one part of the book, each with its sentence."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        parts = dict(contents(Path(self.env.app.srcdir)))
        wanted = self.arguments[0]
        if not wanted or wanted not in parts:
            known = ", ".join(f"'{name}'" for name in parts if name)
            raise self.error(f"no part of _toc.yml is called '{wanted}'; use {known}")
        lines = []
        for page in parts[wanted]:
            self.env.note_dependency(str(Path(self.env.app.srcdir, f"{page}.md")))
            says = self.env.app.tinygpt_sentences[page]
            lines += [f"{{doc}}`/{page}`", f": {says}", ""]
        place = nodes.container(classes=["tg-pages"])
        self.state.nested_parse(StringList(lines), self.content_offset, place)
        return [place]


# ---- the cover -----------------------------------------------------------------------


class Cover(SphinxDirective):
    """A drawing of ``book/figures/`` inside the page, with a caption below it."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        try:
            drawing = Path(path).read_text(encoding="utf-8")
        except OSError:
            raise self.error(f"no drawing '{relative}'") from None
        place = nodes.container(classes=["tg-cover"])
        place += nodes.raw("", drawing, format="html")
        caption = nodes.container(classes=["tg-cover-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        place += caption
        return [place]


# ---- the finished page ---------------------------------------------------------------

NAME = r"[A-Za-z_][A-Za-z_0-9]*"
FACTOR = rf"(?:\.\.\.|\d+\s?{NAME}|[A-Za-z]\s[A-Za-z]|{NAME}|\d+)"
SIZE = rf"{FACTOR}(?:\s?(?:\+|-|\*|//|/)\s?{FACTOR})*"
SHAPE = re.compile(rf"\((?:{SIZE},|{SIZE}(?:, {SIZE})+)\)")
COMMENT = re.compile(r'(?<=<span class="c1">)#[^<\n]*(?=</span>)')


def _is_shape(text: str, first: bool) -> bool:
    """Is a tuple in a comment a shape? Elsewhere than at its start, one sees by a size.

    >>> _is_shape("(B, T, d)", False), _is_shape("(quick, dirty)", False)
    (True, False)
    """
    sizes = text.strip("()").split(",")
    return first or not sizes[-1] or any(re.search(r"\b\w\b|\d", s) for s in sizes)


def mark_shapes(body: str) -> str:
    """Wrap each shape that a code comment states in an element of its own.

    >>> mark_shapes('<span class="c1"># (B, T, d) each</span>')
    '<span class="c1"># <span class="tg-shape">(B, T, d)</span> each</span>'
    """

    def comment(found: re.Match) -> str:
        def wrap(shape: re.Match) -> str:
            first = not found[0][: shape.start()].strip("# ")
            if not _is_shape(shape[0], first):
                return shape[0]
            return f'<span class="tg-shape">{shape[0]}</span>'

        return SHAPE.sub(wrap, found[0])

    return COMMENT.sub(comment, body)


PROOF = re.compile(r'(<div class="proof admonition" id="[^"]*">\s*<p>)Proof\.')


def mark_proofs(body: str) -> str:
    """Give the word with which a proof begins an element of its own."""
    return PROOF.sub(r'\1<span class="tg-proof">Proof.</span>', body)


def _link(address: str, text: str, extra: str = "") -> str:
    return f'<a href="{html.escape(address)}"{extra}>{html.escape(text)}</a>'


def links(root: Path, page: str, source: str, pathto: Callable) -> Iterator[str]:
    """What a reader can do with a chapter."""
    site = read_site(root)
    stem = page.removeprefix("chapters/")
    if (root / "notebooks" / f"{stem}.ipynb").is_file():
        yield _link(site.colab(stem), "Open in Colab")
        notebook = pathto(f"notebooks/{stem}.ipynb", 1)
        yield _link(notebook, "Download notebook", " download")
    yield _link(f"{site.repository}/edit/{site.branch}/{page}.md", "Suggest an edit")
    yield _link(pathto(f"_sources/{source}", 1), "Source")


def facts(app, page: str, context: dict, doctree: nodes.document) -> str:
    """The line below the title."""
    items = [reading_time(words(doctree))]
    actions: list[str] = []
    if page.startswith("chapters/"):
        root = Path(app.srcdir)
        text = (root / f"{page}.md").read_text(encoding="utf-8")
        executed = NbMetadataCollector.get_exec_data(app.env, page) or {}
        minutes = (front_matter(text).get("tinygpt") or {}).get("minutes")
        items += filter(None, [running(executed.get("runtime"), minutes)])
        source = context.get("sourcename", "")
        actions = list(links(root, page, source, context["pathto"]))
    lines = [f'<li class="tg-fact">{html.escape(item)}</li>' for item in items]
    lines += [f'<li class="tg-action">{link}</li>' for link in actions]
    return (
        '\n<ul class="tg-facts" role="list" aria-label="About this page">\n'
        + "\n".join(lines)
        + "\n</ul>"
    )


def _neighbour(app, context: dict, which: str, page: str | None) -> None:
    """Give the link to a neighbouring page the sentence that says what it builds."""
    near = context.get(which)
    says = app.tinygpt_sentences.get(page or "")
    if near and says:
        context[f"{which}_title"] = (
            f'{near["title"]}<span class="tg-sentence">{html.escape(says)}</span>'
        )


def dress(app, pagename, templatename, context, doctree) -> None:
    """Put the facts below the title, and the sentences at the foot."""
    if doctree is None or app.builder.name != "html":
        return
    _, previous, following = app.env.collect_relations().get(pagename, [None] * 3)
    _neighbour(app, context, "prev", previous)
    _neighbour(app, context, "next", following)
    body = mark_proofs(mark_shapes(context["body"]))
    line = facts(app, pagename, context, doctree)
    context["body"] = body.replace("</h1>", f"</h1>{line}", 1)


FIGURE = re.compile(r'(<figure[^>]*>\s*)(<img [^>]*?src="([^"]+)"[^>]*>)')


def open_pictures(app, pagename, templatename, context, doctree) -> None:
    """Let a tap on a figure open its picture alone, where a phone can enlarge it."""
    if body := context.get("body"):
        link = r'\1<a class="tg-picture" href="\3">\2</a>'
        context["body"] = FIGURE.sub(link, body)


def setup(app):
    app.add_directive("part-pages", PartPages)
    app.add_directive("cover", Cover)
    app.connect("builder-inited", read_sentences)
    app.connect("html-page-context", open_pictures)
    app.connect("html-page-context", dress)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
