"""What the stored notebook of Chapter 2 prints, and how its cells are kept true.

Whether the digits are right is tested elsewhere: the exact and deterministic ones in
the tests of each part, all of them by running the notebook. Here: each is printed.
"""

import ast
import inspect
import re
from dataclasses import dataclass

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from answers.ch02_transformer import WRONG
from chapter2 import chapter_model
from matplotlib.figure import Figure

from tinygpt.corpus import CORPORA
from tinygpt.transformer import kv_cache_bytes, train_model
from tools.exercises import read_exercises
from tools.pages import ROOT, read_page

NOTEBOOK = ROOT / "notebooks" / "ch02-transformer.ipynb"

# Exact and deterministic: what one cell prints, and nbval compares everywhere.
COMPARED = {
    "size of the corpus": ["9,186", "9,368"],
    "vocabulary": ["vocabulary: 512"],
    "first merges": [
        *("256 e␠", "257 ␠t", "258 t␠", "259 er"),
        *("260 ␠th", "261 in", "262 ␠a", "263 ␠s"),
    ],
    "merges of a run": ["[256, 97]", "[256, 256]", "[256, 256, 97]"],
    "merges of a word": [
        *("(97, 97) -> 256", "(97, 98) -> 257", "(256, 257) -> 258"),
        "[258, 100, 258, 97, 99]",
    ],
    "rabbit sentence": [
        "36 bytes to 17 tokens",
        "322, 269, 271, 317, 98, 121, 270, 114, 423, 271, 45, 429, 303, "
        "240, 159, 144, 135",
        "exactly: True",
    ],
    "corpus encoded": ["3,912 tokens", "2.39 bytes per token"],
    "first nine tokens": [
        "322 291 442 261 110 468 474 418 257",
        "'Alice␠', 'was␠', 'beg', 'in', 'n', 'ing␠to␠', 'get␠', 'very', '␠t'",
    ],
    "batch of seed 11": ["(4, 8) (4, 8)", "True"],
    "loss of knowing nothing": ["ln 512 = 6.238"],
    "spread of scores": [
        *("1.99", "2.00", "8.01", "8.00", "16.13", "16.00"),
        *("1.00", "1.01"),
    ],
    "soft and hard softmax": [
        "0.34 0.15 0.10 0.31 0.04 0.06",
        "0.65 0.00 0.00 0.34 0.00 0.00",
    ],
    "four tokens": [
        "The 0.25 0.25 0.25 0.25",
        "rabbit 0.71 0.10 0.10 0.10",
        "was 0.01 0.97 0.01 0.01",
        "late 0.03 0.68 0.25 0.03",
    ],
    "four tokens, masked": [
        "The 1.00 0.00 0.00 0.00",
        "rabbit 0.88 0.12 0.00 0.00",
        "was 0.01 0.98 0.01 0.00",
        "late 0.03 0.68 0.25 0.03",
        "exactly 0: True",
    ],
    "shapes of attention": ["(2, 6, 64) to (2, 6, 64)", "(2, 4, 6, 16)"],
    "future-change probe": ["change by 0.0"],
    "update of a fresh block": ["0.1931", "0.7968"],
    "initial loss": ["(1, 8, 512)", "6.318", "6.238"],
    "tying": ["storage: True", "139,776", "172,544", "+23%"],
    "untrained sample": ["'Alice  thisear", "\ufffd"],
    "breakdown": ["32,768", "8,192", "65,664", "384", "139,776", "model: True"],
    "operations": ["262,912 FLOPs, attention 0.2%", "327,936 FLOPs, attention 20.0%"],
    "rule of 2N": ["279,552", "262,912", "6.3% too high"],
    "roofline": ["50 FLOP", "2% of peak", "100% of peak"],
    "schedule": [
        *("step 0: 1.50e-04", "step 19: 3.00e-03", "step 20: 3.00e-03"),
        "step 399: 3.00e-04",
    ],
    "split": ["3,325", "587", "42"],
    "attention pattern": ["(4, 19, 19)", "sum to 1: True", "exactly 0: True"],
    "cached text": ["identical tokens: True"],
    "cached logits": ["< 1e-5: True"],
    "cache bytes": ["measured 1,024, predicted 1,024"],
    "gallery": [
        *("sound 139,776 True", "no mask 139,776 False", "untied copy 172,544 True"),
        *("targets not shifted 139,776 True", "scale forgotten 139,776 True"),
    ],
    "eight heads": ["384 to 352", "139,776 to 139,744"],
    "seven billion": ["6,607,077,376", "274,432", "524,288"],
}

