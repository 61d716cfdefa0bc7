"""Benchmarks: they run, what they compare agrees, and their arithmetic is right.

Nothing here measures time. A ratio is worked out from rounds that are made up.
"""

import hashlib
import json
import shutil
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_page import printed_by

import benchmarks.__main__ as umbrella
from benchmarks import ORDER, common, memory, tokenizer
from tinygpt.benchmarks import (
    LiveBytes,
    forward_bytes,
    gpt_kept_bytes,
    kept_for_backward,
    ratios_by_round,
    spread,
    step_bytes,
    storage_bytes,
    tinygpt_kept_bytes,
)
from tinygpt.gpt import GPT
from tinygpt.training import fuse
from tinygpt.transformer import GPTConfig, TinyGPT
from tools.pages import ROOT

REFERENCE = ROOT / "data" / "reference"
STORED = sorted(REFERENCE.glob("benchmarks_*.json"))


# Rounds and ratios


def test_a_ratio_belongs_to_one_round():
    """A machine twice as slow in the second round leaves every ratio as it was."""
    assert ratios_by_round([1.0, 2.0], [3.0, 6.0]) == [3.0, 3.0]
    assert ratios_by_round([2.0], [1.0]) == [0.5]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([], [], "0 rounds against 0"),
        ([1.0], [1.0, 2.0], "1 rounds against 2"),
        ([1.0, 0.0], [1.0, 2.0], "a round took 0.0"),
        ([1.0], [-2.0], "a round took -2.0"),
    ],
)
def test_rounds_without_a_ratio_are_refused(ours, theirs, said):
    with pytest.raises(ValueError, match=said):
        ratios_by_round(ours, theirs)


@given(st.lists(st.floats(0.001, 1000), min_size=1))
def test_the_spread_holds_every_round(rounds):
    least, middle, most = spread(rounds)
    assert least <= middle <= most
    assert all(least <= value <= most for value in rounds)


def test_no_rounds_have_no_spread():
    with pytest.raises(ValueError, match="at least one"):
        spread([])


def test_a_ratio_names_both_and_is_above_one_where_the_contestant_is_ahead():
    found = common.ratio("train", {"a": [1.0, 2.0], "b": [4.0, 2.0]}, "a", "b")
    assert found == {
        "task": "train",
        "contestant": "a",
        "reference": "b",
        "rounds": [4.0, 1.0],
    }
    with pytest.raises(ValueError, match="train, a and b: 1 rounds against 2"):
        common.ratio("train", {"a": [1.0], "b": [4.0, 2.0]}, "a", "b")


