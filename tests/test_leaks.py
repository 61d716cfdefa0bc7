"""No edition shows what it leaves out: the finished files are searched line by line."""

import contextlib
import json
import os
import random
import re
import shutil
from html import escape as html_text
from pathlib import Path

import pytest
from assignment_tree import make_tree

from tools import book, edition
from tools.exercises import LEFT_OUT, Exercise, all_exercises, edition_text
from tools.leaks import (
    LONG,
    STRIDE,
    Search,
    leaks,
    main,
    plain,
    readable,
    runs,
    secrets,
    text_of,
)
from tools.pages import ROOT

# ---- the search ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, str]]:
    """The secrets of each edition of this book."""
    return {name: secrets(ROOT, name) for name in LEFT_OUT}


@pytest.fixture(scope="module")
def exercises() -> list[Exercise]:
    """The exercises of this book that have a hidden check."""
    return [exercise for exercise in all_exercises(whole=False) if exercise.hidden]


def test_code_is_one_run_and_prose_is_cut_at_its_markup():
    assert list(runs("short")) == []
    code = "    return torch.outer(z, z) / d_model  # formula"
    assert list(runs(code)) == [plain(code)]
    prose = (
        "The rank of it is fifteen, one more than $d$ and {ref}`that <x>` as we know."
    )
    assert "therankofitisfifteenonemorethan" in runs(prose)


def test_every_part_that_is_left_out_is_a_source_of_secrets(known, exercises):
    """Almost no part is so short, or so like what is shown, that nothing stands out."""
    text = {name: "\n".join(found) for name, found in known.items()}
    assert len(exercises) > 20
    parts_seen, silent = 0, []
    for exercise in exercises:
        parts = {
            "reader": [exercise.hidden[0], exercise.instructor],
            "student": [exercise.hidden[0], exercise.instructor, exercise.solution[0]],
        }
        for name, bodies in parts.items():
            for body in bodies:
                wanted = [run for line in body.split("\n") for run in runs(line)]
                parts_seen += 1
                if not any(run in text[name] for run in wanted):
                    silent.append((exercise.where, name, body))
    assert len(silent) <= parts_seen / 50, silent


def plainly(texts: dict[str, str], wanted: list[str]) -> dict[str, list[str]]:
    """What stands in each text: every run tried in every text, one after the other."""
    return {
        name: sorted((run for run in wanted if run in text), key=text.find)
        for name, text in texts.items()
    }


@pytest.mark.parametrize("alphabet", ["ab", "abcdefghijklmnopqrstuvwxyz0123456789"])
def test_one_pass_finds_what_the_plain_search_finds(alphabet: str):
    """At each offset, at both ends, of each length, whole and with one letter wrong."""
    chance = random.Random(alphabet)

    def letters(n: int) -> str:
        return "".join(chance.choices(alphabet, k=n))

    wanted = [letters(LONG + n) for n in range(40)]
    wanted += [wanted[7] + letters(5), letters(3) + wanted[8], wanted[20][2:]]
    search = Search(wanted)
    texts, planted = {"": "", "short": letters(LONG - 1)}, 0
    for run in wanted:
        for offset in range(2 * STRIDE + 1):
            before, after = letters(offset), letters(chance.randrange(3 * LONG))
            texts[f"{run} at {offset}"] = before + run + after
            wrong = chance.randrange(len(run))
            other = alphabet[alphabet.index(run[wrong]) - 1]
            spoilt = run[:wrong] + other + run[wrong + 1 :]
            texts[f"{run} at {offset}, spoilt"] = before + spoilt + after
            planted += 1
        texts[f"{run} last"] = letters(500) + run
    texts["several"] = letters(9).join([*wanted[::3], wanted[0]])
    expected = plainly(texts, wanted)
    assert {name: search.standing(text) for name, text in texts.items()} == expected
    assert sum(bool(found) for found in expected.values()) >= planted


def test_one_pass_finds_every_secret_of_this_book_in_its_own_pages(known):
    """The sources hold all of them, in the thousands: both searches name the same."""
    texts = {path.name: text_of(path) for path in (ROOT / "chapters").glob("*.md")}
    for found in known.values():
        search = Search(found)
        expected = plainly(texts, list(found))
        assert {name: search.standing(text) for name, text in texts.items()} == expected
        assert sum(map(len, expected.values())) > len(found) / 2


def test_a_run_that_is_too_short_to_be_found_is_refused():
    with pytest.raises(ValueError, match="'tooshort' is shorter than 25 letters"):
        Search(["tooshort"])


PLANTED = {
    "page.html": "<p>{}</p>",
    "tagged.html": "",
    "_sources/page.md": "{}",
    "search.js": 'Search.setIndex({{"titles": ["{}"]}})',
}


