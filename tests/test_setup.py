"""The two commands on a fresh machine: the set-up, its repair, and the Makefile."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tools import serve, setup

ROOT = Path(__file__).resolve().parents[1]
TARGETS = [
    "setup",
    "data",
    "export",
    "notebooks",
    "book",
    "serve",
    "test",
    "lint",
    "instructor",
    "assignments",
    "grade",
    "reference",
    "experiments",
    "bench",
    "clean",
]

# A build backend that needs no package. It links the folder as an editable install,
# unless a file tells it to be killed or to find the disk full.
BACKEND = """
import os, pathlib, signal, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    here = pathlib.Path.cwd()
    if (here / "kill").exists():
        (here / "kill").unlink()
        os.killpg(os.getpgrp(), signal.SIGKILL)
    if (here / "full").exists():
        raise OSError(28, "No space left on device")
    name = "tinygpt-1.0-py3-none-any.whl"
    info = "tinygpt-1.0.dist-info/"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        wheel.writestr("tinygpt.pth", str(here))
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tinygpt\\n"
                       "Version: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\n"
                       "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def make_wheel(folder: Path) -> None:
    """A package of one line, for a lock of one line."""
    info = "locked-1.0.dist-info/"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "locked-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("locked.py", "value = 7\n")
        wheel.writestr(
            info + "METADATA", "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n"
        )
        wheel.writestr(
            info + "WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        )
        wheel.writestr(info + "RECORD", "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository, in a folder whose name has a space."""
    root = tmp_path / "a clone"
    write(root / "requirements.lock", "# one package\nlocked==1.0\n")
    write(
        root / "pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        'backend-path = ["."]\n[project]\nname = "tinygpt"\nversion = "1.0"\n',
    )
    write(root / "backend.py", BACKEND)
    write(root / "tinygpt/__init__.py", "built = True\n")
    for name in ("setup.py", "__init__.py"):
        write(root / "tools" / name, (ROOT / "tools" / name).read_text("utf-8"))
    return root


def plain_environ(tmp_path: Path) -> dict[str, str]:
    """The person's environment, without a home, a make above us, or an index."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "MAKE", "MFLAGS", "PY"))
    }
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return environ | {
        "HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": (tmp_path / "wheels").as_uri(),
        "PYTHON": sys.executable,
    }


def run_setup(
    root: Path, *options: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / "tools/setup.py"), *options],
        env=plain_environ(root.parent) | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        cwd=root.parent,
        start_new_session=True,
    )


def fake_python(path: Path, version: tuple[int, int, int], *modules: str) -> Path:
    """A program that answers as a Python of this version with these modules would."""
    answer = {
        "version": list(version),
        "base": str(path),
        "prefix": "/usr",
        "modules": list(modules),
    }
    write(path, f"#!/bin/sh\nprintf '%s\\n' '{json.dumps(answer)}'\n")
    path.chmod(0o755)
    return path


def ready_tree(root: Path) -> Path:
    """Give a tree a real environment without packages, stamped as complete."""
    venv.create(root / ".venv", with_pip=False, symlinks=True)
    python = setup.probe(str(root / ".venv/bin/python"))
    assert python is not None
    setup.write_stamp(root / ".venv", setup.fingerprint(root, python))
    return root


# Which Python


def test_setup_is_written_for_old_pythons():
    source = (ROOT / "tools/setup.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    imported = {
        node.names[0].name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= set(sys.stdlib_module_names)


def test_a_wrong_python_is_named_in_one_sentence(tree: Path):
    wrong = fake_python(tree.parent / "bin/python3", (3, 12, 1), "venv", "ensurepip")
    done = run_setup(tree, PYTHON="", PATH=f"{wrong.parent}:/nowhere")
    assert done.returncode == 1
    assert f"needs Python 3.11, found only {wrong} (3.12.1): install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tree / ".venv").exists()


def test_a_python_named_by_hand_is_judged_alone(tree: Path):
    right = fake_python(tree.parent / "bin/python3.11", (3, 11, 9), "venv", "ensurepip")
    wrong = fake_python(tree.parent / "own/python", (3, 9, 2), "venv", "ensurepip")
    done = run_setup(tree, PYTHON=str(wrong), PATH=str(right.parent))
    assert done.returncode == 1
    assert f"PYTHON={wrong} is {wrong} (3.9.2)" in done.stderr
    done = run_setup(tree, PYTHON=str(wrong.parent / "none"), PATH=str(right.parent))
    assert "is not a Python that runs" in done.stderr


def test_no_python_at_all_is_one_sentence(tree: Path):
    done = run_setup(tree, PYTHON="", PATH="/nowhere")
    assert done.returncode == 1
    assert "needs Python 3.11, found none: install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("modules", [("venv",), ("ensurepip",), ()])
def test_a_missing_venv_module_says_what_to_install(tree: Path, modules):
    fake_python(tree.parent / "bin/python3.11", (3, 11, 2), *modules)
    done = run_setup(tree, PYTHON="", PATH=str(tree.parent / "bin"))
    assert done.returncode == 1
    assert "sudo apt-get install python3.11-venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_shims_that_do_not_run_and_incomplete_pythons_are_passed_over(tmp_path: Path):
    shim = write(tmp_path / "a/python3.11", "#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    fake_python(tmp_path / "b/python3.11", (3, 11, 2), "venv")
    fake_python(tmp_path / "c/python3", (3, 13, 0), "venv", "ensurepip")
    good = fake_python(tmp_path / "d/python3", (3, 11, 9), "venv", "ensurepip")
    path = os.pathsep.join(str(tmp_path / name) for name in "abcd")
    found = setup.find_python({"PATH": path, "HOME": str(tmp_path)})
    assert found.name == str(good)


# What is there already


def test_a_complete_environment_needs_nothing(tree: Path):
    assert setup.decide(ready_tree(tree))[0] == "ready"


def test_no_environment_is_created(tree: Path):
    assert setup.decide(tree) == ("create", "there is no .venv yet")


@pytest.mark.parametrize("stamp", [None, "", '{"folder": "/x', "[]"])
def test_a_half_finished_environment_is_made_anew(tree: Path, stamp: str | None):
    ready_tree(tree)
    if stamp is None:
        (tree / ".venv/.complete").unlink()
    else:
        write(tree / ".venv/.complete", stamp)
    assert setup.decide(tree) == ("create", "its set-up was never finished")


def test_a_moved_folder_is_noticed(tree: Path):
    moved = ready_tree(tree).rename(tree.parent / "moved")
    assert setup.decide(moved) == ("create", "it was made in another folder")


def test_an_environment_whose_python_is_gone_is_made_anew(tree: Path):
    python = ready_tree(tree) / ".venv/bin/python"
    python.unlink()
    python.symlink_to(tree / "uninstalled")
    assert setup.decide(tree) == ("create", "its Python does not run")


def test_an_environment_of_another_python_is_made_anew(tree: Path):
    python = ready_tree(tree) / ".venv/bin/python"
    python.unlink()
    fake_python(python, (3, 12, 1))
    assert setup.decide(tree) == ("create", "its Python is 3.12.1")


def test_another_lock_makes_the_environment_anew(tree: Path):
    write(ready_tree(tree) / "requirements.lock", "locked==1.1\n")
    assert setup.decide(tree) == ("create", "requirements.lock has changed")


def test_another_project_file_only_renews_the_link(tree: Path):
    project = ready_tree(tree) / "pyproject.toml"
    write(project, project.read_text(encoding="utf-8") + "\n")
    assert setup.decide(tree) == ("refresh", "pyproject.toml has changed")


# The set-up itself, with a lock of one package


def test_a_failed_setup_is_finished_by_running_it_again(tree: Path):
    failed = run_setup(tree)
    assert failed.returncode == 1
    assert "No matching distribution found for locked==1.0" in failed.stderr
    assert failed.stderr.endswith("then run the same command again.\n")
    assert "Traceback" not in failed.stderr
    assert not (tree / ".venv/.complete").exists()

    make_wheel(tree.parent / "wheels")
    done = run_setup(tree)
    assert done.returncode == 0, done.stderr
    assert "its set-up was never finished" in done.stdout
    inside = [str(tree / ".venv/bin/python"), "-I", "-c"]
    code = "import locked, tinygpt; assert locked.value == 7 and tinygpt.built"
    subprocess.run([*inside, code], check=True, cwd=tree.parent)

    before = (tree / ".venv/.complete").stat().st_mtime_ns
    again = run_setup(tree)
    assert (again.returncode, again.stdout) == (0, "")
    assert (tree / ".venv/.complete").stat().st_mtime_ns == before


def test_a_killed_setup_is_finished_by_running_it_again(tree: Path):
    make_wheel(tree.parent / "wheels")
    write(tree / "kill", "")
    assert run_setup(tree).returncode == -9
    assert (tree / ".venv/bin/python").exists()
    assert not (tree / ".venv/.complete").exists()
    assert run_setup(tree, "--check").returncode == 1
    assert run_setup(tree).returncode == 0
    assert run_setup(tree, "--check").returncode == 0


def test_a_full_disk_is_called_by_its_name(tree: Path):
    make_wheel(tree.parent / "wheels")
    write(tree / "full", "")
    done = run_setup(tree)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        "The disk is full: free some space, then run the same command again."
    )


def test_the_instructors_packages_are_added_once_and_repaired(tree: Path):
    make_wheel(tree.parent / "wheels")
    write(tree / "requirements-instructor.lock", "# none\n")
    first = run_setup(tree, "--instructor")
    assert first.returncode == 1
    assert "First run 'make setup': there is no .venv yet." in first.stderr
    assert run_setup(tree).returncode == 0
    done = run_setup(tree, "--instructor")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Adding 0 packages for instructors" in done.stdout
    again = run_setup(tree, "--instructor")
    assert (again.returncode, again.stdout) == (0, "")

    write(tree / "requirements-instructor.lock", "absent==1.0\n")
    failed = run_setup(tree, "--instructor")
    assert failed.returncode == 1
    assert "No matching distribution found for absent==1.0" in failed.stderr
    write(tree / "requirements-instructor.lock", "locked==1.0\n")
    assert run_setup(tree, "--instructor").returncode == 0


# The Makefile


def make(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words],
        cwd=root,
        env=plain_environ(root.parent),
        capture_output=True,
        encoding="utf-8",
    )


@pytest.fixture
def built(tree: Path) -> Path:
    """A tree in which everything was made, long after its sources were written."""
    shutil.copy(ROOT / "Makefile", tree)
    sources = [
        "tools/pages.py",
        "tools/data.py",
        "tools/export.py",
        "tools/notebooks.py",
        "tools/book.py",
        "chapters/one.md",
        "chapters/two.md",
        "book/index.md",
        "book/_static/book.css",
        "tinygpt/one.py",
        "notebooks/one.ipynb",
        "data/corpus.txt",
        "_config.yml",
        "_toc.yml",
        "CHANGELOG.md",
    ]
    for name in sources:
        write(tree / name, "")
    for path in tree.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    ready_tree(tree)
    stamps = {
        "data": "data/corpus.txt",
        "export": "chapters/one.md chapters/two.md tinygpt/__init__.py tinygpt/one.py",
        "notebooks": "chapters/one.md chapters/two.md notebooks/one.ipynb",
        "book": "chapters/one.md chapters/two.md book/index.md book/_static/book.css "
        "notebooks/one.ipynb _config.yml _toc.yml CHANGELOG.md",
    }
    for order, (name, files) in enumerate(stamps.items()):
        stamp = write(tree / "_build/stamps" / name, "\n".join(files.split()) + "\n")
        time = (tree / ".venv/.complete").stat().st_mtime + 1 + order
        os.utime(stamp, (time, time))
    write(tree / "_build/html/index.html", "<html></html>")
    return tree


def later(path: Path) -> None:
    """As if the file had been written after everything was made."""
    time = 4_000_000_000
    write(path, "changed")
    os.utime(path, (time, time))


def test_make_alone_lists_every_target_with_a_line(tree: Path):
    shutil.copy(ROOT / "Makefile", tree)
    listed = make(tree).stdout.splitlines()
    assert listed == make(tree, "help").stdout.splitlines()
    described = {line.split()[0]: line.split()[1:] for line in listed[1:]}
    assert set(TARGETS) <= set(described)
    assert all(words for words in described.values())


@pytest.mark.parametrize("target", ["setup", "data", "export", "notebooks", "book"])
def test_nothing_changed_means_nothing_to_do(built: Path, target: str):
    done = make(built, "--dry-run", target)
    assert done.returncode == 0, done.stderr
    commands = [line for line in done.stdout.splitlines() if ".venv/bin" in line]
    assert commands == []
    assert "tools/setup.py" not in done.stdout


@pytest.mark.parametrize(
    ("changed", "target", "commands"),
    [
        ("chapters/one.md", "book", ["export", "book"]),
        ("chapters/one.md", "notebooks", ["export", "notebooks"]),
        ("book/_static/book.css", "book", ["book"]),
        ("_toc.yml", "book", ["book"]),
        ("CHANGELOG.md", "book", ["book"]),
        ("tools/book.py", "book", ["book"]),
        ("tinygpt/one.py", "book", ["export", "book"]),
        ("data/corpus.txt", "book", ["data", "book"]),
        ("tools/data.py", "data", ["data"]),
        ("notebooks/one.ipynb", "book", ["book"]),
    ],
)
def test_a_change_redoes_what_depends_on_it(
    built: Path, changed: str, target: str, commands: list[str]
):
    later(built / changed)
    done = make(built, "--dry-run", target)
    run = [line.split()[2] for line in done.stdout.splitlines() if " -m tools" in line]
    assert run == [f"tools.{name}" for name in commands], done.stderr


@pytest.mark.parametrize(
    ("removed", "command"),
    [
        ("data/corpus.txt", "tools.data"),
        ("tinygpt/one.py", "tools.export"),
        ("chapters/two.md", "tools.export"),
        ("book/index.md", "tools.book"),
        ("_build/html/index.html", "tools.book"),
        ("_build/stamps/book", "tools.book"),
    ],
)
def test_what_went_missing_is_noticed(built: Path, removed: str, command: str):
    (built / removed).unlink()
    assert f"-m {command}" in make(built, "--dry-run", "book").stdout


def test_a_new_page_is_noticed(built: Path):
    page = write(built / "book/new.md", "")
    os.utime(page, (1_000_000_000, 1_000_000_000))
    assert "-m tools.book" in make(built, "--dry-run", "book").stdout


def test_the_benchmark_brings_what_it_is_compared_with_but_once(built: Path):
    commands = make(built, "--dry-run", "bench").stdout
    asks, runs = (
        commands.index('-c "import tokenizers, transformers"'),
        commands.index("-m bench"),
    )
    assert asks < commands.index("|| .venv/bin/python -m pip install") < runs
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = [line.split("==") for line in extras["optional-dependencies"]["bench"]]
    names = [name for name, _ in pins]
    assert names == ["tokenizers", "transformers"]
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert not any(name in lock for name in names)


def test_another_lock_sets_up_again(built: Path):
    write(built / "requirements.lock", "locked==2.0\n")
    assert "tools/setup.py" in make(built, "--dry-run", "book").stdout


def test_make_repairs_an_environment_that_was_cut_short(built: Path):
    make_wheel(built.parent / "wheels")
    (built / ".venv/.complete").unlink()
    done = make(built, "setup")
    assert done.returncode == 0, done.stderr
    assert "The environment in .venv is ready." in done.stdout
    assert make(built, "--question", "setup").returncode == 0


# The full proof on a bare machine

PROOF = ["make lint", "make instructor", "make book", "make test"]


@pytest.fixture
def bare(tree: Path) -> Path:
    """A machine with a shell, make and Python 3.11, all of which only tell of calls."""
    programs = tree.parent / "programs"
    write(tree / ".ci/run", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    for name in [
        "bash",
        "sh",
        "env",
        "dirname",
        "mktemp",
        "tail",
        "rm",
        "cat",
        "touch",
        "chmod",
    ]:
        path = shutil.which(name)
        assert path is not None
        programs.mkdir(exist_ok=True)
        (programs / name).symlink_to(path)
    for name in ("make", "git", "apt-get"):
        script(programs / name, f'echo "{name} $*"')
    script(programs / "bwrap", 'exec 1>&2; echo "isolated: $*"')
    script(programs / "java", "exit 0")
    (programs / "python3.11").symlink_to(sys.executable)
    return tree


def script(path: Path, body: str) -> None:
    write(path, f"#!/bin/sh\n{body}\n").chmod(0o755)


def prove(root: Path) -> subprocess.CompletedProcess[str]:
    programs = root.parent / "programs"
    return subprocess.run(
        [str(programs / "bash"), str(root / ".ci/run")],
        env={"PATH": str(programs), "HOME": str(root.parent / "none")},
        cwd=root.parent,
        capture_output=True,
        encoding="utf-8",
    )


def test_the_proof_installs_nothing_that_is_there(bare: Path):
    script(bare.parent / "programs/chromium", "exit 0")
    done = prove(bare)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PROOF


def test_the_proof_installs_a_missing_browser(bare: Path):
    browser = bare.parent / "programs/chromium"
    script(
        bare.parent / "programs/apt-get",
        f'case "$*" in *install*chromium*) touch "{browser}"; '
        f'chmod +x "{browser}";; esac',
    )
    done = prove(bare)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Installing: chromium fonts-liberation",
        *PROOF,
    ]


def test_the_proof_demands_the_html_checker_s_java_where_it_can_be_had(bare: Path):
    programs = bare.parent / "programs"
    script(programs / "chromium", "exit 0")
    script(programs / "make", 'echo "$1 ${TINYGPT_REQUIRE_JAVA:-no}"')
    assert prove(bare).stdout.splitlines()[-1] == "test 1"
    (programs / "java").unlink()
    lines = prove(bare).stdout.splitlines()
    assert lines[0] == "Installing: default-jre-headless"
    assert lines[-1] == "test no"  # this machine's apt-get only tells of calls


@pytest.mark.parametrize("isolates", [True, False])
def test_the_proof_demands_isolation_exactly_where_it_can_be_had(bare, isolates):
    programs = bare.parent / "programs"
    script(programs / "chromium", "exit 0")
    script(programs / "make", 'echo "$1 $TINYGPT_REQUIRE_GRADER"')
    script(programs / "bwrap", f"exit {0 if isolates else 1}")
    done = prove(bare)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ("test 1" if isolates else "test ")
    assert ("cannot isolate here" in done.stdout) != isolates


def test_the_proof_without_a_browser_is_a_failure_not_a_skip(bare: Path):
    script(bare.parent / "programs/apt-get", "echo no such package; exit 100")
    done = prove(bare)
    assert done.returncode == 1
    assert "no such package" in done.stderr
    assert "the browser tests need one" in done.stderr
    assert "make" not in done.stdout


def test_the_proof_goes_on_when_apt_fails_and_a_browser_is_there(bare: Path):
    script(bare.parent / "programs/chromium", "exit 0")
    script(bare.parent / "programs/apt-get", "exit 100")
    (bare.parent / "programs/git").unlink()
    done = prove(bare)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2:] == ["make book", "make test"]


def test_the_proof_fails_when_the_tests_do(bare: Path):
    script(bare.parent / "programs/chromium", "exit 0")
    script(bare.parent / "programs/make", 'test "$1" != test')
    assert prove(bare).returncode == 1


# Serving


def test_serving_without_a_book_says_how_to_build_one(tmp_path: Path, capsys):
    assert serve.main(["--root", str(tmp_path)]) == 1
    assert "run 'make book'" in capsys.readouterr().err


def test_a_taken_port_gives_way_to_a_free_one(tmp_path: Path):
    first = serve.listen(tmp_path, 0)
    with first, serve.listen(tmp_path, first.server_port) as second:
        assert second.server_port != first.server_port
        assert second.server_address[0] == "127.0.0.1"


def test_a_browser_is_opened_only_where_there_is_a_screen():
    assert not serve.has_screen("linux", {})
    assert serve.has_screen("linux", {"DISPLAY": ":0"})
    assert serve.has_screen("darwin", {})
