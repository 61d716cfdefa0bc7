"""What holds for every file of the repository, and for the package that it ships."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.pages import read_pages, read_site

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENVIRONMENT = PROJECT["tool"]["tinygpt"]["environment"]["requires"]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
OWN = {"tinygpt", "tools", "tests", "benchmarks"}
LOCKS = ("requirements.lock", "requirements-instructor.lock")


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    ).stdout


def repository_files() -> list[Path]:
    """Every file that is, or is about to be, in the repository."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout: cannot tell which files belong to it")
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    paths = (ROOT / name for name in names.split("\0") if name)
    return [path for path in paths if path.is_file()]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_places() -> Iterator[tuple[str, ast.Module]]:
    """Each Python file and each code cell of a page, parsed, with its name."""
    for folder in ("tools", "tests", "tinygpt", "book"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(read(path))
    for page in read_pages(ROOT):
        for cell in page.code_cells:
            yield page.where(cell), ast.parse(cell.source)


# What is generated, and what a file must not say


def test_every_generated_file_is_marked_for_the_hosts_diffs():
    generated = [
        path.relative_to(ROOT).as_posix()
        for path in repository_files()
        if path.relative_to(ROOT).parts[0] in ("tinygpt", "notebooks")
    ]
    assert generated
    answer = git("check-attr", "linguist-generated", "--", *generated)
    assert [line for line in answer.splitlines() if not line.endswith(": set")] == []


def test_text_files_are_utf8_with_plain_line_ends():
    for path in repository_files():
        data = path.read_bytes()
        if b"\0" not in data:
            data.decode("utf-8")
            assert b"\r" not in data, path
            assert not data.startswith(b"\xef\xbb\xbf"), path


BINARY = (".png", ".pt", ".safetensors", ".woff2")


def test_no_file_names_a_machine_or_a_package_registrys_host():
    hosts = "|".join(
        (r"pypi\.o[r]g", r"pythonho[s]ted", r"registry\.n[p]mjs", r"deb\.de[b]ian")
    )
    machine = r"(?<![\w.~-])/(?:r[o]ot|h[o]me|U[s]ers|w[o]rk|m[n]t)/\w"
    pattern = re.compile(f"{machine}|{hosts}")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in repository_files()
        if path.suffix not in BINARY and path.parts[-2] != "ch02"
        for number, line in enumerate(read(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_nothing_is_imported_with_a_star():
    found = [
        f"{place}: from {node.module} import *"
        for place, tree in code_places()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and any(alias.name == "*" for alias in node.names)
    ]
    assert found == []


def test_code_in_the_chapters_fits_a_page():
    found = [
        page.where(cell, number)
        for page in read_pages(ROOT)
        for cell in page.code_cells
        for number, line in enumerate(cell.source.splitlines(), 1)
        if len(line) > PROJECT["tool"]["ruff"]["line-length"] and "://" not in line
    ]
    assert found == []


def opens_text_without_encoding(node: ast.Call) -> bool:
    """Is this a call that reads or writes text in whatever the machine's encoding is?

    >>> opens_text_without_encoding(ast.parse("open('a')").body[0].value)
    True
    """
    if any(word.arg in ("encoding", None) for word in node.keywords):
        return False
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if function.attr == "read_text":
            return not node.args
        if function.attr == "write_text":
            return len(node.args) < 2
        if function.attr != "open" or owner in ("os", "webbrowser", "tarfile"):
            return False
        position = 1 if owner == "io" else 0
    elif isinstance(function, ast.Name) and function.id == "open":
        position = 1
    else:
        return False
    modes = [word.value for word in node.keywords if word.arg == "mode"]
    modes += node.args[position : position + 1]
    if not modes:
        return True
    # A first argument that is no mode is another kind of open, such as a zip file's.
    mode = modes[0].value if isinstance(modes[0], ast.Constant) else "b"
    return bool(re.fullmatch(r"[rwax+t]+", str(mode)))


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("open('a')", True),
        ("open('a', 'w')", True),
        ("open('a', mode='r+')", True),
        ("open('a', 'rb')", False),
        ("open('a', encoding='utf-8')", False),
        ("path.open()", True),
        ("path.open('wb')", False),
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("archive.open(member)", False),
        ("webbrowser.open(address)", False),
    ],
)
def test_the_search_for_unnamed_encodings_finds_them(call: str, wrong: bool):
    assert opens_text_without_encoding(ast.parse(call, mode="eval").body) is wrong


def test_every_text_file_is_opened_with_a_named_encoding():
    found = [
        f"{place}, line {node.lineno}: {ast.unparse(node)[:80]}"
        for place, tree in code_places()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and opens_text_without_encoding(node)
    ]
    assert found == []


# The locked environment


def lock(name: str = "requirements.lock") -> dict[str, Requirement]:
    lines = read(ROOT / name).splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def version(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    return Version(specifier.version)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_explains_itself_and_pins_exact_public_versions(name: str):
    lines = read(ROOT / name).splitlines()
    assert lines[0].startswith("# ")
    pins = [line for line in lines if not line.startswith("#")]
    names = [line.split("==")[0].casefold() for line in pins]
    assert names == sorted(set(names))
    exact = re.compile(r"[\w.-]+==[0-9][0-9a-z.]*(; \w+ == \"\w+\")?")
    assert [line for line in pins if not exact.fullmatch(line)] == []


def test_the_two_locks_fit_together():
    main, more = (lock(name) for name in LOCKS)
    assert str(main["torch"].specifier) == "==2.13.0"
    assert str(more["nbgrader"].specifier) == "==0.9.6"
    assert set(main) & set(more) == set()


def test_the_lock_satisfies_every_range_of_the_project():
    """What ``make bench`` compares with is no part of the locked environment."""
    extras = dict(PROJECT["project"]["optional-dependencies"])
    assert all("==" in line for line in extras.pop("bench"))
    wanted = [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(line for extra in extras.values() for line in extra),
        *ENVIRONMENT,
    ]
    for line in wanted:
        want = Requirement(line)
        pin = (lock(LOCKS[1]) | lock()).get(canonicalize_name(want.name))
        assert pin is not None, f"{line} is in no lock"
        assert want.specifier.contains(version(pin)), f"{pin} does not satisfy {line}"


def locked_closure() -> tuple[set[str], list[str]]:
    """Everything that the environment's requirements need, and what the lock lacks."""
    seen: set[tuple[str, str]] = set()
    missing = []
    todo = [(Requirement(line), "pyproject.toml") for line in ENVIRONMENT]
    while todo:
        want, by = todo.pop()
        name = canonicalize_name(want.name)
        pin = lock().get(name)
        if pin is None:
            missing.append(f"{want} (needed by {by})")
            continue
        if not want.specifier.contains(version(pin), prereleases=True):
            missing.append(f"{want} (needed by {by}, locked is {pin})")
        for extra in ("", *want.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if pin.marker is not None and not pin.marker.evaluate():
                continue
            for line in importlib.metadata.requires(name) or ():
                need = Requirement(line)
                if need.marker is None or need.marker.evaluate({"extra": extra}):
                    todo.append((need, name))
    return {name for name, _ in seen}, missing


def test_the_lock_is_complete_and_holds_nothing_that_is_not_needed():
    needed, missing = locked_closure()
    torch_parts = [line for line in missing if "needed by torch)" in line]
    assert [line for line in missing if line not in torch_parts] == []
    elsewhere = {name for name, pin in lock().items() if pin.marker is not None}
    assert set(lock()) - needed - elsewhere == set()


def test_everything_that_is_imported_is_asked_for():
    """A package must not be there only because another one happens to need it."""
    extra = PROJECT["project"]["optional-dependencies"]["instructor"]
    lines = [*ENVIRONMENT, *extra]
    asked = {canonicalize_name(Requirement(line).name) for line in lines}
    providers = importlib.metadata.packages_distributions()
    folders = (ROOT / "book/_ext", ROOT / "tests")
    local = {path.stem for folder in folders for path in folder.glob("*.py")} | OWN
    local |= {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    found = set()
    for place, tree in code_places():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in {name.split(".")[0] for name in names}:
                if name in sys.stdlib_module_names or name in local:
                    continue
                makers = {canonicalize_name(it) for it in providers.get(name, [name])}
                if not makers & asked:
                    found.add(f"{name} (of {', '.join(makers)}) in {place}")
    assert not found, "\n".join(sorted(found))


# The package


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed from a copy of the repository into an empty folder."""
    source = tmp_path_factory.mktemp("source")
    target = tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "tinygpt",
        source / "tinygpt",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    words = "install --quiet --no-deps --no-build-isolation --no-index --target"
    subprocess.run(
        [sys.executable, "-m", "pip", *words.split(), str(target), str(source)],
        check=True,
        capture_output=True,
        cwd=source,
    )
    return target


def import_outside(installed: Path, folder: Path, code: str) -> str:
    """Run code on the installed package from a folder that knows nothing of ours."""
    start = f"import sys; sys.path.insert(0, {str(installed)!r}); "
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error::SyntaxWarning", "-c", start + code],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_importing_the_installed_package_prints_nothing(installed, tmp_path):
    assert import_outside(installed, tmp_path, "import tinygpt") == ""
    assert list(tmp_path.iterdir()) == []


def test_the_installed_package_is_the_exported_one(installed, tmp_path):
    code = "import tinygpt; print(tinygpt.__file__); print(tinygpt.__version__)"
    file, number = import_outside(installed, tmp_path, code).split("\n")[:2]
    assert Path(file).parent == installed / "tinygpt"
    assert number == PROJECT["project"]["version"]


def test_every_module_imports_without_the_books_tools(installed, tmp_path):
    """Only torch, numpy and the standard library may load; nothing of the press."""
    modules = sorted(path.stem for path in (ROOT / "tinygpt").glob("[!_]*.py"))
    assert modules
    names = ", ".join(f"tinygpt.{name}" for name in modules)
    heavy = ["matplotlib", "sphinx", "IPython", "nbformat", "pytest", "tools"]
    code = f"import {names}; print([n for n in {heavy} if n in sys.modules])"
    assert import_outside(installed, tmp_path, code) == "[]\n"


def test_only_the_package_and_its_licences_are_installed(installed):
    tops = {path.name for path in installed.iterdir()}
    number = PROJECT["project"]["version"]
    assert tops == {"tinygpt", f"tinygpt-{number}.dist-info"}
    names = {path.name for path in installed.rglob("*")}
    assert {"py.typed", "LICENSE", "LICENSE-TEXT"} <= names


# What is written in several places says the same


def test_addresses_agree_with_the_one_table_that_names_them():
    site = read_site(ROOT)
    urls = PROJECT["project"]["urls"]
    assert urls["Homepage"] == site.url
    assert urls["Repository"] == site.repository
    assert urls["Issues"] == f"{site.repository}/issues"
    assert urls["Changelog"] == f"{site.repository}/blob/{site.branch}/CHANGELOG.md"
    citation = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert citation["repository-code"] == site.repository
    assert citation["url"] == site.url
    colab = re.findall(r"https://colab\S+?ipynb", read(ROOT / "README.md"))
    assert colab
    assert all(link == site.colab(Path(link).stem) for link in colab)
    assert all((ROOT / "notebooks" / Path(link).name).is_file() for link in colab)


def test_the_version_is_the_same_everywhere():
    number = PROJECT["project"]["version"]
    assert f"## [{number}]" in read(ROOT / "CHANGELOG.md")
    assert str(yaml.safe_load(read(ROOT / "CITATION.cff"))["version"]) == number


def test_licences_are_named_by_their_identifiers():
    assert PROJECT["project"]["license"] == "MIT"
    assert read(ROOT / "LICENSE").startswith("MIT License\n")
    assert "CC-BY-4.0" in read(ROOT / "LICENSE-TEXT")
    assert (
        "https://creativecommons.org/licenses/by/4.0/legalcode"
        in read(ROOT / "LICENSE-TEXT").split()
    )


# The documents and those who run the commands


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):.*## ", read(ROOT / "Makefile"), re.MULTILINE))


def fenced(text: str) -> str:
    """The code of a document: its fenced blocks and what stands between backticks."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", text)
    return "\n".join([*blocks, *spans])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_command_in_the_documents_exists(name: str):
    commands = re.findall(r"\bmake ([a-z]+)\b", fenced(read(ROOT / name)))
    assert set(commands) <= makefile_targets()


def test_the_readme_gives_the_two_commands():
    blocks = re.findall(
        r"^```sh\n(.*?)^```", read(ROOT / "README.md"), re.MULTILINE | re.DOTALL
    )
    lines = [line.split("#")[0].strip() for line in blocks[0].splitlines()]
    assert lines == ["make book", "make test"]


def test_the_full_proof_runs_the_readmes_commands_the_test_last():
    lines = read(ROOT / ".ci/run").splitlines()
    assert lines[-2:] == ["make book", "make test"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / ".ci/run")], check=True)


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("test", ["make book", "make test"]),
        ("newest-torch", ["make setup", "make book", "make test"]),
        ("publish", ["make book"]),
    ],
)
def test_the_workflows_run_the_readmes_commands(name: str, commands: list[str]):
    workflow = yaml.safe_load(read(ROOT / f".github/workflows/{name}.yml"))
    assert workflow["name"] == name
    triggers = workflow[True]  # YAML 1.1 reads the key "on" as true
    assert triggers
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    run = [step["run"] for step in steps if "run" in step]
    assert [command for command in run if command in commands] == commands
    uses = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in uses)


def slug(heading: str) -> str:
    """The anchor that the host makes from a heading."""
    plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return plain.replace(" ", "-")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_internal_links_of_the_documents_resolve(name: str):
    text = read(ROOT / name)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    targets += re.findall(r'(?:src|href)="([^"]+)"', text)
    broken = []
    for target in targets:
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = ROOT / path if path else ROOT / name
        if not file.exists():
            broken.append(target)
        elif anchor:
            headings = re.findall(r"^#+ (.+)$", read(file), re.MULTILINE)
            if anchor not in map(slug, headings):
                broken.append(target)
    assert broken == []