# Chaotic after hundreds of steps: compared on the locked environment only.
CHAOTIC = {
    "losses": [
        *("first step 6.261", "last ten 0.136", "5.100 at step 75"),
        "at the end 7.143",
    ],
    "samples": [
        "step 100: 'Alice had usI sme ind in her Dinaaheds s isten see",
        "step 400: 'Alice think it so _ the Dinah; t much out of the cover.",
    ],
    "greedy text": [
        "'Alice think it so _very_ much out of the way to hear the Rabbit say to "
        "itself, “Oh dear! Oh dear! I shall '"
    ],
    "attention after training": ["before 0 of 18", "after 7 of 18", "gained: abb"],
    "unmasked": ["0.253", "5.010", "6.993", "'Alice Alice Alice"],
}

TIMES = re.compile(r"tokens/s|\dx the first|\bseconds\b|\bms\b")
DRAWS = {"rand", "randn", "randint", "randperm", "multinomial", "normal"}
BUILDS = {"TinyGPT", "Block", "CausalSelfAttention", "Linear", "Conv1d", "RNN"}


@dataclass(frozen=True)
class Cell:
    """One code cell of the stored notebook, with what it printed."""

    number: int
    source: str
    tags: frozenset[str]
    printed: str

    @property
    def compared(self) -> bool:
        return "nbval-ignore-output" not in self.tags


NODE = nbformat.read(NOTEBOOK, as_version=4)
TEXT = "\n\n".join(cell.source for cell in NODE.cells if cell.cell_type == "markdown")


def read_cells() -> list[Cell]:
    codes = [cell for cell in NODE.cells if cell.cell_type == "code"]
    cells = []
    for number, code in enumerate(codes, start=1):
        printed = [
            output.text if output.output_type == "stream" else output.data["text/plain"]
            for output in code.outputs
            if output.output_type in ("stream", "execute_result")
        ]
        tags = frozenset(code.metadata.get("tags", ()))
        cells.append(Cell(number, code.source, tags, "".join(printed)))
    return cells


CELLS = read_cells()


def squeezed(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)


def prints(cell: Cell, figure: str) -> bool:
    """Is the figure printed, as a whole number and not as a part of a longer one?"""
    before = r"(?<![\d.,])" if figure[0].isdigit() else ""
    after = r"(?![.,]?\d)" if figure[-1].isdigit() else ""
    pattern = before + re.escape(figure) + after
    return bool(re.search(pattern, cell.printed + "\n" + squeezed(cell.printed)))


def cells_that_print(figures: list[str]) -> list[Cell]:
    return [cell for cell in CELLS if all(prints(cell, figure) for figure in figures)]


def test_a_figure_is_not_found_inside_a_longer_one():
    cell = Cell(1, "", frozenset(), "loss 16.3181, 6.31 and 139,7761 of 1,024")
    assert prints(cell, "1,024")
    assert not any(prints(cell, f) for f in ("6.318", "6.3", "139,776", "024", "1"))


@pytest.mark.parametrize("name", COMPARED)
def test_the_page_prints_and_compares(name):
    cells = cells_that_print(COMPARED[name])
    assert cells, f"no cell prints {COMPARED[name]}"
    assert any(cell.compared for cell in cells), "nbval does not compare the cell"


