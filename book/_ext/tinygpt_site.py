"""What a site needs around its pages: a description, a picture, a map, a feed, a 404.

* Every page says in its head what it is about, with its own first sentence, and names a
  picture of itself for whoever links to it. The pictures are drawn at build.
* ``sitemap.xml`` lists the pages, ``changes.xml`` is a feed made from CHANGELOG.md.
* ``404.html`` helps a reader who followed a broken link, at any depth of the site.

All addresses come from ``[tool.tinygpt]`` of ``pyproject.toml``.
"""

import html
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import matplotlib
from docutils import nodes
from markdown_it import MarkdownIt
from PIL import Image, ImageDraw, ImageFont

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.pages import read_site

NAME = "TinyGPT"
CARDS = "_cards"
FEED = "changes.xml"
# A description is cut at a word near this length, as those who show it cut it.
LONGEST = 200

# ---- what a page says of itself ------------------------------------------------------


def first_sentence(text: str) -> str:
    """The first sentence of a paragraph, cut at a word where it is very long.

    >>> first_sentence("We build a GPT. Then we train it.")
    'We build a GPT.'
    """
    plain = " ".join(text.split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", plain, maxsplit=1)[0]
    return textwrap.shorten(sentence, LONGEST, placeholder=" ...")


def description(doctree: nodes.document) -> str:
    """The first sentence of a page's text, without formulas where that is possible."""
    texts = []
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section | nodes.container):
            continue
        text = first_sentence(paragraph.astext())
        if not next(iter(paragraph.findall(nodes.math)), None) and len(text) > 25:
            return text
        texts.append(text)
    return texts[0] if texts else ""


def card_name(pagename: str) -> str:
    """Where the picture of a page lies below the site's root."""
    return f"{CARDS}/{pagename.replace('/', '-')}.png"


def describe(app, pagename, templatename, context, doctree) -> None:
    """Put a page's description and its picture's address into its head."""
    feed = context["pathto"](FEED, 1)
    tags = [
        '<link rel="alternate" type="application/atom+xml" '
        f'title="Changes to {NAME}" href="{html.escape(feed)}" />'
    ]
    if doctree is not None:
        site = read_site(Path(app.srcdir))
        title = app.env.titles[pagename].astext()
        words = description(doctree) or title
        values = [
            ("name", "description", words),
            ("property", "og:site_name", NAME),
            ("property", "og:type", "article"),
            ("property", "og:title", title),
            ("property", "og:description", words),
            ("property", "og:url", site.page(pagename)),
            ("property", "og:image", site.url + card_name(pagename)),
            ("property", "og:image:width", str(WIDTH)),
            ("property", "og:image:height", str(HEIGHT)),
            ("property", "og:image:alt", f"{NAME}: {title}"),
            ("name", "twitter:card", "summary_large_image"),
            ("name", "twitter:title", title),
            ("name", "twitter:description", words),
            ("name", "twitter:image", site.url + card_name(pagename)),
        ]
        tags += [
            f'<meta {kind}="{name}" content="{html.escape(value)}" />'
            for kind, name, value in values
        ]
        draw_card(
            Path(app.outdir, card_name(pagename)), title, words, part_of(app, pagename)
        )
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def part_of(app, pagename: str) -> str:
    """The caption of the part of the contents in which a page stands."""
    for tree in app.env.tocs[app.config.root_doc].findall():
        if tree.tagname == "toctree" and pagename in tree.get("includefiles", ()):
            return tree.get("caption") or ""
    return ""


# ---- the picture of a page -----------------------------------------------------------

WIDTH, HEIGHT = 1200, 630
INK, PAPER, QUIET, LIT = "#0b3c5d", "#ffffff", "#c3d3df", "#ff9a4d"
MARGIN = 80


def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The face that comes with the library that draws the book's figures."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts/ttf", name), size)


def fitted(draw: ImageDraw.ImageDraw, text: str, size: int, lines: int, bold: bool):
    """A text broken into lines that fit the card, as large as its lines allow."""
    while True:
        face = font(size, bold)
        rows = [""]
        for word in text.split():
            longer = f"{rows[-1]} {word}".strip()
            if rows[-1] and draw.textlength(longer, face) > WIDTH - 2 * MARGIN:
                rows.append(word)
            else:
                rows[-1] = longer
        if len(rows) <= lines or size <= 24:
            return face, rows[:lines]
        size -= 2


