"""The tests share the cores: in groups, long ones first, some alone."""

import multiprocessing
import threading
from pathlib import Path

import pytest
import side_by_side
from side_by_side import group, neighbours, rank

BROWSER = "tests/test_browser.py::test_maths"
WITH_THREADS = "tests/test_mutation.py::test_blank[step6-training]"


def test_what_shares_a_run_a_profile_or_a_file_is_one_group():
    proof = group("tests/test_standalone.py::test_alone[setup]")
    assert proof == group("tests/test_mutation.py::test_blank[setup]")
    assert proof != group("tests/test_mutation.py::test_blank[step1-data]")
    assert group("tests/test_standalone.py::test_wrong") == "tests/test_standalone.py"
    views = {group(f"{BROWSER}[book/index {v}]") for v in ("light", "dark", "phone")}
    assert len(views) == 3
    assert group(f"{BROWSER}[book/index light]") == group(f"{BROWSER}[a/b light]")
    assert group(f"{BROWSER}[book/index]") == group("tests/test_browser.py::test_x")
    assert group("tests/test_bpe.py::test_a[x y]") == "tests/test_bpe.py"
    assert group("tests/test_bpe.py::test_a[setup]") == "tests/test_bpe.py"
    assert group(f"tests/test_bpe.py::test_a[{'long' * 99}]") == "tests/test_bpe.py"


def test_long_groups_start_first():
    wanted = [
        WITH_THREADS,
        "tests/test_standalone.py::test_alone[ch02-transformer]",
        "tests/test_standalone.py::test_alone[setup]",
        f"{BROWSER}[book/index light]",
        "tests/test_leaks.py::test_a",
        "tests/test_bpe.py::test_a",
    ]
    collected = wanted[::-1]
    assert sorted(collected, key=rank) == wanted


def test_the_files_that_are_called_long_exist():
    here = Path(__file__).parent
    for name in (*side_by_side.LONG_FILES, *side_by_side.NOTEBOOK_FILES):
        assert (here / name).is_file(), name


class Item:
    """As much of a test as is asked for."""

    def __init__(self, nodeid: str):
        self.nodeid, self.marks = nodeid, []

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


@pytest.mark.parametrize("in_worker", [True, False])
def test_a_notebook_with_threads_of_its_own_has_no_neighbour(in_worker: bool):
    plain, own = Item("tests/test_bpe.py::test_a"), Item(WITH_THREADS)
    items = [plain, own]
    side_by_side.arrange(items, in_worker)
    assert (plain.marks, own.marks) == ([], ["alone"])
    assert items == ([own, plain] if in_worker else [plain, own])


@pytest.mark.skipif(side_by_side.fcntl is None, reason="no locks of this kind here")
def test_who_is_alone_waits_until_the_neighbours_are_done(tmp_path: Path):
    """Two run beside each other; the third, which is alone, comes after both."""
    order: list[str] = []
    inside = threading.Barrier(3)
    leave, waits = threading.Event(), threading.Event()

    def beside(name: str) -> None:
        with neighbours(True, tmp_path):
            inside.wait(30)  # both are in, or this breaks
            leave.wait(30)
            order.append(name)

    def alone() -> None:
        waits.set()
        with neighbours(False, tmp_path):
            order.append("alone")

    first = [threading.Thread(target=beside, args=(f"beside {i}",)) for i in (1, 2)]
    for thread in first:
        thread.start()
    inside.wait(30)
    lonely = threading.Thread(target=alone)
    lonely.start()
    assert waits.wait(30)
    assert order == []
    leave.set()
    for thread in (*first, lonely):
        thread.join(30)
    assert sorted(order[:2]) == ["beside 1", "beside 2"]
    assert order[2:] == ["alone"]
    with neighbours(True, tmp_path):  # both locks are free again
        pass


def test_there_are_no_more_workers_than_cores():
    assert 1 <= side_by_side.workers() <= multiprocessing.cpu_count()
