"""What stands around a page: its facts, its sentence, its cover, its colours."""

import doctest
import html as entities
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tinygpt_pages

from tools import book, numbers
from tools.pages import ROOT, front_matter, read_page

CSS = (ROOT / "book/_static/book.css").read_text(encoding="utf-8")


SENTENCES = tinygpt_pages.sentences(ROOT)
CHAPTERS = [page for page in SENTENCES if page.startswith("chapters/")]


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    """The text of every finished page, by its name."""
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    folder = ROOT / "_build/html"
    return {
        page: (folder / f"{page}.html").read_text(encoding="utf-8")
        for page in SENTENCES
    }


def text_of(markup: str) -> str:
    """The text of a piece of HTML."""
    return entities.unescape(re.sub(r"<[^>]+>", "", markup))


# ---- the parts -----------------------------------------------------------------------


def test_the_examples_in_the_extension_hold():
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner()
    for test in finder.find(tinygpt_pages, "tinygpt_pages"):
        runner.run(test)
    assert runner.tries == 4
    assert runner.failures == 0


def test_front_matter_is_read_where_there_is_one():
    assert front_matter("---\na: {b: 1}\n---\n\n# T\n\n---\nc: 2\n---\n") == {
        "a": {"b": 1}
    }
    assert front_matter("# T\n\n---\na: 1\n---\n") == {}
    assert front_matter("---\n---\n# T\n") == {}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.01, "about a second"),
        (1.6, "about 2 seconds"),
        (9.4, "about 9 seconds"),
        (12.5, "about 10 seconds"),
        (18, "about 20 seconds"),
        (57.4, "about 55 seconds"),
        (89, "about a minute"),
        (91, "about 2 minutes"),
        (600, "about 10 minutes"),
    ],
)
def test_a_run_time_is_said_as_a_person_would(seconds, said):
    assert tinygpt_pages.run_time(seconds) == said


def test_a_page_that_was_not_run_states_its_time_budget():
    assert tinygpt_pages.running(21.0, 90) == "runs in about 20 seconds"
    assert tinygpt_pages.running(None, 90) == "90 minutes to work through"
    assert tinygpt_pages.running(None, None) == ""


@pytest.mark.parametrize(
    "comment",
    [
        *("(B, T, d)", "(V,)", "(B, T + 1)", "(..., V)", "(n - n / parts,)"),
        *("(3d, d)", "(B, k e)", "(n // 2,)", "(texts, steps)", "(T, 1) each"),
    ],
)
def test_a_shape_in_a_comment_is_marked(comment):
    body = f'<pre>x <span class="c1"># {comment}</span>\n</pre>'
    marked = tinygpt_pages.mark_shapes(body)
    assert marked.count('<span class="tg-shape">(') == 1
    assert text_of(marked) == text_of(body)


@pytest.mark.parametrize(
    "comment",
    [
        *("slow (but exact)", "as before (see above)", "(quick and dirty)"),
        *("one of two (quick, dirty)", "(a sentence, with a comma)", "()", "(d)"),
    ],
)
def test_brackets_that_are_no_shape_are_left_alone(comment):
    body = f'<pre><span class="c1"># {comment}</span></pre>'
    assert tinygpt_pages.mark_shapes(body) == body


def test_only_comments_are_looked_at():
    body = '<p>(B, T, d)</p><span class="s2">&quot;# (B, T, d)&quot;</span>'
    assert tinygpt_pages.mark_shapes(body) == body


# ---- the finished pages --------------------------------------------------------------


@pytest.mark.parametrize("page", SENTENCES)
def test_each_page_says_how_long_it_takes(page, site):
    lines = re.findall(r'<li class="tg-fact">(.*?)</li>', site[page])
    assert re.fullmatch(r"[1-9]\d* minutes? to read", lines[0])
    links = re.findall(r'<li class="tg-action">(.*?)</li>', site[page])
    if page not in CHAPTERS:
        assert lines[1:] == links == []
        return
    (running,) = lines[1:]
    assert re.match(r"runs in about (a|[1-9]\d*) (second|minute)", running)
    names = ["Open in Colab", "Download notebook", "Suggest an edit", "Source"]
    assert [text_of(link) for link in links] == names
    assert f"notebooks/{Path(page).name}.ipynb" in links[0]
    assert f"{page}.md" in links[2]


