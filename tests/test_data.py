"""``make data``: every corpus arrives whole and right, or the command says why not."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile

import pytest
from local_server import local_server

from tinygpt.corpus import CORPORA
from tools import data
from tools.pages import ROOT, read_site

TEXT = "Ein “Text” aus zwei Zeilen.\nUnd Schluss.\n".encode()
WHEEL = "pkg:pypi/press-test-corpus@1.0#folder/input.txt"


@pytest.fixture
def server():
    with local_server() as running:
        yield running


@pytest.fixture
def tree(tmp_path):
    """A made-up repository; ``state`` writes its manifest of one corpus."""

    def state(sources, **changes):
        corpus = {
            "name": "text",
            "path": "folder/text.txt",
            "in_repository": False,
            "characters": len(TEXT.decode("utf-8")),
            "bytes": len(TEXT),
            "sha256": hashlib.sha256(TEXT).hexdigest(),
            "sources": sources,
            **changes,
        }
        (tmp_path / "data").mkdir(exist_ok=True)
        manifest = json.dumps({"corpora": [corpus]})
        (tmp_path / "data" / "manifest.json").write_text(manifest, encoding="utf-8")
        return tmp_path / "data" / "folder" / "text.txt"

    return state


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    """Let pip find packages in one folder alone; ``make`` puts a wheel there."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def make(content, member="folder/input.txt"):
        info = "press_test_corpus-1.0.dist-info"
        path = folder / "press_test_corpus-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(member, content)
            wheel.writestr("folder/__init__.py", "raise SystemExit('imported')")
            name = "Metadata-Version: 2.1\nName: press-test-corpus\nVersion: 1.0\n"
            wheel.writestr(f"{info}/METADATA", name)
            kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{info}/WHEEL", kind)
            wheel.writestr(f"{info}/RECORD", "")

    return make


@pytest.fixture
def run(tmp_path, capsys):
    def run(*arguments):
        status = data.main(["--root", str(tmp_path), *arguments])
        return status, capsys.readouterr().out

    return run


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def only_the_manifest(folder):
    return files_in(folder) == [folder / "manifest.json"]


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_a_missing_corpus_comes_from_its_first_source(tree, server, run):
    target = tree([server.put("/text", TEXT), server.put("/other", TEXT)])
    status, output = run()
    assert (status, server.asked) == (0, ["/text"])
    assert target.read_bytes() == TEXT
    assert "is right" in output
    assert server.address + "/text" in output


def test_what_is_there_and_right_is_left_alone(tree, server, run):
    target = tree([server.put("/text", TEXT)])
    put(target, TEXT)
    before = target.stat()
    status, output = run()
    assert (status, server.asked) == (0, [])
    assert len(output.splitlines()) == 1
    assert target.stat() == before


@pytest.mark.parametrize(
    "content",
    [
        TEXT.replace(b"S", b"s"),
        TEXT[:-1],
        TEXT.replace(b"\n", b"\r\n"),
        b"<!DOCTYPE html><p>Not found",
    ],
    ids=["one byte changed", "cut off", "other line ends", "an error page"],
)
def test_a_wrong_file_is_reported_and_the_next_source_is_tried(
    tree, server, run, content
):
    bad = server.put("/bad", content)
    target = tree([bad, server.put("/good", TEXT)])
    status, output = run()
    assert (status, server.asked) == (0, ["/bad", "/good"])
    assert target.read_bytes() == TEXT
    assert f"tried {bad}: {bad} is not the file we expect" in output
    assert hashlib.sha256(content).hexdigest() in output
    assert hashlib.sha256(TEXT).hexdigest() in output
    assert ("starts like an HTML page" in output) == content.startswith(b"<")


def test_when_every_source_fails_the_error_names_each_and_nothing_is_kept(
    tree, server, run, tmp_path
):
    page = server.put("/page", b"<html>Not found")
    gone = server.address + "/gone"
    target = tree([gone, page, "http://127.0.0.1:9/refused"])
    status, output = run()
    assert status == 1
    summary = output[output.index("no source delivered it") :]
    assert f"tried {gone}: HTTP Error 404" in summary
    assert f"tried {page}: {page} is not the file we expect" in summary
    assert "tried http://127.0.0.1:9/refused: " in summary
    assert f"put it at {target}" in summary
    assert only_the_manifest(tmp_path / "data")


def test_a_download_that_breaks_off_keeps_nothing(tree, server, run, tmp_path):
    server.cut_off = True
    tree([server.put("/text", TEXT)])
    status, output = run()
    assert status == 1
    assert "IncompleteRead" in output
    assert only_the_manifest(tmp_path / "data")


