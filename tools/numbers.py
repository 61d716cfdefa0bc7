r"""Check that every numeral in a page's prose is one that the page prints or states.

The prose of a page is its Markdown, and the captions and alt texts of its figures. A
numeral in it is proven by

* the outputs of the page's stored notebook, rounded to the digits that the prose gives
  (6.24 is proven by a printed 6.238, 23% by a printed 0.2344, 1.1 MB by 1,115,394). The
  output of a cell that nbval is told to ignore proves nothing, since nothing compares
  it, unless the cell is also tagged ``chaotic``;
* a number in the page's code; a comment or a string proves nothing;
* a sum in the text that ends in it, such as "816,640 × 4 bytes = 3.3 MB", whose other
  numbers are proven. It is worked out again, from the left; one that does not hold is
  an error, whether or not its result is printed elsewhere. What a sum proves, the text
  below it may use;
* a citation in the same sentence;
* the page's own list, ``numbers`` in the ``tinygpt`` table of the front matter, which
  maps a numeral to the reason why it needs no proof. An entry without use is an error.

Not checked are 0, 1 and 2; single digits in formulas; the numbers of lists, headings,
sections, figures, steps and versions; years, dates and ordinals; names such as GPT-2,
``float32`` or 6N; code blocks, links, labels, comments and HTML tags. Counts are
written with a comma (2,048 tokens): four bare digits from 1500 to 2100 are a year.

Usage: ``python -m tools.numbers [--check]``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import ast
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import nbformat

from tools.pages import ROOT, Cell, Page, PageError, read_pages

# ------------------------------------------------------------------ numbers


@dataclass(frozen=True)
class Number:
    """A value, and the worth of its last written digit (0 for a literal in code)."""

    value: Decimal
    digit: Decimal

    @classmethod
    def of(cls, value: Decimal) -> "Number":
        exponent = value.as_tuple().exponent
        return cls(value, Decimal(1).scaleb(int(exponent)))

    @classmethod
    def exact(cls, value: float) -> "Number":
        return cls(Decimal(repr(value)), Decimal(0))

    def scaled(self, power: int) -> "Number":
        return Number(self.value.scaleb(power), self.digit.scaleb(power))

    def rounds(self, known: "Number") -> bool:
        """Is this ``known``, or a correct rounding of it? The sign may be left out."""
        nearest = min(abs(self.value - known.value), abs(self.value - abs(known.value)))
        return known.digit <= self.digit and nearest <= self.digit / 2


@dataclass(frozen=True)
class Numeral:
    """A number as it is written, with the values that it may stand for."""

    text: str
    start: int
    meanings: tuple[Number, ...]
    structural: bool

    def proven_by(self, known: Iterable[Number]) -> bool:
        return any(mine.rounds(number) for number in known for mine in self.meanings)


PERCENT = r"\s?\\?%|\s(?:percent|per\scent)\b"
SCALES = {"k": 3, "kB": 3, "thousand": 3, "M": 6, "MB": 6, "million": 6}
SCALES |= {"B": 9, "G": 9, "GB": 9, "billion": 9}
SCALE = rf"(?P<scale>\s?(?:{'|'.join(sorted(SCALES, key=len, reverse=True))})\b)?"

# A number in prose, in a code span or in an output. What touches it from the left as
# letters, or as letters and a hyphen, makes it part of a name: float32, GPT-2.
TEXT_NUMBER = re.compile(
    r"(?<![\w.])(?<![A-Za-z]-)"
    r"(?P<number>(?:(?<![\w)\]])[-−])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+−]?\d+)?)"
    rf"(?P<percent>{PERCENT})?{SCALE}(?P<tail>\w*)"
)
ORDINAL = re.compile(r"st|nd|rd|th")

# In a formula the letters are variables, so they may touch a number: 12d, x_10.
MATH_NUMBER = re.compile(
    r"(?<![\d.])(?P<number>(?:(?<![\w)\]}])[-−])?"
    r"(?:\d{1,3}(?:(?:\{,\}|\\,)\d{3})+|\d+)(?:\.\d+)?)"
    r"(?:\s*\\(?:times|cdot)\s*10\s*\^\s*(?P<times>\{\s*-?\d+\s*\}|\d))?"
    rf"(?:\s*\^\s*(?P<power>\{{\s*-?\d+\s*\}}|\d))?(?P<percent>{PERCENT})?"
)
MATH_SEPARATOR = re.compile(r"\{,\}|\\,|,")
MATH_COMMANDS = re.compile(
    r"\\(?:label|ref|eqref|tag|begin|end|hspace|vspace|kern)\*?\{[^}]*\}|\\\\\[[^]]*\]"
)


def _decimal(text: str) -> Decimal:
    return Decimal(MATH_SEPARATOR.sub("", text).replace("−", "-"))


def text_numerals(text: str) -> Iterator[Numeral]:
    """The numerals of prose, of a code span, or of an output."""
    for match in TEXT_NUMBER.finditer(text):
        number, tail = match["number"], match["tail"]
        if re.search(r"[\d_]", tail):
            continue  # a name or a hash, such as 3f2a
        meanings = [Number.of(_decimal(number))]
        if match["percent"]:
            meanings.append(meanings[0].scaled(-2))
        if match["scale"]:
            meanings.append(meanings[0].scaled(SCALES[match["scale"].strip()]))
        digits = number.lstrip("-−")
        attached = bool(tail or (match["scale"] and not match["scale"][0].isspace()))
        structural = (
            digits.isdigit()
            and not match["percent"]
            and (
                ORDINAL.fullmatch(tail) is not None
                or digits in ("0", "1", "2")
                or (attached and len(digits) == 1)
            )
        )
        yield Numeral(match[0].strip(), match.start(), tuple(meanings), structural)


def math_numerals(formula: str) -> Iterator[Numeral]:
    r"""The numerals of a formula; ``a \times 10^b`` and ``a^b`` are each one."""
    formula = MATH_COMMANDS.sub(lambda match: " " * len(match[0]), formula)
    for match in MATH_NUMBER.finditer(formula):
        meaning = Number.of(_decimal(match["number"]))
        times, power = (
            int(group.strip("{ }")) if (group := match[name]) else None
            for name in ("times", "power")
        )
        if times is not None:
            meaning = meaning.scaled(times)
        elif power is not None:
            raised = meaning.value**power
            meaning = Number(raised, min(Number.of(raised).digit, Decimal(1)))
        meanings = [meaning]
        if match["percent"]:
            meanings.append(meaning.scaled(-2))
        structural = (
            len(match["number"].lstrip("-−")) == 1
            and times is None
            and (power is None or abs(power) < 10)
            and not match["percent"]
        )
        yield Numeral(match[0].strip(), match.start(), tuple(meanings), structural)


# A sum in the text: numbers, each with up to three words, then its result.
SUM_SIGNS = "×÷+−"
_WORDS = r"(?:\s+(?!and\b)[a-z][a-z-]*){0,3}"
_TERM = rf"[\d.,]*\d(?:\s?(?:kB|MB|GB|%))?{_WORDS}"
SUM = re.compile(rf"{_TERM}(?:\s+[×÷+−]\s+{_TERM})+\s+=\s+(?P<result>[\d.,]*\d)")


@dataclass(frozen=True)
class Sum:
    """A sum that the text states: where its result stands, and what it should be."""

    text: str
    start: int
    value: Decimal


def text_sums(text: str) -> Iterator[Sum]:
    """The sums of a text, each worked out from the left.

    >>> [found.value for found in text_sums("4 heads × 32 ÷ 8 = 16, 2 + 3 = 6")]
    [Decimal('16'), Decimal('5')]
    """
    for match in SUM.finditer(text):
        left = text[match.start() : match.start("result")]
        terms = [numeral.meanings[-1].value for numeral in text_numerals(left)]
        signs = [sign for sign in left if sign in SUM_SIGNS]
        if len(terms) != len(signs) + 1:
            continue
        value = terms[0]
        for sign, term in zip(signs, terms[1:], strict=True):
            value = {
                "×": value * term,
                "÷": value / term if term else Decimal(0),
                "+": value + term,
                "−": value - term,
            }[sign]
        yield Sum(" ".join(match[0].split()), match.start("result"), value)


# ------------------------------------------------------------------ what a page proves

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def _constant(node: ast.AST) -> int | float | None:
    """The value of a number in code, or of plain arithmetic on numbers: 8 / 3."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _constant(node.left), _constant(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Pow) and abs(right) > 100:
            return None
        try:
            return OPERATORS[type(node.op)](left, right)
        except (ArithmeticError, ValueError):
            return None
    return None


