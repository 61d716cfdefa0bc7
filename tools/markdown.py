"""Rewrite a page's MyST as plain Markdown that Colab, VS Code and GitHub can show.

The text is parsed with the book's own parser. Blocks are found by its line maps and
inline constructs by the positions at which its rules fire, so that everything that
is not MyST (code, mathematics, prose) is passed on as it was written. What the
rewriter does not know is an error that names page and line.
"""

import posixpath
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pybtex.database
import yaml
from docutils.nodes import make_id
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from myst_parser.parsers.options import TokenizeError, options_to_items
from pybtex.richtext import Text

from tools.exercises import task_line
from tools.pages import MYST_EXTENSIONS, Cell, Page, PageError, read_page, read_site

BIBLIOGRAPHY = "book/bibliography"
NAMED_BOXES = (
    "attention",
    "caution",
    "danger",
    "error",
    "hint",
    "important",
    "note",
    "seealso",
    "tip",
    "warning",
)
TITLED_BOXES = ("admonition", "dropdown", "margin", "sidebar", "topic")
PLAIN_BOXES = ("container", "div")
QUOTES = ("epigraph", "pull-quote")
PROOFS = (
    "algorithm",
    "assumption",
    "axiom",
    "conjecture",
    "corollary",
    "criterion",
    "definition",
    "example",
    "lemma",
    "notation",
    "observation",
    "property",
    "proposition",
    "remark",
    "theorem",
)
GATES = ("exercise-start", "exercise-end", "solution-start", "solution-end")
AMS_INNER = {
    "align": "aligned",
    "alignat": "alignedat",
    "gather": "gathered",
    "equation": "",
}
ITEM = r" {0,3}([-*+]|\d{1,9}[.)])( {1,4}(?! )| |$)"
OPENERS = ("link_open", "image", "myst_role", "span_open")


