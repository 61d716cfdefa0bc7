"""Every MyST construct of the pages becomes the plain Markdown that we expect."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.markdown import Library, Rewriter
from tools.pages import PageError

SITE = "https://example.org/tinygpt"
REPOSITORY = "https://github.com/example/tinygpt"
RAW = "https://raw.githubusercontent.com/example/tinygpt/main"
HERE = f"{SITE}/chapters/here.html"
THERE = f"{SITE}/chapters/there.html"
SOURCES = f"{SITE}/book/bibliography.html"

FRONT = """---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3}
---
"""

PLACES = """# Another page

(sec-there)=
## A *far* section

$$ y = 2 $$ (eq-there)

```{exercise} Count
:label: ex-there
Count.
```

{#by-id}
## By its identifier

(bare)=
Only a paragraph.
"""

GLOSSARY = """# Glossary

```{glossary}
logit
: A score.
```

::::{grid} 2
:::{grid-item-card} Card
{unknown-role}`x`
:::
::::
"""

REFERENCES = """
@article{one, author = {van der Berg, Ann}, year = {2001}, title = {A}}
@article{two, author = {Bell, Bo and {OpenAI}}, year = {2002}, title = {B}}
@article{many, author = {M\\"uller, A and B, B and C, C}, year = {2003}, title = {C}}
"""


@pytest.fixture
def rewrite(tmp_path: Path) -> Callable[[str], str]:
    """Rewrite a page's text beside another page, a glossary and a bibliography."""
    for folder in ("chapters", "book/figures", "data"):
        (tmp_path / folder).mkdir(parents=True)
    write = {
        "pyproject.toml": (
            f'[tool.tinygpt]\nrepository = "{REPOSITORY}"\nbranch = "main"\n'
            f'site = "{SITE}"\n'
        ),
        "chapters/there.md": FRONT + PLACES,
        "book/glossary.md": GLOSSARY,
        "book/references.bib": REFERENCES,
        "book/figures/block.svg": "<svg/>",
        "data/list.json": "{}",
    }
    for name, text in write.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def run(text: str) -> str:
        path = tmp_path / "chapters" / "here.md"
        path.write_text(FRONT + text, encoding="utf-8")
        library = Library(tmp_path)
        rewriter = Rewriter(library, "chapters/here", library.pages["chapters/here"])
        parts = []
        for cell, markdown, caption in rewriter.run():
            parts.append(markdown if cell.kind == "markdown" else f"<{cell.source}>")
            parts.append(caption)
        return "\n\n".join(part for part in parts if part)

    return run


UNTOUCHED = [
    "# Title\n\n## Section `code` *two*",
    "Two lines\nof one paragraph, with `{eq}` and `` {ref}`x` `` and \\{ref}`x`.",
    "Inline $x_{a} * y_{b}*$ mathematics, {set} and {1, 2}.",
    "$$y$$",
    "$$\nx = \\begin{cases} 1 \\\\ 2 \\end{cases}\n$$",
    "- one\n- two\n  - nested\n\n    paragraph\n- three\n\nText.",
    "1. one\n   more\n2. two\n\n   ```python\n   x = {eq}\n   ```",
    "> quoted\n> twice\n\n---",
    "| a | b |\n|---|:-:|\n| $|x|$ | `a\\|b` |",
    "```python\n# {ref}`untouched`\n:::{note}\n```",
    "    indented {ref}`code`",
    "[text](https://example.com/a_(b)) and <https://example.com>",
    "Text[^n] goes on.\n\n[^n]: The note\n    goes on.",
    '<img src="https://example.com/x.png">',
]

REWRITTEN = {
    "target": ("(label)=\n## Section", "## Section"),
    "comment": ("One\n% not seen\nTwo\n\n<!-- nor this -->", "One\n\nTwo"),
    "block attributes": ("{#id .cls}\nText.", "Text."),
    "span attributes": ("A [word]{.cls} and `x`{.python}.", "A word and `x`."),
    "numbered equation": (
        "$$\nx = 1\n$$ (eq-a)\n\nBy {eq}`eq-a` and {eq}`eq-b`.\n\n"
        "```{math}\n:label: eq-b\nz\n```",
        "$$\nx = 1 \\tag{1}\n$$\n\nBy (1) and (2).\n\n$$\nz \\tag{2}\n$$",
    ),
    "equation in a list": (
        "- item\n\n  $$x$$ (eq-a)\n- by {eq}`eq-a`",
        "- item\n\n  $$\n  x \\tag{1}\n  $$\n- by (1)",
    ),
    "equation elsewhere": (
        "By {eq}`eq-there`.",
        f"By [(1) of “Another page”]({THERE}#equation-eq-there).",
    ),
    "lines of an equation": (
        "$$\na \\\\\nb\n$$",
        "$$\n\\begin{aligned}\na \\\\\nb\n\\end{aligned}\n$$",
    ),
    "mathematics environment": (
        "\\begin{align*}\nx &= 1 \\\\\ny &= 2\n\\end{align*}\n\nAfter.",
        "$$\n\\begin{aligned}\nx &= 1 \\\\\ny &= 2\n\\end{aligned}\n$$\n\nAfter.",
    ),
    "figure": (
        "```{figure} ../book/figures/block.svg\n:name: fig-a\n:alt: A block.\n"
        ":width: 80%\nWhat *is* a block?\n\nA legend.\n```\n\nSee {numref}`fig-a`, "
        "{numref}`Fig. %s <fig-a>` and {ref}`there <fig-a>`.",
        f"![A block.]({RAW}/book/figures/block.svg)\n\n**Figure 1.** What *is* a "
        f"block?\n\nA legend.\n\nSee [Figure 1]({HERE}#fig-a), "
        f"[Fig. 1]({HERE}#fig-a) and [there]({HERE}#fig-a).",
    ),
    "image": (
        "```{image} /book/figures/block.svg\n:alt: A block.\n```\n\n"
        "![again](../book/figures/block.svg){width=300px}",
        f"![A block.]({RAW}/book/figures/block.svg)\n\n"
        f"![again]({RAW}/book/figures/block.svg)",
    ),
    "figure of a code cell": (
        "```{code-cell} python\n---\nmystnb:\n  figure:\n    caption: Does {eq}`eq-a` "
        "hold?\n    name: fig-b\n---\nplot()\n```\n\nIn {numref}`fig-b`.\n\n"
        "$$x$$ (eq-a)",
        f"<plot()>\n\n**Figure 1.** Does (1) hold?\n\nIn [Figure 1]({HERE}#fig-b).\n\n"
        "$$\nx \\tag{1}\n$$",
    ),
    "references": (
        "{ref}`sec-there`, {ref}`text <sec-there>`, {ref}`p <bare>`, {numref}`by-id`",
        f"[A *far* section]({THERE}#sec-there), [text]({THERE}#sec-there), "
        f"[p]({THERE}#bare), [By its identifier]({THERE}#by-id)",
    ),
    "links": (
        "[t](#sec-there), [](#sec-there), [](sec-there), [o](there.md), [](there.md), "
        "[**b** {term}`logit`](there.md#by-id), [](../book/glossary.md)",
        f"[t]({THERE}#sec-there), [A *far* section]({THERE}#sec-there), "
        f"[A *far* section]({THERE}#sec-there), [o]({THERE}), [Another page]({THERE}), "
        f"[**b** logit]({THERE}#by-id), [Glossary]({SITE}/book/glossary.html)",
    ),
    "reference link": (
        "See [that][far].\n\n[far]: there.md#sec-there",
        f"See [that][far].\n\n[far]: {THERE}#sec-there",
    ),
    "file": (
        "[list](../data/list.json), {download}`the list <../data/list.json>`",
        f"[list]({REPOSITORY}/blob/main/data/list.json), "
        f"[the list]({REPOSITORY}/blob/main/data/list.json)",
    ),
    "document": (
        "{doc}`there`, {doc}`/book/glossary`, {doc}`words </book/glossary>`",
        f"[Another page]({THERE}), [Glossary]({SITE}/book/glossary.html), "
        f"[words]({SITE}/book/glossary.html)",
    ),
    "words": (
        "{term}`Logits <logit>`, {term}`logit`, {index}`bytes <single: byte>`, "
        "{sub}`2`, {sup}`3`, {kbd}`Esc`, {abbr}`LM (language model)`, {math}`x`, "
        "{code}`y`",
        "Logits, logit, bytes, <sub>2</sub>, <sup>3</sup>, <kbd>Esc</kbd>, "
        "LM (language model), $x$, `y`",
    ),
    "index": (
        "Before.\n\n```{index} single: token\n```\n\nAfter.",
        "Before.\n\nAfter.",
    ),
    "citations": (
        "{cite:t}`many` and {cite:p}`one,two` and {cite}`two`",
        f"[Müller et al. (2003)]({SOURCES}) and "
        f"([van der Berg, 2001]({SOURCES}); [Bell and OpenAI, 2002]({SOURCES})) and "
        f"([Bell and OpenAI, 2002]({SOURCES}))",
    ),
    "table": (
        "```{table} Sizes\n:name: tab-a\n\n| n | by |\n|---|---|\n| 1 | {kbd}`x|y` |\n"
        "```\n\nIn {numref}`tab-a`.",
        "**Table 1.** Sizes\n\n| n | by |\n|---|---|\n| 1 | {kbd}`x|y` |\n\n"
        f"In [Table 1]({HERE}#tab-a).",
    ),
    "role in a table": (
        "| a | b |\n|---|--:|\n| {term}`logit` | `x\\|y` |",
        "| a | b |\n|---|--:|\n| logit | `x\\|y` |",
    ),
    "list table": (
        "```{list-table} Sizes\n:header-rows: 1\n\n* - A\n  - B\n* - x | y\n"
        "  - {term}`logit`\n```",
        "**Table 1.** Sizes\n\n| A | B |\n| --- | --- |\n| x \\| y | logit |",
    ),
    "admonitions": (
        ":::{admonition} Why $x$?\n:class: interview\nBecause.\n\n- a\n:::\n\n"
        "```{note} At once\nand more\n```\n\n```{seealso}\nThat.\n```",
        "> **Why $x$?**\n>\n> Because.\n>\n> - a\n\n> **Note**\n>\n> At once\n"
        "> and more\n\n> **See also**\n>\n> That.",
    ),
    "nested boxes": (
        "::::{tip}\n:::{warning}\nDeep {term}`logit`.\n:::\n::::",
        "> **Tip**\n>\n> > **Warning**\n> >\n> > Deep logit.",
    ),
    "box in a list": (
        "- item\n\n  ```{tip}\n  Inside.\n  ```\n- next",
        "- item\n\n  > **Tip**\n  >\n  > Inside.\n- next",
    ),
    "box in a quote": ("> ```{tip}\n> In.\n> ```", "> > **Tip**\n> >\n> > In."),
    "dropdown": (
        ":::{dropdown} More on `x` & *y*\nHidden.\n:::",
        "<details>\n<summary>More on <code>x</code> &amp; <em>y</em></summary>\n\n"
        "Hidden.\n\n</details>",
    ),
    "folded admonition": (
        ":::{admonition} More\n:class: dropdown\nHidden.\n:::",
        "<details>\n<summary>More</summary>\n\nHidden.\n\n</details>",
    ),
    "live figure": (
        "```{live} generation\n:title: It writes\n:model: ch02\nA *table*.\n```",
        f"A *table*.\n\n*Alive on the page of the book: [It writes]({HERE}).*",
    ),
    "margin": ("```{margin} Aside\nSmall.\n```", "> **Aside**\n>\n> Small."),
    "margin without a title": ("```{margin}\nSmall.\n```", "> Small."),
    "margin before a paragraph": (
        "Before.\n\n```{margin} 4 × 2 = 8\nSmall, *really*.\n```\n\nAfter.",
        "Before.\n\n> **4 × 2 = 8**\n>\n> Small, *really*.\n\nAfter.",
    ),
    "theorem and proof": (
        "```{prf:theorem} Count\n:label: thm-a\nSo.\n```\n\n```{prf:proof}\nTrue.\n"
        "```\n\n```{prf:definition}\nD.\n```\n\n```{prf:theorem}\nT.\n```\n\n"
        "By {prf:ref}`thm-a`.",
        "> **Theorem 1 (Count)**\n>\n> So.\n\n> **Proof.**\n>\n> True.\n\n"
        "> **Definition 1**\n>\n> D.\n\n> **Theorem 2**\n>\n> T.\n\n"
        f"By [Theorem 1]({HERE}#thm-a).",
    ),
    "exercise and solution": (
        "```{exercise} Trade\n:label: ex-a\nTry.\n```\n\n```{solution} ex-a\nDone.\n"
        "```\n\n{ref}`ex-a`, {numref}`ex-there`",
        "> **Exercise 1 (Trade)**\n>\n> Try.\n\n<details>\n<summary>Solution to "
        "Exercise 1</summary>\n\nDone.\n\n</details>\n\n"
        f"[Exercise 1]({HERE}#ex-a), [Exercise 1 of “Another page”]({THERE}#ex-there)",
    ),
    "gated exercise over cells": (
        "```{exercise-start} Gated\n:label: ex-a\n```\nFirst.\n\n"
        "```{code-cell} python\nx\n```\n\nSecond.\n\n```{exercise-end}\n```\n\nAfter.",
        "> **Exercise 1 (Gated)**\n>\n> First.\n\n<x>\n\n> Second.\n\nAfter.",
    ),
    "gated solution over cells": (
        "```{solution-start} ex-there\n```\nFirst.\n\n```{code-cell} python\nx\n```\n\n"
        "```{solution-end}\n```",
        "#### Solution to Exercise 1\n\nFirst.\n\n<x>\n\n"
        "#### End of the solution to Exercise 1",
    ),
    "gated solution of text": (
        "```{solution-start} ex-there\n```\nFirst.\n\n- a\n\n```{solution-end}\n```",
        "<details>\n<summary>Solution to Exercise 1</summary>\n\nFirst.\n\n- a\n\n"
        "</details>",
    ),
    "only": (
        "```{only} html\nSeen.\n```\n\n```{only} latex\nUnseen.\n```",
        "Seen.",
    ),
    "code block": (
        "````{code-block} python\n:caption: One line\nx = '```'\n````",
        "**One line**\n\n````python\nx = '```'\n````",
    ),
    "definition list": (
        "Term\n: What *it* is\n\n  and more.\n: Else\n\nOther\n: {term}`logit`",
        "**Term**\n\nWhat *it* is\n\nand more.\n\nElse\n\n**Other**\n\nlogit",
    ),
    "footnote": (
        "Text[^n].\n\n[^n]: By {term}`logit`.",
        "Text[^n].\n\n[^n]: By logit.",
    ),
}

# The page's text begins on line 5 of the file, below the front matter.
WRONG = {
    "directive": ("Text.\n\n```{mystery} x\n```", "line 7: unknown directive"),
    "nested directive": (
        "::::{note}\nText.\n\n:::{mystery}\n:::\n::::",
        "line 8: unknown directive '{mystery}'",
    ),
    "directive in a list": (
        "- a\n- b\n\n  ```{mystery}\n  ```",
        "line 8: unknown directive '{mystery}'",
    ),
    "code cell in a box": (
        ":::{note}\n```{code-cell} python\nx\n```\n:::",
        "line 6: unknown directive '{code-cell}'",
    ),
    "role": ("Text\nand {mystery}`x`.", "line 6: unknown role '{mystery}'"),
    "role in a heading": ("# Title\n\n## {mystery}`x`", "line 7: unknown role"),
    "role in a caption": (
        "```{code-cell} python\n---\nmystnb: {figure: {caption: '{mystery}`x`'}}\n---\n"
        "x\n```",
        "unknown role '{mystery}'",
    ),
    "role in a table": (
        "| a |\n|---|\n| b |\n| {mystery}`x` |",
        "line 8: unknown role",
    ),
    "citation style": ("{cite:odd}`one`", "line 5: unknown role '{cite:odd}'"),
    "citation": ("{cite:t}`none`", "line 5: book/references.bib has no entry 'none'"),
    "label": ("\n\nSee {ref}`none`.", "line 7: no page defines the label 'none'"),
    "equation": ("{eq}`sec-there`", "line 5: 'sec-there' is no equation"),
    "reference without text": ("{ref}`bare`", "line 5: the reference to 'bare'"),
    "link": ("[x](none.md)", "line 5: no page, file or label 'none.md'"),
    "link out of the tree": ("[x](../../etc)", "line 5: no page, file or label"),
    "image": ("![x](none.svg)", "line 5: no image 'none.svg'"),
    "unclosed box": ("Text.\n\n```{note}\nText.", "line 7: the block {note} is never"),
    "broken fence": ("```{note} `x`\nText.\n```", "line 5: this opens no block"),
    "nameless colon fence": (":::\nText.\n:::", "line 5: unknown directive"),
    "display in a paragraph": ("Text\n$$\nx\n$$\nmore", "line 5: '$$' inside"),
    "environment": (
        "\\begin{eqnarray}\nx\n\\end{eqnarray}",
        "line 5: unknown mathematics environment",
    ),
    "edition": ("```{only} braille\nx\n```", "line 5: unknown edition 'braille'"),
    "ragged table": (
        "```{list-table}\n* - a\n  - b\n* - c\n```",
        "line 5: the rows of the table differ",
    ),
    "solution of nothing": ("```{solution} none\n```", "line 5: no page defines"),
    "solution of a section": ("```{solution} sec-there\n```", "is no exercise"),
    "gate never ended": (
        "```{exercise-start}\n:label: e\n```\nText.",
        "line 5: 'exercise-start' is never ended",
    ),
    "gate never started": (
        "Text.\n\n```{solution-end}\n```",
        "line 7: 'solution-end' without a 'solution-start'",
    ),
    "gate in a gate": (
        "```{exercise-start}\n```\n\n```{exercise-start}\n```",
        "line 8: 'exercise-start' inside the exercise that starts on line 5",
    ),
    "gate in a box": (
        "::::{note}\n:::{exercise-start}\n:::\n::::",
        "line 6: 'exercise-start' stands at the top level",
    ),
    "label twice": (
        "(sec-there)=\n## Again",
        "the label 'sec-there' is already taken at",
    ),
}


@pytest.mark.parametrize("text", UNTOUCHED)
def test_plain_markdown_is_passed_on_as_it_is(rewrite: Callable, text: str):
    assert rewrite(text) == text


@pytest.mark.parametrize(("text", "expected"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(rewrite: Callable, text: str, expected: str):
    assert rewrite(text) == expected


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_wrong_or_unknown_is_an_error_with_page_and_line(
    rewrite: Callable, text: str, message: str
):
    with pytest.raises(PageError) as caught:
        rewrite(text)
    assert "chapters/" in str(caught.value)
    assert message in str(caught.value)


def test_what_was_rewritten_is_plain_for_a_second_reading(rewrite: Callable):
    """No result holds a construct that would be rewritten once more."""
    for text, expected in REWRITTEN.values():
        if "{kbd}" not in text and "<plot()>" not in expected and "<x>" not in expected:
            once = rewrite(text)
            assert rewrite(once) == once
