"""Grade what students handed in: ``make grade SUBMISSIONS=folder``.

The folder holds ``STUDENT/*.ipynb`` or ``STUDENT.ipynb`` for each student. The marks
come through nbgrader, into the gradebook of the assignment's course folder;
``_build/grades/NAME`` gets ``marks.csv`` and a report for each student that needs no
network. Whatever a student hands in, the others are graded all the same.

Each exercise runs in a kernel of its own, isolated from the machine, the network, the
course and the other students (``tools.sandbox`` says how, and what that does not
promise). First the student's cells run, then the check that students know, and last the
hidden one, of which neither the source nor what is printed meanwhile reaches a report.
An exercise that loops, crashes or eats memory is stopped and scores nothing.

``--collect`` runs nothing. It writes the marks and the reports of everybody graded so
far, with what a person marked in formgrader, which is opened in the course folder,
``_build/assignments/NAME``.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import csv
import json
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Integer

from tools.assignments import marker
from tools.course import CourseError, Mark, autograde, marks, name_student
from tools.notebooks import serialise
from tools.pages import ROOT
from tools.report import write_report
from tools.sandbox import MEBI, Limits, available, kernel_manager
from tools.submissions import (
    STUDENTS_CELL,
    Submission,
    Task,
    canonical,
    read_submissions,
    tasks_of,
)

SHOWN = 20_000  # characters of one cell's output
PICTURES = 2 * MEBI
STARTUP = 120  # seconds for a kernel and its set-up cell
STARTS = 4  # kernels for one exercise: a helper cell that kills one is left out


# -- running ---------------------------------------------------------------------------


class _Client(NotebookClient):
    """Runs cells and keeps of what they print only text and pictures, and not much."""

    def process_message(self, msg: dict, cell: NotebookNode, index: int) -> Any:
        kind, content = msg["msg_type"], msg["content"]
        if kind.startswith("comm") or kind == "update_display_data":
            return None
        if kind in ("stream", "display_data", "execute_result", "error"):
            room = SHOWN - sum(len(str(o.get("text", ""))) for o in cell.outputs)
            if kind == "stream":
                if room <= 0:
                    return None
                text = content["text"]
                cut = "\n[... the rest is left out]\n" if len(text) > room else ""
                content["text"] = text[:room] + cut
            elif kind != "error":
                if len(cell.outputs) > 50 or not _trim(content):
                    return None
            elif len(cell.outputs) > 60:
                return None
        return super().process_message(msg, cell, index)


def _trim(content: dict) -> bool:
    """Leave of a displayed thing its text and picture; False when nothing is left."""
    data = content.get("data", {})
    kept = {}
    if isinstance(text := data.get("text/plain"), str):
        kept["text/plain"] = text[:SHOWN]
    picture = data.get("image/png")
    if isinstance(picture, str) and len(picture) < PICTURES:
        kept["image/png"] = picture
    content["data"], content["metadata"] = kept, {}
    return bool(kept)


class _Watch(threading.Thread):
    """Kills a kernel that fills the one folder which it shares with this side."""

    def __init__(self, folder: Path, limits: Limits, manager: Any) -> None:
        super().__init__(daemon=True)
        self.folder, self.limits, self.manager = folder, limits, manager
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            sizes = [p.lstat().st_blocks * 512 for p in self.folder.rglob("*")]
            if sum(sizes) > self.limits.file_mebibytes * MEBI or len(sizes) > 1000:
                process = getattr(self.manager.provisioner, "process", None)
                if process:
                    process.kill()
                return


class Stopped(Exception):
    """Why a kernel can run no more cells of an exercise, in words."""


class Isolated(NbGraderPreprocessor):
    """nbgrader's step that runs a notebook: each exercise in an isolated kernel."""

    isolated = Bool(True, help="Run kernels in the sandbox").tag(config=True)
    seconds = Integer(Limits.seconds, help="Time for one exercise").tag(config=True)
    mebibytes = Integer(Limits.mebibytes, help="Memory of a kernel").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple:
        if self.isolated and (reason := available(ROOT)):
            raise RuntimeError(f"no isolation: {reason}")
        limits = Limits(seconds=self.seconds, mebibytes=self.mebibytes)
        setup = [c for c in nb.cells if _part(c) == "set-up"]
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        unanswered = nb.metadata.get("tinygpt", {}).get("unanswered", [])
        for task in tasks_of(nb):
            if task.kind != "code":
                continue
            if task.label in unanswered:
                _fail(task.checks_from(None), "NotAnswered", "There is no answer yet.")
            else:
                self._run_task(setup, task, limits)
        return nb, resources

    def _run_task(self, setup: list[NotebookNode], task: Task, limits: Limits) -> None:
        """Run an exercise; a helper cell that ends its kernel is left out next time."""
        left_out: list[NotebookNode] = []
        for _ in range(STARTS):
            cells = [cell for cell in [*setup, *task.cells] if cell not in left_out]
            cells = [cell for cell in cells if cell.cell_type == "code"]
            culprit, reason = self._run_cells(cells, limits)
            if not reason:
                return
            if culprit is None or _part(culprit) != STUDENTS_CELL:
                break
            culprit.outputs = [_error("LeftOut", f"left out: {reason}")]
            left_out.append(culprit)
        _fail(task.checks_from(culprit), "Stopped", f"Stopped: {reason}.")

    def _run_cells(
        self, cells: list[NotebookNode], limits: Limits
    ) -> tuple[NotebookNode | None, str]:
        """Run cells in a fresh kernel; the one that ended it, and why, or nothing."""
        cell = None
        with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as place:
            manager, environment = kernel_manager(
                ROOT, Path(place), limits, self.isolated
            )
            client = _Client(
                nbformat.v4.new_notebook(cells=cells),
                km=manager,
                allow_errors=True,
                startup_timeout=STARTUP,
                record_timing=False,
                shutdown_kernel="immediate",
            )
            client.owns_km = True
            client.log.disabled = True
            watch = _Watch(Path(place), limits, manager)
            try:
                with client.setup_kernel(
                    env=environment,
                    cwd=place,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                ):
                    watch.start()
                    end = time.monotonic() + STARTUP
                    for index, cell in enumerate(cells):
                        _run_cell(client, index, cell, end)
                        if _part(cell) == "set-up":  # imports are at nobody's expense
                            end = time.monotonic() + limits.seconds
            except Stopped as stopped:
                reason = str(stopped)
                if reason.startswith("time"):
                    reason = f"it took longer than {limits.seconds} seconds"
                return cell, reason
            except RuntimeError as error:
                return None, f"the kernel did not start: {error}"
            finally:
                watch.done.set()
        return None, ""


