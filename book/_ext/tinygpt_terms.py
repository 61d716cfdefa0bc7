"""Lead every term to the glossary, and every entry of the glossary back to its page.

* On each page the first occurrence of a term in running text becomes a link to its
  entry. Nothing is linked in headings, code, formulas, captions, tables, or where a
  link stands already, and no term that the page links itself with ``{term}``.
* Each entry of the glossary gains the sections in which the term is first used, in the
  order of the book, and each symbol of the page of notation the section that brings it.

A term may stand in the plural with an s, and with a capital. Terms that are also common
words are linked by hand only: see ``COMMON``.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

sys.path.append(str(Path(__file__).resolve().parent))

from tinygpt_light import REPEATED_NAMES
from tinygpt_site import reading_order

LOGGER = logging.getLogger(__name__)

GLOSSARY, NOTATION = "book/glossary", "book/notation"
# Pages that are lists, or a cover: a link at every other word would not help there.
UNTOUCHED = (GLOSSARY, NOTATION, "book/index", "book/bibliography", "book/changelog")
# Everyday words, too, so that only a reader can tell which is meant.
COMMON = {
    *("bit", "block", "decode", "head", "key"),
    *("offset", "proper", "shape", "sharpness", "surprise", "value"),
}
# Where a link would be in the way.
CLOSED = (
    nodes.Titular,
    nodes.FixedTextElement,
    nodes.literal,
    nodes.reference,
    nodes.caption,
    nodes.legend,
    nodes.table,
    nodes.math,
    nodes.raw,
    nodes.term,
    nodes.footnote,
    nodes.citation,
    addnodes.pending_xref,
)
# Entries of the glossary name this many sections at most.
PLACES = 3


# ---- the terms -----------------------------------------------------------------------


def glossary_terms(text: str) -> list[str]:
    """The terms of a glossary's source, as they are written there.

    >>> glossary_terms("```{glossary}\\nMLP\\nnet\\n  A thing.\\n```")
    ['MLP', 'net']
    """
    found: list[str] = []
    for body in re.findall(r"^```\{glossary\}\n(.*?)\n```", text, re.M | re.S):
        found += [line for line in body.splitlines() if re.match(r"[^\s:]", line)]
    return found


def term_pattern(terms: list[str]) -> re.Pattern[str]:
    """What finds the terms in a text, the longest first, in any line break."""
    choices = []
    for term in sorted(terms, key=len, reverse=True):
        first, rest = term[0], re.escape(term[1:]).replace(r"\ ", r"\s+")
        choices.append(f"[{first.lower()}{first.upper()}]{rest}s?")
    return re.compile(rf"(?<![\w-])(?:{'|'.join(choices)})(?![\w-])")


def term_of(words: str, terms: dict[str, str]) -> str | None:
    """The term that some words of a text are: as written, with a capital, or plural."""
    plain = " ".join(words.split())
    for form in (plain, plain[0].lower() + plain[1:], plain[0].upper() + plain[1:]):
        for candidate in (form, form.removesuffix("s")):
            if candidate in terms:
                return terms[candidate]
    return None


def prepare(app) -> None:
    """Read the terms from the glossary's source, before any page is read."""
    source = Path(app.srcdir, f"{GLOSSARY}.md")
    text = source.read_text(encoding="utf-8") if source.is_file() else ""
    terms = glossary_terms(text)
    app.env.tinygpt_terms = {term: term for term in terms}
    if not hasattr(app.env, "tinygpt_uses"):
        app.env.tinygpt_uses = {}
        app.env.tinygpt_symbols = {}


# ---- reading a page ------------------------------------------------------------------


def open_texts(doctree: nodes.document) -> Iterator[nodes.Text]:
    """The pieces of running text in which a term may become a link, in order."""
    for paragraph in doctree.findall(nodes.paragraph):
        if "task" in paragraph.get("classes", ()):
            continue
        above, closed = paragraph.parent, False
        while above is not None and not closed:
            closed = isinstance(above, CLOSED) or "sd-card" in above.get("classes", ())
            above = above.parent
        if closed:
            continue
        for text in list(paragraph.findall(nodes.Text)):
            inside = text.parent
            while inside is not paragraph and isinstance(
                inside, nodes.emphasis | nodes.strong
            ):
                inside = inside.parent
            if inside is paragraph:
                yield text


