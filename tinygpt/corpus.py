# Generated from chapters/setup.md by `make export`.
# Change the page, not this file.
"""Setting up: the data, and a check of your machine.

The saved code of https://example.org/tinygpt/chapters/setup.html
"""

import hashlib
import http.client
import importlib
import os
import platform
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = [
    "CORPORA",
    "PACKAGES",
    "STORED_ADDRESS",
    "data_folder",
    "device_line",
    "download_file",
    "environment_report",
    "file_places",
    "load_corpus",
    "load_file",
    "load_stored",
    "package_line",
    "try_check",
    "verify_bytes",
    "write_whole",
]

CORPORA: dict[str, dict[str, Any]] = {
    "alice": {
        "path": "ch02/alice.txt",
        "bytes": 9_368,
        "sha256": "817e632a6846aab29e6718aa54c47f5df40b6f50538e199bb224caaa8a2185a5",
        "addresses": (
            "https://raw.githubusercontent.com/example/tinygpt/main/data/ch02/alice.txt",
        ),
    },
    "tinyshakespeare": {
        "path": "tinyshakespeare/input.txt",
        "bytes": 1_115_394,
        "sha256": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        "addresses": (
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/"
            "data/tinyshakespeare/input.txt",
        ),
    },
}


def verify_bytes(content: bytes, origin: str, size: int, sha256: str) -> bytes:
    """Return ``content`` if its size and SHA-256 are the expected ones, else raise.

    Raises:
        ValueError: names ``origin`` (a path or an address), and what was found there.

    Built in Setting up: the data, and a check of your machine, section A fingerprint of
    a file: https://example.org/tinygpt/chapters/setup.html#a-fingerprint-of-a-file
    """
    found = hashlib.sha256(content).hexdigest()
    if (len(content), found) == (size, sha256):
        return content
    hint = "\n  it starts like an HTML page" if content.lstrip()[:1] == b"<" else ""
    raise ValueError(
        f"{origin} is not the file we expect:\n"
        f"  expected {size:,} bytes, SHA-256 {sha256}\n"
        f"  found {len(content):,} bytes, SHA-256 {found}{hint}"
    )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; missing folders are made.

    Built in Setting up: the data, and a check of your machine, section Writing a file
    whole or not at all:
    https://example.org/tinygpt/chapters/setup.html#writing-a-file-whole-or-not-at-all
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def file_places(wanted: dict[str, Any], start: str | Path = ".") -> list[Path]:
    """List where a file may lie, in the order in which the places are tried.

    ``data/<path>`` in ``start`` and in each folder above it, then the file itself
    beside the notebook. ``wanted`` states the file as ``CORPORA`` does.

    Built in Setting up: the data, and a check of your machine, section Where a corpus
    is looked for:
    https://example.org/tinygpt/chapters/setup.html#where-a-corpus-is-looked-for
    """
    here = Path(start).resolve()
    path = Path(wanted["path"])
    upward = [folder / "data" / path for folder in (here, *here.parents)]
    return [*upward, here / path.name]


def data_folder(start: str | Path = ".") -> Path:
    """Name the folder that keeps downloads: the book's own, or a new one here.

    Built in Setting up: the data, and a check of your machine, section Where a corpus
    is looked for:
    https://example.org/tinygpt/chapters/setup.html#where-a-corpus-is-looked-for
    """
    here = Path(start).resolve()
    for folder in (here, *here.parents):
        if os.path.isfile(folder / "data" / "manifest.json"):
            return folder / "data"
    return here / "data"


def download_file(wanted: dict[str, Any], target: Path) -> bytes:
    """Download a file, verify it, keep it as ``target``, return its bytes.

    Built in Setting up: the data, and a check of your machine, section Where a corpus
    is looked for:
    https://example.org/tinygpt/chapters/setup.html#where-a-corpus-is-looked-for
    """
    failures = ""
    for address in wanted["addresses"]:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            failures += f"\n  tried {address}: {error}"
            continue
        verify_bytes(content, address, wanted["bytes"], wanted["sha256"])
        write_whole(target, content)
        return content
    advice = f"fetch it on a machine with a network and put it at {target}"
    raise OSError(f"no copy of {wanted['path']} was found:{failures}\n  {advice}")


def load_file(wanted: dict[str, Any], start: str | Path = ".") -> bytes:
    """Return the bytes of a file whose size, hash and addresses ``wanted`` states.

    It is looked for upward from ``start``, then beside the notebook, then downloaded.

    Raises:
        ValueError: a file was found that is not the one stated.
        OSError: it is not on this machine and no address answers.

    Built in Setting up: the data, and a check of your machine, section The one function
    that everything uses:
    https://example.org/tinygpt/chapters/setup.html#the-one-function-that-everything-uses
    """
    for place in file_places(wanted, start):
        if os.path.isfile(place):
            content = place.read_bytes()
            return verify_bytes(content, str(place), wanted["bytes"], wanted["sha256"])
    return download_file(wanted, data_folder(start) / wanted["path"])