@pytest.mark.parametrize("name", CHAOTIC)
def test_the_page_prints_and_marks_as_chaotic(name):
    cells = cells_that_print(CHAOTIC[name])
    assert cells, f"no cell prints {CHAOTIC[name]}"
    for cell in cells:
        assert {"chaotic", "nbval-ignore-output"} <= cell.tags, f"cell {cell.number}"


def test_chaotic_cells_are_told_to_nbval_and_no_timing_is_chaotic():
    chaotic = [cell for cell in CELLS if "chaotic" in cell.tags]
    assert len(chaotic) >= len(CHAOTIC)
    for cell in chaotic:
        assert not cell.compared, f"cell {cell.number}"
        assert cell.printed, f"cell {cell.number} prints nothing to compare"
        assert not TIMES.search(cell.printed), f"cell {cell.number}"


def test_cells_that_print_times_are_not_compared_and_print_nothing_else():
    timed = [cell for cell in CELLS if TIMES.search(cell.printed)]
    assert len(timed) >= 2
    for cell in timed:
        assert not cell.compared, f"cell {cell.number}"
    for cell in CELLS:
        if not cell.compared and "chaotic" not in cell.tags:
            for line in cell.printed.splitlines():
                assert TIMES.search(line), f"cell {cell.number}: {line}"
        if re.search(r"best_time\(|perf_counter\(", cell.source) and cell.printed:
            assert not cell.compared, f"cell {cell.number}"


def test_the_bands_of_the_chaotic_figures_are_asserted_everywhere():
    asserted = [
        ast.unparse(node.test)
        for cell in CELLS
        if cell.compared
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Assert)
    ]
    bands = {
        "first loss": r"train_loss\[0\] - math\.log\(V\)\) < 0\.1\b",
        "end of training": r"^history\.final_train_loss\(\) < 0\.5\b",
        "held-out minimum": r"4\.8 < best_loss < 5\.4\b",
        "where it lies": r"best_step <= 125\b",
        "held-out end": r"^history\.heldout_loss\[-1\] > 6\.0\b",
        "copied span": r"longest_copied_span\(greedy, corpus\)\) >= 30\b",
    }
    for name, band in bands.items():
        assert any(re.search(band, test) for test in asserted), name


def calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id


def is_random(call: ast.Call) -> bool:
    if not isinstance(call.func, (ast.Attribute, ast.Name)):
        return False
    name = called(call)
    if name in DRAWS:
        return "generator" not in {keyword.arg for keyword in call.keywords}
    return name in BUILDS


def unseeded(source: str) -> list[str]:
    """Calls that use the global chance with no ``manual_seed`` before them."""
    lines = [
        call.lineno
        for call in calls(ast.parse(source))
        if ast.unparse(call.func) == "torch.manual_seed"
    ]
    first = min(lines, default=float("inf"))
    return [
        ast.unparse(call)
        for call in calls(ast.parse(source))
        if is_random(call) and call.lineno <= first
    ]


def test_an_unseeded_call_is_found():
    assert unseeded("x = torch.randn(3)") == ["torch.randn(3)"]
    assert unseeded("m = TinyGPT(c)\ntorch.manual_seed(0)") == ["TinyGPT(c)"]
    assert unseeded("torch.manual_seed(0)\nm = TinyGPT(c)") == []
    assert unseeded("x = torch.randn(3, generator=g)") == []


def test_every_cell_that_uses_chance_seeds_it_first():
    for cell in CELLS:
        if not cell.source.startswith("# @save"):
            assert not unseeded(cell.source), f"cell {cell.number}"


def test_every_training_is_the_seeded_one():
    assert inspect.signature(train_model).parameters["seed"].default == 7
    loops, runs = [], 0
    for cell in CELLS:
        for call in calls(ast.parse(cell.source)):
            if isinstance(call.func, ast.Name) and call.func.id == "train_model":
                runs += 1
                assert "seed" not in {keyword.arg for keyword in call.keywords}
            if ast.unparse(call.func) == "optimizer.step":
                loops.append(cell)
    assert runs >= 4  # the model, the control, and two broken ones
    assert [cell.source.startswith("# @save") for cell in loops] == [True]


