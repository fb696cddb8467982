"""Load C kernels from the package's build, or compile them with the machine's C compiler."""

import ctypes
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm import kernels
from hpcmm.model import DeviceError, NotTested, Task, untimed
from hpcmm.system import files
from hpcmm.system.programs import limited

# what gcc and clang say of instructions, such as those of AVX, that no option allows
NEEDS_OPTION = re.compile(r"target specific option mismatch|requires target feature|without AVX|not enabled")
NO_HEADER = re.compile(r'cannot open source file "([^"]+)"|fatal error: (\S+): No such file')  # of NVRTC and of gcc
ADD_OPTION = "; add options: [-mavx2, -mfma] to the head, or those that the instructions need"
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-pthread")


def module_of(task: Task) -> ctypes.CDLL:
    """Load the module of a task's variant."""
    source = kernels.source(task.operation, task.variant)
    name = f"{task.operation.name}/{source.stem}-{task.dtype}"
    return load(name, source, task.macros, task.variant.options)


def load(name: str, source: Path, macros: Mapping[str, Any], options: Sequence[str] = ()) -> ctypes.CDLL:
    """Load the module ``kernels/<name>.so`` of the build; if it is missing or outdated, compile the source."""
    built = build_folder() / f"{name}.so"
    if kernels.FOLDER in source.parents and built.exists():
        module = open_module(built, source)
        if (ctypes.c_char * 64).in_dll(module, "source_sha256").value.decode() == checksum(source):
            return module
    return open_module(compile_module(source, macros, options), source)


def checksum(source: Path) -> str:
    """Return a checksum of a source and of the headers that it includes."""
    found = hashlib.sha256(source.read_bytes())
    for header in kernels.headers(source):
        found.update(header.read_bytes())
    return found.hexdigest()


@functools.cache
def build_folder() -> Path:
    """Return the folder of the modules of the build; a checkout that is not installed has none there."""
    try:
        return Path(importlib.metadata.distribution("hpcmm").locate_file("hpcmm/kernels"))
    except importlib.metadata.PackageNotFoundError:
        return kernels.FOLDER


def open_module(path: Path, source: Path) -> ctypes.CDLL:
    """Load a module; errors name ``source``."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:  # for example, an undefined symbol
        raise DeviceError(f"{source.name} cannot be loaded: {error}") from error


@functools.cache
def compiler() -> tuple[str, str]:
    """Return the command of the C compiler and its version; "" and the reason if there is none."""
    command = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or ""
    try:
        about = subprocess.run([*shlex.split(command), "--version"], capture_output=True, text=True, check=True)
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        named = os.environ.get("CC")
        return "", f"CC={named} cannot be run" if named else "there is no C compiler: install gcc, or set CC"
    return command, about.stdout.partition("\n")[0]


@functools.cache
def takes(option: str) -> bool:
    """Return whether the C compiler knows an option."""
    command = [*shlex.split(compiler()[0]), option, "-fsyntax-only", "-xc", os.devnull]
    return not run_compiler(command).returncode


@untimed
def describe() -> dict[str, Any]:
    """Return the provenance of the compilers: of the package's build, and of kernels compiled on this machine."""
    built = build_folder() / "evict.so"
    named = re.search(rb"(?:GCC: \(|clang version )[ -~]+", built.read_bytes()) if built.exists() else None
    found = {"built_by": named[0].decode() if named else "", "command": compiler()[0], "version": compiler()[1]}
    return {name: value for name, value in found.items() if value} | {"flags": " ".join(FLAGS)}


def read_by(rule: bytes) -> list[str]:
    r"""Return the files that a compiler read, which it lists as a rule for make.

    >>> read_by(b"a.o: a\\ b.c \\\n /x/c$$.h\n")
    ['a b.c', '/x/c$.h']
    """
    text = rule.decode(errors="surrogateescape").replace("\\\n", " ").partition(": ")[2]
    return [re.sub(r"\\([ #])", r"\1", each).replace("$$", "$") for each in re.findall(r"(?:\\.|\S)+", text)]


def of_contents(key: str, listed: Path) -> str:
    """Return the name of a build: its key, and a digest of the files that the compiler read for it at the last time."""
    paths = map(Path, read_by(listed.read_bytes())) if listed.exists() else ()
    contents = hashlib.sha256(b"\0".join(each.read_bytes() if each.is_file() else b"" for each in paths))
    return f"{key}-{contents.hexdigest()[:16]}"


def compile_module(source: Path, macros: Mapping[str, Any], further: Sequence[str]) -> Path:
    """Compile a source with macros and further options into the user's cache, unless it is there already."""
    command, version = compiler()
    if not command:
        raise NotTested(f"{source.name} is not compiled, and {version}")
    whole = [*command_of(source, macros, further), *libraries_of(further), "-lm"]
    content = "\0".join([source.read_text(), version, platform.machine()])
    return built(whole, content, files.cache() / f"{source.stem}.so", f"{source}: {shlex.join(whole)} failed:\n")


def command_of(
    source: Path, macros: Mapping[str, Any], further: Sequence[str], flags: Sequence[str] = FLAGS
) -> list[str]:
    """Return the command that compiles a source, to which libraries and the place of the result are added."""
    defines = (f"-D{name}={value}" for name, value in macros.items())
    return [*shlex.split(compiler()[0]), *flags, *defines, *further, f"-I{kernels.FOLDER}", str(source)]


def built(command: Sequence[str], content: str, at: Path, failed: str, text: str = "", lists: bool = True) -> Path:
    """Return the file that a compiler builds ``at`` a place, in a folder there that is named by a digest of all inputs.

    The compiler ``lists`` the files that it reads. Otherwise ``content`` has all of them. ``failed`` begins an error.
    """
    key = hashlib.sha256("\0".join([*command, content]).encode()).hexdigest()[:16]
    listed = at.with_name(f"{key}.d")
    target = at.parent / (of_contents(key, listed) if lists else key) / at.name
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=at.parent) as part:
        temporary, read = Path(part, at.name), Path(part, "read")
        listing = ["-MD", "-MF", str(read)] if lists else []
        done = run_compiler([*command, "-o", str(temporary), *listing], text)
        if done.returncode:
            more = ADD_OPTION if NEEDS_OPTION.search(done.stderr) else ""
            raise compile_error(f"{failed}{done.stderr.strip()}{more}")
        if lists:
            target = at.parent / of_contents(key, read) / at.name
            read.replace(listed)
        target.parent.mkdir(exist_ok=True)
        temporary.replace(target)  # atomic, because several processes may compile it at once
    return target


def libraries_of(options: Sequence[str]) -> list[str]:
    """Return the libraries among options: a static one must follow the source that needs it."""
    return [option for option in options if option.startswith("-l")]


def compile_error(said: str) -> DeviceError:
    """Return the error for what a compiler said; a header that this machine lacks is no mistake of a kernel."""
    missing = NO_HEADER.search(said)
    if not missing:
        return DeviceError(said)
    return NotTested(f"needs the header {missing[1] or missing[2]}, which this machine does not have")


def run_compiler(command: Sequence[str], text: str = "", seconds: float = 0) -> subprocess.CompletedProcess:
    """Run a compiler; its messages are English, as hints look for words of them."""
    return limited(command, seconds, os.environ | {"LC_ALL": "C.UTF-8", "LANGUAGE": ""}, text)