def _run_cell(client: _Client, index: int, cell: NotebookNode, end: float) -> None:
    """Run one cell; a check's outputs say only whether it passed."""
    replies: list[dict] = []
    client.on_cell_executed = lambda **said: replies.append(said["execute_reply"])
    client.timeout = max(1, int(end - time.monotonic()))
    hidden = _part(cell) == "hidden"
    try:
        client.execute_cell(cell, index, store_history=not hidden)
    except CellTimeoutError:
        raise Stopped("time") from None
    except DeadKernelError:
        raise Stopped(
            "the kernel died: a crash, an exit, or more memory than is allowed"
        ) from None
    if _part(cell) in ("check", "hidden"):
        _settle(cell, replies[0]["content"], hidden)


def _settle(cell: NotebookNode, reply: dict, hidden: bool) -> None:
    """Make a check's outputs what nbgrader marks by: an error exactly when it failed.

    nbgrader takes a number that is displayed, or a warning, for a mark.
    """
    text = "".join(str(o.text) for o in cell.outputs if o.output_type == "stream")
    cell.outputs = []
    if text and not hidden:
        cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=text))
    if reply.get("status") != "ok":
        name = str(reply.get("ename", "Error"))
        cell.outputs.append(_error(name, str(reply.get("evalue", ""))[:SHOWN]))


def _part(cell: NotebookNode) -> str:
    return cell.metadata.get("tinygpt", {}).get("part", "")


def _error(name: str, message: str) -> NotebookNode:
    return nbformat.v4.new_output(
        "error", ename=name, evalue=message, traceback=[f"{name}: {message}"]
    )


def _fail(checks: list[NotebookNode], name: str, reason: str) -> None:
    """Let checks fail for one reason."""
    for cell in checks:
        cell.outputs = [_error(name, reason)]


# -- one student -----------------------------------------------------------------------


@dataclass
class Result:
    """What became of one exercise of one student."""

    task: Task
    marks: list[Mark]
    notes: list[str] = field(default_factory=list)

    @property
    def score(self) -> float:
        return sum(mark.score for mark in self.marks)

    @property
    def most(self) -> float:
        return sum(mark.most for mark in self.marks)

    @property
    def waits(self) -> bool:
        """Does a person still have to mark it?"""
        return any(mark.waits for mark in self.marks)


