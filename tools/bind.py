"""Bind the pages of the built book into one page of HTML, for print.

The pages are taken as the site has them, so that what they print, their numbers and
their figures are the same in both. Each page's ids get the page's name in front, and
each link between two pages becomes a link inside the one page. What only a screen can
use is left out; what is folded is opened.
"""

import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

from tools.pages import PageError, Site

# Parts of a page that are for the screen alone.
SCREEN_ONLY = (
    "script",
    "button",
    "a.headerlink",
    ".live-note",
    ".d-print-none",
    ".screen-only",
)
# Lines of code from which on a cell may be cut by the end of a sheet.
LONG_CELL = 20
# Attributes that hold ids of the same page, one or several.
POINTERS = ("for", "aria-labelledby", "aria-describedby", "aria-controls", "headers")


@dataclass
class Heading:
    """A line of the table of contents."""

    text: str
    anchor: str
    below: list["Heading"] = field(default_factory=list)


@dataclass
class BoundBook:
    """The one page, and what its table of contents says."""

    html: str
    parts: list[Heading]


def anchor_of(page: str, fragment: str = "") -> str:
    """The id, inside the one page, of a page or of a place on it."""
    stem = page.rpartition("/")[2]
    return f"{stem}--{fragment}" if fragment else stem


def bind(
    parts: list[tuple[str, list[str]]], site: Site, folder: Path, title: str
) -> BoundBook:
    """Bind the built pages of ``folder`` into one.

    Args:
        parts: names of pages by part, in order; a part without a caption is only pages.
        site: where the book is published; files beside the pages are linked there.
        folder: the built site.
        title: what stands on the first page, as HTML.

    Raises:
        PageError: a page is not built, or has no heading.
    """
    names = {page for _, pages in parts for page in pages}
    contents, bodies = [], []
    for caption, pages in parts:
        if caption:
            anchor = "part-" + re.sub(r"\W+", "-", caption.lower()).strip("-")
            contents.append(Heading(caption, anchor))
            bodies.append(f'<h1 class="part-title" id="{anchor}">{caption}</h1>')
        for page in pages:
            article = _article(folder, page)
            heading = _outline(article, page)
            _rebase(article, page, names, site)
            (contents[-1].below if caption else contents).append(heading)
            bodies.append(
                f'<div class="chapter" id="{anchor_of(page)}">{article}</div>'
            )
    head = BeautifulSoup(_read(folder, parts[0][1][0]), "html.parser")
    html = _whole(head, parts[0][1][0], title, contents, bodies)
    return BoundBook(html, contents)


def _read(folder: Path, page: str) -> str:
    path = folder / f"{page}.html"
    if not path.is_file():
        raise PageError(f"{path} is not there: run 'make book'")
    return path.read_text(encoding="utf-8")


def _article(folder: Path, page: str) -> Tag:
    """What a page says, without what only a screen can use, everything unfolded."""
    article = BeautifulSoup(_read(folder, page), "html.parser").find("article")
    for found in article.select(", ".join(SCREEN_ONLY)):
        found.decompose()
    for details in article.find_all("details"):
        details["open"] = ""
    for box in article.select(".toggle, .dropdown"):
        box["class"] = [name for name in box["class"] if name != "toggle"]
    for prompt in article.select("details.hide > summary"):
        prompt.decompose()  # it offers to fold what paper cannot fold
    for image in article.find_all("img"):
        image.attrs.pop("loading", None)  # all of them are wanted at once
    for cell in article.select("div.cell"):
        if cell.get_text().count("\n") > LONG_CELL:
            cell["class"] = [*cell["class"], "long"]
    return article


def _outline(article: Tag, page: str) -> Heading:
    """The page's title, and below it those of its sections."""
    first = article.find("h1")
    if first is None:
        raise PageError(f"{page} has no heading")
    heading = Heading(_words(first), anchor_of(page))
    for section in article.find_all("h2"):
        place = section.find_parent("section")
        if place is not None and place.get("id"):
            # The section may begin at the foot of a sheet, its heading on the next.
            section["id"] = f"{place['id']}-heading"
            anchor = anchor_of(page, section["id"])
            heading.below.append(Heading(_words(section), anchor))
    return heading


def _words(heading: Tag) -> str:
    return " ".join(heading.get_text().split())