def load_corpus(name: str, start: str | Path = ".") -> str:
    """Return the text of a corpus, exactly as this book was computed with it.

    Raises:
        ValueError: for an unknown name, and for a file that is not the corpus.
        OSError: if the corpus is not on this machine and no address answers.

    Example: ``load_corpus("alice")[:5]`` is ``"Alice"``.

    Built in Setting up: the data, and a check of your machine, section The one function
    that everything uses:
    https://example.org/tinygpt/chapters/setup.html#the-one-function-that-everything-uses
    """
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; the names are {sorted(CORPORA)}")
    return load_file(CORPORA[name], start).decode("utf-8")


STORED_ADDRESS = (
    "https://raw.githubusercontent.com/example/tinygpt/main/data/reference/"
)


def load_stored(name: str, size: int, sha256: str, start: str | Path = ".") -> bytes:
    """Return a file that this book's own code made and stored, found or downloaded.

    Args:
        name: its name below ``data/reference/``.
        size: its length in bytes.
        sha256: its fingerprint, in hexadecimal digits.
        start: the folder in which to begin to look.

    Raises:
        ValueError: a file was found that is not the one stated.
        OSError: it is not on this machine and no address answers.

    Built in Setting up: the data, and a check of your machine, section The one function
    that everything uses:
    https://example.org/tinygpt/chapters/setup.html#the-one-function-that-everything-uses
    """
    wanted = {
        "path": f"reference/{name}",
        "bytes": size,
        "sha256": sha256,
        "addresses": (STORED_ADDRESS + name,),
    }
    return load_file(wanted, start)


def try_check(check: Callable[[], None]) -> None:
    """Run the check of an exercise and say in words how it went.

    Args:
        check: a function without arguments, called ``check_NAME``, that raises an
            ``AssertionError`` whose message says what to look at.

    Built in Setting up: the data, and a check of your machine, section How the
    exercises are checked:
    https://example.org/tinygpt/chapters/setup.html#how-the-exercises-are-checked
    """
    name = check.__name__.removeprefix("check_")
    try:
        check()
    except NotImplementedError:
        print(f"{name}: not yet. The function is still to be written.")
    except AssertionError as error:
        print(f"{name}: not yet. {error}")
    except Exception as error:
        print(f"{name}: not yet. It stopped with {type(error).__name__}: {error}")
    else:
        print(f"{name}: passed.")


PACKAGES: dict[str, tuple] = {"torch": (2, 4), "numpy": (), "matplotlib": ()}


def package_line(name: str, details: bool = False) -> str:
    """Say in one line whether a package can be imported and is new enough.

    Built in Setting up: the data, and a check of your machine, section A check of your
    machine: https://example.org/tinygpt/chapters/setup.html#a-check-of-your-machine
    """
    least = PACKAGES[name]
    need = f"{name} {'.'.join(map(str, least))} or newer" if least else name
    try:
        version = str(importlib.import_module(name).__version__)
        ok = tuple(int(part) for part in version.split(".")[:2]) >= least
    except Exception as error:  # a broken package may raise anything
        ok, version = False, f"{type(error).__name__}: {error}"
    line = f"[ok] {need}" if ok else f"[missing] {need}: pip install --upgrade {name}"
    return f"{line} ({version})" if details else line


def device_line() -> str:
    """Name the graphics card that PyTorch could use; to have none is no fault.

    Built in Setting up: the data, and a check of your machine, section A check of your
    machine: https://example.org/tinygpt/chapters/setup.html#a-check-of-your-machine
    """
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            return f"[ok] graphics card: {torch.cuda.get_device_name()}"
        if torch.backends.mps.is_available():
            return "[ok] graphics card: Apple, through MPS"
    except Exception:
        return "[ok] graphics card: cannot be asked without torch"
    return "[ok] graphics card: none, and none is needed"


def environment_report(details: bool = False) -> list[str]:
    """Check this machine in lines that start with ``[ok]`` or ``[missing]``.

    ``details`` adds versions and the graphics card, which differ between machines.

    Built in Setting up: the data, and a check of your machine, section A check of your
    machine: https://example.org/tinygpt/chapters/setup.html#a-check-of-your-machine
    """
    python = "[ok]" if sys.version_info >= (3, 10) else "[missing]"
    version = f" ({platform.python_version()})" if details else ""
    lines = [f"{python} Python 3.10 or newer{version}"]
    lines += [package_line(name, details) for name in PACKAGES]
    for name in CORPORA:
        try:
            lines.append(f"[ok] corpus {name}: {len(load_corpus(name)):,} characters")
        except (OSError, ValueError) as error:
            lines.append(f"[missing] corpus {name}: {error}")
    return [*lines, device_line()] if details else lines