def code_numbers(source: str) -> set[Number]:
    """The numbers that a code cell states."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()  # a magic or a broken cell: whoever executes it reports it
    values = (_constant(node) for node in ast.walk(tree))
    return {Number.exact(value) for value in values if isinstance(value, int | float)}


def output_numbers(notebook: Any) -> set[Number]:
    """The numbers that the stored outputs of a notebook show, as far as compared."""
    known: set[Number] = set()
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "nbval-ignore-output" in tags and "chaotic" not in tags:
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            texts = [output.get("text", ""), data.get("text/plain", "")]
            texts += [data.get("text/markdown", ""), data.get("text/latex", "")]
            texts += [re.sub(r"<[^>]*>", " ", data.get("text/html", ""))]
            for text in texts:
                for numeral in text_numerals(text):
                    known.update(numeral.meanings)
    return known


def known_numbers(page: Page, notebooks: Path) -> set[Number]:
    """Everything that proves a numeral on this page: its code and its outputs."""
    known: set[Number] = set()
    for cell in page.code_cells:
        known |= code_numbers(cell.source)
    if page.code_cells:
        path = notebooks / f"{page.stem}.ipynb"
        if not path.is_file():
            raise PageError(
                f"{page.name}: notebooks/{path.name} is missing, so nothing proves the "
                "numerals of this page; `make notebooks` writes it"
            )
        known |= output_numbers(nbformat.read(path, as_version=4))
    return known


# ------------------------------------------------------------------ what is prose

NOT_PROSE = {"bibliography", "code", "code-block", "code-cell", "csv-table", "eval-rst"}
NOT_PROSE |= {"index", "literalinclude", "mermaid", "raw", "tableofcontents", "toctree"}
FILE_ARGUMENT = {"figure", "image"}
FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,}|:{3,})\s*(?:\{(?P<name>[^}]+)\})?")
OPTION = re.compile(r"\s*:?(?P<key>[\w-]+):(?=\s|$)")
OPTION_LINE = re.compile(r"\s*:[\w-]+:(?=\s|$)")
READ_OPTIONS = ("alt", "caption")

COMMENTS = re.compile(r"<!--.*?-->|^%.*$|^\([\w:.-]+\)=\s*$", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r"\{(?P<name>[\w:+.-]+)\}(?P<ticks>`+)(?P<body>.+?)(?P=ticks)", re.S)
CODE_SPAN = re.compile(
    r"(?<!`)(?P<ticks>`+)(?!`)(?P<body>.+?)(?<!`)(?P=ticks)(?!`)", re.S
)
DISPLAY = re.compile(
    r"(?<!\\)\$\$(?P<a>.+?)\$\$(?:[ \t]*\([\w:.-]+\))?"
    r"|(?P<b>\\begin\{(?P<env>\w+\*?)\}.+?\\end\{(?P=env)\})",
    re.DOTALL,
)
INLINE = re.compile(
    r"(?<![\\$])\$(?![\s$])(?P<a>(?:[^$\n]|\n(?!\s*\n))+?)(?<![\s\\])\$"
)
MARKUP = re.compile(
    r"\]\([^)\n]*\)|\]\[[^]\n]*\]|<?https?://[^\s>)]+>?|</?[A-Za-z][^<>\n]*>"
    r"|\[\^[^]\n]*\]|\{[^{}\n]*\}"
)

_REF = r"\d+(?:\.\d+)*[a-z]?\b"
_KINDS = "section|chapter|figure|table|equation|exercise|lecture|theorem|proposition"
_KINDS += "|lemma|corollary|definition|algorithm|appendix|page|footnote"
_KINDS = "|".join(
    f"[{kind[0]}{kind[0].upper()}]{kind[1:]}" for kind in _KINDS.split("|")
)
_NAMES = (
    "ASCII|Apache|CC BY|CUDA|Colab|Debian|GPT|Gemma|HTTP|Jupyter Book|L[Ll]a[Mm][Aa]"
)
_NAMES += "|Mistral|Phi|PyTorch|Python|Qwen|Sphinx|Ubuntu|Unicode|numpy|torch"
_MONTHS = "January|February|March|April|May|June|July|August|September|October"
_MONTHS += "|November|December"
_UNITS = "bytes|characters|FLOPs?|lines|merges|pairs|parameters|positions|samples|steps"
_UNITS += "|seconds|symbols|times|tokens|windows|words"
STRUCTURE = re.compile(
    rf"^\s*(?:>\s*)*(?:\d+[.)]\s|\#+\s+\d+(?:\.\d+)*\.?\s)"  # lists and headings
    rf"|\b(?:(?:{_KINDS}|Step|Part)s?|[Ff]ig\.|[Ee]q\.|[Cc]h\.|[Ss]ec\.|§)"
    rf"\s*\(?{_REF}(?:(?:,\s*|\s*[-–]\s*|,?\s+(?:and|or|to)\s+){_REF})*"
    rf"|\b(?:{_NAMES})[\s-]\d+(?:\.\d+)*"
    r"|(?<![\w.])v?\d+(?:\.\d+){2,}"  # versions
    rf"|\b\d{{1,2}}\s+(?:{_MONTHS})\b|\b(?:{_MONTHS})\s+\d{{1,2}}\b"
    r"|\b\d{4}-\d\d-\d\d\b"
    rf"|(?<![\w.,$-])(?:1[5-9]\d\d|20\d\d|2100)s?(?![\w%]|[.,]\d|[\s-](?:{_UNITS})\b)",
    re.MULTILINE,
)

SENTENCE_END = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*+|]|\d+[.)]|`{3}|:{3})\s?)"
    r"|(?<=[.!?])(?<!al\.)(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!Fig\.)(?<!Eq\.)"
    r"[\"')”’*_]*\s+(?=[\"“‘*_`$\[{A-Z])"
)
CITATION = re.compile(r"\{cite(?::\w+)?\}`")


def _body_kind(directive: str | None) -> str:
    """How the body of a fence is read; a fence without a directive is code."""
    if directive is None or directive in NOT_PROSE:
        return "skipped"
    return "math" if directive == "math" else "prose"


class Prose:
    """A Markdown text, taken apart into plain text, code spans and formulas.

    ``text`` keeps the length and the line breaks of the source: what has been taken out
    is blank, so that each position in it is a position in the source.
    """

    def __init__(self, source: str):
        self.source = source
        self.text = source
        self.formulas: list[tuple[int, str]] = []
        self.code: list[tuple[int, str]] = []
        self._fences()
        self._each(COMMENTS)
        self._each(ROLE, lambda match: match["name"] == "math" and self.formulas)
        self._each(DISPLAY, lambda match: self.formulas)
        self._each(CODE_SPAN, lambda match: self.code)
        self._each(INLINE, lambda match: self.formulas)
        self._each(MARKUP)
        self._each(STRUCTURE)

    def _blank(self, start: int, end: int) -> None:
        gap = re.sub(r"[^\n]", " ", self.text[start:end])
        self.text = self.text[:start] + gap + self.text[end:]

    def _each(self, pattern: re.Pattern[str], keep: Any = lambda match: None) -> None:
        """Take out each match; its body goes to the list that ``keep`` names."""
        for match in list(pattern.finditer(self.text)):
            place = keep(match)
            if isinstance(place, list):
                groups = match.groupdict()
                body = next(name for name in ("body", "a", "b") if groups.get(name))
                place.append((match.start(body), match[body]))
            self._blank(*match.span())

    def _fences(self) -> None:
        """Take out code blocks, and of a directive its name and most of its options."""
        open_fences: list[tuple[str, str]] = []  # the fence, and what its body is
        options = ""  # while a directive's options may stand: "any", "colon" or "yaml"
        start = 0
        for line in self.source.splitlines(keepends=True):
            end, bare = start + len(line), line.strip()
            fence, body = open_fences[-1] if open_fences else ("", "prose")
            if fence and bare == fence[0] * max(len(bare), len(fence)):
                open_fences.pop()
                self._blank(start, end)
                options = ""
            elif options == "any" and bare == "---":
                self._blank(start, end)
                options = "yaml"
            elif options == "yaml" or (options and OPTION_LINE.match(line)):
                self._option(start, line, body)
                options = {"any": "colon", "colon": "colon"}.get(options, "yaml")
                options = "" if bare == "---" else options
            elif body == "prose" and (match := FENCE.match(line)):
                open_fences.append((match["fence"], _body_kind(match["name"])))
                reads_title = open_fences[-1][1] == "prose"
                reads_title &= match["name"] not in FILE_ARGUMENT
                self._blank(start, start + match.end() if reads_title else end)
                options = "any"
            else:
                options = ""
                if body == "math":
                    self.formulas.append((start, line))
                if body != "prose":
                    self._blank(start, end)
            start = end

    def _option(self, start: int, line: str, body: str) -> None:
        """Take out one option of a directive; a caption or alt text stays."""
        match = OPTION.match(line)
        read = match and match["key"] in READ_OPTIONS and body == "prose"
        self._blank(start, start + (match.end() if match and read else len(line)))

    def numerals(self) -> Iterator[Numeral]:
        """Each numeral that has to be proven; ``start`` is its place in the source."""
        parts = [(0, self.text, text_numerals)]
        parts += [(start, text, text_numerals) for start, text in self.code]
        parts += [(start, text, math_numerals) for start, text in self.formulas]
        for start, text, reader in parts:
            for numeral in reader(text):
                if not numeral.structural:
                    yield Numeral(
                        numeral.text, start + numeral.start, numeral.meanings, False
                    )

    def sentence(self, position: int) -> str:
        """The sentence, list item or table row of the source around a position."""
        start, end = 0, len(self.source)
        for match in SENTENCE_END.finditer(self.source):
            if match.end() <= position:
                start = match.end()
            elif match.start() >= position:
                end = match.start()
                break
        return " ".join(self.source[start:end].split())

    def line(self, position: int) -> int:
        """The line of a position, counted from 0."""
        return self.source.count("\n", 0, position)


def _figure_texts(options: Any) -> Iterator[tuple[str, str]]:
    """Captions and alt texts in a cell's options, at whatever depth they stand."""
    if isinstance(options, dict):
        for key, value in options.items():
            if key in READ_OPTIONS and isinstance(value, str):
                yield key, value
            else:
                yield from _figure_texts(value)