def test_one_thread_is_set_before_anything_random():
    counts = [
        cell.number for cell in CELLS if "torch.set_num_threads(1)" in cell.source
    ]
    random = [
        cell.number
        for cell in CELLS
        if not cell.source.startswith("# @save")
        and any(is_random(call) for call in calls(ast.parse(cell.source)))
    ]
    assert len(counts) == 1
    assert counts[0] < min(random)


def test_the_corpus_is_pinned_by_its_hash():
    digest = CORPORA["alice"]["sha256"]
    assert digest == "817e632a6846aab29e6718aa54c47f5df40b6f50538e199bb224caaa8a2185a5"
    assert any(digest in cell.source for cell in CELLS)


def test_nothing_was_written_to_the_error_stream_and_no_machine_shows():
    for cell in NODE.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error", cell.source
            assert output.get("name", "stdout") == "stdout", output.text
    for cell in CELLS:
        assert not re.search(r"site-packages|/h[o]me/|/r[o]ot/|/w[o]rk/", cell.printed)
        assert " at 0x" not in cell.printed, f"cell {cell.number} prints an address"


# Figures, boxes, exercises


def figures() -> list[tuple[str, str]]:
    """Alt text and caption of each figure, drawn by a cell or by hand, in order."""
    found, alt = [], ""
    for cell in NODE.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                alt = output.metadata.get("image/png", {}).get("alt", "")
        if cell.cell_type != "markdown":
            continue
        pattern = r"!\[([^\]]*)\]\(|^\*\*Figure \d+\.\*\* (.+)$"
        for match in re.finditer(pattern, cell.source, re.MULTILINE):
            if match.group(2) is None:
                alt = match.group(1)
            else:
                found.append((alt, match.group(2)))
                alt = ""
    return found


def test_seven_figures_ask_a_question_and_say_what_is_seen():
    assert len(figures()) >= 7
    for alt, caption in figures():
        assert len(alt) > 40, f"no alt text: {caption}"
        assert "?" in caption, caption
        assert alt != caption
    assert len({alt for alt, _ in figures()}) == len(figures())


