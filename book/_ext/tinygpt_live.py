"""Live figures: a static figure in the page, and an ES module that brings it to life.

``{live} generation`` marks a place. Its content is what stands there without
JavaScript, in print and in the notebook; ``book/_static/live/live.js`` puts the module
``book/_static/live/generation.js`` in its place once the reader scrolls near it. The
options become the module's: ``:title:`` names the region for screen readers, any other
option (``:model: ch02``) becomes a ``data-`` attribute.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

sys.path.append(str(Path(__file__).resolve().parents[2]))

OPTIONS = ("model", "view")
# Modules whose ``write(root, folder)`` puts the figures' data into a folder.
WRITERS = ("tools.live_models", "tools.live_run", "tools.live_tokens")


class LiveFigure(nodes.General, nodes.Element):
    """The place of one live figure; its children are the static one."""


class Live(SphinxDirective):
    """A static figure that a module brings to life: ``{live} NAME``."""

    required_arguments = 1
    has_content = True
    option_spec = {"title": directives.unchanged_required} | dict.fromkeys(
        OPTIONS, directives.unchanged_required
    )

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        module = Path(self.env.app.srcdir, "book", "_static", "live", f"{name}.js")
        if not module.is_file():
            raise self.error(f"{{live}} {name}: there is no {module.name} in live/")
        if "title" not in self.options:
            raise self.error(f"{{live}} {name} has no :title:")
        if not self.content:
            raise self.error(f"{{live}} {name} has no static figure as its content")
        place = LiveFigure("", live=name, **self.options)
        self.env.metadata[self.env.docname]["live"] = True
        self.set_source_info(place)
        self.state.nested_parse(self.content, self.content_offset, place)
        return [place]


def open_html(translator, node: LiveFigure) -> None:
    data = {
        f"data-{key}": node[key] for key in ("live", *OPTIONS) if key in node.attributes
    }
    translator.body.append(
        translator.starttag(
            node, "section", CLASS="live", **{"aria-label": node["title"]}, **data
        )
        + '<div class="live-static">'
    )


def close_html(translator, node: LiveFigure) -> None:
    translator.body.append("</div></section>\n")


def pass_by(translator, node: LiveFigure) -> None:
    """Other formats show the static figure and nothing around it."""


def writers() -> Iterator[ModuleType]:
    """The modules that write data. A book without live figures never imports them."""
    return map(import_module, WRITERS)


def write_data(app, exception) -> None:
    """Put what the live figures read into ``_static/live/data`` of the site.

    A book without live figures needs no data, and no package to make it with.
    """
    alive = any("live" in page for page in app.env.metadata.values())
    if exception is None and app.builder.name == "html" and alive:
        folder = Path(app.outdir, "_static", "live", "data")
        folder.mkdir(parents=True, exist_ok=True)
        for module in writers():
            module.write(Path(app.srcdir), folder)


def add_styles(app, page, template, context, doctree) -> None:
    """A figure with a style sheet of its own brings it to the pages where it stands."""
    figures = doctree.findall(LiveFigure) if doctree else ()
    for name in sorted({figure["live"] for figure in figures}):
        if Path(app.srcdir, "book", "_static", "live", f"{name}.css").is_file():
            app.add_css_file(f"live/{name}.css")


def setup(app):
    app.connect("build-finished", write_data, priority=600)
    app.connect("html-page-context", add_styles)
    app.add_directive("live", Live)
    app.add_node(
        LiveFigure,
        html=(open_html, close_html),
        latex=(pass_by, pass_by),
        text=(pass_by, pass_by),
    )
    app.add_css_file("live/live.css")
    app.add_js_file("live/live.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
