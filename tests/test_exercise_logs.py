"""Logs that solutions read: their runs are those of the modules that make them.

One run of each log is made again, or its beginning, by the page's own functions.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from stored_page import printed_by

from tools.data import read_manifest
from tools.experiments import definitions, lecture5, lecture6, step6_decay
from tools.pages import ROOT, PageError

MODULES = (lecture5, lecture6, step6_decay)
of_each_log = pytest.mark.parametrize("module", MODULES, ids=lambda m: m.LOG)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def runs_of(module) -> dict:
    path = ROOT / "data" / "reference" / module.LOG
    return json.loads(path.read_text(encoding="utf-8"))["runs"]


def printed_table(module, start: str) -> str:
    (text,) = [text for text in printed_by(module.PAGE) if start in text]
    return text


@of_each_log
def test_the_page_states_size_and_hash_as_the_manifest_does(module):
    text = (ROOT / "chapters" / f"{module.PAGE}.md").read_text(encoding="utf-8")
    (entry,) = [e for e in read_manifest() if e["name"] == module.LOG]
    size, sha256 = f"{entry['bytes']:_}", entry["sha256"]
    assert re.search(rf'"{module.LOG}",\s+{size},\s+"{sha256}"', text)


@of_each_log
def test_the_log_has_the_runs_of_the_module_and_no_others(module):
    runs, asked = runs_of(module), module.runs(ROOT)
    assert list(runs) == list(asked)
    for name, run in runs.items():
        settings = dict(zip(ARGUMENTS[module], asked[name].args[1:], strict=True))
        assert settings.items() <= run.items(), name


ARGUMENTS = {
    lecture5: ("row", "rate", "steps", "seed"),
    lecture6: ("embedding", "factor", "seed"),
    step6_decay: ("spare", "seed"),
}


def test_lecture_5_a_run_of_the_table_is_made_again():
    page = lecture5.page_functions(ROOT)
    again = lecture5.one_run(page, "no final norm", *lecture5.TABLE, seed=1)
    stored = runs_of(lecture5)["no final norm, rate 0.01, 150 steps, seed 1"]
    assert again["held_out"] == pytest.approx(stored["held_out"], abs=5e-3)
    assert lecture5.SETTINGS[1:] == ((0.01, 1_500), (0.003, 1_500))


def test_lecture_6_a_run_begins_again_as_it_began():
    page = lecture6.page_functions(ROOT)
    again = lecture6.one_run(page, 0.02, True, 2, steps=15)["train_loss"]
    stored = runs_of(lecture6)["embeddings 0.02, with, seed 2"]["train_loss"]
    assert len(stored) == lecture6.STEPS == 200
    assert again == pytest.approx(stored[:15], abs=1e-3)


def test_step_6_a_run_begins_again_as_it_began():
    page = step6_decay.page_functions(ROOT)
    again = page["decay_trainer"](False, 1).run(until=15)["train_loss"]
    stored = runs_of(step6_decay)["decay on everything, seed 1"]
    assert len(stored["train_loss"]) == stored["steps"] == 500
    assert again == pytest.approx(stored["train_loss"][:15], abs=1e-3)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_lecture_5_prints_the_table_and_reads_it_truly():
    table = printed_table(lecture5, "worse by 0.01 everything in place")
    assert "the log's short runs are the table's within 0.02: True" in table
    at = {
        (rate, row): [
            run["held_out"]
            for run in runs_of(lecture5).values()
            if (run["row"], run["rate"], run["steps"]) == (row, rate, 1_500)
        ]
        for rate in (0.01, 0.003)
        for row in lecture5.ROWS
    }
    for losses in at.values():
        assert " ".join(f"{v:.3f}" for v in [*losses, mean(losses)]) in table
    whole, bare = (
        {rate: at[rate, row] for rate in (0.01, 0.003)}
        for row in ("everything in place", "no norm at all")
    )
    assert min(bare[0.01]) > max(whole[0.01])
    assert f"{mean(bare[0.01]) - mean(whole[0.01]):.2f}" == "0.13"
    assert min(at[0.01, "no final norm"]) < mean(bare[0.01])
    ends = [mean(bare[0.003]), mean(whole[0.003]), mean(whole[0.01])]
    assert [f"{end:.3f}" for end in ends] == ["1.995", "1.998", "1.979"]
    assert ends[0] - ends[2] < max(bare[0.003]) - min(bare[0.003])


def test_lecture_6_prints_the_table_and_reads_it_truly():
    table = printed_table(lecture6, "embeddings factor")
    assert "the first ten losses are the log's within 1e-3: True" in table
    rows = {}
    for run in runs_of(lecture6).values():
        row = rows.setdefault((run["embedding"], run["factor"]), [])
        row.append(mean(run["train_loss"][-20:]))
    for losses in rows.values():
        assert " ".join(f"{v:.3f}" for v in [*losses, mean(losses)]) in table
    spread = {key: max(losses) - min(losses) for key, losses in rows.items()}
    small = mean(rows[0.02, False]) - mean(rows[0.02, True])
    large = mean(rows[1.0, True]) - mean(rows[1.0, False])
    assert (round(small, 2), round(large, 2)) == (0.04, 0.01)
    assert spread[0.02, False] > 3 * spread[0.02, True] > 3 * small
    assert large < min(spread[1.0, True], spread[1.0, False])


def test_step_6_prints_the_table_and_reads_it_truly():
    table = printed_table(step6_decay, "decay on everything")
    assert "the first 20 losses are the log's within 1e-3: True" in table
    ends = {}
    for run in runs_of(step6_decay).values():
        ends.setdefault(run["spare"], []).append(run["validation_whole"])
    for losses in ends.values():
        assert " ".join(f"{loss:.3f}" for loss in losses) in table
        assert abs(losses[0] - losses[1]) < 0.005
    gains = [one - two for one, two in zip(ends[False], ends[True], strict=True)]
    assert all(0.003 < gain < 0.0045 for gain in gains)


def test_what_a_page_computes_is_not_computed_for_its_definitions(tmp_path: Path):
    chapters = tmp_path / "chapters"
    chapters.mkdir()
    cell = "import math\n\nn = 1 / 0\n\n\ndef half():\n    return math.floor(n / 2)\n"
    front = "---\nfile_format: mystnb\nkernelspec: {name: python3}\n---\n"
    text = f"{front}\n# A page\n\n```{{code-cell}} python\n{cell}```\n"
    (chapters / "page.md").write_text(text, encoding="utf-8")
    assert definitions(tmp_path, "page", n=9)["half"]() == 4
    with pytest.raises((FileNotFoundError, PageError)):
        definitions(tmp_path, "other")
