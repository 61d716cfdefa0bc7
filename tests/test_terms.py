"""Terms lead to the glossary, the glossary and the notation lead back."""

import ast
import re
from pathlib import Path

import pytest
import tinygpt_terms
from bs4 import BeautifulSoup
from docutils import nodes

from tools import book
from tools.pages import ROOT

TERMS = {name: name for name in ("token", "loss", "held-out loss", "AdamW", "KV cache")}


def found(text: str) -> list[str]:
    pattern = tinygpt_terms.term_pattern(list(TERMS))
    return [
        tinygpt_terms.term_of(match.group(), TERMS) for match in pattern.finditer(text)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the token", ["token"]),
        ("Tokens come", ["token"]),
        ("the KV\ncache", ["KV cache"]),
        ("the held-out loss", ["held-out loss"]),
        ("KV caches", ["KV cache"]),
        ("tokenizer, subtoken, token-wise", []),
        ("adamw, kv cache, LOSS", []),
    ],
)
def test_a_term_is_a_whole_word_in_one_of_its_forms(text, expected):
    assert found(text) == expected


def page(*content: nodes.Node) -> nodes.document:
    document = nodes.document(None, None)
    section = nodes.section(ids=["here"])
    section += nodes.title("", "The token")
    section += content
    document += section
    return document


class App:
    """As much of Sphinx as the transform looks at."""

    def __init__(self, docname: str = "chapters/a"):
        self.env = self
        self.docname = docname
        self.tinygpt_terms = TERMS
        self.tinygpt_uses: dict = {}
        self.tinygpt_symbols: dict = {}


def links(document: nodes.document) -> list[str]:
    return [
        node["reftarget"]
        for node in document.findall(nodes.Element)
        if node.tagname == "pending_xref"
    ]


def test_the_first_use_is_linked_and_no_other():
    text = nodes.paragraph("", "", nodes.Text("Tokens. A token, a loss."))
    again = nodes.paragraph("", "", nodes.Text("The token again."))
    document, app = page(text, again), App()
    tinygpt_terms.link_terms(app, document)
    assert links(document) == ["token", "loss"]
    assert text.astext() == "Tokens. A token, a loss."
    assert app.tinygpt_uses["chapters/a"] == {"token": "here", "loss": "here"}


def test_nothing_is_linked_where_a_link_would_be_in_the_way():
    closed = [
        nodes.paragraph("", "", nodes.literal("", "token")),
        nodes.paragraph("", "", nodes.reference("", "token", refuri="x")),
        nodes.literal_block("", "token"),
        nodes.figure("", nodes.caption("", "token")),
        nodes.paragraph("", "", nodes.math("", "token")),
        nodes.rubric("", "token"),
        nodes.table("", nodes.entry("", nodes.paragraph("", "token"))),
    ]
    document = page(*closed)
    tinygpt_terms.link_terms(App(), document)
    assert links(document) == []


@pytest.mark.parametrize("name", tinygpt_terms.UNTOUCHED)
def test_lists_of_terms_are_left_alone(name):
    document = page(nodes.paragraph("", "", nodes.Text("A token.")))
    tinygpt_terms.link_terms(App(name), document)
    assert links(document) == []


def test_common_words_are_terms_of_the_glossary():
    text = (ROOT / "book/glossary.md").read_text(encoding="utf-8")
    assert set(tinygpt_terms.glossary_terms(text)) >= tinygpt_terms.COMMON


# ---- the finished pages --------------------------------------------------------------


@pytest.fixture(scope="module")
def soup():
    assert book.main(["--if-changed"]) == 0, "the book does not build"

    def read(name: str) -> BeautifulSoup:
        html = (ROOT / "_build/html" / f"{name}.html").read_text(encoding="utf-8")
        return BeautifulSoup(html, "html.parser")

    return read


def test_every_entry_of_the_glossary_leads_to_a_page(soup):
    html = soup("book/glossary")
    entries = html.select("dl.glossary dd")
    assert len(entries) > 100
    for entry in entries:
        pages = [
            link["href"]
            for link in entry.select("a.reference")
            if "#term-" not in link["href"]
        ]
        assert pages, entry.get_text()[:60]


def test_every_symbol_of_the_notation_leads_to_a_page(soup):
    html = soup("book/notation")
    rows = [row for row in html.select("tbody tr") if row.td.select(".math")]
    assert len(rows) > 50
    for row in rows:
        assert row.select("td:nth-of-type(2) a.reference"), row.td.get_text()


def test_a_page_links_no_term_twice(soup):
    for path in sorted((ROOT / "chapters").glob("*.md")):
        html = soup(f"chapters/{path.stem}")
        targets = [link["href"] for link in html.select("article a.first-use")]
        assert len(set(targets)) == len(targets), path.stem
        for place in html.select("article :is(h1, h2, h3, h4, code, figcaption)"):
            assert not place.select("a.first-use"), place.get_text()


# ---- the messages that the page of troubles quotes -----------------------------------


def spoken(path: Path) -> str:
    """What a source file says, as one text: what is put together stands together."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return " ".join(re.sub(r'"\s*\\\n\s*"', " ", text).split())
    tree = ast.parse(text)
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                part.value
                if isinstance(part, ast.Constant)
                else constants.get(getattr(part.value, "id", ""), "\0")
                for part in node.values
            ]
            texts.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return " ".join("\n".join(texts).split())


def quoted() -> list[str]:
    text = (ROOT / "book/troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(
        r"^```\{code-block\} text\n:class: message\n(.*?)^```", text, re.M | re.S
    )


SPEAKERS = [
    *sorted((ROOT / "tools").glob("*.py")),
    *sorted((ROOT / "tinygpt").glob("*.py")),
    *(ROOT / "tests" / name for name in ("browsing.py", "test_standalone.py")),
    ROOT / "book/_ext/tinygpt_book.py",
    ROOT / "Makefile",
]


def unsaid(message: str, said: list[str]) -> list[str]:
    """The pieces of a message that no source says.

    A message is cut at its dots and line ends, and at a comma where it is put together
    of two parts.
    """
    found = []
    for piece in re.split(r"\.\.\.|\n", message):
        plain = piece.strip(" .,:")
        whole = any(plain in text for text in said)
        for part in () if whole else plain.split(", "):
            if len(part) > 2 and not any(part in text for text in said):
                found.append(part)
    return found


def test_the_page_of_troubles_quotes_what_the_tools_say():
    said = [spoken(path) for path in SPEAKERS]
    messages = quoted()
    assert len(messages) > 10
    assert {message: unsaid(message, said) for message in messages} == {
        message: [] for message in messages
    }


def test_a_message_that_nobody_says_is_noticed():
    said = [spoken(path) for path in SPEAKERS]
    message = "The disk is fuller than full: free some space"
    assert unsaid(message, said) == [message]
    assert unsaid("No such word, then run the same command again", said) == [
        "No such word"
    ]