def sources_of(place: Path) -> dict[str, NotebookNode]:
    """The source notebooks of a course folder, by name."""
    paths = sorted((place / "source" / place.name).glob("*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


def grade_student(
    place: Path, submission: Submission, settings: dict[str, object]
) -> None:
    """Grade one student's submission through nbgrader."""
    folder = place / "submitted" / submission.student / place.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for stem, source in sources_of(place).items():
        node = canonical(source, submission.cells)
        node.metadata.tinygpt.remarks = submission.remarks
        path = folder / f"{stem}.ipynb"
        path.write_text(serialise(node), encoding="utf-8", newline="\n")
    autograde(place, submission.student, settings)
    if submission.shown != submission.student:
        name_student(place, submission.student, submission.shown)


def results_of(place: Path, student: str) -> tuple[list[Result], list[str]]:
    """What nbgrader holds of one student: results by exercise, and general remarks."""
    found = marks(place, place.name, student)
    results: list[Result] = []
    remarks: list[str] = []
    for stem in sources_of(place):
        path = place / "autograded" / student / place.name / f"{stem}.ipynb"
        node = nbformat.read(path, as_version=4)
        about = node.metadata.tinygpt
        remarks = list(about.get("remarks", []))
        for task in tasks_of(node):
            ids = [c.metadata.get("nbgrader", {}).get("grade_id") for c in task.cells]
            own = [found[identity] for identity in ids if identity in found]
            notes = list(about.get("notes", {}).get(task.label, []))
            results.append(Result(task, own, notes + _reasons(task)))
    return results, remarks


def _reasons(task: Task) -> list[str]:
    """Why cells of an exercise were stopped or left out."""
    found = []
    for cell in task.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error" and output.ename in ("Stopped", "LeftOut"):
                found.append(output.evalue.rstrip("."))
    return list(dict.fromkeys(found))


# -- all students ----------------------------------------------------------------------


def number(value: float) -> str:
    """A mark without a needless decimal."""
    return f"{value:g}"


def write_marks(path: Path, rows: list[dict[str, str]], labels: list[str]) -> None:
    """Write ``marks.csv``; a spreadsheet must not take a name for a formula."""
    columns = ["student", *labels, "total", "of", "remarks"]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n", restval="")
        table.writeheader()
        for row in rows:
            table.writerow({key: _harmless(value) for key, value in row.items()})


def _harmless(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text


def row_of(shown: str, results: list[Result], remarks: list[str]) -> dict[str, str]:
    """One student's line of the table; an exercise that waits for a mark is empty."""
    row = {"student": shown}
    for result in results:
        row[result.task.label] = "" if result.waits else number(result.score)
        remarks = [*remarks, *(f"{result.task.label}: {note}" for note in result.notes)]
        if result.waits:
            remarks.append(f"{result.task.label}: to be marked by a person")
    row["total"] = number(sum(r.score for r in results))
    row["of"] = number(sum(r.most for r in results))
    row["remarks"] = "; ".join(remarks)
    return row


def collect(place: Path, out: Path, students: list[tuple[str, str, str]]) -> list[dict]:
    """Write the table and the reports of these students; returns the table's rows.

    Args:
        place: the course folder.
        out: where the table and the reports go.
        students: as nbgrader calls each, as the person is called, and what went wrong.
    """
    reports = out / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    labels = [t.label for node in sources_of(place).values() for t in tasks_of(node)]
    rows = []
    for student, shown, problem in students:
        if problem:
            rows.append({"student": shown, "remarks": f"not graded: {problem}"})
            continue
        results, remarks = results_of(place, student)
        rows.append(row_of(shown, results, remarks))
        write_report(reports / f"{student}.html", place.name, shown, results, remarks)
    write_marks(out / "marks.csv", rows, labels)
    return rows


def summary(rows: list[dict]) -> str:
    """The totals for the terminal, and how many remarks there are to read."""
    lines = []
    for row in rows:
        total = f"{row['total']} of {row['of']}" if "total" in row else "not graded"
        many = len(row["remarks"].split("; ")) if row["remarks"] else 0
        said = f", {many} remark{'s' if many != 1 else ''}" if many else ""
        lines.append(f"  {row['student']}: {total}{said}")
    return "\n".join([f"{len(rows)} students:", *lines])


def find_course(folder: Path, name: str, submissions: list[Submission]) -> Path:
    """The course folder: the named one, or the one whose exercises were handed in."""
    places = {p.parent.name: p.parent for p in sorted(folder.glob("*/points.csv"))}
    if name:
        if name not in places:
            known = ", ".join(places) or "none"
            raise CourseError(f"no assignment {name!r} in {folder}; there is {known}")
        return places[name]
    text = "\n".join(cell.source for s in submissions for cell in s.cells) + "\n"
    fitting = [known for known in places if f"# Assignment {known}\n" in text]
    for known in [] if fitting else places:
        labels = [
            t.label for n in sources_of(places[known]).values() for t in tasks_of(n)
        ]
        if any(marker(label) in text for label in labels):
            fitting.append(known)
    if len(fitting) != 1:
        said = f"fits {', '.join(fitting)}" if fitting else "fits no assignment"
        raise CourseError(
            f"what was handed in {said}; say which with NAME=... (there is "
            f"{', '.join(places) or 'none: run make assignments'})"
        )
    return places[fitting[0]]


def graded_before(place: Path) -> list[tuple[str, str, str]]:
    """The students whose graded notebooks lie in a course folder."""
    folders = sorted((place / "autograded").glob(f"*/{place.name}"))
    names = _known_students(place)
    return [
        (f.parent.name, names.get(f.parent.name, f.parent.name), "") for f in folders
    ]


def remember(place: Path, students: list[tuple[str, str, str]]) -> None:
    """Keep how the students are called, for ``--collect``."""
    known = _known_students(place)
    known |= {student: shown for student, shown, _ in students}
    text = json.dumps(known, ensure_ascii=False, indent=1, sort_keys=True)
    (place / "students.json").write_text(f"{text}\n", encoding="utf-8")


def _known_students(place: Path) -> dict[str, str]:
    path = place / "students.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def main(argv: list[str] | None = None) -> int:
    """Grade a folder of submissions, or collect the marks again."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.grade", description=__doc__.splitlines()[0]
    )
    parser.add_argument("submissions", type=Path, nargs="?", help="the folder")
    parser.add_argument("--name", default="", help="the assignment")
    parser.add_argument("--courses", type=Path, help="default: _build/assignments")
    parser.add_argument("--out", type=Path, help="default: _build/grades/NAME")
    parser.add_argument(
        "--seconds", type=int, default=Limits.seconds, help="time for one exercise"
    )
    parser.add_argument(
        "--mebibytes", type=int, default=Limits.mebibytes, help="memory for one"
    )
    parser.add_argument(
        "--collect", action="store_true", help="run nothing, write the marks again"
    )
    parser.add_argument(
        "--no-isolation",
        action="store_true",
        help="run students' code unprotected, on a machine that you can throw away",
    )
    options = parser.parse_args(argv)
    folder = options.submissions
    if not options.collect and (folder is None or not folder.is_dir()):
        parser.error("no such folder: say make grade SUBMISSIONS=folder")
    reason = "" if options.no_isolation or options.collect else available(ROOT)
    if reason:
        print(
            f"Students' code is not run unprotected: {reason}. Where it cannot harm, "
            "add --no-isolation (make grade ARGS=--no-isolation)."
        )
        return 1
    courses = options.courses or ROOT / "_build" / "assignments"
    try:
        if options.collect:
            place = find_course(courses.resolve(), options.name, [])
            students = graded_before(place)
        else:
            found = read_submissions(folder)
            place = find_course(courses.resolve(), options.name, found)
            settings = {
                "isolated": not options.no_isolation,
                "seconds": options.seconds,
                "mebibytes": options.mebibytes,
            }
            students = grade_all(place, found, settings)
    except CourseError as error:
        print(error)
        return 1
    out = options.out or ROOT / "_build" / "grades" / place.name
    rows = collect(place, out, students)
    print(summary(rows))
    print(f"{out / 'marks.csv'}, and a report for each student beside it")
    return 1 if any(problem for _, _, problem in students) else 0


def grade_all(
    place: Path, submissions: list[Submission], settings: dict[str, object]
) -> list[tuple[str, str, str]]:
    """Grade every submission; one that cannot be graded gets a reason."""
    students = []
    for submission in submissions:
        start = time.monotonic()
        problem = ""
        try:
            grade_student(place, submission, settings)
        except Exception as error:  # whatever it is, the others are graded
            problem = f"{type(error).__name__}: {error}"
        students.append((submission.student, submission.shown, problem))
        seconds = time.monotonic() - start
        print(
            f"{submission.shown}: {problem or f'graded in {seconds:.0f} s'}", flush=True
        )
    remember(place, students)
    return students


if __name__ == "__main__":
    sys.exit(main())
