"""Every stored notebook runs alone and prints again what it printed."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools import notebooks
from tools.pages import ROOT

STORED = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _run(folder: Path, source: str, startup: str) -> Any:
    """The outputs of one cell, run in ``folder``."""
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebooks.run_notebook(node, folder, startup)
    return node.cells[0].outputs


def test_there_are_notebooks_to_run():
    assert (ROOT / "notebooks" / "setup.ipynb") in STORED


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.stem)
def test_notebook_alone_in_an_empty_folder_prints_what_is_stored(
    stored: Path, standalone_run: Callable
):
    run = standalone_run(stored)
    if run.status != 0:
        tail = "\n".join(run.report.splitlines()[-120:])
        pytest.fail(f"{stored.name}, copied alone, under nbval:\n{tail}", pytrace=False)
    cells = nbformat.read(stored, as_version=4).cells
    assert len(run.received) == sum(cell.cell_type == "code" for cell in cells)


@pytest.mark.parametrize("folder", [ROOT, ROOT / "notebooks"], ids=["root", "own"])
def test_setup_notebook_prints_the_same_from_root_and_from_its_own_folder(
    folder: Path, startup: str
):
    stored = nbformat.read(ROOT / "notebooks" / "setup.ipynb", as_version=4)
    again = copy.deepcopy(stored)
    notebooks.run_notebook(again, folder, startup)
    compared = 0
    for old, new in zip(stored.cells, again.cells, strict=True):
        ignored = "nbval-ignore-output" in old.metadata.get("tags", [])
        if old.cell_type == "code" and not ignored:
            assert new.outputs == old.outputs, f"from {folder}:\n{old.source}"
            compared += bool(old.outputs)
    assert compared > 3


def test_hidden_packages_cannot_be_imported_there(tmp_path: Path, startup: str):
    source = (
        "import importlib.util\n"
        "names = ['tinygpt', 'sphinx', 'pytest', 'nbval', 'tqdm', 'torch']\n"
        "print([n for n in names if importlib.util.find_spec(n)])\n"
        "try:\n    import tqdm\nexcept ImportError as error:\n    print(error)\n"
    )
    (output,) = _run(tmp_path, source, startup)
    assert output.text == "['torch']\nNo module named 'tqdm'\n"


def test_only_the_addresses_of_the_data_answer_there(tmp_path: Path, startup: str):
    manifest = json.loads((ROOT / "data" / "manifest.json").read_text("utf-8"))
    alice = manifest["corpora"][0]
    source = f"""
import hashlib, socket, urllib.request
content = urllib.request.urlopen({alice["sources"][0]!r}).read()
print(hashlib.sha256(content).hexdigest())
for attempt in (
    lambda: urllib.request.urlopen("https://example.org/other"),
    lambda: socket.create_connection(("192.0.2.1", 443)),
    lambda: socket.socket().connect_ex(("192.0.2.1", 443)),
):
    try:
        attempt()
    except OSError as error:
        print(str(error).split(":")[0])
"""
    (output,) = _run(tmp_path, source, startup)
    assert output.text.split() == [alice["sha256"], "refused", "refused", "refused"]


def _stored(path: Path, source: str, printed: str, tags: list[str]) -> Path:
    """A made-up stored notebook of one executed cell."""
    cell = nbformat.v4.new_code_cell(source, execution_count=1, metadata={"tags": tags})
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def test_a_wrong_stored_digit_fails_and_the_report_shows_it(
    tmp_path: Path, standalone_run: Callable
):
    run = standalone_run(_stored(tmp_path / "wrong.ipynb", "print(41)", "42\n", []))
    assert run.status == 1
    assert "Cell outputs differ" in run.report
    assert "41" in run.report
    assert "42" in run.report


def test_chaotic_cells_are_compared_on_the_locked_environment_only(
    tmp_path: Path, standalone_run: Callable
):
    tags = ["nbval-ignore-output", "chaotic"]
    run = standalone_run(_stored(tmp_path / "chaotic.ipynb", "print(1)", "2\n", tags))
    assert run.status == (1 if notebooks.locked_environment() else 0)


def test_timings_are_compared_nowhere(tmp_path: Path, standalone_run: Callable):
    tags = ["nbval-ignore-output"]
    run = standalone_run(_stored(tmp_path / "timing.ipynb", "print(1)", "2\n", tags))
    assert run.status == 0
