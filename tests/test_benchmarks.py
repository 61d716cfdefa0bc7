"""Benchmarks: they run, what they compare agrees, and their arithmetic is right.

Nothing here measures time. A ratio is worked out from rounds that are made up.
"""

import hashlib
import json
import shutil
import sys
from itertools import pairwise
from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_page import printed_by

import benchmarks.__main__ as umbrella
from benchmarks import ORDER, common, distributed, generation, memory, tokenizer
from benchmarks import training as runs
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
TEXTS = ("Alice", "Shakespeare")
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


# The training's


def test_a_whole_run_is_its_steps_times_the_seconds_of_one(monkeypatch):
    """Nothing is trained: what would be timed says who it is, and a made-up time."""
    order = []

    def timed(name, seconds):
        order.append(name)
        return seconds

    nano = runs.NanoGPT(**runs.NANO_SIZES)
    said = {"examinations": [{"validation": 1.5}], "bfloat16": False}
    for name, stand_in in {
        "split_text": lambda root: (torch.zeros(70), torch.zeros(70)),
        "train_nano": lambda data, steps: (nano, timed(runs.NANO, 0.5)),
        "speed_run": lambda *given, **more: (nano, said),
        "whole_text_loss": lambda model, text: 1.9,
        "reference_seconds": lambda data, steps: timed(runs.STEP_6, 2.0),
        "speed_seconds": lambda data, switches, steps: timed(runs.OURS, 1.0),
    }.items():
        monkeypatch.setattr(runs, name, stand_in)
    log = runs.measure(False, ROOT)
    forward = [runs.STEP_6, runs.NANO, runs.OURS]
    assert order[:7] == [runs.NANO, *forward, *forward[::-1]]  # trained in full first
    steps = log["steps"]
    for entry, seconds in zip(log["ratios"], (2.0, 0.5), strict=True):
        whole = steps[entry["reference"]] * seconds / steps[runs.OURS]
        assert entry["contestant"] == runs.OURS
        assert entry["rounds"] == [float(f"{whole:.4g}")] * runs.ROUNDS
    assert [entry["reference"] for entry in log["ratios"]] == forward[:2]
    assert all(log["checks"].values())
    claims = [
        check for check in log["checks"] if "reaches" in check or "below" in check
    ]
    assert len(claims) == 2
    assert not set(claims) & set(runs.measure(True, ROOT)["checks"])  # of a few steps


def test_the_public_recipe_is_causal_and_learns():
    torch.manual_seed(0)
    model = runs.NanoGPT(V=7, T=6, d=8, H=2, L=2)
    ids = torch.randint(7, (2, 6))
    changed = ids.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 7
    before, after = model(ids)[0], model(changed)[0]
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])
    trained, seconds = runs.train_nano(torch.arange(65).repeat(4), steps=12)
    text = torch.arange(65).repeat(2)[:65]
    at_random = torch.tensor(65.0).log()
    assert trained(text[None, :64], text[None, 1:])[1] < at_random
    assert seconds > 0


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


def test_the_peak_is_in_the_gradient_of_the_logits_where_the_vocabulary_is_large():
    B, T, V = 2, 16, 512
    config = GPTConfig(V, T, 16, 2, 1)
    ids, targets = torch.randint(V, (2, B, T)).unbind()
    alive = step_bytes(TinyGPT(config), ids.clone(), targets.clone())
    assert alive["peak"] - alive["after the forward pass"] == 2 * 4 * B * T * V


def test_the_simple_sum_is_no_bound_and_one_sequence_is_dearer_fused():
    """The page's sizes: too large for the GPT, too small for TinyGPT."""
    B, T, V, d, H, L = 8, 64, 65, 128, 4, 4
    model, config = GPT(V, T, d, H, L), GPTConfig(512)
    tiny = TinyGPT(config)

    def simple(model, kept):
        return 16 * sum(p.numel() for p in model.parameters()) + kept["total"]

    x, y = torch.randint(V, (B, T)), torch.randint(V, (B, T))
    kept = gpt_kept_bytes(B, T, V, d, H, L)
    assert step_bytes(model, x, y)["peak"] < simple(model, kept)
    x, y = torch.randint(512, (B, 128)), torch.randint(512, (B, 128))
    kept = tinygpt_kept_bytes(config, B, 128)
    assert step_bytes(tiny, x, y)["peak"] > simple(tiny, kept)
    for sequences, dearer in ((1, True), (B, False)):
        heads = gpt_kept_bytes(sequences, T, V, d, H, L)["total"]
        fused = gpt_kept_bytes(sequences, T, V, d, H, L, fused=True)["total"]
        assert (fused > heads) is dearer


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