def prose_of(page: Page) -> Iterator[tuple[Prose, int]]:
    """Each piece of prose on a page, with the line of the file where it begins."""
    lines = page.path.read_text(encoding="utf-8").splitlines()
    for cell in page.cells:
        if cell.kind == "markdown":
            yield Prose(cell.source), cell.line
        else:
            for key, text in _figure_texts(cell.options):
                yield Prose(text), _option_line(lines, cell, key, text)


def _option_line(lines: list[str], cell: Cell, key: str, text: str) -> int:
    """The line above a cell's code on which one of its options stands."""
    begin = text.split()[0] if text.split() else ""
    candidates = []
    for number in range(cell.line - 1, 0, -1):
        line = lines[number - 1]
        if line.lstrip().startswith("```{code-cell}"):
            break
        if line.strip().lstrip(":").startswith(f"{key}:"):
            candidates.append(number)
            if begin in line:
                return number
    return candidates[0] if candidates else cell.line


# ------------------------------------------------------------------ the check


def _allowed(page: Page) -> tuple[dict[str, tuple[Number, ...]], list[str]]:
    """The page's own list, and what is wrong with it."""
    allowed, findings = {}, []
    entries = page.settings.get("numbers") or {}
    for entry, reason in entries.items():
        where = f"{page.name}: the entry {entry!r} in the front matter's numbers"
        reader = math_numerals if "^" in str(entry) else text_numerals
        found = [n for n in reader(str(entry)) if n.text == str(entry)]
        if isinstance(entry, float) or len(found) != 1:
            findings.append(f'{where} is not a numeral in quotes, such as "0.50"')
        elif not isinstance(reason, str) or not reason.strip():
            findings.append(f"{where} needs a reason")
        else:
            allowed[str(entry)] = found[0].meanings
    return allowed, findings