def draw_mask(draw: ImageDraw.ImageDraw, left: int, top: int, side: int) -> None:
    """The logo: which position may look at which, the last one lit."""
    step = side * 5 // 4
    for row in range(3):
        for column in range(3):
            lit = row == column == 2
            colour = LIT if lit else PAPER if column <= row else "#27536f"
            x, y = left + column * step, top + row * step
            draw.rounded_rectangle((x, y, x + side, y + side), side // 4, fill=colour)


def draw_card(path: Path, title: str, words: str, part: str) -> None:
    """Draw the picture that stands beside a link to a page."""
    image = Image.new("RGB", (WIDTH, HEIGHT), INK)
    draw = ImageDraw.Draw(image)
    draw_mask(draw, MARGIN, 70, 28)
    draw.text((MARGIN + 130, 84), NAME, PAPER, font(44, bold=True))
    draw.text((MARGIN + 132, 142), part or "An executed textbook", QUIET, font(26))
    face, rows = fitted(draw, title, 68, 3, bold=True)
    top = 240
    for row in rows:
        draw.text((MARGIN, top), row, PAPER, face)
        top += face.size * 5 // 4
    face, rows = fitted(draw, words, 32, 3, bold=False)
    top = max(top + 30, 400)
    for row in rows:
        draw.text((MARGIN, top), row, QUIET, face)
        top += face.size * 7 // 5
    draw.rectangle((0, HEIGHT - 14, WIDTH, HEIGHT), fill=LIT)
    path.parent.mkdir(exist_ok=True)
    image.quantize(32).save(path, optimize=True)


# ---- the map and the feed ------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """One version of the changelog: its number, its date if it has one, its text."""

    version: str
    date: str | None
    text: str


def releases(changelog: str) -> Iterator[Release]:
    """The versions of a changelog in the form of Keep a Changelog, newest first."""
    parts = re.split(r"^## \[([^\]]+)\] - (.+)$", changelog, flags=re.MULTILINE)[1:]
    for version, date, text in zip(parts[::3], parts[1::3], parts[2::3]):
        dated = re.fullmatch(r"\d{4}-\d\d-\d\d", date.strip())
        yield Release(version, dated and dated.group(), text.strip())


def feed(changelog: str, url: str, page: str, today: str) -> str:
    """The changes as an Atom feed; what has no date yet carries that of the build."""
    entries, newest = [], today
    for number, release in enumerate(releases(changelog)):
        date = release.date or today
        newest = date if number == 0 else newest
        state = "" if release.date else " (in preparation)"
        content = html.escape(MarkdownIt().render(release.text))
        entries.append(
            "  <entry>\n"
            f"    <title>{NAME} {release.version}{state}</title>\n"
            f"    <id>{url}changes/{release.version}</id>\n"
            f"    <updated>{date}T00:00:00Z</updated>\n"
            f'    <link href="{page}"/>\n'
            f'    <content type="html">{content}</content>\n'
            "  </entry>"
        )
    return "\n".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="en">',
            f"  <title>Changes to {NAME}</title>",
            f"  <id>{url}</id>",
            f'  <link rel="self" href="{url}{FEED}"/>',
            f'  <link href="{page}"/>',
            f"  <author><name>The {NAME} authors</name></author>",
            f"  <updated>{newest}T00:00:00Z</updated>",
            *entries,
            "</feed>",
            "",
        ]
    )


def sitemap(addresses: list[str]) -> str:
    """The addresses of the pages, as search engines read them."""
    rows = [f"  <url><loc>{html.escape(address)}</loc></url>" for address in addresses]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">',
            *rows,
            "</urlset>",
            "",
        ]
    )


def reading_order(env) -> list[str]:
    """The pages in the order of the contents."""
    found, relations = [], env.collect_relations()
    page = env.config.root_doc
    while page and page not in found:
        found.append(page)
        page = relations.get(page, [None] * 3)[2]
    return found


# ---- a page for what is not there ----------------------------------------------------

NOT_FOUND = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Not found - {name}</title>
<base href="{base}">
<script>
// This page answers for addresses at any depth, so it must know where the site begins:
// at its published place, else where this very file lies, else at the server's root.
const here = location.pathname;
const own = here.endsWith("/404.html") ? here.slice(0, -"404.html".length) : "/";
const add = (name, values) =>
  document.head.append(Object.assign(document.createElement(name), values));
document.querySelector("base").href = here.startsWith("{base}") ? "{base}" : own;
add("link", {{ rel: "stylesheet", href: "_static/book.css" }});
add("link", {{ rel: "icon", href: "_static/favicon.svg" }});
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
let chosen = null;
try {{ chosen = localStorage.getItem("theme"); }} catch {{ /* no choice */ }}
const follows = chosen !== "light" && chosen !== "dark";
document.documentElement.dataset.theme = follows ? (dark ? "dark" : "light") : chosen;
</script>
<noscript><link rel="stylesheet" href="_static/book.css"></noscript>
</head>
<body class="not-found">
<main>
<p class="not-found-number" aria-hidden="true">404</p>
<h1>There is no page here</h1>
<p>The address leads to nothing in this book. A page may have moved, or a letter is
missing. Search for it, or take one of the pages below.</p>
<form action="search.html" method="get" role="search">
<input type="search" name="q" aria-label="Search this book" placeholder="a word or two">
<button type="submit">Search</button>
</form>
<h2>All pages</h2>
<ul>
{pages}
</ul>
</main>
</body>
</html>
"""


def not_found(base: str, pages: list[tuple[str, str]]) -> str:
    """The page for a broken address; ``base`` is the path at which the site begins."""
    rows = [
        f'<li><a href="{html.escape(address)}">{html.escape(title)}</a></li>'
        for address, title in pages
    ]
    return NOT_FOUND.format(name=NAME, base=html.escape(base), pages="\n".join(rows))


def write_site(app, exception) -> None:
    """Write the map, the feed and the page for broken addresses."""
    if exception is not None or app.builder.name != "html":
        return
    out, site = Path(app.outdir), read_site(Path(app.srcdir))
    order = reading_order(app.env)
    addresses = [site.page(name) for name in order]
    (out / "sitemap.xml").write_text(sitemap(addresses), encoding="utf-8")
    pages = [(f"{name}.html", app.env.titles[name].astext()) for name in order]
    base = urlsplit(site.url).path
    (out / "404.html").write_text(not_found(base, pages), encoding="utf-8")
    changelog = Path(app.srcdir, "CHANGELOG.md")
    text = changelog.read_text(encoding="utf-8") if changelog.is_file() else ""
    now = float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    page = site.page("book/changelog")
    (out / FEED).write_text(feed(text, site.url, page, today), encoding="utf-8")


def setup(app):
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_site)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
