"""Create ``.venv`` with the locked environment, or repair it.

Only the standard library is used, and the syntax is old on purpose (Python 3.6 reads
it): whatever ``python3`` a machine has must get far enough to say what is missing.

The environment counts as ready when ``.venv/.complete`` says so. That file is written
last, in one step, and names what it vouches for: the locked versions, the project
file, the folder and the interpreter. Whatever else is found in its place (a killed
installation, a moved folder, an interpreter that is gone) is made anew by running this
again.

``--instructor`` adds what instructors need to an environment that is ready: nbgrader
and what it needs, from ``requirements-instructor.lock``. Its own stamp,
``.venv/.instructor``, is written last as well.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import hashlib
import json
import os
import shutil
import subprocess
from collections import deque
from typing import Deque, Dict, Iterator, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[1]
INSTRUCTOR_LOCK = "requirements-instructor.lock"
WANTED = (3, 11)
AGAIN = "then run the same command again"

PROBE = """
import importlib.util, json, sys
found = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name)]
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "version": list(sys.version_info[:3]), "base": base,
    "prefix": sys.prefix, "modules": found,
}))
"""


class SetupError(Exception):
    """Why there is no environment, in a sentence for the person at the keyboard."""


class Interpreter:
    """One Python on this machine: how it was called, and what it said of itself."""

    def __init__(self, name: str, answer: Dict[str, object]) -> None:
        self.name = name
        self.version = tuple(answer["version"])  # type: ignore[arg-type]
        self.base = str(answer["base"])
        self.prefix = str(answer["prefix"])
        self.modules = list(answer["modules"])  # type: ignore[call-overload]

    @property
    def right_version(self) -> bool:
        return self.version[:2] == WANTED

    @property
    def makes_environments(self) -> bool:
        return "venv" in self.modules and "ensurepip" in self.modules

    def __str__(self) -> str:
        return "{} ({})".format(self.name, ".".join(map(str, self.version)))


def probe(command: str) -> Optional[Interpreter]:
    """Ask a Python what it is; None when it does not run (a shim without a version)."""
    try:
        answer = subprocess.run(
            [command, "-I", "-c", PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=True,
        ).stdout
        return Interpreter(command, json.loads(answer.decode("utf-8")))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def candidates(environ: Dict[str, str]) -> Iterator[str]:
    """Where Python 3.11 may be, the likeliest first. ``PYTHON`` overrides them all."""
    if environ.get("PYTHON"):
        yield environ["PYTHON"]
        return
    folders = [part for part in environ.get("PATH", "").split(os.pathsep) if part]
    for name in ("python3.11", "python3", "python"):
        for folder in folders:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                yield path
    for home in (environ.get("PYENV_ROOT"), os.path.expanduser("~/.pyenv")):
        if home:
            for path in sorted(Path(home).glob("versions/3.11*/bin/python3.11")):
                yield str(path)


def find_python(environ: Dict[str, str]) -> Interpreter:
    """The first Python 3.11 that can make environments, or a sentence that helps."""
    incomplete = None  # type: Optional[Interpreter]
    others = []  # type: List[str]
    for command in candidates(environ):
        found = probe(command)
        if found is None:
            continue
        if not found.right_version:
            others.append(str(found))
        elif found.makes_environments:
            return found
        else:
            incomplete = incomplete or found
    if incomplete is not None:
        raise SetupError(
            f"{incomplete} has no venv or ensurepip module: install it (on Debian and "
            f"Ubuntu: sudo apt-get install python3.11-venv), {AGAIN}."
        )
    if environ.get("PYTHON"):
        seen = "PYTHON={} is {}".format(
            environ["PYTHON"], others[0] if others else "not a Python that runs"
        )
    elif others:
        seen = "found only {}".format(", ".join(dict.fromkeys(others)))
    else:
        seen = "found none"
    raise SetupError(
        f"The book's environment needs Python 3.11, {seen}: install it (on Debian: "
        "sudo apt-get install python3.11 python3.11-venv; with Homebrew: brew install "
        f"python@3.11) or name it with PYTHON=/path/to/python3.11, {AGAIN}."
    )


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fingerprint(root: Path, python: Interpreter) -> Dict[str, str]:
    """What a complete environment vouches for."""
    return {
        "folder": str(root / ".venv"),
        "python": ".".join(map(str, python.version)),
        "lock": digest(root / "requirements.lock"),
        "project": digest(root / "pyproject.toml"),
    }


def read_stamp(venv: Path, name: str = ".complete") -> Dict[str, str]:
    """The stamp's contents; nothing when it is missing, cut short or not a stamp."""
    try:
        stamp = json.loads((venv / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, stamp: Dict[str, str], name: str = ".complete") -> None:
    """Write the stamp in one step: it is whole or it is not there."""
    draft = venv / (name + ".new")
    draft.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
    os.replace(str(draft), str(venv / name))


def decide(root: Path) -> Tuple[str, str]:
    """What ``.venv`` needs, and why: ``ready``, ``refresh`` or ``create``."""
    venv = root / ".venv"
    if not venv.exists():
        return "create", "there is no .venv yet"
    stamp = read_stamp(venv)
    if not stamp:
        return "create", "its set-up was never finished"
    if stamp.get("folder") != str(venv):
        return "create", "it was made in another folder"
    python = probe(str(venv_python(venv)))
    if python is None:
        return "create", "its Python does not run"
    wanted = fingerprint(root, python)
    if not python.right_version or stamp.get("python") != wanted["python"]:
        return "create", "its Python is " + ".".join(map(str, python.version))
    if stamp.get("lock") != wanted["lock"]:
        return "create", "requirements.lock has changed"
    if stamp.get("project") != wanted["project"]:
        return "refresh", "pyproject.toml has changed"
    return "ready", "nothing has changed"


def no_space(text: str) -> bool:
    return "No space left on device" in text or "[Errno 28]" in text


def run(command: List[str], what: str, tail: "Deque[str]") -> None:
    """Run a step; on a terminal its progress is one line, on failure its last lines."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    environ = dict(os.environ, PYTHONUTF8="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"):
        environ.pop(name, None)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
    ) as process:
        for raw in process.stdout or ():
            line = raw.decode("utf-8", "replace").rstrip()
            if not line:
                continue
            tail.append(line)
            if terminal:
                sys.stdout.write("\r\033[K" + line.strip()[:width])
                sys.stdout.flush()
    if terminal:
        sys.stdout.write("\r\033[K")
        sys.stdout.flush()
    if process.returncode:
        raise SetupError(explain(what, list(tail)))


def explain(what: str, lines: List[str]) -> str:
    """The last lines of a failed step, and one sentence on what to do."""
    last = "\n".join("  " + line for line in lines[-8:])
    if any(no_space(line) for line in lines):
        advice = "The disk is full: free some space"
    else:
        advice = f"{what} failed for the reason above: correct it"
    return f"{last}\n{advice}, {AGAIN}." if last else advice + "."


def count_pins(lock: Path) -> int:
    lines = lock.read_text(encoding="utf-8").splitlines()
    return sum(bool(line.strip()) and not line.startswith("#") for line in lines)


def instructor_fingerprint(root: Path) -> Dict[str, str]:
    """What an environment with the instructors' packages vouches for."""
    names = ("requirements.lock", INSTRUCTOR_LOCK)
    return {name: digest(root / name) for name in names}


def install_instructor(root: Path) -> None:
    """Add the instructors' packages to a ready environment, stamp it last."""
    venv = root / ".venv"
    wanted = instructor_fingerprint(root)
    if read_stamp(venv, ".instructor") == wanted:
        return
    lock = root / INSTRUCTOR_LOCK
    print(f"Adding {count_pins(lock)} packages for instructors ...", flush=True)
    pip = [str(venv_python(venv)), "-m", "pip", "install", "--no-input"]
    words = [
        "--requirement",
        str(lock),
        "--constraint",
        str(root / "requirements.lock"),
    ]
    run([*pip, *words], "Installing the packages", deque(maxlen=40))
    write_stamp(venv, wanted, ".instructor")
    print("The instructors' packages are ready.")


def install(root: Path, python: Interpreter, fresh: bool) -> None:
    """Make the environment (or only its link to this repository), stamp it last."""
    venv = root / ".venv"
    inside = str(venv_python(venv))
    stamp = venv / ".complete"
    if stamp.exists():
        stamp.unlink()
    pip = [inside, "-m", "pip", "install", "--no-input"]
    tail = deque(maxlen=40)  # type: Deque[str]
    if fresh:
        if venv.is_file() or (venv.is_symlink() and not venv.exists()):
            venv.unlink()
        run([python.base, "-m", "venv", "--clear", str(venv)], "Making .venv", tail)
        lock = root / "requirements.lock"
        print(f"Installing {count_pins(lock)} locked packages ...", flush=True)
        run([*pip, "--requirement", str(lock)], "Installing the packages", tail)
    print("Linking tinygpt into the environment ...", flush=True)
    link = ["--no-deps", "--no-build-isolation", "--editable", str(root)]
    run([*pip, *link], "Linking tinygpt", tail)
    found = probe(inside)
    if found is None or not found.right_version:
        raise SetupError("The new .venv has no Python 3.11 that runs; " + AGAIN + ".")
    write_stamp(venv, fingerprint(root, found))


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument(
        "--check", action="store_true", help="only say whether .venv is ready"
    )
    parser.add_argument(
        "--find", action="store_true", help="only say which Python would be used"
    )
    parser.add_argument(
        "--instructor", action="store_true", help="add the instructors' packages"
    )
    options = parser.parse_args(argv)
    root = options.root.resolve()
    try:
        if options.instructor:
            action, reason = decide(root)
            if action != "ready":
                raise SetupError(f"First run 'make setup': {reason}.")
            install_instructor(root)
            return 0
        if options.find:
            print(find_python(dict(os.environ)))
            return 0
        action, reason = decide(root)
        if options.check:
            print(f"The environment in .venv: {action} ({reason}).")
            return 0 if action == "ready" else 1
        if action == "ready":
            return 0
        python = find_python(dict(os.environ))
        verb = "Refreshing" if action == "refresh" else "Making"
        print(f"{verb} .venv with {python}: {reason}.", flush=True)
        install(root, python, fresh=action == "create")
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    except OSError as problem:
        print(explain("The set-up", [str(problem)]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted: run the same command again.", file=sys.stderr)
        return 130
    print("The environment in .venv is ready.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