def test_an_interrupted_write_keeps_nothing(tree, server, run, tmp_path, monkeypatch):
    tree([server.put("/text", TEXT)])

    def interrupt(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert only_the_manifest(tmp_path / "data")


def test_a_wrong_fetched_corpus_is_replaced_by_the_right_one(tree, server, run):
    target = tree([server.put("/text", TEXT)])
    put(target, b"wrong")
    status, output = run()
    assert status == 0
    assert target.read_bytes() == TEXT
    assert f"{target} is not the file we expect" in output


def test_a_wrong_fetched_corpus_stays_until_the_right_one_is_here(tree, server, run):
    target = tree([server.address + "/gone"])
    put(target, b"wrong")
    assert run()[0] == 1
    assert target.read_bytes() == b"wrong"


@pytest.mark.parametrize("content", [b"wrong", None], ids=["wrong", "missing"])
def test_a_corpus_of_the_repository_is_an_error_and_never_fetched(
    tree, server, run, content
):
    target = tree([server.put("/text", TEXT)], in_repository=True)
    if content is not None:
        put(target, content)
    status, output = run()
    assert (status, server.asked) == (1, [])
    assert str(target) in output
    assert "git restore --source=HEAD data/folder/text.txt" in output
    assert (target.read_bytes() if target.exists() else None) == content


def test_check_fetches_nothing(tree, server, run, tmp_path):
    tree([server.put("/text", TEXT)])
    status, output = run("--check")
    assert (status, server.asked) == (1, [])
    assert "text.txt is missing" in output
    assert only_the_manifest(tmp_path / "data")


def test_a_wrong_count_of_characters_in_the_manifest_is_an_error(tree, server, run):
    target = tree([], characters=len(TEXT))
    put(target, TEXT)
    status, output = run("--check")
    assert status == 1
    assert f"has {len(TEXT.decode('utf-8'))} characters" in output
    assert f"states {len(TEXT)}" in output


def test_the_copy_inside_a_wheel_is_taken_when_the_address_fails(
    tree, server, run, wheelhouse, tmp_path
):
    wheelhouse(TEXT)
    target = tree([server.address + "/gone", WHEEL])
    status, output = run()
    assert status == 0, output
    assert target.read_bytes() == TEXT
    assert files_in(tmp_path / "data") == [target, tmp_path / "data" / "manifest.json"]


@pytest.mark.parametrize(
    ("content", "member", "complaint"),
    [
        (b"wrong", "folder/input.txt", "is not the file we expect"),
        (TEXT, "folder/other.txt", "no item named"),
    ],
    ids=["wrong content", "no such file"],
)
def test_a_wheel_without_the_right_file_is_an_error(
    tree, run, wheelhouse, tmp_path, content, member, complaint
):
    wheelhouse(content, member)
    tree([WHEEL])
    status, output = run()
    assert status == 1
    assert complaint in output
    assert only_the_manifest(tmp_path / "data")


def test_a_package_that_pip_cannot_find_is_an_error(tree, run, wheelhouse, tmp_path):
    tree([WHEEL])
    status, output = run()
    assert status == 1
    assert "pip download failed: ERROR: No matching distribution" in output
    assert only_the_manifest(tmp_path / "data")


def test_the_manifest_and_the_table_of_the_page_state_the_same():
    stated = [entry for entry in data.read_manifest() if "characters" in entry]
    manifest = {corpus["name"]: corpus for corpus in stated}
    assert manifest.keys() == CORPORA.keys()
    for name, corpus in manifest.items():
        for key in ("path", "bytes", "sha256"):
            assert corpus[key] == CORPORA[name][key], (name, key)
        addresses = [s for s in corpus["sources"] if not s.startswith("pkg:")]
        assert addresses == list(CORPORA[name]["addresses"])
        assert corpus["licence"]
        assert corpus["description"]


def test_the_manifest_states_the_published_place_of_the_repository():
    for corpus in data.read_manifest():
        if corpus["in_repository"]:
            assert corpus["sources"] == [read_site().raw(f"data/{corpus['path']}")]


def test_the_corpora_of_the_repository_are_right(capsys):
    assert data.main(["--check"]) == 0, capsys.readouterr().out


def test_git_keeps_the_line_ends_of_the_corpora_and_ignores_the_fetched_ones():
    attributes = subprocess.run(
        ["git", "check-attr", "eol", "data/ch02/alice.txt"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    if attributes.returncode:
        pytest.skip("this is not a git checkout")
    assert attributes.stdout.strip().endswith("eol: lf")
    for corpus in data.read_manifest():
        path = f"data/{corpus['path']}"
        ignored = subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT)
        assert (ignored.returncode == 0) != corpus["in_repository"], path


def test_the_tool_runs_as_a_script(tree, tmp_path):
    put(tree([]), TEXT)
    command = [sys.executable, str(ROOT / "tools" / "data.py")]
    command += ["--root", str(tmp_path), "--check"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
