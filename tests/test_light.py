"""The finished site is made lighter, and nothing that it uses is lost."""

import pytest
import tinygpt_light as light
from fontTools.ttLib import TTFont

from tools import book
from tools.pages import ROOT

STATIC = ROOT / "_build/html/_static"


@pytest.mark.parametrize(
    ("selector", "classes"),
    [
        ("p", set()),
        (".a .b > c.d", {"a", "b", "d"}),
        ("a:not(.x).y", {"y"}),
        (":is(.a, .b) .c", {"c"}),
        ("[href='x.pdf'] .a", {"a"}),
        (".sm\\:a", {"sm:a"}),
        ("h1:hover::before", set()),
    ],
)
def test_a_selector_s_classes_are_found(selector, classes):
    assert light.selector_classes(selector) == classes


def test_a_rule_stays_if_one_of_its_selectors_can_match():
    css = ".gone,.kept:is(.x,.y){color:red}.gone{top:0}@media print{.gone{top:0}}"
    assert light.lighter_style(css, {"kept"}) == ".kept:is(.x,.y){color:red}"


def test_what_is_no_rule_of_a_class_stays():
    css = '@charset "a";@font-face{src:url(a)}@keyframes k{from{top:0}}p{top:0}'
    assert light.lighter_style(css, set()) == css


def test_a_nested_rule_stays_in_its_condition():
    css = "@media (min-width:9px){.a{top:0}.b{top:0}}"
    assert light.lighter_style(css, {"b"}) == "@media (min-width:9px){.b{top:0}}"


def test_only_the_page_that_searches_loads_the_index():
    text = '<script src="../searchindex.js"></script>\n<p>x</p>'
    assert light.lighten_page(text, set(), searches=False) == "<p>x</p>"
    assert light.lighten_page(text, set(), searches=True) == text


def test_marks_of_plain_code_are_unwrapped_and_the_code_stays():
    text = '<span class="n">a</span><span class="o">+</span><span class="n">b</span>'
    found = light.lighten_page(text, {"n"}, searches=False)
    assert found == 'a<span class="o">+</span>b'


def test_marks_are_plain_only_where_they_are_so_in_both_schemes():
    rule = 'html[data-theme="{}"] .highlight {}{{ {} }}'
    css = "\n".join(
        [
            rule.format("light", "", "background: #fff; color: #000000"),
            rule.format("dark", "", "background: #000; color: #ffffff"),
            rule.format("light", ".n ", "color: #000000"),
            rule.format("dark", ".n ", "color: #ffffff"),
            rule.format("light", ".k ", "color: #000000"),
            rule.format("dark", ".k ", "color: #abcdef"),
        ]
    )
    assert light.bare_classes(css) == {"n"}


@pytest.fixture(scope="module")
def static():
    assert book.main(["--if-changed"]) == 0, "the book does not build"
    return STATIC


def test_the_icon_fonts_hold_the_icons_that_are_named(static):
    fonts = sorted((static / "vendor/fontawesome").rglob("*.woff"))
    assert fonts
    held = set()
    for path in fonts:
        assert path.stat().st_size < 10_000
        with TTFont(path) as font:
            held |= set(font.getBestCmap())
    css = (static / "styles/pydata-sphinx-theme.css").read_text(encoding="utf-8")
    named = {
        int(code, 16) if code else ord(it) for code, it in light.ICONS.findall(css)
    }
    assert len(named) > 5
    assert named <= held
    assert 0xF019 in held  # the download button's


def test_nothing_of_mathjax_is_published_that_is_not_loaded(static):
    scripts = {
        path.relative_to(static / "mathjax").as_posix()
        for path in (static / "mathjax").rglob("*.js")
    }
    assert scripts == set(light.MATHJAX)
