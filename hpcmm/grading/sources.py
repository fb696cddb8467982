"""Compile submitted sources, and refuse forbidden includes, options, functions and inline assembly."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm import kernels
from hpcmm.backends.emulated import launch
from hpcmm.grading.session import Refused
from hpcmm.kernels import modules
from hpcmm.model import DeviceError, HpcmmError

SHARED = {"ptx.cuh"}  # headers of the package that a solution may include
MOST_BYTES = 1_000_000  # of a file
MOST_ERROR = 2000  # characters of a compiler's message
COMPILER_KB = 4 << 20  # address space of a compiler
# What the compiled code may take from libraries: memory, mathematics, threads, a line to the null device, and what a
# compiler adds. The environment is empty.
FUNCTIONS = re.compile(
    r"(mem(cpy|set|move|cmp)(_chk)?|malloc|calloc|realloc|free|aligned_alloc|posix_memalign"
    r"|(fma|sqrt|fabs|fmin|fmax|floor|ceil|trunc|rint|exp|log|pow|nextafter)[fl]?"
    r"|pthread_(create|join|exit|self|attr_\w+|mutex_\w+|barrier_\w+|cond_\w+)|sched_yield|sysconf"
    r"|getenv|str(n?cmp|n?len|r?chr)|printf|puts|putchar|__assert_fail"
    r"|omp_\w+|GOMP_(?!target)\w+"
    r"|__cxa_finalize|__cxa_atexit|__gmon_start__|_ITM_\w+|__stack_chk_fail|__tls_get_addr|__cpu_model"
    r"|__cpu_indicator_init|__mem(cpy|set|move)_chk|abort)(@.*)?"
)
EMULATION = re.compile(
    r"(cuda_\w+|__tsan_\w+|__sanitizer_cov_trace_pc|__ubsan_\w+|__cxa_\w+|__gxx_personality_v0|_Z\w+)(@.*)?"
)
ASSEMBLY = re.compile(r"^\s*(#\s*APP\b|//\s*Start of user assembly|[#/]+\s*InlineAsm Start)", re.MULTILINE)
AT_LOAD = re.compile(r"\.(preinit_array|init_array|fini_array|ctors|dtors|init|fini)\b|gnu_indirect_function")
EXECUTABLE_STACK = re.compile(r'\.note\.GNU-stack,\s*"x')
SECTION = re.compile(r'^\s*(?:\.section\s+([^,\s]+)(?:,\s*"(\w*)")?|\.(text|data|bss)\b)', re.MULTILINE)


def check_includes(path: Path) -> None:
    """Refuse a source that includes anything but system headers, ``SHARED`` and files of its own folder.

    Raises
    ------
    Refused
    """
    waiting, seen = [path], set()
    while waiting:
        source = waiting.pop()
        seen.add(source)
        if source.stat().st_size > MOST_BYTES:
            raise Refused(f"{source.name} is too long; allowed: {MOST_BYTES} bytes")
        text = source.read_text(errors="replace").replace("\\\n", "")
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
        for given in re.findall(r"^\s*(?:#|%:)\s*(?:include|include_next|import|embed)\b(.*)$", text, re.MULTILINE):
            named = re.fullmatch(r'\s*(?:"([^"/\\]+)"|<([^<>]+)>)\s*', given)
            if not named or ".." in given or (named[2] or "").startswith("/"):
                raise Refused(f"includes {given.strip()}; allowed: system headers, ptx.cuh, files of its own folder")
            own = path.parent / (named[1] or named[2])
            if own.is_symlink():
                raise Refused(f"includes {own.name}, which is a link")
            if own.is_file():
                if own not in seen:
                    waiting.append(own)
            elif (kernels.FOLDER / (named[1] or named[2])).exists() and (named[1] or named[2]) not in SHARED:
                raise Refused(f"includes {given.strip()}, a kernel of this package")


def compiled(source: Path, macros: Mapping[str, Any], folder: Path, seconds: float) -> Path:
    """Compile a C kernel into ``folder``.

    Raises
    ------
    Refused
        If it does not compile, has inline assembly, runs code when it is loaded, or calls a forbidden function.
    HpcmmError
        If there is no C compiler.
    """
    command, _ = modules.compiler()
    if not command:
        raise HpcmmError("there is no C compiler on this machine: install gcc, or set CC")
    assembly, library = folder / f"{source.stem}.s", folder / f"{source.stem}.so"
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    run([*shlex.split(command), *modules.FLAGS, *defines, "-S", "-o", str(assembly), str(source)], seconds, source)
    text = assembly.read_text(errors="replace")
    if ASSEMBLY.search(text):
        raise Refused("has inline assembly")
    if AT_LOAD.search(text):
        raise Refused("runs code when it is loaded: a constructor or an ifunc")
    if EXECUTABLE_STACK.search(text):
        raise Refused("needs an executable stack: it takes the address of a nested function")
    if data_in_code(text):
        raise Refused("has data among its code")
    run([*shlex.split(command), *modules.FLAGS, "-o", str(library), str(assembly)], seconds, source)
    check_functions(library, FUNCTIONS.fullmatch)
    return library


def data_in_code(text: str) -> bool:
    """Return whether an assembly file puts data into an executable section: instructions that no compiler made.

    >>> data_in_code(".section .text\\n.type code, @object\\n"), data_in_code(".data\\n.type code, @object\\n")
    (True, False)
    """
    begins = [*SECTION.finditer(text)]
    ends = [*(each.start() for each in begins[1:]), len(text)]
    for begin, end in zip(begins, ends, strict=True):
        name, flags, plain = begin.groups()
        executable = plain == "text" or (name or "").startswith(".text") or "x" in (flags or "")
        if executable and re.search(r"^\s*\.type\s.*[@%]object", text[begin.end() : end], re.MULTILINE):
            return True
    return False


def of_emulation(name: str) -> re.Match | None:
    """Match the functions that a kernel for the host emulation of CUDA may call."""
    return FUNCTIONS.fullmatch(name) or EMULATION.fullmatch(name)


def check_functions(library: Path, allowed: Callable[[str], Any]) -> None:
    """Refuse a module that takes anything from other libraries but allowed functions."""
    text = run(["nm", "-D", "--undefined-only", "--format=posix", str(library)], 60, library)
    names = [line.split()[0] for line in text.splitlines()]
    if wrong := [name.partition("@")[0] for name in names if not allowed(name)]:
        listed = ", ".join(wrong[:5]) + (" and others" if len(wrong) > 5 else "")
        raise Refused(f"calls {listed}; allowed: memory and mathematical functions, POSIX threads, OpenMP")


def run(command: Sequence[str], seconds: float, source: Path) -> str:
    """Run a compiler or a tool, with limits; return its output.

    Raises
    ------
    HpcmmError
        If it is missing.
    """
    if not shutil.which(command[0]):
        raise HpcmmError(f"{command[0]} is missing on this machine: install gcc and binutils")
    limited = ["sh", "-c", f'ulimit -v {COMPILER_KB}; exec "$@"', "sh", *command]
    try:
        done = modules.run_compiler(limited, seconds=seconds)
    except subprocess.TimeoutExpired:
        raise Refused(f"took longer than {seconds:g} s to compile") from None
    if done.returncode:
        message = done.stderr.replace(f"{source.parent}/", "").strip()
        raise Refused(f"does not compile:\n{message[:MOST_ERROR]}")
    return done.stdout


def emulated(source: Path, symbol: str, macros: Mapping[str, Any], seconds: float) -> Path:
    """Compile a CUDA kernel for the host emulation into the user's cache, unless it is there already.

    Raises
    ------
    Refused
        If it does not compile, or calls a function that is not for GPUs.
    HpcmmError
        If there is no C++ compiler.
    """
    if not launch.COMPILER:
        raise HpcmmError("there is neither a GPU nor g++ on this machine: install g++ to emulate CUDA kernels")
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    try:
        library = launch.compile_library(source, symbol, defines, modules.cache(), seconds)
    except DeviceError as error:
        raise Refused(f"does not compile: {str(error).replace(f'{source.parent}/', '')[:MOST_ERROR]}") from None
    check_functions(library, of_emulation)
    return library
