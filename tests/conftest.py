"""What all tests share: the cores, and the one run of every stored notebook, alone."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import side_by_side
from filelock import FileLock

from tools.notebooks import HIDE, kernel_environment, locked_environment
from tools.pages import ROOT, read_site

# What a reader of one notebook does not have.
HIDDEN = ("tinygpt", "sphinx", "jupyter_book", "pytest", "nbval", "tqdm")

# Runs in the kernel before the notebook, which cannot see it: the addresses of the
# data lead to a local server, every other address is refused.
NETWORK = """\
def refuse_the_network(addresses):
    import socket
    import urllib.request

    opened = urllib.request.OpenerDirector.open
    connected = socket.socket.connect

    def open_known(self, request, data=None, *args, **options):
        url = request if isinstance(request, str) else request.full_url
        if url not in addresses:
            raise OSError(f"refused: {url} is not an address of the book's data")
        return opened(self, addresses[url], data, *args, **options)

    def connect_here(self, address):
        inside = not isinstance(address, tuple) or address[0] == "127.0.0.1"
        if not inside:
            raise OSError(f"refused: a connection to {address}")
        return connected(self, address)

    urllib.request.OpenerDirector.open = open_known
    socket.socket.connect = socket.socket.connect_ex = connect_here


refuse_the_network(ADDRESSES)
del refuse_the_network
"""

# The recorder that nbval's run loads: what each cell gave, to be compared again later.
RECORDER = """\
import json
import os

received = {}


def pytest_runtest_makereport(item, call):
    if call.when == "call":
        received[item.cell_num] = item.test_outputs


def pytest_sessionfinish():
    with open(os.environ["RECEIVED"], "w", encoding="utf-8") as file:
        json.dump(received, file)
"""


# ---- the workers ---------------------------------------------------------------------

# Each worker computes with one thread; the other cores are its neighbours'.
THREADS = "OMP_NUM_THREADS"
THREADS_OF_WORKERS = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    words = "has no neighbour while it runs: it looks at the clock, or has threads"
    config.addinivalue_line("markers", f"alone: {words}")
    ours = in_worker(config) and THREADS not in os.environ
    config.stash[THREADS_OF_WORKERS] = ours
    if ours:
        os.environ[THREADS] = "1"


def in_worker(config: pytest.Config) -> bool:
    """Is this one of several processes that share the tests?"""
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return side_by_side.workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: object
) -> side_by_side.Groups:
    config.option.loadscopereorder = False  # they come in the order that we want
    return side_by_side.Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    side_by_side.arrange(items, in_worker(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not in_worker(item.config):
        return (yield)
    alone = item.get_closest_marker("alone") is not None
    with side_by_side.neighbours(allowed=not alone):
        return (yield)


# ---- the notebooks -------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What nbval's run of one copied notebook left behind."""

    status: int
    report: str
    notebook: Path
    received: dict[str, list]


@pytest.fixture(scope="session")
def startup() -> Iterator[str]:
    """The code that makes a kernel one without package and without network."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(ROOT / "data"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    local = f"http://127.0.0.1:{server.server_port}/"
    addresses = {}
    site = read_site()
    manifest = json.loads((ROOT / "data" / "manifest.json").read_text("utf-8"))
    for path in sorted((ROOT / "data").rglob("*")):
        name = path.relative_to(ROOT / "data").as_posix()
        addresses[site.raw(f"data/{name}")] = local + name
    for corpus in manifest["corpora"]:
        for source in corpus["sources"]:
            if source.startswith("https:"):
                addresses[source] = local + corpus["path"]
    network = NETWORK.replace("ADDRESSES", repr(addresses))
    yield HIDE.format(names=HIDDEN) + network
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def standalone_run(
    startup: str, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[[Path], Run]:
    """Run a stored notebook under nbval, alone in an empty folder, once a session."""
    shared = tmp_path_factory.getbasetemp()
    if in_worker(pytestconfig):
        shared = shared.parent
    dropped = {THREADS} if pytestconfig.stash[THREADS_OF_WORKERS] else set()

    def run(stored: Path) -> Run:
        base = shared / "standalone" / stored.stem
        base.mkdir(parents=True, exist_ok=True)
        with FileLock(base / "lock"):
            result = base / "result.json"
            if not result.exists():
                said = _validate(stored, base, startup, dropped)
                result.write_text(said, encoding="utf-8")
            status, report, received = json.loads(result.read_text("utf-8"))
        return Run(status, report, base / "alone" / stored.name, received)

    return run


def _validate(stored: Path, base: Path, startup: str, dropped: set[str]) -> str:
    """One run of nbval; returns exit status, report and received outputs as JSON.

    What the workers set for themselves is ``dropped``: the run is a reader's.
    """
    alone = base / "alone"
    alone.mkdir()
    copy = Path(shutil.copy(stored, alone))
    if locked_environment():
        compare_chaotic_cells(copy)
    (base / "conftest.py").write_text(RECORDER, encoding="utf-8")
    environment = kernel_environment(base / "ipython", startup)
    environment |= {"RECEIVED": str(base / "received.json"), "PIP_NO_INDEX": "1"}
    for name in [*environment]:
        if name.startswith("PYTEST_") or name in dropped:
            del environment[name]
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env"]
    command += ["--nbval-cell-timeout=900", "-p", "no:cacheprovider", "--color=no"]
    command += ["-q", f"--rootdir={base}", f"--confcutdir={base}", copy.name]
    done = subprocess.run(
        command, cwd=alone, env=environment, text=True, capture_output=True, check=False
    )
    recorded = base / "received.json"
    received = json.loads(recorded.read_text("utf-8")) if recorded.exists() else {}
    return json.dumps([done.returncode, done.stdout + done.stderr, received])


def compare_chaotic_cells(path: Path) -> None:
    """Let nbval compare the cells whose numbers hold on the locked environment only."""
    node = nbformat.read(path, as_version=4)
    for cell in node.cells:
        tags = cell.metadata.get("tags", [])
        if "chaotic" in tags and "nbval-ignore-output" in tags:
            tags.remove("nbval-ignore-output")
    nbformat.write(node, path)