def check_page(page: Page, notebooks: Path) -> list[str]:
    """One line for each numeral of a page that nothing proves."""
    try:
        known = known_numbers(page, notebooks)
    except PageError as error:
        return [str(error)]
    allowed, findings = _allowed(page)
    used = set()
    for prose, first_line in prose_of(page):
        sums = {found.start: found for found in text_sums(prose.text)}
        for numeral in sorted(prose.numerals(), key=lambda numeral: numeral.start):
            sentence = prose.sentence(numeral.start)
            if stated := sums.get(numeral.start):
                result = Number(stated.value, Decimal(0))
                if not any(number.rounds(result) for number in numeral.meanings):
                    line = first_line + prose.line(numeral.start)
                    findings.append(
                        f"{page.name}, line {line}: the sum '{stated.text}' does not "
                        f"hold: it gives {stated.value:,.2f}"
                    )
                known.add(result)
                continue
            if CITATION.search(sentence) or numeral.proven_by(known):
                continue
            names = [name for name in allowed if allowed[name] == numeral.meanings]
            used.update(names)
            if not names:
                line = first_line + prose.line(numeral.start)
                findings.append(
                    f"{page.name}, line {line}: {numeral.text} in '{_short(sentence)}' "
                    "is printed nowhere on the page"
                )
    for entry in allowed:
        if entry not in used:
            findings.append(
                f"{page.name}: the entry {entry!r} in the front matter's numbers is "
                "not needed; remove it"
            )
    return findings


def _short(sentence: str, limit: int = 90) -> str:
    return sentence if len(sentence) <= limit else sentence[: limit - 1].rstrip() + "…"


def main(argv: list[str] | None = None) -> int:
    """Check the numerals of every page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.numbers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="check (the default)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    pages = read_pages(options.root)
    findings = []
    for page in pages:
        findings += check_page(page, options.root / "notebooks")
    for finding in findings:
        print(finding)
    if not findings:
        print(f"numbers: every numeral of {len(pages)} pages is proven")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