def _watched(rule: Any) -> Any:
    """Wrap an inline rule so that its token remembers where in the text it stood."""

    def watch(state: Any, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if silent:
            return True
        for token in state.tokens[count:]:
            if token.type in OPENERS:
                token.meta = {**token.meta, "span": (start, state.pos)}
                if token.type != "myst_role":
                    bracket = start + (token.type == "image")
                    end = state.md.helpers.parseLinkLabel(state, bracket, False)
                    token.meta["label"] = (bracket + 1, end)
                return True
        if state.tokens:  # attributes in braces belong to the token before them
            last = state.tokens[-1]
            last.meta = {**last.meta, "braces": (start, state.pos)}
        return True

    return watch


def _parser() -> MarkdownIt:
    """The book's Markdown parser, with inline positions kept."""
    config = MdParserConfig(enable_extensions=set(MYST_EXTENSIONS))
    parser = create_md_parser(config, RendererHTML)
    parser.disable("front_matter")
    for rule in list(parser.inline.ruler.__rules__):
        if rule.name in ("link", "image", "myst_role", "span", "attr"):
            parser.inline.ruler.at(rule.name, _watched(rule.fn))
    return parser


PARSER = _parser()
HTML = MarkdownIt("commonmark")


@dataclass(frozen=True)
class Target:
    """What a label points to: its page, kind, number there, title and anchor."""

    label: str
    page: str
    kind: str
    number: int
    title: str
    anchor: str
    where: str


@dataclass(frozen=True)
class Directive:
    """One directive of the text, taken apart; lines count from 1 in the page."""

    name: str
    argument: str
    options: dict[str, str]
    body: list[str]
    line: int
    body_line: int


@dataclass
class Gate:
    """An exercise or solution that began in some cell and has not ended yet."""

    kind: str
    title: str
    line: int
    folded: bool
    held: list[list[str]] = field(default_factory=list)


class Library:
    """All pages of a tree: their titles, their labels and the bibliography."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = read_site(root)
        self.pages: dict[str, Page] = {}
        self.targets: dict[str, Target] = {}
        for folder in ("chapters", "book"):
            for path in sorted((root / folder).glob("*.md")):
                self.pages[f"{folder}/{path.stem}"] = read_page(path)
        for name, page in self.pages.items():
            Rewriter(self, name, page, collecting=True).run()

    def title(self, name: str) -> str:
        """A page's title, as plain Markdown."""
        return self.pages[name].title

    @cached_property
    def citations(self) -> Any:
        path = self.root / "book" / "references.bib"
        if not path.exists():
            return {}
        return pybtex.database.parse_file(str(path), encoding="utf-8").entries

    def add(self, target: Target) -> None:
        """Remember a label; two places with the same label are an error."""
        known = self.targets.setdefault(target.label, target)
        if known is not target:
            raise PageError(
                f"{target.where}: the label '{target.label}' is already taken at "
                f"{known.where}"
            )


class Rewriter:
    """Rewrites one page, cell by cell, and numbers what the page numbers."""

    def __init__(
        self, library: Library, name: str, page: Page, collecting: bool = False
    ) -> None:
        self.library = library
        self.name = name
        self.page = page
        self.collecting = collecting
        self.numbers: Counter[str] = Counter()
        self.waiting: list[tuple[str, int]] = []
        self.gate: Gate | None = None

    def run(self) -> list[tuple[Cell, str, str]]:
        """Each cell with its Markdown (text cells) and its caption (figure cells)."""
        result = []
        for cell in self.page.cells:
            if cell.kind == "markdown":
                result.append((cell, self.text(cell.source, cell.line), ""))
            else:
                result.append((cell, "", self.caption(cell)))
        if self.gate:
            self._fail(self.gate.line, f"'{self.gate.kind}-start' is never ended")
        return result

    # -- cells ---------------------------------------------------------------------

    def text(self, source: str, line: int) -> str:
        """Rewrite one text cell whose first line is ``line`` of the page."""
        lines = source.split("\n")
        segments = self._segments(lines, line)
        parts: list[list[str]] = []
        for index, (first, segment) in enumerate(segments):
            if isinstance(segment, Directive):
                later = [s.name for _, s in segments[index + 1 :] if _is_gate(s)]
                self._gate(segment, later, parts)
                continue
            rendered = self._blocks(segment, first)
            keeper = self.gate.held if self.gate and self.gate.folded else parts
            if rendered:
                keeper.append(rendered)
        if self.gate and self.gate.kind == "exercise" and self.gate.held:
            parts.append(_quote(_join(self.gate.held)))
            self.gate.held = []
        self._settle("place", 0, "", "")
        return "\n".join(_join(parts))

    def caption(self, cell: Cell) -> str:
        """The numbered caption of a code cell that draws a figure, or nothing."""
        figure = (cell.options.get("mystnb") or {}).get("figure") or {}
        caption = str(figure.get("caption") or "").strip()
        if not caption:
            return ""
        number = self._number("figure")
        if name := figure.get("name"):
            self.waiting.append((str(name), cell.line))
        self._settle("figure", number, caption, "")
        text = "\n".join(self._blocks(caption.split("\n"), cell.line))
        return f"**Figure {number}.** {text}"

    def _segments(self, lines: list[str], line: int) -> list[tuple[int, Any]]:
        """Cut a cell's lines at the gate directives of its top level."""
        segments: list[tuple[int, Any]] = []
        start = 0
        for token in PARSER.parse("\n".join(lines) + "\n", {}):
            if token.level or _directive_name(token) not in GATES:
                continue
            first, last = token.map
            segments.append((line + start, lines[start:first]))
            directive = self._directive(token, lines, line)
            segments.append((line + first, directive))
            if directive.body:
                segments.append((directive.body_line, directive.body))
            start = last
        return [*segments, (line + start, lines[start:])]

    def _gate(self, directive: Directive, later: list[str], out: list) -> None:
        kind, _, side = directive.name.partition("-")
        if side == "start":
            if self.gate:
                self._fail(
                    directive.line,
                    f"'{directive.name}' inside the {self.gate.kind} that starts on "
                    f"line {self.gate.line}",
                )
            if kind == "exercise":
                title = self._numbered_title("exercise", directive)
                self.gate = Gate(kind, title, directive.line, True)
                self.gate.held.append([f"**{title}**"])
                return
            title = self._solution_title(directive)
            folded = bool(later) and later[0] == "solution-end"
            self.gate = Gate(kind, title, directive.line, folded)
            if not folded:
                out.append([f"#### {title}"])
            return
        if not self.gate or self.gate.kind != kind:
            self._fail(directive.line, f"'{directive.name}' without a '{kind}-start'")
            return
        gate, self.gate = self.gate, None
        if kind == "exercise":
            if gate.held:
                out.append(_quote(_join(gate.held)))
        elif gate.folded:
            out.append(_details(gate.title, _join(gate.held)))
        else:
            out.append([f"#### End of the {gate.title[0].lower()}{gate.title[1:]}"])

    # -- blocks --------------------------------------------------------------------

    def _blocks(self, lines: list[str], first: int) -> list[str]:
        """Rewrite a run of lines; ``first`` is the page's line of ``lines[0]``."""
        env: dict[str, Any] = {}
        tokens = PARSER.parse("\n".join(lines) + "\n", env)
        out: list[str] = []
        seen = 0  # lines before this one are dealt with
        apart = True
        index = 0
        while index < len(tokens):
            token = tokens[index]
            end = _closing(tokens, index)
            block = tokens[index : end + 1]
            index = end + 1
            if token.map is None:
                continue
            start, stop = token.map
            if token.type == "amsmath":  # its map leaves out the last line
                stop = start + len(token.content.strip().split("\n"))
            while stop > start and not lines[stop - 1].strip():
                stop -= 1
            loose = self._loose(lines[seen:start], first + seen)
            if loose:
                out += [*([""] if out else []), *loose]
            blank = any(not text.strip() for text in lines[seen:start])
            rendered, rewritten = self._block(block, lines, start, stop, first)
            if not rendered:
                apart = True
            else:
                if out and (apart or blank or rewritten or loose):
                    out.append("")
                out += rendered
                apart = rewritten
            seen = stop
        loose = self._loose(lines[seen:], first + seen)
        return [*out, *([""] if out and loose else []), *loose]

    def _loose(self, lines: list[str], first: int) -> list[str]:
        """Lines no block owns: attributes are dropped, link definitions kept."""
        kept = []
        for number, line in enumerate(lines, first):
            text = line.strip()
            if not text or (text.startswith("{") and text.endswith("}")):
                continue
            match = re.fullmatch(r"(\[[^\]^][^\]]*\]:\s*)<?([^\s>]+)>?(.*)", text)
            if not match:
                self._fail(number, f"cannot read '{text}'")
                continue
            url = self._address(unquote(match[2]), number)[0]
            kept.append(f"{match[1]}{url}{match[3]}")
        return kept

    def _block(
        self, block: list[Token], lines: list[str], start: int, stop: int, first: int
    ) -> tuple[list[str], bool]:
        """One block: its new lines and whether it needs blank lines around it."""
        token, line = block[0], first + start
        own = lines[start:stop]
        kind = token.type
        if "id" in token.attrs and not _directive_name(token):
            self.waiting.append((str(token.attrs["id"]), line))
        if kind == "myst_target":
            self.waiting.append((token.content, line))
            return [], True
        if kind in ("myst_line_comment", "myst_block_break"):
            return [], True
        if kind == "heading_open":
            title = self._inline(block[1], line)
            self._settle("section", 0, title, "")
            return [f"{'#' * int(token.tag[1])} {title}"], False
        if _directive_name(token):
            directive = self._directive(token, lines, first)
            result = self._render(directive)
            self._settle("place", 0, "", "")
            return result, True
        if kind == "math_block_label":
            label = token.info
            self.waiting.append((label, line))
            number = self._number("equation")
            self._settle("equation", number, "", f"equation-{make_id(label)}")
            return _display(token.content, number), False
        self._settle("place", 0, "", "")
        if kind == "math_block":
            return (_display(token.content) if _breaks(token.content) else own), False
        if kind == "amsmath":
            return self._amsmath(token.content, line), False
        if kind == "paragraph_open":
            for number, text in enumerate(own, line):
                if re.match(r"\s*(`{3,}|~{3,}|:{3,})\s*\{", text):
                    self._fail(number, f"this opens no block: '{text.strip()}'")
            return self._inline(block[1], line).split("\n"), False
        if kind in ("bullet_list_open", "ordered_list_open"):
            return self._list(block, lines, stop, first), False
        if kind == "blockquote_open":
            inner = [re.sub(r"^ {0,3}> ?", "", text) for text in own]
            return _quote(self._blocks(inner, line)), False
        if kind == "table_open":
            return self._table(block, own, line), False
        if kind == "dl_open":
            return self._definitions(block, lines, first), True
        if kind == "footnote_reference_open":
            return self._footnote(own, line), False
        if kind == "html_block":
            comment = re.fullmatch(r"\s*<!--.*?-->\s*", token.content, re.DOTALL)
            return ([] if comment else own), bool(comment)
        if kind in ("fence", "code_block", "hr"):
            return own, False
        self._fail(line, f"unknown construct '{own[0].strip()}'")
        return own, False

    def _list(
        self, block: list[Token], lines: list[str], stop: int, first: int
    ) -> list[str]:
        out: list[str] = []
        previous = 0
        for marker, item, line in self._items(block, lines, stop):
            if out and previous < line and not lines[line - 1].strip():
                out.append("")
            rendered = self._blocks(item, first + line) or [""]
            pad = " " * len(marker)
            out.append((marker + rendered[0]).rstrip())
            out += [pad + text if text else "" for text in rendered[1:]]
            previous = line
        return out

    def _items(
        self, block: list[Token], lines: list[str], stop: int
    ) -> list[tuple[str, list[str], int]]:
        """The items of a list: marker, content without indentation, line offset."""
        items = []
        for token in block:
            if token.type != "list_item_open" or token.level != block[0].level + 1:
                continue
            start, end = token.map
            end = min(end, stop)
            while end > start + 1 and not lines[end - 1].strip():
                end -= 1
            match = re.match(
                r" {0,3}([-*+]|\d{1,9}[.)])( {1,4}(?! )| |$)", lines[start]
            )
            width = match.end() + (not match[2])
            marker = match[1] + " " * max(1, len(match[2]))
            content = [lines[start][match.end() :]]
            for text in lines[start + 1 : end]:
                strip = min(width, len(text) - len(text.lstrip(" ")))
                content.append(text[strip:])
            items.append((marker, content, start))
        return items

    def _table(self, block: list[Token], own: list[str], line: int) -> list[str]:
        rows: list[list[str]] = []
        changed = False
        for token in block:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                place = line + (len(rows) - 1 + (len(rows) > 1))
                text = self._inline(token, place)
                changed = changed or text != token.content
                rows[-1].append(text.replace("|", "\\|"))
        if not changed:
            return own
        return [_row(rows[0]), own[1].strip(), *(_row(row) for row in rows[1:])]

    def _definitions(
        self, block: list[Token], lines: list[str], first: int
    ) -> list[str]:
        """A definition list: the term in bold, its definitions below it."""
        parts: list[list[str]] = []
        for index, token in enumerate(block):
            if token.level != block[0].level + 1:
                continue
            if token.type == "dt_open":
                term = self._inline(block[index + 1], first + token.map[0])
                parts.append([f"**{term}**"])
            elif token.type == "dd_open":
                start, end = token.map
                own = lines[start:end]
                while not (marker := re.match(r" {0,3}[:~]\s+", own[0])):
                    own, start = own[1:], start + 1  # the map may begin at the term
                width = marker.end()
                inner = [own[0][width:]]
                for text in own[1:]:
                    inner.append(text[min(width, len(text) - len(text.lstrip())) :])
                parts.append(self._blocks(inner, first + start))
        return _join(parts)

    def _footnote(self, own: list[str], line: int) -> list[str]:
        marker = re.match(r" {0,3}\[\^[^\]]+\]:\s*", own[0])
        inner = [own[0][marker.end() :]]
        inner += [text[min(4, len(text) - len(text.lstrip())) :] for text in own[1:]]
        rendered = self._blocks(inner, line) or [""]
        rest = [f"    {text}" if text else "" for text in rendered[1:]]
        return [marker[0].strip() + " " + rendered[0], *rest]

    def _amsmath(self, content: str, line: int) -> list[str]:
        match = re.fullmatch(
            r"\\begin\{(\w+)\*?\}(.*)\\end\{\1\*?\}", content.strip(), re.DOTALL
        )
        if not match or match[1] not in AMS_INNER:
            self._fail(line, "unknown mathematics environment; use '$$'")
            return []
        inner = AMS_INNER[match[1]]
        body = match[2].strip("\n")
        if inner:
            body = f"\\begin{{{inner}}}{match[2]}\\end{{{inner}}}"
        return ["$$", *body.split("\n"), "$$"]

    # -- directives ----------------------------------------------------------------

    def _directive(self, token: Token, lines: list[str], first: int) -> Directive:
        """Take a fence apart: name, argument, options and body."""
        start, stop = token.map
        line = first + start
        closing = lines[stop - 1].strip()
        mark = token.markup[0]
        if (
            stop - start < 2
            or set(closing) != {mark}
            or len(closing) < len(token.markup)
        ):
            self._fail(line, f"the block {token.info} is never closed")
        name, _, argument = token.info.strip().partition("}")
        body = token.content.split("\n")[:-1]
        body_line = line + 1
        block: list[str] = []
        if body and body[0].startswith("---"):
            ends = [i for i, text in enumerate(body[1:], 1) if text.startswith("---")]
            if not ends:
                self._fail(line, f"the options of {token.info} are never closed")
            block, taken = body[1 : ends[0]], ends[0] + 1
            options = yaml.safe_load("\n".join(block)) or {}
        else:
            taken = 0
            while taken < len(body) and body[taken].lstrip().startswith(":"):
                if re.match(r"\s*:{3,}", body[taken]):
                    break
                block.append(body[taken].lstrip()[1:])
                taken += 1
            try:
                options = dict(options_to_items("\n".join(block))[0])
            except TokenizeError as error:
                self._fail(line, f"the options of {token.info}: {error.problem}")
                options = {}
        while taken < len(body) and not body[taken].strip():
            taken += 1
        return Directive(
            name=name[1:],
            argument=argument.strip(),
            options={str(key): str(value or "") for key, value in options.items()},
            body=body[taken:],
            line=line,
            body_line=body_line + taken,
        )

    def _render(self, directive: Directive) -> list[str]:
        """The plain Markdown of one directive."""
        name = directive.name
        if label := directive.options.get("label") or directive.options.get("name"):
            self.waiting.append((label, directive.line))
        if name in GATES:
            self._fail(directive.line, f"'{name}' stands at the top level of a page")
        if name in NAMED_BOXES:
            return self._named_box(directive)
        if name in TITLED_BOXES:
            title = self._line(directive.argument, directive.line)
            self._settle("place", 0, title, "")
            body = self._body(directive)
            classes = directive.options.get("class", "").split()
            if name == "dropdown" or "dropdown" in classes:
                return _details(title or "More", body)
            return _quote(_join([[f"**{title}**"] if title else [], body]))
        if name in PLAIN_BOXES:
            return self._body(directive)
        if name == "live":
            title = directive.options.get("title", directive.argument)
            here = self.library.site.page(self.name)
            link = f"*Alive on the page of the book: [{title}]({here}).*"
            return _join([self._body(directive), [link]])
        if name in QUOTES:
            return _quote(self._body(directive))
        if name == "rubric":
            return [f"**{self._line(directive.argument, directive.line)}**"]
        if name.startswith("prf:"):
            return self._proof(directive)
        if name == "exercise":
            title = self._numbered_title("exercise", directive)
            if "hidden" in directive.options:
                return []
            return _quote(_join([[f"**{title}**"], self._body(directive)]))
        if name == "solution":
            title = self._solution_title(directive)
            if "hidden" in directive.options:
                return []
            return _details(title, self._body(directive))
        if name == "math":
            return self._math(directive)
        if name in ("figure", "image"):
            return self._figure(directive)
        if name in ("table", "list-table"):
            return self._titled_table(directive)
        if name in ("code", "code-block", "sourcecode"):
            return self._code(directive)
        if name == "task":
            return [f"*{task_line(directive.options)}*"]
        if name in ("index", "instructor", "marking"):
            return []
        if name == "only":
            return self._only(directive)
        self._fail(directive.line, f"unknown directive '{{{name}}}'")
        return self._body(directive)  # reached when labels are collected only

    def _body(self, directive: Directive) -> list[str]:
        return self._blocks(directive.body, directive.body_line)

    def _named_box(self, directive: Directive) -> list[str]:
        title = {"seealso": "See also"}.get(directive.name, directive.name.title())
        lead = []
        if directive.argument:
            lead = [self._line(directive.argument, directive.line)]
        body = self._body(directive)
        if "dropdown" in directive.options.get("class", "").split():
            return _details(title, [*lead, *body])
        return _quote(_join([[f"**{title}**"], [*lead, *body]]))

    def _proof(self, directive: Directive) -> list[str]:
        kind = directive.name.removeprefix("prf:")
        if kind == "proof":
            return _quote(_join([["**Proof.**"], self._body(directive)]))
        if kind not in PROOFS:
            self._fail(directive.line, f"unknown directive '{{{directive.name}}}'")
        title = self._numbered_title(kind, directive)
        return _quote(_join([[f"**{title}**"], self._body(directive)]))

    def _numbered_title(self, kind: str, directive: Directive) -> str:
        """Such as "Exercise 3 (Trade heads for width)"; settles the label."""
        if directive.name.endswith("-start") and (
            label := directive.options.get("label")
        ):
            self.waiting.append((label, directive.line))
        number = 0 if "nonumber" in directive.options else self._number(kind)
        title = self._line(directive.argument, directive.line)
        self._settle(kind, number, title, directive.options.get("label", ""))
        head = f"{kind.title()} {number}" if number else kind.title()
        return f"{head} ({title})" if title else head

    def _solution_title(self, directive: Directive) -> str:
        label = directive.options.get("label", "")
        if directive.name.endswith("-start") and label:
            self.waiting.append((label, directive.line))
        title = "Solution"
        if not self.collecting:
            target = self._target(directive.argument, directive.line)
            if target.kind != "exercise":
                self._fail(
                    directive.line,
                    f"the solution's label '{directive.argument}' is no exercise",
                )
            title = f"Solution to {self._named(target)}"
        self._settle("solution", 0, title, label)
        return title

    def _math(self, directive: Directive) -> list[str]:
        text = "\n".join([directive.argument, *directive.body]).strip()
        label = directive.options.get("label") or directive.options.get("name")
        if not label:
            return _display(text)
        number = self._number("equation")
        self._settle("equation", number, "", f"equation-{make_id(label)}")
        return _display(text, number)

    def _figure(self, directive: Directive) -> list[str]:
        alt = directive.options.get("alt", "").replace("\n", " ")
        url = self._image(directive.argument, directive.line)
        image = [f"![{alt}]({url})"]
        if directive.name == "image" or not directive.body:
            return image
        number = self._number("figure")
        self._settle("figure", number, " ".join(directive.body), "")
        caption = self._body(directive)
        return _join([image, [f"**Figure {number}.** {caption[0]}", *caption[1:]]])

    def _titled_table(self, directive: Directive) -> list[str]:
        head: list[str] = []
        if directive.argument:
            number = self._number("table")
            title = self._line(directive.argument, directive.line)
            self._settle("table", number, title, "")
            head = [f"**Table {number}.** {title}"]
        if directive.name == "table":
            return _join([head, self._body(directive)])
        return _join([head, self._list_table(directive)])

    def _list_table(self, directive: Directive) -> list[str]:
        rows = []
        for item, line in self._only_list(directive.body, directive.body_line):
            row = []
            for content, place in self._only_list(item, line):
                text = " ".join(self._blocks(content, place))
                row.append(text.replace("|", "\\|"))
            rows.append(row)
        if len({len(row) for row in rows}) != 1:
            self._fail(directive.line, "the rows of the table differ in length")
        if int(directive.options.get("header-rows") or 0) == 0:
            rows.insert(0, [""] * len(rows[0]))
        rule = _row(["---"] * len(rows[0]))
        return [_row(rows[0]), rule, *(_row(row) for row in rows[1:])]

    def _only_list(self, lines: list[str], line: int) -> list[tuple[list[str], int]]:
        tokens = PARSER.parse("\n".join(lines) + "\n", {})
        if not tokens or tokens[0].type != "bullet_list_open":
            self._fail(line, "expected a bullet list")
            return []
        items = self._items(tokens, lines, tokens[0].map[1])
        return [(content, line + offset) for _, content, offset in items]

    def _code(self, directive: Directive) -> list[str]:
        runs = re.findall(r"`{3,}", "\n".join(directive.body))
        fence = "`" * max([3, *(len(run) + 1 for run in runs)])
        code = [fence + directive.argument, *directive.body, fence]
        caption = directive.options.get("caption")
        if not caption:
            return code
        return _join([[f"**{self._line(caption, directive.line)}**"], code])

    def _only(self, directive: Directive) -> list[str]:
        if directive.argument == "html":
            return self._body(directive)
        if directive.argument not in ("latex", "pdf", "epub"):
            self._fail(directive.line, f"unknown edition '{directive.argument}'")
        return []

    # -- inline --------------------------------------------------------------------

    def _line(self, text: str, line: int) -> str:
        """Rewrite one line of inline text, such as a title."""
        return self._inline(PARSER.parseInline(text, {})[0], line) if text else ""

    def _inline(self, token: Token, line: int) -> str:
        """Rewrite the inline text of a block that starts on ``line``."""
        text = token.content
        edits: list[tuple[int, int, str]] = []
        if _dollars(token.children or []):
            self._fail(line, "'$$' inside a paragraph; put blank lines around it")
        for child in token.children or []:
            span = child.meta.get("span")
            if braces := child.meta.get("braces"):
                edits.append((*braces, ""))
            if not span:
                continue
            place = line + text.count("\n", 0, span[0])
            if child.type == "myst_role":
                new = self._role(child.meta["name"], child.content.strip(), place)
                edits.append((*span, new))
            elif child.type == "span_open":
                start, end = child.meta["label"]
                edits += [(start - 1, start, ""), (end, span[1], "")]
            else:
                edits += self._link(child, text, place)
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _link(self, token: Token, text: str, line: int) -> list[tuple[int, int, str]]:
        start, end = token.meta["label"]
        stop = token.meta["span"][1]
        if text[end + 1 : end + 2] != "(":
            return []  # a reference link: its definition is rewritten instead
        if token.type == "image":
            url = self._image(unquote(str(token.attrs["src"])), line)
            return [(end, stop, f"]({url})")]
        href = str(token.attrs["href"])
        url, title = self._address(unquote(href), line)
        edits = []
        if not text[start:end].strip():
            if not title:
                self._fail(line, f"the link to '{unquote(href)}' needs a text")
            edits.append((start, end, title))
        if url != unquote(href):
            edits.append((end, stop, f"]({url})"))
        return edits

    def _address(self, href: str, line: int) -> tuple[str, str]:
        """Where a link leads in the published book, and the text it has by itself."""
        if re.match(r"[a-z][a-z0-9+.-]*:", href) and not href.startswith("project:"):
            return href, ""
        path, _, label = href.removeprefix("project:").partition("#")
        if self.collecting:
            return href, "-"
        if not path or path in self.library.targets:
            return self._to(self._target(label or path, line))
        root = self.library.root
        base = "" if path.startswith("/") else posixpath.dirname(self.name)
        full = posixpath.normpath(posixpath.join(base, path.lstrip("/")))
        if full.removesuffix(".md") in self.library.pages:
            if label:
                return self._to(self._target(label, line))
            name = full.removesuffix(".md")
            return self.library.site.page(name), self.library.title(name)
        if (root / full).exists() and not full.startswith(".."):
            site = self.library.site
            view = "tree" if (root / full).is_dir() else "blob"
            return f"{site.repository}/{view}/{site.branch}/{full}", full
        self._fail(line, f"no page, file or label '{href}'")
        return href, ""

    def _image(self, path: str, line: int) -> str:
        """The address of an image of the repository."""
        if re.match(r"https?:|data:", path) or self.collecting:
            return path
        base = "" if path.startswith("/") else posixpath.dirname(self.name)
        full = posixpath.normpath(posixpath.join(base, path.lstrip("/")))
        if not (self.library.root / full).is_file():
            self._fail(line, f"no image '{path}'")
        return self.library.site.raw(full)

    def _role(self, name: str, content: str, line: int) -> str:
        """The plain Markdown of one role."""
        match = re.fullmatch(r"(.+?)\s*<([^<>]+)>", content, re.DOTALL)
        title, target = (match[1], match[2]) if match else ("", content)
        if name in ("sub", "subscript"):
            return f"<sub>{content}</sub>"
        if name in ("sup", "superscript"):
            return f"<sup>{content}</sup>"
        if name == "kbd":
            return f"<kbd>{content}</kbd>"
        if name == "math":
            return f"${content}$"
        if name in ("abbr", "emphasis"):
            return content if name == "abbr" else f"*{content}*"
        if name in ("strong", "guilabel"):
            return f"**{content}**"
        if name in ("code", "literal", "file", "command", "program"):
            return f"`{content}`"
        if name in ("term", "index"):
            return title or content.removeprefix("!")
        if self.collecting:
            return content
        if name in ("ref", "numref", "prf:ref", "eq", "math:numref"):
            return self._reference(name, title, target, line)
        if name == "doc":
            url, text = self._address(target.removesuffix(".md") + ".md", line)
            return f"[{title or text}]({url})"
        if name == "download":
            url, text = self._address(target, line)
            return f"[{title or posixpath.basename(text)}]({url})"
        if name == "cite" or name.startswith("cite:"):
            return self._cite(name, content, line)
        self._fail(line, f"unknown role '{{{name}}}'")
        return content

    def _reference(self, name: str, title: str, label: str, line: int) -> str:
        target = self._target(label, line)
        url, text = self._to(target)
        here = target.page == self.name
        if name in ("eq", "math:numref"):
            if target.kind != "equation":
                self._fail(line, f"'{label}' is no equation")
            return text if here else f"[{text}]({url})"
        if title and name == "numref":
            number = str(target.number or target.title)
            title = title.replace("%s", number).replace("{number}", number)
            title = title.replace("{name}", target.title)
        if not title and not text:
            self._fail(line, f"the reference to '{label}' needs a text: nothing there")
        return f"[{title or text}]({url})"

    def _target(self, label: str, line: int) -> Target:
        known = self.library.targets
        target = known.get(label) or known.get(label.lower())
        if target is None:
            self._fail(line, f"no page defines the label '{label}'")
            raise AssertionError("labels are looked up after collecting")
        return target

    def _to(self, target: Target) -> tuple[str, str]:
        """The address of a target and the words that name it."""
        url = self.library.site.page(target.page, target.anchor)
        text = self._named(target)
        if target.number and target.page != self.name:
            text += f" of “{self.library.title(target.page)}”"
        return url, text

    def _named(self, target: Target) -> str:
        if target.kind == "equation":
            return f"({target.number})"
        if target.number:
            return f"{target.kind.title()} {target.number}"
        return target.title or ("" if target.kind == "place" else target.kind.title())

    def _cite(self, name: str, content: str, line: int) -> str:
        url = self.library.site.page(BIBLIOGRAPHY)
        people, years = [], []
        for key in (part.strip() for part in content.split(",")):
            if key not in self.library.citations:
                self._fail(line, f"book/references.bib has no entry '{key}'")
            entry = self.library.citations[key]
            people.append(_authors(entry, key))
            years.append(str(entry.fields.get("year", "n.d.")))
        pairs = list(zip(people, years, strict=True))
        if name in ("cite:t", "cite:ts", "cite:ct"):
            return "; ".join(f"[{who} ({year})]({url})" for who, year in pairs)
        if name in ("cite", "cite:p", "cite:ps", "cite:cp"):
            inner = "; ".join(f"[{who}, {year}]({url})" for who, year in pairs)
            return f"({inner})"
        if name in ("cite:author", "cite:year"):
            words = people if name == "cite:author" else years
            return "; ".join(f"[{word}]({url})" for word in words)
        self._fail(line, f"unknown role '{{{name}}}'")
        return content

    # -- numbers and labels --------------------------------------------------------

    def _number(self, kind: str) -> int:
        self.numbers[kind] += 1
        return self.numbers[kind]

    def _settle(self, kind: str, number: int, title: str, anchor: str) -> None:
        """Give the labels that wait for what they label this thing."""
        waiting, self.waiting = self.waiting, []
        if not self.collecting:
            return
        for label, line in waiting:
            self.library.add(
                Target(
                    label=label,
                    page=self.name,
                    kind=kind,
                    number=number,
                    title=title,
                    anchor=anchor or make_id(label),
                    where=f"{self.name}.md, line {line}",
                )
            )

    def _fail(self, line: int, message: str) -> None:
        """Raise, but not while labels are collected: then nothing is printed."""
        if not self.collecting:
            raise PageError(f"{self.name}.md, line {line}: {message}")


def _closing(tokens: list[Token], index: int) -> int:
    """The index of the token that ends the block which begins at ``index``."""
    depth = 0
    for end in range(index, len(tokens)):
        depth += tokens[end].nesting
        if depth == 0:
            return end
    return len(tokens) - 1


def _directive_name(token: Token) -> str:
    """The directive that a fence holds; nothing for plain code."""
    if token.type not in ("fence", "colon_fence"):
        return ""
    match = re.match(r"\{([\w:+.-]+)\}", token.info.strip())
    if match:
        return match[1]
    return "::: without a name" if token.type == "colon_fence" else ""


def _dollars(children: list[Token]) -> bool:
    """Does a display formula stand inside a paragraph, where it is read as inline?"""
    return any(
        middle.type == "math_inline"
        and before.type == after.type == "text"
        and before.content.endswith("$")
        and after.content.startswith("$")
        for before, middle, after in zip(
            children, children[1:], children[2:], strict=False
        )
    )


def _is_gate(segment: Any) -> bool:
    return isinstance(segment, Directive)


def _join(parts: list[list[str]]) -> list[str]:
    """Put blank lines between the parts that hold something."""
    out: list[str] = []
    for part in parts:
        if part:
            out += [*([""] if out else []), *part]
    return out


def _quote(lines: list[str]) -> list[str]:
    return [f"> {line}" if line else ">" for line in lines]


def _details(title: str, body: list[str]) -> list[str]:
    """A folded part; its title becomes HTML since renderers leave it alone."""
    summary = HTML.renderInline(title)
    return ["<details>", f"<summary>{summary}</summary>", "", *body, "", "</details>"]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _breaks(content: str) -> bool:
    """Does a display break its lines without saying in which environment?"""
    return r"\\" in content and r"\begin" not in content


def _display(content: str, number: int = 0) -> list[str]:
    """A displayed formula, numbered or not."""
    content = content.strip()
    if _breaks(content):
        content = f"\\begin{{aligned}}\n{content}\n\\end{{aligned}}"
    if number:
        content += f" \\tag{{{number}}}"
    return ["$$", *content.split("\n"), "$$"]


def _authors(entry: Any, key: str) -> str:
    """The names by which a work is cited: one, two joined by "and", or et al."""
    persons = entry.persons.get("author") or entry.persons.get("editor") or []
    names = []
    for person in persons:
        parts = [*person.prelast_names, *person.last_names]
        names.append(str(Text.from_latex(" ".join(parts))))
    if not names:
        return str(entry.fields.get("organization") or entry.fields.get("key") or key)
    if len(names) == 1:
        return names[0]
    return " and ".join(names) if len(names) == 2 else f"{names[0]} et al."
