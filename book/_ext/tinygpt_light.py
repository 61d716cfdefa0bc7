"""Leave out of the finished site what its pages never use.

A first visit loads everything that a page names, whether it needs it or not. The theme
and the extensions name much that this book does without: icons by the thousand, styles
for parts that no page has, the search index on pages that do not search, MathJax with
its menu. This extension runs last and takes it out:

* style rules that wait for a class which nothing in the site carries;
* icons that no page shows, from the icon fonts;
* the scripts of the search, except on the page that searches;
* the parts of MathJax, of the theme and of their translations that nothing loads;
* marks around code that have no look of their own, and names that occur twice.

Whatever it looks for and does not find is a warning, so that a new version of a theme
cannot quietly bring the weight back.
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

# What MathJax's loader fetches for the settings in _config.yml, and nothing else.
MATHJAX = (
    "startup.js",
    "core.js",
    "input/tex-base.js",
    "input/tex/extensions/ams.js",
    "output/chtml.js",
    "output/chtml/fonts/tex.js",
    "a11y/assistive-mml.js",
)
# Styles of others; book.css is ours, and holds what we use.
STYLES = (
    "styles/pydata-sphinx-theme.css",
    "styles/sphinx-book-theme.css",
    "basic.css",
    "exercise.css",
    "mystnb*.css",
    "proof.css",
    "pygments.css",
    "sphinx-design.min.css",
    "togglebutton.css",
)
# Nothing loads these: translations of messages, maps for debuggers, leftovers.
UNUSED = (
    "locales",
    "scripts/*.map",
    "styles/*.map",
    "scripts/fontawesome.js*",
    "*webpack-macros.html",
    "file.png",
    "minus.png",
    "plus.png",
)
# Classes that Bootstrap's script writes, for the parts of it that the theme uses.
WRITTEN_BY_BOOTSTRAP = (
    *("active", "collapse", "collapsing", "disabled", "fade", "show", "showing"),
    *("tooltip", "tooltip-arrow", "tooltip-inner", "bs-tooltip-auto", "dropdown-menu"),
    *("bs-tooltip-top", "bs-tooltip-bottom", "bs-tooltip-start", "bs-tooltip-end"),
)
SEARCH_SCRIPT = re.compile(
    r'[ \t]*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*">'
    r"</script>\n"
)
ICON_SCRIPT = re.compile(r"[ \t]*<script defer src=\"[^\"]*fontawesome\.js[^\n]*\n")
CITATIONS = '<div class="citation-list">'
# A summary may hold no paragraph; its words become a span, and the styles follow.
SUMMARY = re.compile(r"summary( ?> ?)p\b")
TAB_SCRIPT = re.compile(r"[ \t]*<script [^>]*design-tabs\.js[^>]*></script>\n")
# Names that the extensions for proofs and exercises give to each of their boxes alike.
REPEATED_NAMES = ("proof", "proof-content", "exercise-content", "solution-content")
REPEATED = re.compile(rf' id="(?:{"|".join(REPEATED_NAMES)})"')
# A private area of Unicode, in which icon fonts keep their glyphs: escaped, or as such.
ICONS = re.compile("\\\\(e[0-9a-f]{3}|f[0-8][0-9a-f]{2})\\b|([\ue000-\uf8ff])", re.I)


# ---- styles --------------------------------------------------------------------------


def selector_classes(selector: str) -> set[str]:
    """The classes that an element and its ancestors must carry for a selector to match.

    What stands in parentheses names alternatives or exceptions, and is not looked at.

    >>> sorted(selector_classes("ul.nav > li.active:not(.x) a"))
    ['active', 'nav']
    """
    plain, depth = [], 0
    for letter in selector:
        depth += letter == "("
        if not depth:
            plain.append(letter)
        depth -= letter == ")"
    found = re.findall(r"\.((?:[\w-]|\\.)+)", re.sub(r"\[[^]]*\]", "", "".join(plain)))
    return {name.replace("\\", "") for name in found}


def split_selectors(prelude: str) -> list[str]:
    """The selectors of a rule, cut at the commas outside parentheses."""
    parts, depth = [""], 0
    for letter in prelude:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def lighter_style(css: str, known: set[str]) -> str:
    """A style sheet without the rules that wait for a class which is not known.

    >>> lighter_style(".a,.b .c{color:red} @media print{.d{top:0}} p{top:0}", {"a"})
    '.a{color:red}p{top:0}'
    """
    nodes = tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True)
    return "".join(_lighter_rules(nodes, known))


def _lighter_rules(nodes: Iterable, known: set[str]) -> Iterator[str]:
    for node in nodes:
        if node.type == "qualified-rule":
            prelude = tinycss2.serialize(node.prelude)
            kept = [s for s in split_selectors(prelude) if selector_classes(s) <= known]
            if kept:
                yield f"{','.join(kept)}{{{tinycss2.serialize(node.content)}}}"
        elif node.type == "at-rule" and node.lower_at_keyword in ("media", "supports"):
            inner = tinycss2.parse_rule_list(
                node.content, skip_comments=True, skip_whitespace=True
            )
            rules = "".join(_lighter_rules(inner, known))
            if rules:
                prelude = tinycss2.serialize(node.prelude).strip()
                yield f"@{node.at_keyword} {prelude}{{{rules}}}"
        else:
            yield tinycss2.serialize([node])


def known_classes(outdir: Path) -> set[str]:
    """Every class that a page carries or that a script may write."""
    known = set(WRITTEN_BY_BOOTSTRAP)
    for path in outdir.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for value in re.findall(r"""class=["']([^"']*)["']""", text):
            known.update(value.split())
    for path in (outdir / "_static").rglob("*.js"):
        parts = path.relative_to(outdir / "_static").parts
        if parts[0] in ("mathjax", "locales", "vendor") or path.stem == "bootstrap":
            continue
        known.update(re.findall(r"[A-Za-z_][\w-]*", path.read_text(encoding="utf-8")))
    return known


def lighten_styles(outdir: Path) -> None:
    """Take the rules that can match nothing out of the styles of others."""
    known = known_classes(outdir)
    for pattern in STYLES:
        paths = list((outdir / "_static").glob(pattern))
        if not paths and pattern != "mystnb*.css":
            _missing(pattern)
        for path in paths:
            css = lighter_style(path.read_text(encoding="utf-8"), known)
            path.write_text(css, encoding="utf-8")


# ---- icons ---------------------------------------------------------------------------


def lighten_icons(outdir: Path) -> None:
    """Keep in each icon font the icons that the remaining styles name."""
    static = outdir / "_static"
    theme = static / "styles/pydata-sphinx-theme.css"
    css = theme.read_text(encoding="utf-8")
    named = "".join(p.read_text(encoding="utf-8") for p in static.rglob("*.css"))
    used = {int(code, 16) if code else ord(it) for code, it in ICONS.findall(named)}
    fonts = sorted((static / "vendor/fontawesome").rglob("*.ttf"))
    if not fonts:
        _missing("fonts of icons")
    for path in fonts:
        with TTFont(path, recalcTimestamp=False) as font:
            options = subset.Options()
            options.layout_features, options.hinting = [], False
            cutter = subset.Subsetter(options)
            cutter.populate(unicodes=used)
            cutter.subset(font)
            font.flavor = "woff"
            font.save(path.with_suffix(".woff"))
        name = re.escape(path.stem)
        css, count = re.subn(
            rf"src:url\(([^()]*{name})\.woff2\)[^;}}]*",
            r'src:url(\1.woff) format("woff")',
            css,
        )
        if not count:
            _missing(f"{path.stem} in the theme's style")
        path.unlink()
        path.with_suffix(".woff2").unlink(missing_ok=True)
    theme.write_text(css, encoding="utf-8")


# ---- pages ---------------------------------------------------------------------------


def bare_classes(css: str) -> set[str]:
    """The marks of highlighted code whose colour is that of the code around them."""
    colours: dict[str, set[tuple[str, str]]] = {}
    base = dict(
        re.findall(r'theme="(\w+)"\] \.highlight \{[^}]*\bcolor: (#\w+)', css),
    )
    rules = re.findall(r'theme="(\w+)"\] \.highlight \.(\w+) \{ ([^}]*) \}', css)
    for theme, name, look in rules:
        colours.setdefault(name, set()).add((theme, look))
    plain = {(theme, f"color: {colour}") for theme, colour in base.items()}
    return {name for name, looks in colours.items() if looks == plain}


def lighten_page(text: str, bare: set[str], searches: bool) -> str:
    """One page without scripts that it does not need and marks that show nothing."""
    if not searches:
        text = SEARCH_SCRIPT.sub("", text)
    text = ICON_SCRIPT.sub("", text)
    if "sd-tab-set" not in text:
        text = TAB_SCRIPT.sub("", text)
    if bare:
        marks = "|".join(sorted(bare))
        text = re.sub(rf'<span class="(?:{marks})">([^<]*)</span>', r"\1", text)
        # A dot is as plain, though the highlighter calls it an operator.
        text = text.replace('<span class="o">.</span>', ".")
    text = REPEATED.sub("", text)
    # Entries of a bibliography have a role of their own, and are no list's items.
    text = text.replace('<div role="list" class="citation-list">', CITATIONS)
    return re.sub(
        r'<p class="(collapsed|expanded) admonition-title">([^<]*)</p>',
        r'<span class="\1 admonition-title">\2</span>',
        text,
    )


def lighten(app, exception) -> None:
    """Lighten the finished site; the last thing that the build does."""
    if exception is not None or app.builder.name != "html":
        return
    outdir, static = Path(app.outdir), Path(app.outdir, "_static")
    for pattern in UNUSED:
        found = list(static.glob(pattern))
        if not found:
            _missing(pattern)
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in sorted((static / "mathjax").rglob("*.js")):
        if path.relative_to(static / "mathjax").as_posix() not in MATHJAX:
            path.unlink()
    bare = bare_classes((static / "pygments.css").read_text(encoding="utf-8"))
    if not bare:
        _missing("plain marks in pygments.css")
    for path in outdir.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        searches = path.name == "search.html"
        path.write_text(lighten_page(text, bare, searches), encoding="utf-8")
    lighten_styles(outdir)
    lighten_icons(outdir)
    for path in static.rglob("*.css"):
        css = path.read_text(encoding="utf-8")
        path.write_text(SUMMARY.sub(r"summary\1span", css), encoding="utf-8")


def _missing(what: str) -> None:
    LOGGER.warning(
        "tinygpt_light: %s is not there to be made lighter", what, type="tinygpt"
    )


def choose_mathjax(app, config) -> None:
    """Load MathJax part by part, as ``mathjax3_config`` in _config.yml says."""
    config.mathjax_path = "mathjax/startup.js"


def setup(app):
    app.connect("config-inited", choose_mathjax)
    app.connect("build-finished", lighten, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