class Clock:
    """Time passes only when a contestant runs."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def __call__(self):
        return self.now

    def contestant(self, name, seconds):
        def run():
            self.now += seconds
            self.order.append(name)
            return name

        return run


def test_contestants_take_turns_and_every_other_round_goes_backward():
    clock = Clock()
    contestants = {name: clock.contestant(name, s) for name, s in (("a", 1), ("b", 2))}
    seconds, returned = common.in_turn(contestants, 3, clock=clock)
    assert "".join(clock.order) == "abbaab"
    assert seconds == {"a": [1, 1, 1], "b": [2, 2, 2]}
    assert returned == {"a": "a", "b": "b"}


def test_a_fast_contestant_runs_several_times_a_round_and_its_mean_counts():
    clock = Clock()
    contestants = {name: clock.contestant(name, s) for name, s in (("a", 1), ("b", 8))}
    seconds, _ = common.in_turn(contestants, 1, at_least=4, clock=clock)
    assert "".join(clock.order) == "ab" + "aaaa" + "b"
    assert seconds == {"a": [1], "b": [8]}


@pytest.mark.parametrize(("contestants", "rounds"), [({}, 1), ({"a": list}, 0)])
def test_turns_without_contestants_or_rounds_are_refused(contestants, rounds):
    with pytest.raises(ValueError, match="expected one or more"):
        common.in_turn(contestants, rounds)


# Logs and tables


def a_log(**changed):
    entry = {"task": "run", "contestant": "a", "reference": "b", "rounds": [3, 1, 2]}
    measure = {"task": "run", "unit": "s", "rounds": {"a": [1], "b": [3]}}
    log = common.report("memory", True, [measure], [entry], {"same": True})
    return log | changed


def test_a_log_has_its_fields_and_names_machine_and_versions():
    log = common.report("memory", True, [], [], {}, ("torch", "no-such-package"), a=1)
    assert set(common.FIELDS) <= set(log)
    assert log["versions"]["no-such-package"] is None
    assert log["versions"]["torch"]
    assert log["machine"]["processor"]
    assert {"cores", "threads", "python", "torch"} <= set(log["machine"])
    assert log["a"] == 1


def test_the_table_shows_least_median_and_most_and_a_failed_check():
    lines = common.table(a_log(checks={"same": False}))
    assert lines[1].split() == ["run", "a", "against", "b", "1", "2", "3", "3"]
    assert lines[2] == "same: NO"


def test_a_log_is_written_and_a_failed_check_is_the_exit_status(tmp_path, capsys):
    assert common.finish(a_log(), tmp_path, store=False) == 0
    path = tmp_path / "_build" / "bench" / "memory.json"
    assert json.loads(path.read_text("utf-8")) == a_log()
    assert common.finish(a_log(checks={"same": False}), tmp_path, store=False) == 1
    assert "same: NO" in capsys.readouterr().out


def test_what_is_stored_is_stated_and_neither_small_nor_false(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "manifest.json").write_text("{}", "utf-8")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with pytest.raises(ValueError, match="a small run"):
        common.finish(a_log(), tmp_path, store=True)
    false = a_log(small=False, checks={"same": False})
    assert common.finish(false, tmp_path, store=True) == 1
    stored = tmp_path / "data" / "reference" / "benchmarks_memory.json"
    assert not stored.exists()
    assert common.finish(a_log(small=False), tmp_path, store=True) == 0
    content = stored.read_bytes()
    (entry,) = json.loads((tmp_path / "data/manifest.json").read_text("utf-8"))[
        "reference"
    ]
    assert entry["sha256"] == hashlib.sha256(content).hexdigest()
    assert entry["sha256"] in capsys.readouterr().out


# The tokenizer's


@pytest.fixture(scope="module")
def texts():
    names = {"alice": "ch02/alice.txt", "tinyshakespeare": "tinyshakespeare/input.txt"}
    return {n: (ROOT / "data" / path).read_text("utf-8") for n, path in names.items()}


def test_the_tokenizers_agree_and_without_the_library_the_others_run(
    texts, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    log, found = tokenizer.measure(texts, small=True)
    assert "left out" in capsys.readouterr().out
    assert set(common.FIELDS) <= set(log)
    assert log["small"] is True
    assert len(log["checks"]) == 4
    assert all(log["checks"].values())
    tasks = {entry["task"] for entry in log["ratios"]}
    assert tasks == {
        f"{task}, {text}"
        for task in ("train", "encode")
        for text in ("Alice", "Shakespeare")
    }
    assert all(len(entry["rounds"]) == 2 for entry in log["ratios"])
    page = tokenizer.page_log(found, log)
    before = json.loads((REFERENCE / tokenizer.PAGE_LOG).read_text("utf-8"))
    assert set(page) == set(before)
    assert page["same_merges"] is page["same_ids"] is True
    for flag in ("--store", "--step7"):  # the pages read about the library as well
        assert tokenizer.main([flag]) == 1


def test_the_library_is_compared_where_it_is_installed(texts):
    pytest.importorskip("tokenizers")
    log, found = tokenizer.measure(texts, small=True)
    assert len(log["checks"]) == 6
    assert all(log["checks"].values())
    assert {e["reference"] for e in log["ratios"]} == {"straightforward", "tokenizers"}
    direct = {
        e["task"] for e in log["ratios"] if e["contestant"].startswith("tokenizers")
    }
    assert direct == {
        f"{task}, {text}" for task in ("train", "encode") for text in log["texts"]
    }
    assert found.library["merges"] == found.vocabulary - 256


# The memory's


@pytest.fixture(scope="module")
def memory_log():
    return memory.measure(small=True, rise_of=lambda kind, small, B: 1_000 + B)


def test_the_bytes_of_a_step_and_of_the_cache_are_as_predicted(memory_log):
    assert set(common.FIELDS) <= set(memory_log)
    assert len(memory_log["checks"]) == 4
    assert all(memory_log["checks"].values())
    for row in memory_log["rows"]:
        assert row["kept"] == row["predicted"]["total"]
        assert row["after_forward"] == row["after_forward_predicted"] <= row["peak"]
    assert memory_log["process"]["tiny"] == [1_005]


def test_bytes_that_do_not_grow_evenly_are_noticed():
    rows = [{"kept": n, "batch": b} for b, n in ((1, 10), (2, 20), (4, 40))]
    assert memory.is_linear(rows)
    assert not memory.is_linear([*rows, {"kept": 81, "batch": 8}])


def test_the_rise_of_a_fresh_process_is_measured():
    assert memory.rise_elsewhere("fused", True, 2) > 0


@settings(deadline=None, max_examples=15)
@given(
    *(st.integers(1, 4) for _ in range(3)), st.integers(2, 9), *[st.integers(1, 3)] * 2
)
def test_what_is_kept_is_predicted_for_any_sizes(B, T, H, V, L, dh):
    d, n = H * dh, T + 1
    config = GPTConfig(V, n, d, H, L)
    x, y = torch.randint(V, (B, T)), torch.randint(V, (B, T))
    for model, parts in (
        (GPT(V, n, d, H, L), gpt_kept_bytes(B, T, V, d, H, L)),
        (fuse(GPT(V, n, d, H, L)), gpt_kept_bytes(B, T, V, d, H, L, fused=True)),
        (TinyGPT(config), tinygpt_kept_bytes(config, B, T)),
    ):
        assert kept_for_backward(model, x, y) == parts["total"]
        alive = step_bytes(model, x, y)["after the forward pass"]
        assert alive == forward_bytes(model, parts["total"])
        assert parts.pop("total") == sum(parts.values())


def test_counting_a_step_leaves_the_weights_as_they_were():
    model = GPT(11, 6, 8, 2, 1)
    before = [p.detach().clone() for p in model.parameters()]
    step_bytes(model, *torch.zeros(2, 3, 6, dtype=torch.long).unbind())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert all(p.grad is None for p in model.parameters())


def test_a_shared_storage_counts_once_and_a_dropped_one_no_more():
    with LiveBytes([torch.zeros(5)]) as live:
        a = torch.zeros(10)
        b = a.view(2, 5).t()
        assert live.now == 40
        assert b.shape == (5, 2)
        c = a + 1
        assert live.now == 80
        del c
        assert (live.now, live.peak) == (40, 80)
    assert storage_bytes([a, b, a[:1]]) == 40


# All of them


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    texts = ("ch02/alice.txt", "tinyshakespeare/input.txt", "manifest.json")
    for path in (*texts, "reference/step6_log.json"):
        (root / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "data" / path, root / "data" / path)
    return root


def test_the_one_command_runs_all_and_writes_logs_and_a_figure(tree, capfd):
    assert umbrella.main(["--small", "--root", str(tree)]) == 0
    folder = tree / "_build" / "bench"
    for name in umbrella.BENCHMARKS:
        log = json.loads((folder / f"{name}.json").read_text("utf-8"))
        assert log["benchmark"] == name
        assert set(common.FIELDS) <= set(log)
        assert all(log["checks"].values())
    assert (folder / "ratios.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "ratios.svg").read_bytes()
    assert "machine: processor" in capfd.readouterr().out


class Ended:
    """A process that broke down, and what it said last."""

    returncode = 1

    def __init__(self, said: str) -> None:
        self.stderr = f"Traceback\n{said}\n"


def test_a_benchmark_that_breaks_down_is_named_and_leaves_no_old_log(
    tree, monkeypatch, capsys
):
    ended = Ended("ZeroDivisionError: division by zero")
    monkeypatch.setattr(umbrella.subprocess, "run", lambda *a, **k: ended)
    old = tree / "_build" / "bench" / "memory.json"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_text("{}", "utf-8")
    assert umbrella.run_all(["memory"], tree, []) == ([], 1)
    assert "memory: FAILED" in capsys.readouterr().out
    assert not old.exists()


def test_a_missing_library_is_one_line_and_no_failure(tree, monkeypatch, capsys):
    ended = Ended("ModuleNotFoundError: No module named 'fast'")
    monkeypatch.setattr(umbrella.subprocess, "run", lambda *a, **k: ended)
    assert umbrella.run_all(["memory"], tree, []) == ([], 0)
    assert "memory: left out, ModuleNotFoundError: No" in capsys.readouterr().out


def test_the_one_command_goes_on_after_a_benchmark_that_cannot_run(
    tree, monkeypatch, capsys
):
    logs = {"tokenizer": None, "memory": a_log()}
    monkeypatch.setattr(umbrella, "run", lambda name, root, flags: logs.get(name))
    assert umbrella.main(["--root", str(tree), "tokenizer", "memory"]) == 0
    logs["memory"] = None
    assert umbrella.main(["--root", str(tree), "memory"]) == 1


@pytest.mark.parametrize("words", [["nosuch"], ["--small", "--store"]])
def test_a_wrong_word_is_refused(words, capsys):
    with pytest.raises(SystemExit):
        umbrella.main(words)
    said = capsys.readouterr().err
    assert "no benchmark is called nosuch" in said or "not for the book" in said


def test_every_benchmark_has_its_place_in_the_order():
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert files - {"__init__", "__main__", "common"} == set(umbrella.BENCHMARKS)
    assert set(umbrella.BENCHMARKS) <= set(ORDER)


# The stored logs and their page


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_log_is_whole_true_and_stated_by_the_page(path):
    content = path.read_bytes()
    log = json.loads(content)
    assert set(common.FIELDS) <= set(log)
    assert log["small"] is False
    assert log["ratios"]
    assert all(log["checks"].values())
    page = (ROOT / "chapters" / "benchmarks.md").read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in page
    assert f"{len(content):_}" in page
    printed = " ".join(printed_by("benchmarks"))
    if "provisional" in log:
        assert f"PROVISIONAL, {log['provisional']}" in printed
    else:
        assert f"{log['benchmark']}: PROVISIONAL" not in printed


def test_the_page_agrees_with_its_logs_and_proves_the_bytes():
    texts = printed_by("benchmarks")
    assert not any(": False" in text for text in texts)
    assert any("the stored run had the same ids: True" in text for text in texts)
    assert any("bytes a position: 1,024" in text for text in texts)
    assert any("least, median, most: 2.82 2.93 3.10" in text for text in texts)
    assert any("64 65,536 65,536 131,072" in text for text in texts)
