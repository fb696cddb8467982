"""Compile CUDA sources with NVRTC; CuPy's cache on disk keeps the kernels."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
from cupy.cuda import nvrtc
from cupy.cuda.compiler import CompileException

from hpcmm import kernels
from hpcmm.model import DeviceError, Operation, Task, Variant

OPTIONS = ("--std=c++17", "-lineinfo")  # of every kernel; a variant's own and its constants follow
OPTIONS_OF_CUPY = ("-ftz=true",)  # that CuPy adds


def kernel_of(task: Task, function: str = "") -> cupy.RawKernel:
    """Return the compiled kernel of a task, or another function of its source."""
    kernel, module = compile_kernel(task.operation, task.variant, tuple(task.macros.items()))
    return module.get_function(function) if function else kernel


def constant_of(task: Task, name: str) -> cupy.cuda.MemoryPointer:
    """Return the address of an array in constant memory of a task's kernel."""
    return compile_kernel(task.operation, task.variant, tuple(task.macros.items()))[1].get_global(name)


@functools.cache
def compile_kernel(
    operation: Operation, variant: Variant, macros: tuple[tuple[str, Any], ...]
) -> tuple[cupy.RawKernel, cupy.RawModule]:
    """Compile a variant's source with macros; return the kernel and its module."""
    if not variant.architecture.endswith("a"):
        text, options = text_and_options(operation, variant, macros)
        try:
            module = cupy.RawModule(code=text, options=options, enable_cooperative_groups=variant.cooperative)
            function = module.get_function(operation.kernels)
            function.compile()
        except CompileException as error:
            raise DeviceError(f"NVRTC: {error}") from error
        return function, module
    # CuPy cannot compile for an architecture-specific target such as sm_90a
    path = cubin(operation, variant, macros, variant.architecture)
    module = cupy.RawModule(path=str(path), enable_cooperative_groups=variant.cooperative)
    function = module.get_function(operation.kernels)
    function.compile()  # loads the file now
    return function, module


def text_and_options(
    operation: Operation, variant: Variant, macros: tuple[tuple[str, Any], ...]
) -> tuple[str, tuple[str, ...]]:
    """Return the input of NVRTC for a variant: the text, and the options without an architecture."""
    source = kernels.source(operation, variant)
    headers = hashlib.sha256(b"".join(header.read_bytes() for header in kernels.headers(source))).hexdigest()
    options = (*OPTIONS, f"-I{kernels.FOLDER}", *(f"-D{name}={value}" for name, value in macros))
    options += variant.options
    options += (f"-DHEADERS={headers}",)  # CuPy's kernel cache is keyed by text and options, without headers
    text = source.read_text()
    if variant.path:  # errors then name the file, and its own headers are found
        text, options = f'#line 1 "{source}"\n{text}', (f"-I{source.parent}", *options)
    return text, options


def machine_code(task: Task, capability: str) -> Path:
    """Return the compiled file of a task for a compute capability; CuPy compiles with the same options."""
    architecture = task.variant.architecture or f"sm_{capability}"
    return cubin(task.operation, task.variant, tuple(task.macros.items()), architecture)


def cubin(operation: Operation, variant: Variant, macros: tuple[tuple[str, Any], ...], architecture: str) -> Path:
    """Return the compiled file of a variant in CuPy's cache folder; compile it if it is missing."""
    text, options = text_and_options(operation, variant, macros)
    options = (*options, *OPTIONS_OF_CUPY, f"-arch={architecture}")
    name = kernels.source(operation, variant).name
    key = hashlib.sha256("\0".join([text, *options, str(nvrtc.getVersion())]).encode()).hexdigest()
    path = (
        Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy/kernel_cache") / f"hpcmm-{key}.elf"
    )  # not .cubin: earlier versions wrote those without the last byte
    if path.is_file():
        return path
    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, options)
        code = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise DeviceError(f"NVRTC: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".cubin", delete=False) as file:
        file.write(code + b"\0")  # CuPy leaves out the last byte, a zero of the program headers
    Path(file.name).replace(path)  # atomic: other processes see the whole file or none
    return path


def compile_ahead(tasks: Iterable[Task], device: int, threads: int) -> None:
    """Compile the kernels of tasks in parallel.

    A kernel that does not compile raises its error later, when its task is prepared.

    Parameters
    ----------
    tasks : iterable of Task
        Baselines and Python functions are skipped.
    device : int
        Index of the GPU that the kernels are for.
    threads : int
        Threads that compile, one kernel each at a time.
    """
    distinct = {
        (task.operation.name, task.variant.name, tuple(task.macros.items())): task
        for task in (each.picked for each in tasks)
        if task.variant.compiled
    }

    def compile_one(task: Task) -> None:
        with contextlib.suppress(Exception):
            kernel_of(task).compile()

    with ThreadPoolExecutor(threads, initializer=cupy.cuda.Device(device).use) as pool:
        list(pool.map(compile_one, distinct.values()))