def test_a_failure_that_no_check_tells_of_is_not_passed_over(tree, monkeypatch, capsys):
    """Such as one in storing the log, which comes after all that was measured."""
    path = tree / "_build" / "bench" / "memory.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    log = a_log()

    def run(*given, **more):
        path.write_text(json.dumps(log), "utf-8")
        return Ended("OSError: the disk is full")

    monkeypatch.setattr(umbrella.subprocess, "run", run)
    assert umbrella.main(["--root", str(tree), "memory"]) == 1
    assert "memory: FAILED" in (printed := capsys.readouterr().out)
    assert "the disk is full" in printed
    log["checks"]["same"] = False  # its table says this, so it is no breakdown
    assert umbrella.run_all(["memory"], tree, []) == ([log], 0)


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "no benchmark is called nosuch"),
        (["--small", "--store"], "a small run is not for the book"),
    ],
)
def test_a_wrong_word_is_refused(words, said, capsys):
    with pytest.raises(SystemExit):
        umbrella.main(words)
    assert said in capsys.readouterr().err


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


def stored(name):
    """A stored log, and its rounds by task, contestant and reference."""
    log = json.loads((REFERENCE / f"benchmarks_{name}.json").read_text("utf-8"))
    entries = log["ratios"]
    return log, {
        (e["task"], e["contestant"], e["reference"]): e["rounds"] for e in entries
    }


def test_of_training_the_page_says_what_the_log_says():
    log, rounds = stored("training")
    task, losses = "a whole run", log["losses"]
    assert min(rounds[task, runs.OURS, runs.STEP_6]) > 4  # a small part of the time
    assert losses[runs.OURS] < losses[runs.STEP_6]
    assert 2 / 3 < median(rounds[task, runs.OURS, runs.NANO]) < 3 / 2  # about as long
    assert losses[runs.OURS] < losses[runs.NANO] - 0.2  # far lower


def test_of_generation_the_page_says_what_the_log_says():
    _, rounds = stored("generation")
    ours, plain = generation.DECODER, generation.PLAIN
    alone = [taken for (task, *_), taken in rounds.items() if task == "batch 1"]
    assert all(min(taken) > 1 for taken in alone)
    assert median(rounds["batch 1", ours, plain]) > 3  # several times as fast
    leads = [median(rounds[f"batch {B}", ours, plain]) for B in generation.BATCHES]
    assert all(later < earlier for earlier, later in pairwise(leads))


def test_of_tokenizers_the_page_says_what_the_log_says():
    _, rounds = stored("tokenizer")
    plain, ours, theirs = tokenizer.PLAIN, tokenizer.OURS, tokenizer.THEIRS
    on_lines = tokenizer.THEIRS_ON_LINES
    names = {"train": ("train on lines", on_lines), "encode": ("encode", theirs)}
    for task, (against, library) in names.items():
        ahead = {name: rounds[f"{task}, {name}", ours, plain] for name in TEXTS}
        assert min(ahead["Alice"]) > 4  # by far
        assert median(ahead["Shakespeare"]) > median(ahead["Alice"])
        for name in TEXTS:
            assert max(rounds[f"{against}, {name}", ours, theirs]) < 1
            direct = rounds.get((f"{task}, {name}", library, plain))
            assert direct is None or median(direct) > median(ahead[name])
    tasks = [f"train on {n:,} bytes, Shakespeare" for n in tokenizer.PREFIXES]
    leads = [median(rounds[task, ours, theirs]) for task in tasks]
    assert all(later > earlier for earlier, later in pairwise(leads))
    assert leads[-1] > 1


def test_of_processes_the_page_says_what_the_log_says():
    _, rounds = stored("distributed")
    task, one = "a training step", distributed.ONE
    two = rounds[task, distributed.TWO, one]
    threads = rounds[task, distributed.THREADS, one]
    assert median(two) > 1.6  # near to twice
    assert all(a > b for a, b in zip(two, threads, strict=True))


def test_of_memory_the_page_says_what_the_log_says():
    log, _ = stored("memory")
    largest = {row["model"]: row for row in log["rows"]}
    for row in largest.values():
        assert row["state"] < row["peak"] / 10  # the small part
        assert row["kept"] > 3 / 4 * row["peak"]  # most of a step
    heads = largest["heads"]
    assert heads["predicted"]["attention matrices"] < heads["kept"] / 5
    spared = heads["kept"] - largest["fused"]["kept"]
    matrices = heads["predicted"]["attention matrices"]
    assert 0.9 * matrices < spared < matrices  # what takes their place is little


def test_the_page_agrees_with_its_logs_and_proves_the_bytes():
    texts = printed_by("benchmarks")
    assert not any(": False" in text for text in texts)
    assert any("the stored run had the same ids: True" in text for text in texts)
    assert any("bytes a position: 1,024" in text for text in texts)
    assert any("least, median, most: 2.82 2.93 3.10" in text for text in texts)
    assert any("64 65,536 65,536 131,072" in text for text in texts)
