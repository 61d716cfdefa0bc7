"""The report that a student gets: one HTML file that asks for nothing else.

It shows the marks, what the visible check said, the student's own answer, and of a
hidden check the message of the assertion that failed, if it is one that the check can
say. It never shows a check's source, or what was printed while a hidden check ran.
"""

import ast
import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.grade import Result

CODE = 20_000  # characters of an answer
PRINTED = 2_000
HOLE = 80  # characters that a value may take in a hidden check's message
FOR_INSTRUCTORS = "look at it"

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto;
 padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; padding: .2rem 1rem .2rem 0; }}
td:last-child, th:last-child {{ text-align: right; }}
pre {{ overflow-x: auto; padding: .7rem; border: 1px solid #8888; border-radius: 4px; }}
img {{ max-width: 100%; background: #fff; }}
h2 {{ margin-top: 2.5rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write_report(
    path: Path, name: str, shown: str, results: "list[Result]", remarks: list[str]
) -> None:
    """Write one student's report."""
    parts = [_items(remarks), _table(results)]
    parts += [_section(result) for result in results]
    title = _text(f"{name}: {shown}")
    page = PAGE.format(title=title, body="\n".join(filter(None, parts)))
    path.write_text(page, encoding="utf-8", newline="\n")


def _text(text: str) -> str:
    return html.escape(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text), quote=True)


def _items(lines: list[str]) -> str:
    kept = [line for line in lines if not line.startswith(FOR_INSTRUCTORS)]
    items = "".join(f"<li>{_text(line[0].upper() + line[1:])}</li>" for line in kept)
    return f"<ul>{items}</ul>" if items else ""


def _table(results: "list[Result]") -> str:
    rows = [
        f"<tr><td>{_text(result.task.title)}</td><td>{_mark(result)}</td></tr>"
        for result in results
    ]
    total, most = sum(r.score for r in results), sum(r.most for r in results)
    rows.append(f"<tr><th>Total</th><th>{total:g} of {most:g}</th></tr>")
    return f"<table>\n{chr(10).join(rows)}\n</table>"


def _mark(result: "Result") -> str:
    if result.waits:
        return "to be marked"
    return f"{result.score:g} of {result.most:g}"


def _section(result: "Result") -> str:
    task = result.task
    parts = [f"<h2>{_text(task.title)}: {_mark(result)}</h2>", _items(result.notes)]
    comments = [mark.comment for mark in result.marks if mark.comment]
    if task.kind == "code":
        said = [
            f"The check that you have: {visible_words(task.part('check'))}",
            f"The further checks: {hidden_words(task.part('hidden'))}",
        ]
        parts += [f"<p>{_text(line)}</p>" for line in said]
    parts += [f"<p>{_text(comment)}</p>" for comment in comments]
    parts.append("<h3>Your answer</h3>")
    for cell in task.cells:
        if cell.metadata.tinygpt.part in ("helper", "answer"):
            parts.append(f"<pre>{_text(_cut(cell.source, CODE))}</pre>")
            if cell.metadata.tinygpt.part == "answer":
                parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n".join(filter(None, parts))


def _output(output: dict) -> str:
    """What an answer's own cell printed or drew."""
    kind = output["output_type"]
    if kind == "stream":
        return f"<pre>{_text(_cut(output['text'], PRINTED))}</pre>"
    if kind == "error":
        message = f"{output['ename']}: {output['evalue']}"
        return f"<pre>{_text(_cut(message, PRINTED))}</pre>"
    data = output.get("data", {})
    picture = str(data.get("image/png", "")).replace("\n", "")
    if re.fullmatch(r"[A-Za-z0-9+/=]+", picture):
        return (
            f'<img alt="A figure of this answer" src="data:image/png;base64,{picture}">'
        )
    return f"<pre>{_text(_cut(data.get('text/plain', ''), PRINTED))}</pre>"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}\n[... cut]"


# -- what the checks said --------------------------------------------------------------


def _failure(cell: dict) -> tuple[str, str] | None:
    """The error of a check's cell, as its name and message; none if it passed."""
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            return output["ename"], output["evalue"]
    return None


def visible_words(cell: dict) -> str:
    """What the visible check said, in words."""
    failure = _failure(cell)
    if failure is None:
        return "passed."
    name, message = failure
    if name in ("Stopped", "NotAnswered", "AssertionError"):
        return f"not passed. {_cut(message, PRINTED)}"
    if name == "NotImplementedError":
        return "not passed. The function is still to be written."
    return f"not passed. It stopped with {name}: {_cut(message, PRINTED)}"


def hidden_words(cell: dict) -> str:
    """What a hidden check said: a message of its own, or the kind of the error."""
    failure = _failure(cell)
    if failure is None:
        return "passed."
    name, message = failure
    if name in ("Stopped", "NotAnswered"):
        return f"not passed. {message}"
    if name == "AssertionError":
        if any(re.fullmatch(p, message, re.S) for p in messages_of(cell["source"])):
            return f"not passed. {message}"
        return "not passed."
    kind = name if re.fullmatch(r"\w{1,40}", name) else "an error"
    return f"not passed. It stopped with {kind}."


def messages_of(source: str) -> list[str]:
    """Patterns of the messages that a check's assertions can give.

    A value in a message may come from the student's code: it takes a few characters.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assert):
            continue
        match node.msg:
            case ast.Constant(value=str(text)):
                found.append(re.escape(text))
            case ast.JoinedStr(values=parts):
                found.append(
                    "".join(
                        re.escape(part.value)
                        if isinstance(part, ast.Constant)
                        else f".{{0,{HOLE}}}"
                        for part in parts
                    )
                )
            case ast.AST():
                found.append(f".{{0,{HOLE}}}")
    return found