def _rebase(article: Tag, page: str, names: set[str], site: Site) -> None:
    """Make ids the page's own, and lead every link and image to its new place."""
    seen: set[str] = set()
    for tag in article.find_all(True):
        if "id" in tag.attrs:
            own = anchor_of(page, tag["id"])
            if own in seen:  # sphinx-exercise gives each of its boxes the same one
                del tag["id"]
            else:
                seen.add(own)
                tag["id"] = own
        for name in POINTERS:
            if name in tag.attrs:
                given = tag[name] if isinstance(tag[name], list) else tag[name].split()
                tag[name] = " ".join(anchor_of(page, one) for one in given)
        if tag.name == "a" and "href" in tag.attrs:
            tag["href"] = _new_address(tag["href"], page, names, site)
        if tag.name in ("img", "source") and not tag.get("src", "data:").startswith(
            ("data:", "http:", "https:")
        ):
            tag["src"] = posixpath.normpath(
                posixpath.join(posixpath.dirname(page), tag["src"])
            )


def _new_address(href: str, page: str, names: set[str], site: Site) -> str:
    """Where a link of a page leads once the pages are bound."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        return href
    if not parts.path:
        return "#" + anchor_of(page, parts.fragment)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), parts.path))
    name = target.removesuffix(".html")
    if name in names:
        return "#" + anchor_of(name, parts.fragment)
    ending = f"#{parts.fragment}" if parts.fragment else ""
    return urljoin(site.url, target) + ending


def _whole(
    head: BeautifulSoup,
    page: str,
    title: str,
    contents: list[Heading],
    bodies: list[str],
) -> str:
    """The one page: styles and mathematics as on the first page of the site."""
    folder = posixpath.dirname(page)
    kept = []
    for link in head.find_all("link", rel="stylesheet"):
        path, _, version = link["href"].partition("?")
        path = posixpath.normpath(posixpath.join(folder, path))
        media = ' media="all"' if link.get("media") == "print" else ""
        query = f"?{version}" if version else ""
        kept.append(f'<link rel="stylesheet" href="{path}{query}"{media}>')
    for script in head.find_all("script"):
        if "mathjax" in script.get("src", "").lower():
            path = posixpath.normpath(posixpath.join(folder, script["src"]))
            kept.append(f'<script src="{path}" defer></script>')
        elif "MathJax" in script.get_text():
            kept.append(str(script))
    lines = []
    for part in contents:
        lines.append(f"<ol>{_entries([part])}</ol>")
    styles = "\n".join(_running_titles(contents))
    return (
        '<!DOCTYPE html>\n<html lang="en" data-theme="light" data-mode="light">\n'
        '<head>\n<meta charset="utf-8">\n<title>TinyGPT</title>\n'
        + "\n".join(kept)
        + f"\n<style>\n{styles}\n</style>\n</head>\n"
        + f'<body class="bound">\n<header class="title-page">{title}</header>\n'
        + '<nav class="contents"><h1>Contents</h1>'
        + "".join(lines)
        + "</nav>\n<main>\n"
        + "\n".join(bodies)
        + "\n</main>\n</body>\n</html>\n"
    )


def _entries(headings: list[Heading], depth: int = 0) -> str:
    """Lines of the table of contents; the numbers of the pages are filled in later."""
    return "".join(
        f'<li class="depth-{depth}"><a href="#{heading.anchor}">'
        f"<span>{_escape(heading.text)}</span>"
        f'<span class="page" data-page-of="{heading.anchor}"></span></a>'
        + (f"<ol>{_entries(heading.below, depth + 1)}</ol>" if heading.below else "")
        + "</li>"
        for heading in headings
    )


def _running_titles(contents: list[Heading]) -> list[str]:
    """A kind of page for each chapter, with its title in the upper margin."""
    chapters = [h for h in contents if not h.anchor.startswith("part-")]
    chapters += [h for part in contents if part not in chapters for h in part.below]
    return [
        f"#{heading.anchor} {{ page: {heading.anchor}; }}\n@page {heading.anchor} "
        f'{{ @top-center {{ content: "{_quoted(heading.text)}"; }} }}'
        for heading in chapters
    ]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _quoted(text: str) -> str:
    """A text inside a string of CSS."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
