"""Grade a made-up class and photograph what comes out, for the instructors' page.

Usage: ``python -m tools.example_class``

It writes an assignment of three exercises, answers it for three invented students,
grades them as ``make grade`` does, and writes ``book/figures/grading-*.png``. The page
is in the edition without solutions, too: the report that is shown belongs to a student
whose answers are wrong, and has no message of a hidden check.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import copy
import csv
import html
import re
import shutil
import subprocess

import nbformat

from tools.assignments import marker
from tools.exercises import Exercise, read_exercises
from tools.pages import ROOT, read_page
from tools.screenshots import LAUNCH_ARGS, find_browser

NAME = "week3"
PICK = ("lecture5:1,4", "step5:1")
PAGES = ("lecture5-architecture", "step5-gpt")
COPIES = '''def tie(model):
    """The numbers are equal now, and drift apart in training."""
    model.head.weight.data.copy_(model.tok.weight.data)
    return model
'''
SCALES = '''def rms_jacobian(u, eps):
    """Dividing by a number has this derivative."""
    return torch.eye(len(u)) / torch.rms(u, eps)
'''
# What each student hands in, by exercise: the solution, nothing, or an answer.
CLASS = {
    "Mara Lindqvist": {"ex-l5-rmsnorm": "solution", "ex-step5-tie": "solution"},
    "Tomas Okafor": {"ex-l5-rmsnorm": SCALES, "ex-step5-tie": COPIES},
    "Yuki Brandt": {"ex-step5-tie": "solution"},
}
WORDS = "I chose the first two rows, and predict that a longer run separates them."
WIDTH = 860

PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><style>
body {{ margin: 0; padding: 14px 18px; font: 14px/1.45 system-ui, sans-serif;
 background: #fff; color: #1f2933; }}
pre {{ margin: 0; font: 13px/1.5 "DejaVu Sans Mono", monospace;
 white-space: pre-wrap; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 4px 10px; border: 1px solid #d8dee4; text-align: left;
 vertical-align: top; }}
th {{ background: #f5f8fa; }}
</style>{body}</html>"""


def run(*words: str) -> str:
    """Run one of the press's commands; gives what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, text=True, capture_output=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def hand_in(release: Path, folder: Path, answers: dict[str, str]) -> None:
    """Fill a copy of the release with a student's answers."""
    exercises = {
        exercise.label: exercise
        for page in PAGES
        for exercise in read_exercises(read_page(ROOT / "chapters" / f"{page}.md"))
    }
    folder.mkdir(parents=True)
    for path in sorted(release.glob("*.ipynb")):
        node = copy.deepcopy(nbformat.read(path, as_version=4))
        for cell in node.cells:
            for label, exercise in exercises.items():
                if marker(label) in cell.source:
                    answer(cell, exercise, answers.get(label, ""))
        nbformat.write(node, folder / path.name)


def answer(cell, exercise: Exercise, text: str) -> None:
    """Put an answer into its cell, below the line by which it is known."""
    head = cell.source.split("\n", 1)[0]
    if exercise.kind == "written":
        cell.source = f"{head}\n\n{WORDS}"
    elif text:
        source = exercise.solution[0] if text == "solution" else text
        source = re.sub(r"\n+try_check\(.*\)\n*", "\n", source)
        cell.source = f"{head}\n{source}"


def photograph(pages: dict[str, str]) -> None:
    """Write one picture of each page, as high as it is, at most 900 pixels."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=LAUNCH_ARGS
        )
        for name, text in pages.items():
            page = browser.new_page(
                viewport={"width": WIDTH, "height": 100}, color_scheme="light"
            )
            page.set_content(text)
            height = page.evaluate("document.documentElement.scrollHeight")
            page.set_viewport_size({"width": WIDTH, "height": min(height, 900)})
            page.screenshot(path=ROOT / "book" / "figures" / f"grading-{name}.png")
        browser.close()


def main() -> int:
    build = ROOT / "_build" / "example-class"
    shutil.rmtree(build, ignore_errors=True)
    courses, out = build / "assignments", build / "grades"
    made = run(
        *("tools.assignments", "--pick", *PICK, "--name", NAME, "--out", str(courses))
    )
    for student, answers in CLASS.items():
        release = courses / NAME / "release" / NAME
        hand_in(release, build / "submissions" / student, answers)
    graded = run(
        *("tools.grade", str(build / "submissions"), "--courses", str(courses)),
        *("--out", str(out)),
    )
    pick = " ".join(PICK)
    said = f'$ make assignments PICK="{pick}" NAME={NAME}\n{made}\n'
    said += f"$ make grade SUBMISSIONS=submissions\n{graded}"
    said = said.replace(str(courses), "_build/assignments")
    said = said.replace(str(out), f"_build/grades/{NAME}")
    with (out / "marks.csv").open(encoding="utf-8", newline="") as file:
        rows = [[html.escape(value) for value in row] for row in csv.reader(file)]
    cells = [f"<tr><th>{'<th>'.join(rows[0])}"]
    cells += [f"<tr><td>{'<td>'.join(row)}" for row in rows[1:]]
    report = next((out / "reports").glob("Tomas*.html")).read_text(encoding="utf-8")
    photograph(
        {
            "terminal": PAGE.format(body=f"<pre>{html.escape(said)}</pre>"),
            "marks": PAGE.format(body=f"<table>{''.join(cells)}</table>"),
            "report": report,
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
