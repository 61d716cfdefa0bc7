"""The book around the chapters: its settings, its build, its finished pages."""

import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from jupyter_cache import get_cache
from jupyter_cache.executors.utils import ExecutionResult

from tools import book, execute
from tools.pages import MYST_EXTENSIONS, ROOT, pages_in_order, read_pages, read_site

# ---- the sources ---------------------------------------------------------------------


def config() -> dict:
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


def test_every_page_of_the_contents_exists_once():
    pages = pages_in_order()
    assert len(pages) == len(set(pages))
    missing = [page for page in pages if not (ROOT / f"{page}.md").is_file()]
    assert missing == []


def test_every_chapter_is_in_the_contents():
    stems = {page.stem for page in read_pages()}
    listed = {p.removeprefix("chapters/") for p in pages_in_order() if "chapters/" in p}
    assert listed == stems


def test_the_book_and_the_tools_read_the_same_markdown():
    extensions = config()["parse"]["myst_enable_extensions"]
    assert tuple(extensions) == MYST_EXTENSIONS


def test_the_addresses_stand_in_pyproject_alone():
    site = read_site()
    texts = [ROOT / "_config.yml", ROOT / "_toc.yml", *(ROOT / "book").rglob("*.md")]
    for path in [*texts, *(ROOT / "book").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert site.repository not in text, path
        assert site.url.rstrip("/") not in text, path


def test_each_glossary_term_is_defined_once():
    text = (ROOT / "book/glossary.md").read_text(encoding="utf-8")
    body = text.split("```{glossary}\n", 1)[1].split("\n```", 1)[0]
    lines = body.splitlines()
    terms = [line for line in lines if re.match(r"[^\s:]", line)]
    assert len(terms) >= 45
    assert len({term.lower() for term in terms}) == len(terms)
    for number, line in enumerate(lines):
        if line in terms:
            following = lines[number + 1]  # the definition, or another name for it
            assert following.startswith("  ") or following in terms, line


def test_figures_share_the_palette_with_the_pages():
    style = (ROOT / book.STYLE).read_text(encoding="utf-8")
    cycle = re.search(r"^axes.prop_cycle: .*$", style, re.M).group()
    hues = re.findall(r"'([0-9A-F]{6})'", cycle)
    css = (ROOT / "book/_static/book.css").read_text(encoding="utf-8").upper()
    for name, hue in zip(
        ("BLUE", "VERMILLION", "GREEN", "PURPLE", "GREY"), hues[:5], strict=True
    ):
        assert f"--TG-{name}: #{hue};" in css


def test_the_figure_style_is_one_that_matplotlib_accepts():
    import matplotlib

    style = matplotlib.rc_params_from_file(
        ROOT / book.STYLE, fail_on_error=True, use_default_template=False
    )
    assert style["figure.facecolor"] == "white"
    assert style["savefig.transparent"] is False


# ---- the cache -----------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small book that the real tools and settings can build."""
    for name in ("_config.yml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("book/_ext", "book/_static"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / book.STYLE, tmp_path / book.STYLE)
    for name in ("tools", "tinygpt", "data", "chapters", "notebooks", ".pytest_cache"):
        (tmp_path / name).mkdir()
    for name in ("__init__.py", "book.py", "execute.py", "exercises.py", "pages.py"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools" / name)
    write = {
        "pyproject.toml": '[tool.tinygpt]\nrepository = "https://github.com/a/b"\n'
        'branch = "trunk"\nsite = "https://a.example/b/"\n',
        "_toc.yml": "format: jb-book\nroot: book/index\nparts:\n"
        "  - chapters:\n      - file: chapters/one\n",
        "README.md": "# Not a page of the book\n",
        ".pytest_cache/README.md": "# Not one either\n",
        "book/index.md": f"{INDEX}# First\n\nSee {{doc}}`../chapters/one`.\n",
        "book/references.bib": "",
        "tinygpt/__init__.py": "",
        "data/corpus.txt": "text\n",
        "chapters/one.md": page("import uuid\n\nprint(uuid.uuid4())"),
        "notebooks/one.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4}',
    }
    for name, text in write.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


INDEX = "---\ntinygpt: {sentence: It leads on.}\n---\n\n"


def page(code: str, prose: str = "Prose.") -> str:
    return (
        "---\nfile_format: mystnb\n"
        "kernelspec: {name: python3, display_name: Python 3}\n"
        "tinygpt: {minutes: 45, sentence: We build one.}\n---\n\n"
        f"# One\n\n{prose}\n\n```{{code-cell}} python\n{code}\n```\n"
    )


@pytest.mark.parametrize(
    "name", ["tinygpt/__init__.py", "data/corpus.txt", "requirements.lock", book.STYLE]
)
def test_what_a_cell_can_see_moves_the_cache(tree: Path, name: str):
    before = book.cache_folder(tree)
    with (tree / name).open("a", encoding="utf-8") as file:
        file.write("#")
    assert book.cache_folder(tree) != before


def test_prose_does_not_move_the_cache_but_outdates_the_book(tree: Path):
    cache = book.cache_folder(tree)
    (tree / "_build/html").mkdir(parents=True)
    (tree / "_build/html/index.html").write_text("", encoding="utf-8")
    current = book.digest(tree, book.SEEN_BY_CELLS + book.SOURCES)
    book.stamp(tree).write_text(current, encoding="utf-8")
    assert book.is_current(tree)
    (tree / "chapters/one.md").write_text(page("1", "Other."), encoding="utf-8")
    assert book.cache_folder(tree) == cache
    assert not book.is_current(tree)


def test_a_lost_first_page_outdates_the_book(tree: Path):
    book.stamp(tree).parent.mkdir()
    current = book.digest(tree, book.SEEN_BY_CELLS + book.SOURCES)
    book.stamp(tree).write_text(current, encoding="utf-8")
    assert not book.is_current(tree)


def test_old_caches_are_removed(tree: Path):
    current = book.cache_folder(tree)
    old = current.with_name("0" * 16)
    for folder in (old, current):
        folder.mkdir(parents=True)
    book.forget_old_caches(tree)
    assert not old.exists()
    assert current.exists()


# ---- the build -----------------------------------------------------------------------


def printed_uuid(tree: Path) -> str:
    html = (tree / "_build/html/chapters/one.html").read_text(encoding="utf-8")
    return re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", html).group()


def test_cells_run_again_only_when_something_they_see_has_changed(tree: Path, capfd):
    assert book.main(["--root", str(tree)]) == 0
    assert (tree / "_build/html/index.html").as_uri() in capfd.readouterr().out
    first = printed_uuid(tree)
    text = page("import uuid\n\nprint(uuid.uuid4())", "Other prose.")
    (tree / "chapters/one.md").write_text(text, encoding="utf-8")
    assert book.main(["--root", str(tree), "--if-changed"]) == 0
    assert printed_uuid(tree) == first
    (tree / "data/corpus.txt").write_text("other\n", encoding="utf-8")
    assert book.main(["--root", str(tree), "--if-changed"]) == 0
    assert printed_uuid(tree) != first
    assert book.main(["--root", str(tree), "--if-changed"]) == 0
    assert "up to date" in capfd.readouterr().out


def test_pages_run_beforehand_and_the_build_takes_their_outputs(tree: Path):
    assert execute.fill(tree, workers=2) == []
    [record] = get_cache(str(book.cache_folder(tree))).list_cache_records()
    bundle = get_cache(str(book.cache_folder(tree))).get_cache_bundle(record.pk)
    [cell] = [cell for cell in bundle.nb.cells if cell.cell_type == "code"]
    assert record.data["execution_seconds"] > 0
    assert book.main(["--root", str(tree)]) == 0
    assert printed_uuid(tree) == cell.outputs[0].text.strip()


def test_a_page_that_fails_beforehand_fails_the_build_by_name(tree: Path, capfd):
    text = page("raise RuntimeError('the well is dry')")
    (tree / "chapters/one.md").write_text(text, encoding="utf-8")
    assert book.main(["--root", str(tree)]) == 1
    said = "".join(capfd.readouterr())
    assert "chapters/one.md failed; the build runs it again" in said
    assert "the well is dry" in said


def test_pages_with_more_than_one_thread_run_alone(tree: Path, monkeypatch):
    lines = ["format: jb-book", "root: book/index", "parts:", "  - chapters:"]
    for name, threads in (("one", 1), ("two", 2), ("three", 1)):
        code = f"import torch\n\ntorch.set_num_threads({threads})\nprint('{name}')"
        (tree / f"chapters/{name}.md").write_text(page(code), encoding="utf-8")
        lines.append(f"      - file: chapters/{name}")
    (tree / "_toc.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    running, beside = set(), {}

    def run(node, cwd, timeout, allow_errors, **options):
        own = node.cells[-1].source.split("'")[1]
        running.add(own)
        time.sleep(0.2)
        beside[own] = running - {own}
        running.discard(own)
        return ExecutionResult(node, cwd, 0.2)

    monkeypatch.setattr(execute, "single_nb_execution", run)
    assert execute.fill(tree, workers=2) == []
    assert beside["two"] == set()
    assert beside.keys() == {"one", "two", "three"}
    assert "two" not in beside["one"] | beside["three"]


def test_the_build_uses_pyproject_s_addresses_and_writes_in_its_own_folder(tree: Path):
    def files() -> set[Path]:
        found = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()}
        return {p for p in found if "__pycache__" not in p.parts}

    before = files()
    assert book.main(["--root", str(tree)]) == 0
    assert {path.parts[0] for path in files() - before} == {"_build"}
    html = (tree / "_build/html/chapters/one.html").read_text(encoding="utf-8")
    assert "/github/a/b/blob/trunk/notebooks/one.ipynb" in html
    assert "https://github.com/a/b/edit/trunk/chapters/one.md" in html
    assert 'rel="canonical" href="https://a.example/b/chapters/one.html"' in html


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (page("1 / 0"), "ZeroDivisionError"),
        (page("1", "See {ref}`nowhere`."), "nowhere"),
        (page("1", "See {cite:p}`nobody`."), "nobody"),
        (page("1", "```{nonsense}\n```"), "nonsense"),
    ],
    ids=["failing cell", "dead reference", "unknown citation", "unknown directive"],
)
def test_a_faulty_page_fails_the_build(tree: Path, capfd, text: str, expected: str):
    (tree / "chapters/one.md").write_text(text, encoding="utf-8")
    assert book.main(["--root", str(tree)]) == 1
    output = capfd.readouterr()
    assert expected in output.out + output.err
    assert not book.is_current(tree)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text.replace(", sentence: We build one.", ""), "is missing"),
        (lambda text: text.replace("build one.", "build one"), "no single sentence"),
        (lambda text: text.replace("We build", "We rest. We build"), "no single"),
        (lambda text: text.replace("one.", f"{'very ' * 40}much."), "are the most"),
    ],
    ids=["none", "no full stop", "two", "too long"],
)
def test_a_page_without_its_sentence_fails_the_build(
    tree: Path, capfd, change, expected: str
):
    path = tree / "chapters/one.md"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert book.main(["--root", str(tree)]) == 1
    output = capfd.readouterr()
    assert expected in output.out + output.err
    assert "chapters/one.md: the front matter's 'sentence'" in output.out + output.err