def section_of(node: nodes.Node) -> str:
    """The id of the section in which a node stands; a box's inside is none."""
    while node is not None:
        if isinstance(node, nodes.section):
            names = [name for name in node["ids"] if box_name(name) is None]
            if names:
                return names[0]
        node = node.parent
    return ""


def box_name(name: str) -> str | None:
    """The name that an extension gives to each of its boxes alike, if this is one.

    >>> box_name("proof-content"), box_name("the-proof")
    ('proof-content', None)
    """
    return name if name in REPEATED_NAMES else None


def link_terms(app, doctree) -> None:
    """Link the first occurrence of each term, and note where each is used."""
    page, terms = app.env.docname, app.env.tinygpt_terms
    uses: dict[str, str] = {}
    for reference in doctree.findall(addnodes.pending_xref):
        if reference.get("reftype") == "term":
            target = " ".join(reference["reftarget"].split())
            term = terms.get(target) or term_of(target, terms)
            if term:
                uses.setdefault(term, section_of(reference))
    app.env.tinygpt_uses[page] = uses
    app.env.tinygpt_symbols[page] = symbols_of(doctree)
    if page in UNTOUCHED or not terms:
        return
    linked = set(uses)
    wanted = [term for term in terms if term not in COMMON and term not in linked]
    pattern = term_pattern(wanted)
    for text in open_texts(doctree):
        pieces = list(pieces_of(text, pattern, terms, linked, page))
        if any(isinstance(piece, addnodes.pending_xref) for piece in pieces):
            for piece in pieces:
                if isinstance(piece, addnodes.pending_xref):
                    uses.setdefault(piece["reftarget"], section_of(text))
            text.parent.replace(text, pieces)


def pieces_of(
    text: nodes.Text,
    pattern: re.Pattern[str],
    terms: dict[str, str],
    linked: set[str],
    page: str,
) -> Iterator[nodes.Node]:
    """A piece of text, cut where a term that is not linked yet begins and ends."""
    words, last = text.astext(), 0
    for match in pattern.finditer(words):
        term = term_of(match.group(), terms)
        if term is None or term in linked:
            continue
        linked.add(term)
        if match.start() > last:
            yield nodes.Text(words[last : match.start()])
        reference = addnodes.pending_xref(
            match.group(),
            nodes.inline("", match.group(), classes=["xref", "std", "std-term"]),
            refdomain="std",
            reftype="term",
            reftarget=term,
            refdoc=page,
            refexplicit=True,
            refwarn=True,
            classes=["first-use"],
        )
        yield reference
        last = match.end()
    yield nodes.Text(words[last:])


def symbols_of(doctree: nodes.document) -> dict[str, str]:
    """Each formula of a page, and the section in which it stands first.

    Displayed formulas follow those in running text: a symbol is introduced in words.
    """
    found: dict[str, str] = {}
    for kind in (nodes.math, nodes.math_block):
        for formula in doctree.findall(kind):
            found.setdefault(plain_symbol(formula.astext()), section_of(formula))
    return found


def plain_symbol(formula: str) -> str:
    """A formula without the white space that has no effect.

    >>> plain_symbol("d_h  = d / H")
    'd_h=d/H'
    """
    return re.sub(r"\s+(?![a-zA-Z])|(?<![a-zA-Z])\s+", "", formula.strip())


# ---- links back ----------------------------------------------------------------------


def places_of(env, term: str, order: list[str]) -> list[tuple[str, str]]:
    """The pages on which a term is used, with the section, in the book's order."""
    uses = env.tinygpt_uses
    return [
        (page, uses[page][term])
        for page in order
        if page not in UNTOUCHED and term in uses.get(page, ())
    ]


def link_to(app, fromdoc: str, page: str, section: str, short: bool) -> nodes.reference:
    """A link to a section of another page, under that page's title or its beginning."""
    address = app.builder.get_relative_uri(fromdoc, page)
    title = app.env.titles[page].astext()
    return nodes.reference(
        "",
        title.split(":")[0] if short else title,
        internal=True,
        refuri=f"{address}#{section}" if section else address,
    )


