"""What an edition must not show, and where files show it all the same.

Every line of a solution, a hidden check, a marking or a note is cut
where its markup stands. A run of letters that is long, and that stands nowhere in
what the edition shows, is a *secret*. So is a long line that only a cell of these parts
printed. A file leaks when a secret stands in it: in HTML without its tags, in a
notebook in any of its texts.

Usage: ``python -m tools.leaks student _build/student``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import html
import json
import re
from collections.abc import Iterable, Iterator

import nbformat

from tools.exercises import LEFT_OUT, edition_text
from tools.pages import ROOT

LONG = 25  # letters and digits that make a run distinctive
PIECE = 16  # of a text, looked up in one step
STRIDE = LONG - PIECE + 1  # each run of LONG letters holds a whole piece of the text
BINARY = {".png", ".jpg", ".ico", ".svg", ".woff", ".woff2", ".ttf", ".eot", ".gz"}
BINARY |= {".pt", ".safetensors", ".pickle", ".doctree", ".pyc", ".lock", ".inv"}


class Search:
    """Which of many runs stand in a text, found in one pass over the text.

    The text is cut into pieces, one every ``STRIDE`` letters. Whatever stands in it and
    is ``LONG`` or longer holds one of them within its first ``LONG`` letters. So a run
    can stand there only where one of its first pieces is one of the text's. Those few
    runs are then looked for in full.
    """

    def __init__(self, runs: Iterable[str]) -> None:
        self.runs = list(dict.fromkeys(runs))
        self.with_piece: dict[str, list[int]] = {}
        for number, run in enumerate(self.runs):
            if len(run) < LONG:
                raise ValueError(f"{run!r} is shorter than {LONG} letters")
            for start in range(STRIDE):
                piece = run[start : start + PIECE]
                self.with_piece.setdefault(piece, []).append(number)

    def standing(self, text: str) -> list[str]:
        """The runs that stand in a text, in the order of their first places."""
        pieces = {text[i : i + PIECE] for i in range(0, len(text), STRIDE)}
        near = {
            n
            for piece in self.with_piece.keys() & pieces
            for n in self.with_piece[piece]
        }
        places = [(text.find(self.runs[n]), n) for n in near]
        return [self.runs[n] for place, n in sorted(places) if place >= 0]


def plain(text: str) -> str:
    """The letters and digits of a text alone, in lower case."""
    return re.sub(r"[\W_]+", "", text).lower()


# What every edition hands out besides its pages. The logs of long runs are among it: a
# page reads them under an address that it states.
SHOWN = (
    ("tinygpt", "*.py"),
    ("book", "*.md"),
    ("book/_static/live", "*.js"),
    ("tools", "*.py"),
    ("data", "*.json"),
)
FINGERPRINT = re.compile(r'"[0-9a-f]{64}",?')


def runs(line: str) -> Iterator[str]:
    """The distinctive runs of a line: what stands between its markup, made plain.

    Code is one run; words are cut where a formula, a role, a link or emphasis stands. A
    file's fingerprint is none: the manifest of the data states it for everybody.
    """
    if FINGERPRINT.fullmatch(line.strip()):
        return
    whole = plain(line)
    if len(whole) >= LONG:
        yield whole
    for part in re.split(r"\$[^$]*\$|\{[\w:]+\}`[^`]*`|\]\([^)]*\)|[`*\[\]]", line):
        found = plain(part)
        if len(found) >= LONG and found != whole:
            yield found


def hidden_lines(root: Path, edition: str) -> Iterator[tuple[str, str]]:
    """Each line that the edition leaves out, with its place."""
    for path in sorted((root / "chapters").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        kept = edition_text(text, edition, keep_lines=True).split("\n")
        for number, (line, left) in enumerate(zip(text.split("\n"), kept), 1):
            if line.strip() and not left:
                yield line, f"chapters/{path.name}, line {number}"
        stored = root / "notebooks" / f"{path.stem}.ipynb"
        for cell in _cells(stored):
            tags = set(cell.metadata.get("tags", []))
            if tags & _tags(edition):
                for line in _printed(cell):
                    yield line, f"what {stored.name} printed"


def shown_text(root: Path, edition: str) -> str:
    """Everything that the edition may show, plain."""
    parts = []
    for path in sorted((root / "chapters").glob("*.md")):
        parts.append(edition_text(path.read_text(encoding="utf-8"), edition))
        for cell in _cells(root / "notebooks" / f"{path.stem}.ipynb"):
            if not set(cell.metadata.get("tags", [])) & _tags(edition):
                parts += _printed(cell)
    for folder, ending in SHOWN:
        for path in sorted((root / folder).rglob(ending)):
            parts.append(path.read_text(encoding="utf-8"))
    return "\n".join(plain(part) for part in parts)


def _tags(edition: str) -> set[str]:
    """The tags of the cells that an edition leaves out."""
    secret = {"exercise-solution"} if "solution" in LEFT_OUT[edition] else set()
    return secret | {"exercise-hidden"}


def _cells(path: Path) -> list:
    if not path.is_file():
        return []
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def _printed(cell) -> list[str]:
    return [
        line
        for output in cell.get("outputs", [])
        for line in str(output.get("text", "")).splitlines()
    ]


def secrets(root: Path, edition: str) -> dict[str, str]:
    """The secrets of an edition, each with the place where it stands."""
    found: dict[str, str] = {}
    for line, place in hidden_lines(root, edition):
        for run in runs(line):
            found.setdefault(run, place)
    for run in Search(found).standing(shown_text(root, edition)):
        del found[run]
    return found


def text_of(path: Path) -> str:
    """What a file says, plain: HTML without tags, every text of a JSON file."""
    text = path.read_bytes().decode("utf-8", errors="ignore")
    if path.suffix == ".html":
        text = html.unescape(re.sub(r"<[^>]*>", "", text))
    elif path.suffix == ".ipynb":
        text = "\n".join(_strings(json.loads(text)))
    return plain(text)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield re.sub(r"</?\w[^>]*>", "", value)
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            yield "".join(value)
        else:
            for item in value:
                yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


def readable(folder: Path) -> Iterator[Path]:
    """The files of a folder that hold text, but for MathJax's own."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in BINARY and "mathjax" not in path.parts:
            yield path


def leaks(files: Iterable[Path], known: dict[str, str]) -> list[str]:
    """Each place where a file shows a secret, in words."""
    search = Search(known)
    return [
        f"{path}: {run[:60]!r} ({known[run]})"
        for path in files
        for run in search.standing(text_of(path))
    ]


def main(argv: list[str] | None = None) -> int:
    """Search a folder for what an edition must not show."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.leaks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("edition", choices=sorted(LEFT_OUT))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    known = secrets(options.root, options.edition)
    files = list(readable(options.folder))
    found = leaks(files, known)
    for line in found:
        print(line)
    print(f"{len(known)} secrets, {len(files)} files, {len(found)} leaks")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