def test_folded_text_and_code_are_not_read(site):
    """The longest page is not the one with the most code."""
    minutes = {
        page: int(re.search(r'<li class="tg-fact">(\d+)', text)[1])
        for page, text in site.items()
    }
    prose = len((ROOT / "chapters/setup.md").read_text(encoding="utf-8").split())
    assert 1 <= minutes["chapters/setup"] <= prose / tinygpt_pages.WORDS_A_MINUTE
    assert minutes["book/status"] == 1


def test_the_foot_of_a_page_says_what_its_neighbours_build(site):
    names = list(SENTENCES)
    for number, page in enumerate(names):
        found = re.findall(
            r'<p class="prev-next-title">(.*?)<span class="tg-sentence">(.*?)</span>',
            site[page],
            re.S,
        )
        wanted = [
            SENTENCES[names[near]]
            for near in (number - 1, number + 1)
            if 0 <= near < len(names)
        ]
        assert [entities.unescape(says) for _, says in found] == wanted
        assert all(text_of(title).strip() for title, _ in found)


def test_the_first_page_lists_every_other_with_its_sentence(site):
    listed = re.findall(
        r'href="([^"]+)\.html"[^>]*><span class="doc">[^<]*</span></a></dt>\s*'
        r"<dd><p>(.*?)</p>",
        site["book/index"],
    )
    names = {
        (f"book/{link}" if "/" not in link else link.removeprefix("../")): text_of(says)
        for link, says in listed
    }
    assert names == {k: v for k, v in SENTENCES.items() if k != "book/index"}


def test_sentences_differ():
    assert len(set(SENTENCES.values())) == len(SENTENCES)


def test_shapes_are_marked_on_the_pages_that_make_tensors(site):
    marked = {page: text.count('class="tg-shape"') for page, text in site.items()}
    assert sum(count > 0 for count in marked.values()) >= 15
    assert marked["chapters/step5-gpt"] >= 10


def test_margin_notes_stand_on_many_pages_and_carry_sums(site):
    notes = [
        text_of(note)
        for text in site.values()
        for note in re.findall(r'<aside class="margin[^>]*>(.*?)</aside>', text, re.S)
    ]
    assert len(notes) >= 12
    assert all(list(numbers.text_sums(note)) for note in notes)


# ---- the cover -----------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def cover() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "book/figures/cover.svg").getroot()


def test_each_plate_of_the_cover_is_as_thick_as_its_parameters():
    plates = [g for g in cover().iter(f"{SVG}g") if g.get("class") == "plate"]
    assert len(plates) == 10
    scale = [
        float(plate.get("data-thickness")) / int(plate.get("data-parameters"))
        for plate in plates
    ]
    assert max(scale) < 1.05 * min(scale)
    for plate in plates:
        side = plate.find(f"{SVG}path").get("d")  # M x y L x y V below L x y Z
        y = [float(word.strip("MLVZ")) for word in side.split()[1:-1]]
        drawn = y[3] - y[2]
        assert drawn == pytest.approx(float(plate.get("data-thickness")), abs=0.02)