def link_back(app, doctree, docname) -> None:
    """Say in the glossary and in the notation where the book brings each entry."""
    if docname == GLOSSARY:
        order = reading_order(app.env)
        for item in doctree.findall(nodes.definition_list_item):
            if any(leads_to_a_page(link) for link in item.findall(nodes.reference)):
                continue  # the entry itself says where
            names = [term.astext() for term in item.findall(nodes.term)]
            places = []
            for name in names:
                places += places_of(app.env, name, order)
            if not places:
                LOGGER.warning(
                    "glossary: no page uses the term '%s'; link it with {term}",
                    names[0] if names else "?",
                    location=docname,
                    type="tinygpt",
                )
                continue
            places = sorted(set(places), key=lambda place: order.index(place[0]))
            item.children[-1] += where(app, docname, places[:PLACES])
    elif docname == NOTATION:
        order = [page for page in reading_order(app.env) if page not in UNTOUCHED]
        for row in doctree.findall(nodes.row):
            formula = next(iter(row.children[0].findall(nodes.math)), None)
            if formula is not None:
                link_symbol(app, docname, row, formula.astext(), order)


def leads_to_a_page(link: nodes.reference) -> bool:
    """Is this a link to a page, and not to another entry of the glossary?"""
    return "#term-" not in link.get("refuri", "#term-") and not link.get("refid")


def where(
    app, docname: str, places: list[tuple[str, str]], short: bool = False
) -> nodes.paragraph:
    """The line of links below an entry."""
    line = nodes.paragraph("", "", classes=["places"])
    line += nodes.Text("In ")
    for number, (page, section) in enumerate(places):
        line += nodes.Text(", " if number else "")
        line += link_to(app, docname, page, section, short)
    return line


def symbol_place(
    symbol: str, symbols: dict[str, dict[str, str]], order: list[str]
) -> tuple[str, str] | None:
    """Where a symbol comes first: alone, else as what a formula is about, else in one.

    >>> symbol_place("f(x)", {"a": {"1+f(y)": "", "x": "", "g=f(x)": "s"}}, ["a"])
    ('a', 's')
    """
    first = plain_symbol(re.split(r",(?![^()]*\))", symbol)[0])
    operator = re.search(r"\\odot", first)
    core = operator.group() if operator else re.split(r"\(", first)[0]
    tests = [
        lambda formula: formula in (first, plain_symbol(symbol)),
        lambda formula: bool(re.match(rf"{re.escape(first)}(=|\\in\b)", formula)),
        lambda formula: first in formula,
        lambda formula: core in formula,
    ]
    for test in tests:
        for page in order:
            for formula, section in symbols.get(page, {}).items():
                if test(formula):
                    return page, section
    return None


def link_symbol(app, docname: str, row: nodes.row, symbol: str, order: list) -> None:
    """Add to a row of the notation the link to where its symbol comes first."""
    meaning = row.children[1]
    if next(iter(meaning.findall(nodes.reference)), None) is not None:
        return  # the page itself says where
    place = symbol_place(symbol, app.env.tinygpt_symbols, order)
    if place is None:
        LOGGER.warning(
            "notation: no page brings $%s$; link its row to the page that does",
            symbol,
            location=docname,
            type="tinygpt",
        )
        return
    meaning += where(app, docname, [place], short=True)


def forget(app, env, docname) -> None:
    """A page that is read again says anew what it uses."""
    for name in ("tinygpt_uses", "tinygpt_symbols"):
        getattr(env, name, {}).pop(docname, None)


def merge(app, env, docnames, other) -> None:
    """Take over what another process has read."""
    for name in docnames:
        env.tinygpt_uses[name] = other.tinygpt_uses.get(name, {})
        env.tinygpt_symbols[name] = other.tinygpt_symbols.get(name, {})


def setup(app):
    app.connect("builder-inited", prepare)
    app.connect("doctree-read", link_terms)
    app.connect("doctree-resolved", link_back)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