def test_every_picture_has_its_alt_text_and_its_caption():
    drawn = [
        output
        for cell in NODE.cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    by_hand = re.findall(r"!\[([^\]]*)\]\(", TEXT)
    assert len(drawn) >= 5
    assert len(by_hand) >= 2
    assert len(drawn) + len(by_hand) == len(figures())


@pytest.mark.parametrize("subject", ["square root", "O(1)"])
def test_an_interview_box_has_question_answer_and_trap(subject):
    boxes = re.findall(r"(?:^> ?.*\n)+", TEXT + "\n", re.MULTILINE)
    boxes = [box for box in boxes if "Interview" in box.splitlines()[0]]
    assert len(boxes) >= 2
    (box,) = [box for box in boxes if subject in box.splitlines()[0]]
    assert all(word in box for word in ("**Question.**", "**Answer.**", "trap"))


EXERCISES = read_exercises(read_page(ROOT / "chapters" / "ch02-transformer.md"))


def exercises() -> dict[str, str]:
    """Title and the text up to the next exercise or heading, for each exercise."""
    heading = re.compile(r"^> \*\*Exercise \d+ \((.+)\)\*\*", re.MULTILINE)
    parts = heading.split(TEXT)[1:]
    return {
        title: re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
        for title, text in zip(parts[::2], parts[1::2])
    }


def test_fourteen_exercises_stand_with_a_task_a_hint_and_a_solution_each():
    assert len(exercises()) >= 14
    for number, (title, text) in enumerate(exercises().items(), start=1):
        assert text.count("<summary>Hint</summary>") == 1, title
        assert len(re.findall(r"^\*Difficulty \d of 3, .+\*$", text, re.M)) == 1, title
        # Folded when it is text alone, under a heading when it has cells.
        solution = rf"(<summary>|#### )Solution to .*Exercise {number}\b"
        assert len(re.findall(solution, TEXT)) == 1, title


def test_nearly_all_exercises_are_answered_by_code_that_is_checked_twice():
    assert [exercise.title for exercise in EXERCISES] == list(exercises())
    code = [exercise for exercise in EXERCISES if exercise.kind == "code"]
    assert len(code) >= 13
    for exercise in code:
        parts = (exercise.stub, exercise.check, exercise.hidden, exercise.hint)
        assert all(parts), exercise.where
        assert min(exercise.points) > 0, exercise.where
        assert len(WRONG[exercise.label]) >= 2, exercise.where
    assert {exercise.label for exercise in code} == set(WRONG)


def test_every_check_passes_with_the_solution_and_with_the_stub_says_what_is_missing():
    said = [cell for cell in CELLS if re.search(r"^try_check\(", cell.source, re.M)]
    code = [exercise for exercise in EXERCISES if exercise.kind == "code"]
    assert len(said) == 2 * len(code)
    for check, solution, exercise in zip(said[::2], said[1::2], code, strict=True):
        assert "exercise-check" in check.tags, exercise.where
        assert "not yet. The function is still to be written" in check.printed
        assert "exercise-solution" in solution.tags, exercise.where
        assert solution.printed.endswith(": passed.\n"), exercise.where


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.label)
def test_nothing_that_is_for_graders_is_in_the_notebook(exercise):
    for text in (*exercise.hidden, exercise.marking, exercise.instructor):
        for line in text.splitlines():
            if len(line) > 60 and line not in "\n".join(exercise.check):
                assert line not in TEXT
                assert not any(line in cell.source for cell in CELLS), line


@pytest.mark.parametrize(
    "subject",
    [
        *("mask", "heads", "tokenizer", "head", "memorisation", "billion"),
        *("roofline", "never drawn", "wrong width", "axis", "past the block"),
        *("program does", "broken tie", "gains"),
    ],
)
def test_an_exercise_is_about(subject):
    assert any(subject in title for title in exercises())


# ---- what the drawn figures show -----------------------------------------------------


def drawn(name: str) -> Figure:
    """The figure that the chapter's cell of this name draws, in the book's style."""
    page = read_page(ROOT / "chapters" / "ch02-transformer.md")
    (source,) = (
        cell.source
        for cell in page.cells
        if cell.options.get("mystnb", {}).get("figure", {}).get("name") == name
    )
    parts = {"decode, batch 1": 1, "prefill, 512 tokens": 512}
    given = {
        **{"torch": torch, "plt": plt, "peak": 100e12, "bandwidth": 2e12},
        **{"balance": 50.0, "points": parts, "model": chapter_model()},
        **{"with_cache": torch.arange(2), "kv_cache_bytes": kv_cache_bytes},
    }
    exec(compile(source, name, "exec"), given)
    figure = plt.gcf()
    figure.canvas.draw()
    return figure


@pytest.mark.parametrize("name", ["fig-roofline", "fig-cache-bytes"])
def test_no_label_lies_on_a_line_or_leaves_the_figure(name):
    with plt.rc_context(fname=ROOT / "book" / "tinygpt.mplstyle"):
        plt.switch_backend("agg")
        figure = drawn(name)
    (ax,) = figure.axes
    assert len(ax.texts) == 3
    for label in ax.texts:
        box = label.get_window_extent()
        assert ax.bbox.contains(*box.min), label.get_text()
        assert ax.bbox.contains(*box.max), label.get_text()
        for line in ax.lines:
            # A line as the browser shows it: from point to point, and as wide as it is.
            path = line.get_transform().transform_path(line.get_path())
            half = line.get_linewidth() / 2 * figure.dpi / 72
            assert not path.intersects_bbox(box.padded(half), filled=False), (
                f"{label.get_text()!r} lies on a line of {name}"
            )
    plt.close(figure)
