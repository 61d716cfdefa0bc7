"""The place in which a student's code runs: a kernel that can reach nothing else.

The kernel is started by bubblewrap (Debian: ``bubblewrap``) in namespaces of its own.
It sees the system and the Python environment read-only, the folder ``data/``, and an
empty home that is gone afterwards. It has no network, and it sees neither the course
nor the submissions, nor another process. Limits on memory, on processor time and on the
size of a file are set before the first line of the student's code runs.

What this does not promise. The student's code and the checks share one process while a
check runs: code that inspects its callers there can read the check, and code that takes
the interpreter apart can pretend to pass it (``tools.submissions.suspicions`` points at
both). The kernel of the operating system is the machine's own, so that a hole in it is
a hole in this as well. Limits hold for each process: a program that starts many of them
is ended by the time limit.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

HOME = "/student"
MEBI = 2**20
PROCESSES = 4096

# Runs before the kernel: limits that cannot be raised again.
LAUNCH = """\
import json, resource, sys

for name, value in json.loads(sys.argv.pop(1)).items():
    kind = getattr(resource, name, None)
    if kind is not None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
sys.path[:] = [folder for folder in sys.path if folder]
from ipykernel.kernelapp import launch_new_instance

launch_new_instance()
"""


class SandboxError(Exception):
    """Why no isolated kernel can be had here, in a sentence for the instructor."""


@dataclass(frozen=True)
class Limits:
    """What one exercise of one student may use."""

    seconds: int = 120
    mebibytes: int = 4096
    file_mebibytes: int = 64

    @property
    def resources(self) -> dict[str, int]:
        """The limits of a process, by the name that Python's ``resource`` knows.

        RLIMIT_DATA counts what a process writes to; RLIMIT_AS would also count the
        gigabytes of address space into which PyTorch maps its libraries.
        """
        return {
            "RLIMIT_DATA": self.mebibytes * MEBI,
            "RLIMIT_FSIZE": self.file_mebibytes * MEBI,
            "RLIMIT_CPU": 2 * self.seconds + 60,
            "RLIMIT_CORE": 0,
            "RLIMIT_NPROC": PROCESSES,
        }


def environment(home: str) -> dict[str, str]:
    """All the variables that the kernel gets."""
    return {
        "HOME": home,
        "USER": "student",
        "LOGNAME": "student",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "TMPDIR": "/tmp" if home == HOME else home,
        "IPYTHONDIR": f"{home}/.ipython",
        "MPLCONFIGDIR": f"{home}/.matplotlib",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "PIP_NO_INDEX": "1",
    }


def python_folders(hidden: Path) -> list[tuple[str, str]]:
    """The folders of this Python, as (where it is, where it is to be seen)."""
    wanted = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent)]
    wanted += [
        folder
        for folder in sys.path
        if Path(folder).name in ("site-packages", "dist-packages")
    ]
    pairs: list[tuple[str, str]] = []
    for folder in wanted:
        inside = any(Path(folder).is_relative_to(seen) for _, seen in pairs)
        if folder.startswith("/usr/") or folder == "/usr" or inside:
            continue
        real = Path(folder).resolve()
        if hidden.is_relative_to(real):
            raise SandboxError(
                f"{folder} belongs to Python, but holds {hidden} as well"
            )
        if real.is_dir():
            pairs.append((str(real), folder))
    return pairs


def bubblewrap(root: Path, shared: Path, limits: Limits) -> list[str]:
    """The words that put a command into the sandbox.

    Args:
        root: the repository, of which only ``data/`` is seen.
        shared: the one folder that both sides see, for the connection.
        limits: how much the home may hold.
    """
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL", "--clearenv", "--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if Path(name).is_symlink():
            words += ["--symlink", os.readlink(name), name]
        else:
            words += ["--ro-bind-try", name, name]
    for name in ("ld.so.cache", "alternatives", "fonts", "localtime"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", HOME, *([str(root)] if root.is_relative_to("/usr") else [])):
        words += ["--size", str(4 * limits.file_mebibytes * MEBI), "--tmpfs", folder]
    for real, seen in python_folders(root):
        words += ["--ro-bind", real, seen]
    words += ["--ro-bind-try", str(root / "data"), f"{HOME}/data"]
    words += ["--bind", str(shared), str(shared), "--chdir", HOME]
    for name, value in environment(HOME).items():
        words += ["--setenv", name, value]
    return [*words, "--"]


def kernel_command(limits: Limits) -> list[str]:
    """The command that limits a process and makes it a kernel."""
    words = [sys.executable, "-c", LAUNCH, json.dumps(limits.resources)]
    return [*words, "-f", "{connection_file}", "--HistoryManager.enabled=False"]


class _OneKernel(KernelSpecManager):
    """Offers one kernel, whatever else the machine has."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self.command = command

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(argv=self.command, display_name="Python 3", language="python")


def kernel_manager(
    root: Path, folder: Path, limits: Limits, isolated: bool = True
) -> tuple[AsyncKernelManager, dict[str, str]]:
    """A manager whose kernel runs in the sandbox, and the environment to start it in.

    Args:
        root: the repository.
        folder: an empty folder with a short name; the connection's sockets lie there.
        limits: what the kernel may use.
        isolated: False starts the kernel with the limits alone.
    """
    command = kernel_command(limits)
    variables = {"PATH": os.environ.get("PATH", os.defpath)}
    if isolated:
        command = [*bubblewrap(root, folder, limits), *command]
    else:
        home = folder / "home"
        home.mkdir()
        variables = environment(str(home))
        if (root / "data").is_dir():
            (home / "data").symlink_to(root / "data")
    manager = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=_OneKernel(command),
        transport="ipc",
        connection_file=str(folder / "k.json"),
    )
    return manager, variables


@lru_cache(maxsize=1)
def available(root: Path) -> str:
    """Why kernels cannot be isolated here; empty when they can."""
    if sys.platform != "linux" or not shutil.which("bwrap"):
        return "there is no bubblewrap (Debian: sudo apt-get install bubblewrap)"
    try:
        words = bubblewrap(root, Path("/usr"), Limits())
        done = subprocess.run(
            [*words, sys.executable, "-c", "import ipykernel, socket; print('inside')"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, SandboxError) as error:
        return f"bubblewrap does not start: {error}"
    if done.stdout.strip() == "inside":
        return ""
    last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return (
        f"bubblewrap is there but cannot isolate a process: {last} (a container needs "
        "the right to make user namespaces)"
    )