def test_a_part_that_the_contents_do_not_know_fails_the_build(tree: Path, capfd):
    index = f"{INDEX}# First\n\n```{{part-pages}} Nowhere\n```\n"
    (tree / "book/index.md").write_text(index, encoding="utf-8")
    assert book.main(["--root", str(tree)]) == 1
    assert "no part of _toc.yml is called 'Nowhere'" in capfd.readouterr().err


def test_a_chapter_without_its_notebook_fails_the_build(tree: Path, capfd):
    (tree / "notebooks/one.ipynb").unlink()
    assert book.main(["--root", str(tree)]) == 1
    assert "notebooks/one.ipynb is missing" in capfd.readouterr().err


EXERCISE = """## Exercises

```{exercise} Twice
:label: ex-twice

Write it.
```

```{task} ex-twice
:kind: written
:difficulty: 2
:minutes: 7
:points: 4
:teaches: Care.
```

```{solution-start} ex-twice
```

So.

```{solution-end}
```

```{marking} ex-twice
- 4: so
```

```{instructor} ex-twice
Ask again.
```
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda text: text.replace("```{marking} ex-twice\n- 4: so\n```\n", ""),
            "marking",
        ),
        (lambda text: text.replace("So.\n", ""), "no solution text"),
        (lambda text: text.replace(":minutes: 7\n", ""), "minutes"),
        (lambda text: text + text, "the id is taken"),
    ],
    ids=["no marking", "no solution", "no minutes", "an id twice"],
)
def test_an_exercise_that_lacks_a_part_fails_the_build(
    tree: Path, capfd, change, expected: str
):
    (tree / "chapters/one.md").write_text(page("1", change(EXERCISE)), encoding="utf-8")
    assert book.main(["--root", str(tree)]) == 1
    output = capfd.readouterr()
    assert expected in output.out + output.err
    assert "chapters/one.md, line" in output.out + output.err


def test_the_table_lists_each_exercise_with_a_link(tree: Path):
    (tree / "chapters/one.md").write_text(page("1", EXERCISE), encoding="utf-8")
    index = f"{INDEX}# First\n\n```{{exercise-table}}\n```\n"
    (tree / "book/index.md").write_text(index, encoding="utf-8")
    assert book.main(["--root", str(tree)]) == 0
    html = (tree / "_build/html/book/index.html").read_text(encoding="utf-8")
    row = re.search(r"<tr[^>]*><td><p><code.*?</tr>", html, re.S).group()
    assert 'href="../chapters/one.html#ex-twice"' in row
    values = [re.sub(r"<[^>]+>", "", c) for c in re.findall(r"<td>(.*?)</td>", row)]
    assert values == ["one:1", "Twice", "2", "7", "written", "4"]


# ---- the finished pages --------------------------------------------------------------


class Tags(HTMLParser):
    """The anchors of a page, and every tag with its attributes."""

    def __init__(self, html: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        self.anchors.update(found[key] for key in ("id", "name") if found.get(key))


def dead_links(folder: Path) -> list[str]:
    """Every link inside the site that leads to no file or to no anchor."""
    pages = {
        path.resolve(): Tags(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
        if "_static" not in path.parts
    }
    dead = []
    for path, content in pages.items():
        for tag, attributes in content.tags:
            for target in (attributes.get("href"), attributes.get("src")):
                if not target or tag == "base":
                    continue
                parts = urlsplit(target)
                if parts.scheme or parts.netloc:
                    continue
                file = (path.parent / unquote(parts.path)).resolve()
                file = file if parts.path else path
                known = pages.get(file)
                anchor = unquote(parts.fragment)
                if not file.is_file() or (
                    known and anchor and anchor not in known.anchors
                ):
                    dead.append(f"{path.relative_to(folder.resolve())}: {target}")
    return dead


def test_the_link_checker_finds_what_it_should(tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x"><a href="#y"><a href="b.html"><a href="a.html#x">'
        '<img src="none.png"><a href="https://a.example/none">',
        encoding="utf-8",
    )
    assert dead_links(tmp_path) == [
        "a.html: #y",
        "a.html: b.html",
        "a.html: none.png",
    ]


@pytest.fixture(scope="module")
def html() -> Path:
    """The finished book, built first if it is missing or stale."""
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    return ROOT / "_build/html"


def test_every_link_inside_the_site_resolves(html: Path):
    assert dead_links(html) == []


def test_no_page_loads_anything_from_outside(html: Path):
    for path in html.rglob("*.html"):
        for tag, attributes in Tags(path.read_text(encoding="utf-8")).tags:
            if tag in ("script", "img", "iframe", "source", "video", "audio"):
                loaded = attributes.get("src", "")
            elif tag == "link" and attributes.get("rel") not in ("canonical", None):
                loaded = attributes.get("href", "")
            else:
                continue
            parts = urlsplit(loaded)
            assert parts.scheme in ("", "data"), f"{path}: {loaded}"
            assert not parts.netloc, f"{path}: {loaded}"


def test_nothing_is_left_of_the_live_code_extension(html: Path):
    assert not list(html.rglob("*thebe*"))
    for path in html.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "thebe.js" not in text
        assert "THEBE_JS_URL" not in text
        assert "x-thebe-config" not in text


def test_the_first_page_leads_into_the_book(html: Path):
    tags = Tags((html / "index.html").read_text(encoding="utf-8")).tags
    target = next(a["href"] for tag, a in tags if tag == "a")
    assert (html / target).is_file()
    refresh = next(a["content"] for t, a in tags if a.get("http-equiv") == "refresh")
    assert refresh.endswith(f"url={target}")


def test_only_pages_of_the_contents_are_published(html: Path):
    found = {
        path.relative_to(html).with_suffix("").as_posix()
        for folder in ("book", "chapters")
        for path in (html / folder).rglob("*.html")
    }
    assert found == set(pages_in_order())


def test_each_chapter_offers_the_notebook_of_the_repository(html: Path):
    for name in pages_in_order():
        if name.startswith("chapters/"):
            stem = name.removeprefix("chapters/")
            copy = html / "notebooks" / f"{stem}.ipynb"
            original = ROOT / "notebooks" / f"{stem}.ipynb"
            assert copy.read_bytes() == original.read_bytes()