@pytest.mark.parametrize("name", [*PLANTED, "page.ipynb"])
@pytest.mark.parametrize("stage", ["solution", "hidden", "instructor"])
def test_a_planted_line_is_found(
    tmp_path: Path, known, exercises, name: str, stage: str
):
    body = getattr(exercises[0], stage)
    body = body if isinstance(body, str) else body[0]
    line = next(
        line
        for line in body.split("\n")
        if any(run in known["student"] for run in runs(line))
    )
    escaped = html_text(line)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "tagged.html":
        words = "".join(f'<span class="n">{word}</span> ' for word in escaped.split())
        text = f"<pre>{words}</pre>"
    elif name == "page.ipynb":
        text = json.dumps({"cells": [{"source": ["x = 1\n", line]}]})
    else:
        text = PLANTED[name].format(escaped if name.endswith("html") else line)
    assert leaks(readable(tmp_path), known["student"]) == []
    path.write_text(text, encoding="utf-8")
    assert len(leaks(readable(tmp_path), known["student"])) >= 1


def test_a_heading_or_an_output_that_stands_elsewhere_is_no_secret(tmp_path: Path):
    root = make_tree(tmp_path / "tree")
    found = secrets(root, "student")
    assert found
    shown = plain(
        edition_text((root / "chapters/step8-page.md").read_text("utf-8"), "student")
    )
    assert not any(run in shown for run in found)


# ---- the finished editions -----------------------------------------------------------


@pytest.fixture(scope="module")
def html() -> Path:
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    return ROOT / "_build" / "html"


@pytest.fixture(scope="module")
def student(html: Path, tmp_path_factory) -> tuple[Path, str]:
    """The staged and built edition of students, and what its build said."""
    log = tmp_path_factory.mktemp("student") / "log"
    place = ROOT / "_build" / "student"
    shutil.rmtree(place, ignore_errors=True)
    with log.open("w", encoding="utf-8") as file:
        kept = os.dup(1), os.dup(2)
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                status = edition.main(["student"])
        finally:
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)
    said = log.read_text(encoding="utf-8")
    assert status == 0, said[-3000:]
    return place, said


def test_the_readers_edition_has_nothing_for_instructors(html: Path, known):
    assert leaks(readable(html), known["reader"]) == []
    assert leaks((ROOT / "notebooks").glob("*.ipynb"), known["reader"]) == []


def test_the_students_edition_builds_and_runs_no_chapter_again(student):
    place, said = student
    assert (place / "_build/html/index.html").is_file()
    ran = re.findall(r".*: Executing notebook.*|tools.execute: running .*", said)
    assert "chapters/" not in "".join(ran)
    assert said.count("Using cached notebook") >= len(list(place.glob("chapters/*.md")))


def test_the_students_edition_has_no_solution_anywhere(student, known):
    place, _ = student
    files = list(readable(place))
    assert len(files) > 100
    assert leaks(files, known["student"]) == []


def test_the_students_search_knows_no_word_of_a_solution_alone(student):
    from sphinx.search.en import SearchEnglish

    place, _ = student
    stem = SearchEnglish({}).stem
    shown, left_out = set(), set()
    for path in (ROOT / "chapters").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        kept = edition_text(text, "student", keep_lines=True)
        shown |= _words(kept)
        for line, left in zip(text.split("\n"), kept.split("\n")):
            left_out |= set() if left else _words(line, least=6)
    for path in (ROOT / "book").rglob("*.md"):
        shown |= _words(path.read_text(encoding="utf-8"))
    shown |= _words((ROOT / "book/references.bib").read_text(encoding="utf-8"))
    alone = {stem(word) for word in left_out} - {stem(word) for word in shown}
    assert len(alone) > 50
    index = (place / "_build/html/searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").rstrip(")"))
    assert {"attent", "transform"} & set(terms["terms"])
    printed = text_of(place / "_build/html/searchindex.js")
    assert sorted(word for word in alone & set(terms["terms"]) if word in printed) == []


def _words(text: str, least: int = 1) -> set[str]:
    """The words of a text; a long one may have the stem of a short one."""
    return {word.lower() for word in re.findall(rf"[A-Za-z_]{{{least},}}", text)}


@pytest.mark.parametrize("stage", ["solution", "hidden"])
def test_a_solution_planted_in_the_built_edition_is_found(
    student, tmp_path: Path, capsys, known, exercises, stage: str
):
    place, _ = student
    built = place / "_build/html/chapters/step5-gpt.html"
    of_page = [e for e in exercises if e.page == "step5-gpt"]
    lines = [line for e in of_page for line in getattr(e, stage)[0].split("\n")]
    line = next(li for li in lines if any(run in known["student"] for run in runs(li)))
    text = built.read_text(encoding="utf-8")
    copy = tmp_path / "step5-gpt.html"
    copy.write_text(text, encoding="utf-8")
    assert main(["student", str(tmp_path)]) == 0
    planted = text.replace("</article>", f"<pre>{html_text(line)}</pre></article>", 1)
    assert planted != text
    copy.write_text(planted, encoding="utf-8")
    assert main(["student", str(tmp_path)]) == 1
    assert "chapters/step5-gpt.md, line" in capsys.readouterr().out


def test_the_release_of_every_assignment_has_no_solution(tmp_path: Path, known):
    pytest.importorskip("nbgrader")
    from tools.assignments import main as write_assignments

    assert write_assignments(["--out", str(tmp_path)]) == 0
    releases = sorted(tmp_path.glob("*/release/*/*.ipynb"))
    assert releases
    assert leaks(releases, known["student"]) == []
    sources = sorted(tmp_path.glob("*/source/*/*.ipynb"))
    assert leaks(sources, known["student"]), "the search finds the hidden checks"
