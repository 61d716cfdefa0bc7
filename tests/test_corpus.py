"""The reader's side of the data: ``load_corpus`` returns the right text or nothing."""

import base64
import hashlib
import os
import socket
import subprocess
import sys

import pytest
from local_server import local_server

from tinygpt import corpus
from tinygpt.corpus import CORPORA, load_corpus
from tools.pages import ROOT, read_site

ALICE = ROOT / "data" / "ch02" / "alice.txt"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder, with no data folder above it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(monkeypatch):
    """A local server that stands in for the address of alice."""
    with local_server() as running:
        addresses = (running.address + "/alice.txt",)
        monkeypatch.setitem(CORPORA["alice"], "addresses", addresses)
        yield running


@pytest.fixture
def no_network(monkeypatch):
    """No name can be resolved, as on a machine without a network."""

    def refuse(*arguments, **named):
        raise socket.gaierror("Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_alice_is_the_text_of_the_book():
    text = load_corpus("alice", start=ROOT)
    assert (len(text), len(text.encode("utf-8")), text.count("\n")) == (9186, 9368, 37)
    assert text.startswith("Alice was beginning to get very tired")
    assert text.endswith("she could not remember ever having seen such a thing.\n")
    assert hashlib.sha256(text.encode("utf-8")).hexdigest() == (
        "817e632a6846aab29e6718aa54c47f5df40b6f50538e199bb224caaa8a2185a5"
    )


def test_tiny_shakespeare_is_the_text_of_the_book():
    text = load_corpus("tinyshakespeare", start=ROOT)
    assert len(text) == len(text.encode("utf-8")) == 1_115_394
    assert len(set(text)) == 65
    assert hashlib.sha256(text.encode("utf-8")).hexdigest() == (
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    )


@pytest.mark.usefixtures("no_network")
def test_the_corpus_is_found_upward_from_a_subfolder(folder, monkeypatch):
    put(folder / "data" / "ch02" / "alice.txt", ALICE.read_bytes())
    deep = folder / "notebooks" / "deeper"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert load_corpus("alice").encode("utf-8") == ALICE.read_bytes()


@pytest.mark.usefixtures("no_network")
def test_the_corpus_is_found_beside_the_notebook(folder):
    put(folder / "alice.txt", ALICE.read_bytes())
    assert load_corpus("alice").encode("utf-8") == ALICE.read_bytes()


def test_a_missing_corpus_is_downloaded_once(folder, server):
    server.put("/alice.txt", ALICE.read_bytes())
    assert load_corpus("alice") == load_corpus("alice")
    assert server.asked == ["/alice.txt"]
    assert files_in(folder) == [folder / "data" / "ch02" / "alice.txt"]
    assert (folder / "data" / "ch02" / "alice.txt").read_bytes() == ALICE.read_bytes()


def test_inside_the_repository_a_download_lands_in_its_data_folder(
    folder, server, monkeypatch
):
    put(folder / "data" / "manifest.json", b"{}")
    (folder / "notebooks" / "data").mkdir(parents=True)
    monkeypatch.chdir(folder / "notebooks")
    server.put("/alice.txt", ALICE.read_bytes())
    load_corpus("alice")
    assert (folder / "data" / "ch02" / "alice.txt").is_file()
    assert files_in(folder / "notebooks") == []


def test_the_next_address_is_tried_when_the_first_does_not_answer(
    folder, server, monkeypatch
):
    good = server.put("/good.txt", ALICE.read_bytes())
    addresses = (server.address + "/gone.txt", good)
    monkeypatch.setitem(CORPORA["alice"], "addresses", addresses)
    assert len(load_corpus("alice")) == 9186
    assert server.asked == ["/gone.txt", "/good.txt"]


def changed(content):
    """One byte of a text changed, its length kept."""
    return content.replace(b"A", b"a", 1)


WRONG = {
    "one byte changed": changed(ALICE.read_bytes()),
    "cut off": ALICE.read_bytes()[:-1],
    "other line ends": ALICE.read_bytes().replace(b"\n", b"\r\n"),
    "with a byte order mark": b"\xef\xbb\xbf" + ALICE.read_bytes(),
    "empty": b"",
    "an error page": b"\n <!DOCTYPE html><title>404</title>",
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_wrong_local_file_is_an_error_and_is_neither_used_nor_replaced(
    folder, server, content
):
    server.put("/alice.txt", ALICE.read_bytes())
    path = put(folder / "data" / "ch02" / "alice.txt", content)
    with pytest.raises(ValueError, match="is not the file we expect") as error:
        load_corpus("alice")
    message = str(error.value)
    assert str(path) in message
    assert f"expected 9,368 bytes, SHA-256 {CORPORA['alice']['sha256']}" in message
    found = hashlib.sha256(content).hexdigest()
    assert f"found {len(content):,} bytes, SHA-256 {found}" in message
    assert ("starts like an HTML page" in message) == (b"<!DOCTYPE" in content)
    assert path.read_bytes() == content
    assert server.asked == []


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_wrong_download_is_an_error_and_nothing_of_it_is_kept(
    folder, server, content
):
    address = server.put("/alice.txt", content)
    with pytest.raises(ValueError, match="is not the file we expect") as error:
        load_corpus("alice")
    assert str(error.value).startswith(address)
    assert ("starts like an HTML page" in str(error.value)) == (b"<!" in content)
    assert files_in(folder) == []


def test_a_download_that_breaks_off_is_an_error_and_keeps_nothing(folder, server):
    server.put("/alice.txt", ALICE.read_bytes())
    server.cut_off = True
    with pytest.raises(OSError, match="IncompleteRead"):
        load_corpus("alice")
    assert files_in(folder) == []


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", sorted(CORPORA))
def test_without_a_network_the_error_says_what_was_tried_and_what_to_do(folder, name):
    with pytest.raises(OSError, match="name resolution") as error:
        load_corpus(name)
    message = str(error.value)
    assert f"no copy of {corpus.CORPORA[name]['path']}" in message
    assert all(address in message for address in CORPORA[name]["addresses"])
    assert f"put it at {folder / 'data' / CORPORA[name]['path']}" in message
    assert files_in(folder) == []


@pytest.mark.usefixtures("no_network")
def test_the_place_that_the_error_names_is_one_where_the_corpus_is_found(folder):
    with pytest.raises(OSError, match="put it at") as error:
        load_corpus("alice")
    place = folder / str(error.value).split("put it at ")[1]
    put(place, ALICE.read_bytes())
    assert len(load_corpus("alice")) == 9186


def test_an_unknown_name_is_refused_with_the_names_that_exist(folder):
    with pytest.raises(ValueError, match=r"'hamlet'.*'alice', 'tinyshakespeare'"):
        load_corpus("hamlet")


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing_new_and_keeps_the_old(
    folder, monkeypatch, error
):
    old = put(folder / "corpus.txt", b"old")

    def fail(source, target):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(error)):
        corpus.write_whole(folder / "corpus.txt", b"new")
    with pytest.raises(type(error)):
        corpus.write_whole(folder / "new" / "corpus.txt", b"new")
    assert files_in(folder) == [old]
    assert old.read_bytes() == b"old"


def test_no_text_is_opened_without_naming_its_encoding(folder):
    put(folder / "source.b64", base64.b64encode(ALICE.read_bytes()))
    code = """
import runpy, sys
module = runpy.run_path(sys.argv[1])
with open("source.b64", encoding="ascii") as file:
    address = "data:text/plain;base64," + file.read()
module["CORPORA"]["alice"]["addresses"] = (address,)
downloaded = module["load_corpus"]("alice")
assert downloaded.count(chr(8220)) == 31
assert module["load_corpus"]("alice") == downloaded
"""
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    done = subprocess.run(
        [sys.executable, *strict, "-c", code, corpus.__file__],
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C"},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "data" / "ch02" / "alice.txt").read_bytes() == ALICE.read_bytes()


def test_the_address_of_alice_is_made_from_the_place_of_the_repository():
    alice = CORPORA["alice"]
    assert alice["addresses"] == (read_site().raw(f"data/{alice['path']}"),)


def test_the_report_of_a_complete_machine_is_the_one_on_the_page(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert corpus.environment_report() == [
        "[ok] Python 3.10 or newer",
        "[ok] torch 2.4 or newer",
        "[ok] numpy",
        "[ok] matplotlib",
        "[ok] corpus alice: 9,186 characters",
        "[ok] corpus tinyshakespeare: 1,115,394 characters",
    ]


def test_the_detailed_report_adds_versions_and_the_graphics_card(monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = corpus.environment_report(details=True)
    assert lines[0] == f"[ok] Python 3.10 or newer ({sys.version.split()[0]})"
    assert lines[-1].startswith("[ok] graphics card: ")


@pytest.mark.usefixtures("no_network")
def test_the_report_says_what_is_missing_and_what_to_do(folder, monkeypatch):
    packages = {"torch": (99, 0), "numpy": (), "no_such_package": ()}
    monkeypatch.setattr(corpus, "PACKAGES", packages)
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    lines = corpus.environment_report()
    assert lines[:4] == [
        "[missing] Python 3.10 or newer",
        "[missing] torch 99.0 or newer: pip install --upgrade torch",
        "[ok] numpy",
        "[missing] no_such_package: pip install --upgrade no_such_package",
    ]
    assert lines[4].startswith("[missing] corpus alice: no copy of ch02/alice")
    assert len(lines) == 6