def test_the_numbers_of_the_cover_are_printed_by_step_5():
    page = read_page(ROOT / "chapters/step5-gpt.md")
    known = numbers.known_numbers(page, ROOT / "notebooks")
    root = cover()
    texts = [" ".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    texts.append(root.find(f"{SVG}desc").text)
    found = [n for text in texts for n in numbers.text_numerals(text)]
    assert {"262,656", "65"} <= {n.text for n in found}
    assert [n.text for n in found if not n.structural and not n.proven_by(known)] == []
    plates = [g for g in root.iter(f"{SVG}g") if g.get("class") == "plate"]
    total = sum(int(plate.get("data-parameters")) for plate in plates)
    norms = 2048  # too thin for plates of their own; the cover names them
    assert "2,048" in " ".join(texts)
    caption = (ROOT / "book/index.md").read_text(encoding="utf-8")
    assert f"{total + norms:,}" in caption


def test_the_cover_takes_its_colours_from_the_style_sheet(site):
    text = (ROOT / "book/figures/cover.svg").read_text(encoding="utf-8")
    hues = re.findall(r'(?:fill|stroke)="([^"]+)"', text)
    plain = {hue for hue in hues if not hue.startswith("var(--tg-")}
    assert plain <= {"none", "#ffffff"}
    for name, colour in set(re.findall(r"var\((--tg-[\w-]+), (#\w+)\)", text)):
        assert f"{name}: {colour};" in CSS
    assert '<svg xmlns="http://www.w3.org/2000/svg"' in site["book/index"]
    assert 'role="img"' in text
    assert "<title" in text
    assert "<desc" in text


# ---- colours and faces ---------------------------------------------------------------


def palette(theme: str) -> dict[str, str]:
    """The custom properties of one theme that are plain colours."""
    shared = re.search(r":root \{(.*?)\n\}", CSS, re.S)[1]
    own = re.search(rf'html\[data-theme="{theme}"\] \{{(.*?)\n\}}', CSS, re.S)[1]
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", shared + own))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2 between two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_measured_as_the_guidelines_say():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_is_legible_on_every_ground_it_stands_on(theme):
    hue = palette(theme)
    grounds = ["paper", "code", "interview", "exercise", "theory", "warn", "shape"]
    pairs = [(ink, ground) for ink in ("ink", "quiet") for ground in grounds]
    pairs += [(f"{kind}-ink", kind) for kind in ("interview", "exercise", "theory")]
    pairs += [("warn-ink", "warn"), ("theory-ink", "shape"), ("theory-ink", "paper")]
    pale = [
        f"{ink} on {ground}"
        for ink, ground in pairs
        if contrast(hue[f"--tg-{ink}"], hue[f"--tg-{ground}"]) < 4.5
    ]
    assert pale == []
    for ground in grounds:
        assert contrast(hue["--pst-color-link"], hue[f"--tg-{ground}"]) >= 4.5, ground


def test_the_faces_lie_in_the_book_with_their_licence():
    files = re.findall(r'url\("([^"]+)"\)', CSS)
    assert len(files) == 4
    folder = ROOT / "book/_static"
    for name in files:
        assert (folder / name).read_bytes()[:4] == b"wOF2"
        assert (folder / name).stat().st_size < 60_000
    licence = (folder / "fonts/LICENSE.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE" in licence
    assert sorted(p.name for p in (folder / "fonts").glob("*.woff2")) == sorted(
        Path(name).name for name in files
    )


class Nesting(HTMLParser):
    """Where each element of a class stands: the tags and classes around it."""

    def __init__(self, markup: str, wanted: str):
        super().__init__()
        self.wanted, self.stack, self.found = wanted, [], []
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        classes = (dict(attrs).get("class") or "").split()
        if self.wanted in classes:
            self.found.append([tag for tag, _ in self.stack])
        if tag not in ("img", "br", "hr", "meta", "link", "input", "path", "wbr"):
            self.stack.append((tag, classes))

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass


def test_the_line_below_the_title_stands_in_the_article(site):
    for page in ("book/index", "chapters/setup", "book/glossary"):
        (around,) = Nesting(site[page], "tg-facts").found
        assert "article" in around


def test_the_picture_of_a_figure_opens_alone(site):
    for page, text in site.items():
        shown = re.findall(
            r'<figure[^>]*>\s*(?:<a [^>]*>)?<img [^>]*src="([^"]+)"', text
        )
        opened = re.findall(r'<a class="tg-picture" href="([^"]+)"><img ', text)
        assert opened == shown, page
    assert site["chapters/step5-gpt"].count("tg-picture") == 3
