"""Compile CUDA sources with NVRTC, and keep the compiled files on disk."""

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
from cuda import pathfinder
from cupy.cuda import nvrtc

from hpcmm import kernels
from hpcmm.backends.cuda import cache
from hpcmm.kernels.modules import compile_error
from hpcmm.model import DeviceError, Operation, Task, Variant

# Every kernel is compiled with these options, followed by its constants and its own options. cupy.RawKernel adds the
# last two as well, so a kernel that was written for it compiles without a change.
OPTIONS = ("--std=c++17", "-lineinfo", "-ftz=true", "--device-as-default-execution-space")
INCLUDED = ("cudart", "cccl")  # parts of the CUDA Toolkit whose headers a kernel may include


def kernel_of(task: Task, function: str = "") -> cupy.RawKernel:
    """Return the compiled kernel of a task, or another function of its source."""
    kernel, module = compile_kernel(task)
    return module.get_function(function) if function else kernel


def constant_of(task: Task, name: str) -> cupy.cuda.MemoryPointer:
    return compile_kernel(task)[1].get_global(name)


def compile_kernel(task: Task) -> tuple[cupy.RawKernel, cupy.RawModule]:
    """Compile a task's source with its macros for the current GPU; return the kernel and its module."""
    found = compiled_once(task.operation, task.variant, tuple(task.macros.items()))
    if isinstance(found, DeviceError):
        raise found
    return found


@functools.cache
def compiled_once(
    operation: Operation, variant: Variant, macros: tuple[tuple[str, Any], ...]
) -> tuple[cupy.RawKernel, cupy.RawModule] | DeviceError:
    """Return what ``compile_kernel`` returns or raises: each point would repeat a compilation that fails."""
    try:
        path = cubin(operation, variant, macros, cupy.cuda.Device().compute_capability)
    except DeviceError as error:
        return error
    module = cupy.RawModule(path=str(path), enable_cooperative_groups=variant.cooperative)
    function = module.get_function(operation.kernels)
    function.compile()  # loads the file now
    return function, module


@functools.cache
def toolkit_headers() -> tuple[str, ...]:
    """Return the options that name the folders of the headers of the CUDA Toolkit, from its wheels and the system.

    Wheels may lack headers that others include, such as crt/mma.h. CuPy may name a wheel as the toolkit; that of the
    system is then the one of nvcc.
    """
    folders = [*filter(None, map(pathfinder.find_nvidia_header_directory, INCLUDED))]
    compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    for system in filter(None, (cupy.cuda.get_cuda_path(), Path(compiler).resolve().parents[1])):
        folder = Path(system) / "include"
        if (folder / "crt").is_dir() and folder != Path("/usr/include"):  # whose headers are those of the host
            folders.append(str(folder))
    return tuple(f"-I{folder}" for folder in dict.fromkeys(folders))


def cubin(operation: Operation, variant: Variant, macros: tuple[tuple[str, Any], ...], capability: str) -> Path:
    """Return the compiled file of a variant in CuPy's cache folder; compile it if it is missing.

    A kernel for an architecture such as sm_80 is compiled for the GPU's own, one for sm_90a for that only.

    CuPy's own cache is not used: its keys do not depend on headers, it compiles an empty file for each set of options
    before it looks for a kernel, and it cannot compile for an architecture such as sm_90a.
    """
    source = kernels.source(operation, variant)
    text = source.read_text()
    given = kernels.options(variant, dict(macros))
    own = [name_of(option) for option in given]
    options = [each for each in OPTIONS if name_of(each) not in own]
    options += [f"-I{kernels.FOLDER}", *(f"-D{name}={value}" for name, value in macros)]
    architecture = variant.architecture if variant.architecture.endswith("a") else f"sm_{capability}"
    options += [*given, *toolkit_headers(), f"-arch={architecture}"]
    if variant.path:  # errors then name the file, and its own headers are found
        text, options = f'#line 1 "{source}"\n{text}', [f"-I{source.parent}", *options]
    headers = (header.read_text(errors="backslashreplace") for header in kernels.headers(source))
    key = hashlib.sha256("\0".join([text, *headers, *options, str(nvrtc.getVersion())]).encode()).hexdigest()
    path = cache.folder() / f"hpcmm-{key}.elf"  # not .cubin: earlier versions wrote those without the last byte
    with contextlib.suppress(PermissionError):  # the folder may not be searched; writing then reports it
        if path.is_file():
            return path
    program = nvrtc.createProgram(text, source.name, (), ())
    try:
        nvrtc.compileProgram(program, tuple(options))
        code = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise compile_error(f"NVRTC: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    cache.write(path, code + b"\0")  # CuPy leaves out the last byte, a zero of the program headers
    return path


def name_of(option: str) -> str:
    """Return the name of an option, to find the default that a kernel's own option replaces."""
    return option.lstrip("-").partition("=")[0]


def compile_ahead(tasks: Iterable[Task], device: int, threads: int) -> None:
    """Compile the kernels of tasks in parallel, one for each thread, for the GPU of an index."""
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
