"""The check of the numerals: what it accepts, what it catches, and where it points."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import numbers
from tools.pages import ROOT

FRONT = """---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3}
"""


@pytest.fixture
def check(tmp_path, capsys):
    """Check a page with this prose, whose one code cell printed this output."""

    def run(prose, output="", code="run()", allow=None, tags=(), options=""):
        chapters, notebooks = tmp_path / "chapters", tmp_path / "notebooks"
        chapters.mkdir(exist_ok=True)
        notebooks.mkdir(exist_ok=True)
        settings = "".join(f"    {k}: {v}\n" for k, v in (allow or {}).items())
        front = FRONT + (f"tinygpt:\n  numbers:\n{settings}" if allow else "") + "---\n"
        cell = f"```{{code-cell}} python\n{options}{code}\n```\n"
        (chapters / "x.md").write_text(f"{front}\n{prose}\n\n{cell}", encoding="utf-8")
        notebook = nbformat.v4.new_notebook()
        code_cell = nbformat.v4.new_code_cell(code, metadata={"tags": list(tags)})
        code_cell.outputs = [nbformat.v4.new_output("stream", text=output)]
        notebook.cells = [code_cell]
        nbformat.write(notebook, notebooks / "x.ipynb")
        status = numbers.main(["--root", str(tmp_path)])
        findings = capsys.readouterr().out.splitlines()
        assert status == (0 if findings[0].startswith("numbers: every") else 1)
        return findings if status else []

    return run


def test_a_numeral_that_nothing_prints_is_named_with_page_line_and_sentence(check):
    findings = check("# Title\n\nFirst line.\nThe loss is 6.99 now. It fell.", "6.238")
    assert findings == [
        "chapters/x.md, line 9: 6.99 in 'The loss is 6.99 now.' "
        "is printed nowhere on the page"
    ]


PROVEN = [
    ("The loss is 6.238.", "loss 6.238"),
    ("About 6.24, say 6.2 or 6.", "loss 6.238"),
    ("Of 1,115,394 characters.", "1115394"),
    ("Of 1115394 characters.", "1,115,394 characters"),
    ("That is 1.1 MB, or 1.1 million.", "1,115,394"),
    ("It grew by 23% (23 percent).", "0.2344"),
    ("It grew by 23%, that is 0.23.", "23%"),
    ("The change is -5.1 or −5.1, a fall of 5.1.", "-5.13"),
    ("A rate of 3e-3, or 0.003.", "3e-03"),
    ("Between 256–263.", "256 263"),
    ("It took .34 of it.", "0.34"),
    ("We get $6{,}607$ and $0.02$.", "6607 0.02"),
    (r"A share of $23\%$.", "23%"),
    ("That makes $2^{10}$, $10^6$ and $10^{-5}$.", "1024 1000000 1e-5"),
    (r"So $2.6 \times 10^5$ of them.", "262912"),
    ("$$\nx = 42\n$$ (eq-x)", "42"),
    ("The shape `(2, 6, 64)`.", "(2, 6, 64)"),
    ("A 128-wide model.", "128"),
    ("It has 300 kB, or 300kB.", "300,000"),
]


@pytest.mark.parametrize(("prose", "output"), PROVEN)
def test_a_printed_number_proves_its_roundings(check, prose, output):
    assert check(prose, output) == []


@pytest.mark.parametrize(("prose", "output"), PROVEN)
def test_the_same_prose_without_its_output_is_caught(check, prose, output):
    assert check(prose) != []


@pytest.mark.parametrize(
    ("prose", "output"),
    [
        ("The loss is 6.23.", "6.238"),  # cut off, not rounded
        ("The loss is 6.2380.", "6.238"),  # more digits than were printed
        ("Half, 0.50.", "0.5"),
        ("It is 1,115,395.", "1,115,394"),
        ("It fell by -5.1.", "5.1"),
        ("It is 817.", "817e632a6846"),  # a hash proves nothing
        ("There are 2048 tokens, or 2,048.", "2047"),
        ("Each has 24%.", "0.2344"),
        ("We trained 70B and 117M.", ""),
        ("See `block_size = 77`.", ""),
        ("After step 350 it turns.", ""),
        ("| a | 77 |\n|---|---|\n| b | 3 |", "3"),
        ("> A quoted 77.", ""),
        ("- A listed 77.", ""),
        ("A [link with 77](https://example.org/5).", ""),
        ("## A heading with 77\n", ""),
        ("![a picture of 77 cats](x.png)", ""),
        ("```{note}\n:class: tip\nThere are 77.\n```", ""),
        (":::{exercise} Find 77\n:label: ex-5\nDo.\n:::", ""),
        ("```{figure} 5.svg\n:alt: A bar at 77\n:name: fig-5\n\nWhat?\n```", ""),
        ("```{figure} 5.svg\n:name: fig-5\n\nIs it 77?\n```", ""),
        ("```{math}\n:label: eq-5\nx = 77\n```", ""),
        ("An {math}`x_{77}` index.", ""),
        ("Three is 3.", ""),
    ],
)
def test_what_is_not_proven_is_caught(check, prose, output):
    assert len(check(prose, output)) >= 1


@pytest.mark.parametrize(
    "prose",
    [
        "# 5. A numbered heading",
        "## 3.4 A numbered heading",
        "7. a list\n8. goes on",
        "> 7) quoted",
        "In 1865, and since 2017. The (1986) method of the 1990s.",
        "On 12 June 2017, on June 12, and on 2017-06-12.",
        "The 3rd, the 12th, the 21st.",
        "Section 3, Chapter 4, Figures 5 and 6, Steps 3-8, Exercise 3.5, Eq. 7.",
        "We need Python 3.10, torch 2.13.0, Llama 3, GPT-4 and SHA-256.",
        "UTF-8 and float32, `utf-8`, `float32`, `int64`, `data/ch02/a.txt`.",
        "The 6N rule of a 7B model in 3D, 4x faster.",
        "None, 0, 1 or 2, not words such as three.",
        "[a link](https://example.org/55), <https://example.org/66>, https://a.b/77",
        "A note[^5]. <span style='width:55px'>Text</span>",
        "<!-- 55 lines\nof comment 66 -->\n\n% 77 comments\n\n(label-55)=\nText.",
        "```python\nx = 55\n```",
        "~~~\n55\n~~~",
        "````{note}\n```\n55\n```\n````",
        "```{index} single: 55\n```",
        "```{figure} 55.svg\n:width: 55%\n:name: fig-55\n\nWhat?\n```",
        "See {ref}`text 55 <sec-55>` and {eq}`eq-55`.",
        r"With $x_1$, $W_3$, $d^3$, $\frac{1}{4}$, $i+5$, $3^4$ and $4d$.",
        "$$\nx = 4 y \\label{eq-55}\n$$ (eq-66)",
        "It reached 28.4 in the original {cite:p}`vaswani`.",
        "{cite:t}`vaswani` train for 300,000 steps.",
    ],
)
def test_structure_names_dates_and_cited_sentences_need_no_proof(check, prose):
    assert check(prose) == []


def test_a_citation_vouches_for_its_own_sentence_only(check):
    prose = "We see 6.99. They see 28.4 {cite:p}`x`. We see 7.99."
    findings = check(prose)
    assert [finding.split(": ")[1][:4] for finding in findings] == ["6.99", "7.99"]


def test_a_number_in_the_code_proves_the_prose(check):
    code = "model = GPT(width=64, rate=-5, ratio=8 / 3, size=10_000, p=0.5)"
    prose = "Width 64, rate -5, ratio 2.67, 10,000 of them, p = 0.50, or 50%."
    assert check(prose, code=code) == []


def test_a_number_in_a_comment_or_a_string_proves_nothing(check):
    code = 'def f():\n    """Returns 55."""\n    return "66"  # 77'
    assert len(check("We see 55, 66 and 77.", code=code)) == 3


def test_the_output_of_a_cell_that_is_not_compared_proves_nothing(check):
    prose = "It took 4.31 seconds."
    assert check(prose, "4.31 s", tags=["nbval-ignore-output"]) != []
    assert check(prose, "4.31 s", tags=["nbval-ignore-output", "chaotic"]) == []


def test_captions_and_alt_texts_are_prose_and_findings_name_their_line(check):
    options = (
        "---\nmystnb:\n  figure:\n    caption: Does it reach 77?\n    name: fig-55\n"
        "  image:\n    alt: |\n      A line that ends at 88.\n---\n"
    )
    findings = check("Text.", options=options)
    text = "is printed nowhere on the page"
    assert findings == [
        f"chapters/x.md, line 12: 77 in 'Does it reach 77?' {text}",
        f"chapters/x.md, line 15: 88 in 'A line that ends at 88.' {text}",
    ]


SUMS = [
    ("816,640 parameters × 4 bytes = 3.3 MB.", "816640 4"),
    ("816,640 × 4 bytes = 3,266,560.", "816640 4"),
    ("1,003,853 pairs ÷ 4,225 cells = 238 each.", "1003853 4225"),
    ("4,096 characters × 5,000 steps ÷ 1,003,854 = 20.", "4096 5000 1003854"),
    ("816,640 − 8,320 = 808,320.", "816640 8320"),
    ("17 heads + 8 heads = 25.", "17 8"),
    ("3.3 MB ÷ 4 bytes = 825,000.", "3.3 4"),
]


@pytest.mark.parametrize(("prose", "printed"), SUMS)
def test_a_sum_proves_its_result(check, prose, printed):
    assert check(f"# T\n\n```{{margin}} Note\n{prose}\n```", printed) == []


@pytest.mark.parametrize(("prose", "printed"), SUMS)
def test_a_sum_of_numbers_that_nothing_prints_is_caught(check, prose, printed):
    assert check(f"# T\n\n{prose}", "none")


@pytest.mark.parametrize(
    "prose",
    [
        "816,640 parameters × 4 bytes = 3.2 MB.",
        "816,640 ÷ 4 = 204,161.",
        "816,640 − 4 = 816,640.",
        "816,640 ÷ 0 = 4.",
    ],
)
def test_a_sum_that_does_not_hold_is_caught_even_if_its_result_is_printed(check, prose):
    (finding,) = check(f"# T\n\n{prose}", "816640 4 3.2 204161")
    assert finding.startswith("chapters/x.md, line 8: the sum '")
    assert "does not hold" in finding


def test_what_a_sum_proves_the_text_below_may_use_and_that_above_may_not(check):
    total, later = "17 × 20 = 340.", "So 340 again."
    assert check(f"# T\n\n{total}\n\n{later}", "17 20") == []
    assert len(check(f"# T\n\n{later}\n\n{total}", "17 20")) == 1


def test_the_pages_own_list_allows_a_numeral(check):
    allow = {'"117"': '"a made-up example"', '"1,500"': '"another one"'}
    assert check("Say 117 of 1,500 people.", allow=allow) == []


def test_an_entry_of_the_list_that_is_not_needed_is_an_error(check):
    allow = {'"117"': '"a made-up example"'}
    for prose, output in (("No numeral.", ""), ("There are 117.", "117")):
        (finding,) = check(prose, output, allow=allow)
        assert "entry '117'" in finding
        assert "not needed" in finding


@pytest.mark.parametrize(
    ("entry", "reason", "complaint"),
    [
        ('"117"', '""', "needs a reason"),
        ("0.50", '"x"', "not a numeral in quotes"),
        ('"many"', '"x"', "not a numeral in quotes"),
    ],
)
def test_a_bad_entry_of_the_list_is_an_error(check, entry, reason, complaint):
    findings = check("Text.", allow={entry: reason})
    assert any(complaint in finding for finding in findings)


def test_a_missing_notebook_is_an_error(tmp_path, capsys):
    (tmp_path / "chapters").mkdir()
    page = FRONT + "---\n\nText.\n\n```{code-cell} python\nrun()\n```\n"
    (tmp_path / "chapters" / "x.md").write_text(page, encoding="utf-8")
    assert numbers.main(["--root", str(tmp_path)]) == 1
    assert "notebooks/x.ipynb is missing" in capsys.readouterr().out


def test_a_page_without_code_needs_no_notebook(tmp_path, capsys):
    (tmp_path / "chapters").mkdir()
    page = FRONT + "---\n\nTheory proves 42.\n"
    (tmp_path / "chapters" / "x.md").write_text(page, encoding="utf-8")
    assert numbers.main(["--root", str(tmp_path)]) == 1
    assert "line 6: 42 in" in capsys.readouterr().out


def test_the_tool_runs_as_a_script_although_its_name_is_a_standard_module(tmp_path):
    (tmp_path / "chapters").mkdir()
    script = Path(ROOT) / "tools" / "numbers.py"
    command = [sys.executable, str(script), "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_numeral_of_the_book_is_proven(capsys):
    assert numbers.main([]) == 0, capsys.readouterr().out
