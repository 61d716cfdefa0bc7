"""The comparison bites: change one stored digit, or blank one output, and it fails.

Every notebook is executed once (the run of test_standalone); here only nbval's own
comparison is called, against the outputs which that run received.
"""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

from tools.pages import ROOT

STORED = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def compared(
    request: pytest.FixtureRequest, standalone_run: Callable
) -> Callable[[Path], list[tuple[IPyNbCell, list]]]:
    """The cells of a notebook that nbval compares, with what the run received."""

    def collect(stored: Path) -> list[tuple[IPyNbCell, list]]:
        run = standalone_run(stored)
        file = IPyNbFile.from_parent(request.session, path=run.notebook)
        pairs = []
        for cell in file.collect():
            if cell.options["check"] and not cell.options["skip"]:
                # The report of a difference is not under test, and takes long.
                cell.format_output_compare = lambda key, left, right: None
                received = nbformat.from_dict(run.received[str(cell.cell_num)])
                pairs.append((cell, received))
        return pairs

    return collect


def _equal(cell: IPyNbCell, received: list, stored: list) -> bool:
    return cell.compare_outputs(copy.deepcopy(received), stored)


def _texts(outputs: list, skipped: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """Each text that is compared: the mapping that holds it, and its key."""
    for output in outputs:
        if output.output_type == "stream":
            yield output, "text"
        for key in output.get("data", {}):
            if key not in skipped and isinstance(output.data[key], str):
                yield output.data, key


def _with_other_digits(text: str) -> Iterator[str]:
    for place, sign in enumerate(text):
        if sign in "0123456789":
            yield f"{text[:place]}{(int(sign) + 1) % 10}{text[place + 1 :]}"


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.stem)
def test_unchanged_outputs_compare_equal(stored: Path, compared: Callable):
    cells = compared(stored)
    assert cells
    for cell, received in cells:
        outputs = coalesce_streams(copy.deepcopy(cell.cell.outputs))
        assert _equal(cell, received, outputs), cell.cell.source


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.stem)
def test_every_changed_digit_is_caught(stored: Path, compared: Callable):
    changed = 0
    for cell, received in compared(stored):
        outputs = coalesce_streams(copy.deepcopy(cell.cell.outputs))
        for holder, key in _texts(outputs, cell.parent.skip_compare):
            text = holder[key]
            for other in _with_other_digits(text):
                holder[key] = other
                assert not _equal(cell, received, outputs), (
                    f"{stored.name}, {cell.name}: not caught:\n{other}"
                )
                changed += 1
            holder[key] = text
    assert changed > 0, f"{stored.name} prints no digit that is compared"


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.stem)
def test_every_blanked_output_is_caught(stored: Path, compared: Callable):
    blanked = 0
    for cell, received in compared(stored):
        outputs = coalesce_streams(copy.deepcopy(cell.cell.outputs))
        for index in range(len(outputs)):
            rest = outputs[:index] + outputs[index + 1 :]
            assert not _equal(cell, received, rest), cell.cell.source
            blanked += 1
        for holder, key in _texts(outputs, cell.parent.skip_compare):
            text, holder[key] = holder[key], ""
            assert not _equal(cell, received, outputs), cell.cell.source
            holder[key] = text
    assert blanked > 0


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.stem)
def test_no_compared_output_is_compared_with_nothing(stored: Path, compared: Callable):
    for cell, received in compared(stored):
        place = f"{stored.name}, {cell.name}:\n{cell.cell.source}"
        assert cell.cell.execution_count is not None, place
        assert bool(cell.cell.outputs) == bool(received), place
        for output in cell.cell.outputs:
            keys = {"stdout"} if output.output_type == "stream" else set(output.data)
            assert keys - set(cell.parent.skip_compare), place
